"""Sound and broken image files of every format: each is read or refused for one reason, and nothing else happens."""

import io
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pydicom import dcmread

import acpl
from acpl.data.check import check_source
from acpl.data.decode import FORMATS
from acpl.data.files import ImageFiles
from acpl.data.limits import Limits
from acpl.data.sources import SourceOptions, find_source
from acpl.errors import UserError
from tests.hostile.breaking import cuts, resized
from tests.hostile.corpus import (
    HEIGHT,
    WIDTH,
    bombs,
    dicom,
    encoded,
    in_zlib,
    largest,
    noise,
    png,
    slow_jpeg,
    sound,
    written,
    zeros,
)
from tests.hostile.probe import Probe, probing

MUCH = 1_500_000_000
"""Bytes that no process may have held after the whole corpus."""


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Probe]:
    with probing(tmp_path_factory.mktemp("probe")) as probe:
        yield probe


def test_the_corpus_has_every_format_that_is_read() -> None:
    first_words = {name.split()[0] for name in sound()}
    assert {"JPEG2000" if word in ("jp2", "j2k") else word.upper() for word in first_words} >= {*FORMATS, "DICOM"}


@pytest.mark.parametrize("name", sound())
def test_a_sound_file_is_read_in_every_way(name: str, probe: Probe) -> None:
    assert [answer.reason for answer in probe(sound()[name])] == ["", "", ""]


@pytest.mark.slow
@pytest.mark.parametrize("name", sound())
def test_a_file_that_ends_too_early_is_read_or_refused_in_one_line(name: str, probe: Probe) -> None:
    whole = sound()[name]
    beginnings = list(cuts(whole))
    assert len(beginnings) > 15
    refused = 0
    for content in beginnings:
        answers = probe(content)
        assert not any(answer.died for answer in answers), len(content)
        assert all("\n" not in answer.reason for answer in answers)
        refused += bool(answers[0].reason)
    assert refused > len(beginnings) / 2  # what is cut in the last bytes of padding may still show


@pytest.mark.slow
@pytest.mark.parametrize("name", sound())
def test_a_header_that_lies_about_the_size_is_survived(name: str, probe: Probe) -> None:
    for content in resized(sound()[name], WIDTH, HEIGHT):
        for answer in probe(content):
            assert not answer.died
            assert answer.memory < MUCH


@pytest.mark.parametrize("name", bombs())
def test_a_bomb_does_not_go_off(name: str, probe: Probe) -> None:
    content, reason = bombs()[name]
    answer = probe(content, ways=1)[0]
    assert reason in answer.reason
    assert bool(answer.reason) == bool(reason)
    assert not answer.died
    assert answer.memory < MUCH
    assert answer.seconds < Limits().seconds / 4


@pytest.mark.slow
def test_the_largest_picture_that_is_read_takes_less_memory_than_a_file_may(probe: Probe) -> None:
    answer = probe(largest(), ways=1)[0]
    assert answer.reason == ""
    assert answer.memory < MUCH


ANIMATED = {"save_all": True, "append_images": [Image.fromarray(noise(3))]}
BROKEN = {
    "no pixels wide": (png(0, 5, in_zlib(zeros(1), 1)), ""),
    "no pixels high": (b"P5 5 0 255\n", ""),
    "not a number": (encoded(Image.fromarray(np.full((4, 4), np.nan, np.float32)), "TIFF"), "not numbers"),
    "endless": (encoded(Image.fromarray(np.full((4, 4), -np.inf, np.float32)), "TIFF"), "not numbers"),
    "not a number in a PFM": (b"Pf\n1 1\n-1.0\n" + struct.pack("<f", np.nan), "not numbers"),
    "animated PNG": (encoded(Image.fromarray(noise(3) // 2), "PNG", **ANIMATED), "several frames"),
    "animated WebP": (encoded(Image.fromarray(noise(3) // 2), "WEBP", **ANIMATED), "several frames"),
    "animated GIF": (encoded(Image.fromarray(noise(3) // 2), "GIF", **ANIMATED), "several frames"),
    "TIFF of two pages": (encoded(Image.fromarray(noise(3) // 2), "TIFF", **ANIMATED), "several frames"),
    "a script": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(x) run\n", "not an image"),
    "a vector drawing": (b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>', "not an image"),
    "a page": (b"<html><script>alert(1)</script></html>", "not an image"),
    "DICOM of no rows": (written(dicom(noise(1), Rows=0)), "how many rows"),
    "DICOM of more rows than there are": (written(dicom(noise(1), Rows=HEIGHT + 1)), "truncated"),
    "DICOM of a million frames": (written(dicom(noise(1), NumberOfFrames=1_000_000)), "1000000 frames"),
    "DICOM with a scale beyond numbers": (
        written(dicom(noise(1, np.uint16), RescaleSlope="1e308", RescaleIntercept="-1e308")),
        "numbers",
    ),
    "DICOM that moves the terminal": (
        written(dicom(noise(1), PhotometricInterpretation="X1B2J")).replace(b"X1B2J", b"\x1b[2J\x07"),
        "\\x1b[2J\\x07",
    ),
    "DICOM of letters that do not show": (  # found by an hour of fuzzing
        written(dicom(noise(1), PhotometricInterpretation="X1B2J")).replace(b"X1B2J", b"a\xadb\xadc"),
        "a\\xadb\\xadc",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_broken_in_its_own_way_is_refused_for_that(name: str, probe: Probe) -> None:
    content, reason = BROKEN[name]
    answer = probe(content)[0]
    assert answer.reason
    assert reason in answer.reason
    assert answer.reason.isprintable()
    assert not answer.died


def test_dicom_without_pixels_is_refused(probe: Probe) -> None:
    dataset = dicom(noise(1))
    del dataset.PixelData, dataset.Rows, dataset.Columns
    assert "without pixels (modality OT)" in probe(written(dataset))[0].reason


@pytest.mark.parametrize("length", [0, 2, 200, 2**32 - 1, 2**31, 2**32 - 2])
def test_dicom_whose_pixels_have_a_wrong_length_is_refused_unless_they_are_all_there(length: int, probe: Probe) -> None:
    content = bytearray(written(dicom(noise(1))))
    struct.pack_into("<I", content, content.index(b"\xe0\x7f\x10\x00") + 8, length)
    answers = probe(bytes(content))
    assert bool(answers[0].reason) == (length not in (2**31, 2**32 - 2))
    assert not any(answer.died for answer in answers)


@pytest.mark.parametrize("name", ["dicom jpeg", "dicom jpeg2000", "dicom shipped MR_small_jpeg_ls_lossless"])
def test_dicom_with_a_picture_of_another_size_inside_is_refused(name: str, probe: Probe) -> None:
    dataset = dcmread(io.BytesIO(sound()[name]))
    dataset.Rows += 8
    assert "the picture inside has" in probe(written(dataset))[0].reason


class TestLimits:
    @pytest.mark.slow
    def test_a_file_that_takes_too_long_is_named_and_the_others_are_read(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("ACPL_FILE_SECONDS", "1.5")
        (tmp_path / "slow.jpg").write_bytes(slow_jpeg())
        for name in ("a.png", "b.png"):
            (tmp_path / name).write_bytes(sound()["png colour"])
        (tmp_path / "labels.csv").write_text("image,finding\na.png,0\nslow.jpg,1\nb.png,1\n")
        options = SourceOptions(data=str(tmp_path / "labels.csv"), size=32, cache=tmp_path / "cache", colour="rgb")
        with pytest.raises(UserError) as refused:
            find_source(options).open(("train", "validation", "test"))
        (line,) = (line for line in str(refused.value).splitlines() if "slow.jpg" in line)
        assert "could not be read within 1.5 seconds" in line
        assert "1 of 3 images" in str(refused.value)

    def test_a_file_that_takes_too_much_memory_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ACPL_FILE_GB", "0.1")
        content = png(16_000, 10_000, in_zlib(zeros(160), 160))
        with probing(tmp_path) as probe:
            answer = probe(content, ways=1)[0]
            assert "memory" in answer.reason
            assert answer.memory < 200_000_000
            assert probe(sound()["png grey"], ways=1)[0].reason == ""

    @pytest.mark.slow
    def test_the_check_names_them_too(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ACPL_FILE_SECONDS", "1.5")
        (tmp_path / "slow.jpg").write_bytes(slow_jpeg())
        (tmp_path / "a.png").write_bytes(sound()["png colour"])
        (tmp_path / "labels.csv").write_text("image,finding\na.png,0\nslow.jpg,1\n")
        findings = check_source(find_source(SourceOptions(data=str(tmp_path / "labels.csv")))).findings
        (finding,) = (finding for finding in findings if finding.kind == "bad-file")
        assert [item["image"] for item in finding.items] == ["slow.jpg"]

    @pytest.mark.slow
    def test_prediction_names_them_and_predicts_the_rest(
        self, chest_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("ACPL_FILE_SECONDS", "1.5")
        (tmp_path / "slow.jpg").write_bytes(slow_jpeg())
        (tmp_path / "a.png").write_bytes(sound()["png grey"])
        table, bad = acpl.predict(chest_run, [tmp_path], device="cpu")
        assert list(table["id"]) == [str(tmp_path / "a.png")]
        assert [(Path(file.name).name, "within 1.5 seconds" in file.reason) for file in bad] == [("slow.jpg", True)]

    @pytest.mark.parametrize("words", ["soon", "0", "-1", "nan", "inf"])
    def test_a_limit_that_is_no_number_is_refused(self, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ACPL_FILE_SECONDS", words)
        with pytest.raises(UserError, match="ACPL_FILE_SECONDS should be a number above 0"):
            Limits.chosen()


@pytest.mark.parametrize("name", ["a\x1b[2Jb.png", "a\nb.png", "a\u202egnp.exe.png"])
def test_a_name_that_would_move_the_terminal_is_refused_and_shown_harmlessly(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    for part in ("x", "y"):
        (folder / part).mkdir(parents=True)
        (folder / part / "sound.png").write_bytes(sound()["png grey"])
    (folder / "x" / name).write_bytes(sound()["png grey"])
    assert f"x/{name}" in ImageFiles.open(folder).names()
    findings = check_source(find_source(SourceOptions(data=str(folder)))).findings
    (bad,) = (finding for finding in findings if finding.kind == "bad-file")
    assert [item["image"].isprintable() for item in bad.items] == [True]
    with pytest.raises(UserError) as refused:
        find_source(SourceOptions(data=str(folder), size=32, cache=tmp_path)).open(("train", "validation", "test"))
    (line,) = (line for line in str(refused.value).splitlines() if "control characters" in line)
    assert line.isprintable()

"""What `data check` finds, each finding provoked on its own."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tests.data.tars import tarred
from tests.hostile.corpus import dicom, written

from acpl.data import workers
from acpl.data.check import CheckResult, check_source, check_table
from acpl.data.check.images import ImageFacts, image_findings, measure_sizes
from acpl.data.manifest import Manifest
from acpl.data.sources import SourceOptions, find_source
from acpl.task import Task

PACKS = os.environ.get("ACPL_DATA")
real_packs = pytest.mark.skipif(PACKS is None, reason="ACPL_DATA does not name the folder of the real image packs")
NAN = float("nan")


def table_of(
    labels: Sequence[Sequence[float]],
    parts: Sequence[str],
    groups: Sequence[str] | None = None,
    task: Task = Task.MULTI_LABEL,
) -> Manifest:
    names = [f"{row}.png" for row in range(len(labels))]
    table = pd.DataFrame({"image": names, "group": groups or names, "part": list(parts)})
    values = np.array(labels, dtype=np.float32)
    return Manifest(task, tuple("ABCDEFG"[: values.shape[1]]), table, values)


def healthy(count: int = 20) -> Manifest:
    """Three parts, two classes with ten and more positives and negatives in each."""
    rows = [[row % 2, 1 - row % 2] for row in range(count)]
    return table_of(rows * 3, ["train"] * count + ["validation"] * count + ["test"] * count, task=Task.MULTI_CLASS)


def seen(pictures: str, **changes: Any) -> ImageFacts:
    """Facts of readable 100 x 100 images that show what these letters stand for."""
    count = len(pictures)
    facts: dict[str, Any] = {
        "reason": np.full(count, "", dtype=object),
        "file": np.array([f"file {row}" for row in range(count)], dtype=object),
        "picture": np.array(list(pictures), dtype=object),
        "width": np.full(count, 100),
        "height": np.full(count, 100),
        "blank": np.zeros(count, dtype=bool),
    }
    return ImageFacts(**(facts | changes))


def kinds(result: CheckResult) -> dict[str, str]:
    return {finding.kind: finding.severity for finding in result.findings}


def test_a_healthy_table_has_no_finding() -> None:
    result = check_table(healthy())
    assert result.findings == []
    assert not result.spoils
    assert result.together is None


def test_a_row_counts_as_labelled_when_none_of_its_labels_is_blank() -> None:
    manifest = table_of([[1, 0], [1, NAN], [NAN, NAN], [0, 1]], ["train"] * 3 + ["test"], groups=["a", "a", "b", "c"])
    result = check_table(manifest)
    train = result.parts["train"]
    assert (train.images, train.groups, train.labelled, train.unlabelled) == (3, 2, 1, 2)
    assert train.positives == {"A": 1, "B": 0}
    assert kinds(result)["label-partly-blank"] == "note"


def test_classes_that_occur_together_are_counted_over_labelled_rows() -> None:
    manifest = table_of([[1, 1, 0], [1, 1, 1], [1, NAN, 1], [0, 0, 0]], ["train"] * 4)
    assert check_table(manifest).together == [[2, 2, 1], [2, 2, 1], [1, 1, 1]]


def test_a_group_on_two_sides_is_named_with_its_sides() -> None:
    manifest = table_of([[0], [1], [0], [1]], ["train", "test", "train", "test"], groups=["p", "p", "q", "r"])
    (finding,) = (f for f in check_table(manifest).findings if f.kind == "group-on-two-sides")
    assert finding.severity == "spoils"
    assert finding.items == [{"group": "p", "parts": "train and test", "train": 1, "test": 1}]
    assert "1 in train and test" in finding.says


def test_a_multi_class_row_needs_exactly_one_class() -> None:
    rows = [[1, 0], [0, 0], [1, 1], [NAN, NAN], [0, 1]]
    (finding,) = (
        f for f in check_table(table_of(rows, ["train"] * 5, task=Task.MULTI_CLASS)).findings if "task" in f.kind
    )
    assert [(item["image"], item["classes"]) for item in finding.items] == [("1.png", "none"), ("2.png", "A, B")]
    assert not [f for f in check_table(table_of(rows, ["train"] * 5)).findings if "task" in f.kind]


@pytest.mark.parametrize(("slips", "noted"), [(0, False), (2, True), (3, False)])
def test_a_multi_label_table_that_is_nearly_multi_class_is_noted(slips: int, noted: bool) -> None:
    rows = [[1, 0], [0, 1]] * 50 + [[1, 1]] * slips
    found = {f.kind: f for f in check_table(table_of(rows, ["train"] * len(rows))).findings}
    assert ("label-against-task" in found) == noted
    if noted:
        assert found["label-against-task"].severity == "note"
        assert [item["image"] for item in found["label-against-task"].items] == ["100.png", "101.png"]


@pytest.mark.parametrize(("part", "severity"), [("train", "spoils"), ("validation", "note"), ("test", "spoils")])
@pytest.mark.parametrize("value", [0, 1])
def test_a_class_with_one_value_spoils_training_and_judging(part: str, severity: str, value: int) -> None:
    manifest = healthy()
    labels = manifest.labels.copy()
    labels[(manifest.table["part"] == part).to_numpy(), 0] = value
    result = check_table(Manifest(Task.MULTI_LABEL, manifest.classes, manifest.table, labels))
    (finding,) = (f for f in result.findings if f.kind == "class-with-one-value")
    assert finding.severity == severity
    assert finding.items == [{"class": "A", "part": part, "positive": 20 * value, "negative": 20 - 20 * value}]


def test_few_positives_are_a_note() -> None:
    result = check_table(healthy(18))
    assert kinds(result) == {"class-with-few-positives": "note"}
    assert not result.spoils


@pytest.mark.parametrize(("part", "severity"), [("train", "spoils"), ("validation", "note"), ("test", "spoils")])
def test_a_part_that_is_not_there_or_has_no_label_is_said(part: str, severity: str) -> None:
    manifest = healthy()
    there = (manifest.table["part"] != part).to_numpy()
    gone = Manifest(manifest.task, manifest.classes, manifest.table[there], manifest.labels[there])
    assert kinds(check_table(gone)) == {"part-lacking": severity}
    bare = manifest.labels.copy()
    bare[~there] = np.nan
    found = kinds(check_table(Manifest(manifest.task, manifest.classes, manifest.table, bare)))
    assert found.pop("part-lacking") == severity
    assert set(found) <= {"unlabelled-outside-train"}


def test_every_bad_file_is_named_once_with_its_reason() -> None:
    facts = seen("ab" * 30, reason=np.array(["", "missing"] * 30, dtype=object))
    (bad, *_) = image_findings(healthy(), facts)
    assert bad.severity == "spoils"
    assert [item["image"] for item in bad.items] == [f"{row}.png" for row in range(1, 60, 2)]
    assert {item["reason"] for item in bad.items} == {"missing"}


def test_duplicates_are_told_apart_by_what_they_spoil() -> None:
    labels = [[1, 0], [1, 0], [1, 0], [0, 1], [1, 0], [1, 0], [1, 0], [NAN, NAN]]
    parts = ["train", "train", "train", "train", "train", "test", "train", "train"]
    found = {f.kind: f for f in image_findings(table_of(labels, parts), seen("aabbccdd"))}
    assert {kind: [item["images"] for item in f.items] for kind, f in found.items()} == {
        "duplicate-across-parts": [["4.png", "5.png"]],
        "duplicate-against-label": [["2.png", "3.png"]],
        "duplicate": [["0.png", "1.png"], ["6.png", "7.png"]],
    }
    assert {kind: f.severity for kind, f in found.items()} == {
        "duplicate-across-parts": "spoils",
        "duplicate-against-label": "spoils",
        "duplicate": "note",
    }
    assert found["duplicate-against-label"].items[0]["labels"] == ["A", "B"]
    assert found["duplicate"].items[1]["labels"] == ["A", "unlabelled"]


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["train", "test"]), st.sampled_from([0, 1, NAN]))))
def test_duplicates_agree_with_looking_at_every_pair(rows: list[tuple[str, str, float]]) -> None:
    if not rows:
        return
    manifest = table_of([[label] for _, _, label in rows], [part for _, part, _ in rows])
    found = {f.kind: f.items for f in image_findings(manifest, seen("".join(digest for digest, _, _ in rows)))}
    pairs = [(a, b) for a, b in combinations(range(len(rows)), 2) if rows[a][0] == rows[b][0]]
    across = {rows[a][0] for a, b in pairs if rows[a][1] != rows[b][1]}
    against = {rows[a][0] for a, b in pairs if {rows[a][2], rows[b][2]} == {0, 1}}
    plain = {rows[a][0] for a, _ in pairs} - across - against
    for kind, expected in (
        ("duplicate-across-parts", across),
        ("duplicate-against-label", against),
        ("duplicate", plain),
    ):
        sets = [item["images"] for item in found.get(kind, [])]
        alike = {digest: [f"{row}.png" for row, r in enumerate(rows) if r[0] == digest] for digest in expected}
        assert sorted(sets) == sorted(alike.values())


def test_blank_images_are_blank_and_not_duplicates() -> None:
    facts = seen("a" * 60, blank=np.ones(60, dtype=bool))
    assert [(f.kind, f.severity, len(f.items)) for f in image_findings(healthy(), facts)] == [("blank", "note", 60)]


def test_odd_sizes_are_measured_against_the_median() -> None:
    width, height = np.full(60, 200), np.full(60, 150)
    width[1], height[2], height[4] = 600, 15, 299
    width[3], height[3] = 1000, 750
    facts = seen("".join(map(chr, range(200, 260))), width=width, height=height)
    (finding,) = image_findings(healthy(), facts)
    assert finding.severity == "note"
    assert {item["image"]: item["size"] for item in finding.items} == {
        "1.png": "600 × 150",
        "2.png": "200 × 15",
        "3.png": "1000 × 750",
    }
    assert [item["why"].split()[0] for item in finding.items] == ["shape", "a", "size"]
    sizes = measure_sizes(facts)
    assert sizes is not None
    assert (sizes.median, sizes.smallest, sizes.largest, sizes.different) == ((200, 150), (200, 15), (1000, 750), 5)


def test_sizes_of_nothing_are_none() -> None:
    assert measure_sizes(seen("ab", reason=np.array(["missing"] * 2, dtype=object))) is None


def write_pictures(folder: Path) -> Path:
    """A table of 130 small pictures: one missing, one truncated, one re-saved in another format, one copy."""
    rng = np.random.default_rng(0)
    rows = ["image,patient,split,finding"]
    for number in range(130):
        part = ("train", "val", "test")[number % 3]
        rows.append(f"{number}.png,p{number},{part},{number // 3 % 2}")
        Image.fromarray(rng.integers(0, 256, (20, 30), dtype=np.uint8)).save(folder / f"{number}.png")
    (folder / "0.png").unlink()
    (folder / "1.png").write_bytes((folder / "1.png").read_bytes()[:300])
    (folder / "6.png").write_bytes((folder / "9.png").read_bytes())
    Image.open(folder / "12.png").save(folder / "again.bmp")
    rows.append("again.bmp,p12,test,0")
    Image.new("L", (30, 20), 7).save(folder / "nobody.png")
    (folder / "labels.csv").write_text("\n".join(rows))
    return folder / "labels.csv"


def test_files_are_read_once_each_and_everything_is_told(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    source = find_source(SourceOptions(data=str(write_pictures(tmp_path))))
    result = check_source(source, progress=lambda *step: told.append(step))
    found = {finding.kind: finding.items for finding in result.findings}
    assert [item["image"] for item in found["bad-file"]] == ["0.png", "1.png"]
    assert found["duplicate-across-parts"] == [
        {
            "images": ["12.png", "again.bmp"],
            "parts": ["train", "test"],
            "labels": ["none", "none"],
            "alike": "same picture",
        }
    ]
    assert found["duplicate-against-label"][0]["images"] == ["6.png", "9.png"]
    assert found["duplicate-against-label"][0]["alike"] == "same file"
    assert found["file-without-row"] == [{"file": "nobody.png"}]
    assert found["group-on-two-sides"][0]["group"] == "p12"
    assert result.sizes is not None
    assert (result.sizes.median, result.sizes.different) == ((30, 20), 1)
    assert told[-1] == ("reading", 130, 130)
    assert result.spoils
    assert json.loads(json.dumps(result.as_dict()))["parts"]["train"]["images"] == result.parts["train"].images


def write_scans(folder: Path, patients: Sequence[str], *, column: bool = False) -> SourceOptions:
    """A DICOM file for each of these numbers of patients, every third one for test."""
    rng = np.random.default_rng(0)
    rows = ["image,split,finding" + ",patient" * column]
    for row, number in enumerate(patients):
        scan = dicom(rng.integers(0, 256, (20, 30), dtype=np.uint8))
        scan.PatientID, _, scan.IssuerOfPatientID = number.partition("@")
        (folder / f"{row}.dcm").write_bytes(written(scan))
        rows.append(f"{row}.dcm,{'test' if row % 3 == 2 else 'train'},{row % 2}" + f",own {row}" * column)
    (folder / "labels.csv").write_text("\n".join(rows))
    return SourceOptions(data=str(folder / "labels.csv"), validation=0)


def of_patients(options: SourceOptions) -> list[tuple[str, str, list[list[str]]]]:
    found = [finding for finding in check_source(find_source(options)).findings if "patient" in finding.kind]
    return [(finding.kind, finding.severity, [item["images"] for item in finding.items]) for finding in found]


class TestPatientsInDicomFiles:
    def test_on_two_sides_are_found_where_the_table_names_none(self, tmp_path: Path) -> None:
        options = write_scans(tmp_path, ["a", "b", "a", "c", "b", "d"])
        assert of_patients(options) == [("patient-on-two-sides", "spoils", [["0.dcm", "2.dcm"]])]

    def test_with_several_images_on_one_side_are_a_note(self, tmp_path: Path) -> None:
        options = write_scans(tmp_path, ["a", "a", "b", "c", "d", "e"])
        assert of_patients(options) == [("patient-without-group", "note", [["0.dcm", "1.dcm"]])]

    def test_are_left_to_the_table_where_it_names_them(self, tmp_path: Path) -> None:
        assert of_patients(write_scans(tmp_path, ["a", "b", "a", "c", "b", "d"], column=True)) == []

    def test_are_not_two_images_of_other_hospitals_with_one_number(self, tmp_path: Path) -> None:
        assert of_patients(write_scans(tmp_path, ["7@north", "8@north", "7@south", "9@south"])) == []

    @pytest.mark.parametrize("nobody", ["", "ANONYMOUS", "0", "N/A"])
    def test_whose_numbers_were_taken_out_are_nobody(self, tmp_path: Path, nobody: str) -> None:
        assert of_patients(write_scans(tmp_path, ["a", "b", "c", nobody, nobody, nobody])) == []

    def test_who_all_have_one_number_are_nobody(self, tmp_path: Path) -> None:
        assert of_patients(write_scans(tmp_path, ["STUDY-1"] * 6)) == []

    def test_are_found_in_shards_too(self, tmp_path: Path) -> None:
        write_scans(tmp_path, ["a", "b", "a", "c", "b", "d"])
        members = [(f"{row}.dcm", (tmp_path / f"{row}.dcm").read_bytes()) for row in range(6)]
        (tmp_path / "scans.tar").write_bytes(tarred(members))
        options = SourceOptions(
            data=str(tmp_path / "labels.csv"),
            images=str(tmp_path / "scans.tar"),
            cache=tmp_path / "cache",
            validation=0,
        )
        assert of_patients(options) == [("patient-on-two-sides", "spoils", [["0.dcm", "2.dcm"]])]

    def test_are_not_named(self, tmp_path: Path) -> None:
        options = write_scans(tmp_path, ["secret-7", "b", "secret-7", "c"])
        assert "secret" not in json.dumps(check_source(find_source(options)).as_dict())


def test_a_file_that_crashes_its_process_is_named_and_the_rest_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashing = (
        "import sys; sys.path[:] = sys.argv[1:]\n"
        "import os\n"
        "from acpl.data.check import scan\n"
        "from acpl.data.workers import serve\n"
        "real = scan.look_at\n"
        "scan.look_at = lambda files, name: os._exit(1) if name == '50.png' else real(files, name)\n"
        "serve()"
    )
    source = find_source(SourceOptions(data=str(write_pictures(tmp_path))))
    untroubled = {finding.kind: finding.items for finding in check_source(source).findings}
    monkeypatch.setattr(workers, "START", crashing)
    told: list[tuple[str, int, int]] = []
    found = {f.kind: f.items for f in check_source(source, progress=lambda *step: told.append(step)).findings}
    bad = found.pop("bad-file")
    assert [item["image"] for item in bad] == ["0.png", "1.png", "50.png"]
    assert bad[2]["reason"] == "it crashed the process that decoded it"
    assert told[-1] == ("reading", 130, 130)
    del untroubled["bad-file"]
    assert found == untroubled


def test_processes_that_look_do_not_import_torch() -> None:
    code = "import sys, acpl.data.check.scan; print('torch' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"


@pytest.mark.parametrize("name", ["phantom-chest", "phantom-lesions"])
def test_phantoms_have_sound_images(name: str) -> None:
    result = check_source(find_source(SourceOptions(data=name, patients=60, size=32)))
    assert not {"bad-file", "blank", "odd-size", "group-on-two-sides"} & set(kinds(result))
    assert not [kind for kind in kinds(result) if kind.startswith("duplicate")]
    assert result.sizes is not None
    assert result.sizes.median == (32, 32)


@real_packs
def test_the_lesions_of_ham10000_that_cross_its_split_are_found() -> None:
    pack = Path(PACKS or "") / "ham10000"
    source = find_source(SourceOptions(data=str(pack / "labels.csv"), images=pack / "images.zip"))
    result = check_table(source.manifest())
    assert kinds(result) == {"group-on-two-sides": "spoils"}
    sides = sorted(item["parts"] for item in result.findings[0].items)
    assert sides == ["train and test", "train and validation", "train and validation"]
    assert {part: held.images for part, held in result.parts.items()} == {
        "train": 7012,
        "validation": 1000,
        "test": 2003,
    }


@real_packs
@pytest.mark.slow
def test_chest_images_that_contradict_each_other_are_found() -> None:
    pack = Path(PACKS or "") / "cxr14-subset"
    result = check_source(find_source(SourceOptions(data=str(pack / "labels.csv"), images=pack / "images.zip")))
    found = {finding.kind: finding.items for finding in result.findings}
    assert set(found) == {"duplicate", "duplicate-against-label", "class-with-few-positives"}
    assert ["00018721_003.webp", "00018721_005.webp"] in [item["images"] for item in found["duplicate-against-label"]]

"""A folder of hostile files: every bad one is named once with its reason, the rest opens."""

import struct
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from acpl.data.check import check_source
from acpl.data.sources import SourceOptions, find_source
from acpl.errors import UserError

PARTS = ("train", "validation", "test")
GOOD = ("plain.png", "sixteen-bit.png", "cmyk.jpg")
BAD = {
    "empty.png": "empty",
    "truncated.png": "truncated",
    "truncated.jpg": "truncated",
    "text.png": "not an image",
    "claims-too-much.png": "30000 x 30000",
    "is-too-much.png": "30000 x 30000",
    "missing.png": "missing",
    "../outside.png": "outside",
    "link.png": "outside",
    "twice.png": "twice",
}


def picture(seed: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (48, 64, 3), dtype=np.uint8))


def huge_png(rows: int) -> bytes:
    """A 1-bit PNG of 30,000 x 30,000 pixels that holds so many of its rows; all of them are about 100 kB."""
    packer = zlib.compressobj(1)
    line = bytes(1 + 30_000 // 8)
    pixels = b"".join([*(packer.compress(line * 100) for _ in range(rows // 100)), packer.flush()])
    chunks = ((b"IHDR", struct.pack(">IIBBBBB", 30_000, 30_000, 1, 0, 0, 0, 0)), (b"IDAT", pixels), (b"IEND", b""))
    packed = (
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> SourceOptions:
    """The folder, a table that names each file, and a cache elsewhere."""
    home = tmp_path_factory.mktemp("hostile")
    folder = home / "images"
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
        picture(1).save(folder / name / "twice.png")
    picture(2).save(folder / "plain.png")
    Image.fromarray(np.arange(48 * 64, dtype=np.uint16).reshape(48, 64) * 20).save(folder / "sixteen-bit.png")
    picture(3).convert("CMYK").save(folder / "cmyk.jpg")
    (folder / "empty.png").touch()
    for name in ("truncated.png", "truncated.jpg"):
        picture(4).save(folder / name)
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: len(content) // 2])
    (folder / "text.png").write_text("this is a note, not a picture\n" * 100)
    (folder / "claims-too-much.png").write_bytes(huge_png(rows=100))
    (folder / "is-too-much.png").write_bytes(huge_png(rows=30_000))
    picture(5).save(home / "outside.png")
    (folder / "link.png").symlink_to(home / "outside.png")
    rows = [f"{name},{number % 2},{PARTS[number % 3]}" for number, name in enumerate((*GOOD, *BAD))]
    table = folder / "labels.csv"
    table.write_text("\n".join(["image,finding,split", *rows]))
    return SourceOptions(data=str(table), size=32, cache=home / "cache")


def test_check_names_every_bad_file_once_with_its_reason(hostile: SourceOptions) -> None:
    result = check_source(find_source(hostile))
    (finding,) = (f for f in result.findings if f.kind == "bad-file")
    assert result.spoils
    assert [item["image"] for item in finding.items] == list(BAD)
    for item in finding.items:
        assert BAD[item["image"]] in item["reason"], item
        assert "\n" not in item["reason"]
    (unnamed,) = (f for f in result.findings if f.kind == "file-without-row")
    assert [item["file"] for item in unnamed.items] == ["a/twice.png", "b/twice.png"]


def test_opening_names_every_bad_file_once_with_its_reason(hostile: SourceOptions) -> None:
    with pytest.raises(UserError) as refused:
        find_source(hostile).open(PARTS)
    lines = str(refused.value).splitlines()
    for name, reason in BAD.items():
        (line,) = (line for line in lines if name in line)
        assert reason in line
    assert not [line for line in lines if any(name in line for name in GOOD)]
    assert "skip" in lines[-1]


def test_the_rest_opens_when_bad_files_may_be_skipped(hostile: SourceOptions) -> None:
    opened = find_source(replace(hostile, skip_bad=True)).open(PARTS)
    assert opened.manifest.table["image"].tolist() == list(GOOD)
    assert sorted(bad.name for bad in opened.bad) == sorted(BAD)
    assert opened.images.gather(opened.images.ids).shape == (3, 3, 32, 32)


def test_a_name_that_stands_twice_in_the_table_is_refused_by_name(hostile: SourceOptions, tmp_path: Path) -> None:
    table = tmp_path / "labels.csv"
    table.write_text("image,finding\nplain.png,0\nplain.png,1\n")
    with pytest.raises(UserError, match=r"plain\.png"):
        check_source(find_source(replace(hostile, data=str(table), images=Path(hostile.data).parent)))

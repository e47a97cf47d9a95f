"""Archives made to deceive; tests/data/test_files.py has members that climb out, links, doubles and encryption."""

import io
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from acpl.data.files import MAX_FILE_BYTES, BadImage, ImageFiles
from acpl.data.sources import SourceOptions, find_source
from acpl.errors import UserError
from tests.hostile.corpus import sound, zeros
from tests.hostile.documents import archive, arrays


def zipped(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in members.items():
            packed.writestr(name, content)
    return file.getvalue()


def with_size(content: bytes, size: int) -> bytes:
    """A zip of one member whose index states another length."""
    changed = bytearray(content)
    struct.pack_into("<I", changed, changed.index(b"PK\x01\x02") + 24, size)
    return bytes(changed)


def bomb(megabytes: int) -> bytes:
    """A zip whose one member unpacks to so many MiB, without ever holding them."""
    raw = zeros(megabytes)
    header = (20, 0, 8, 0, 0, 0, len(raw), megabytes * 2**20)
    local = struct.pack("<4sHHHHHIIIHH", b"PK\x03\x04", *header, 5, 0) + b"a.png"
    index = struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\x01\x02", 20, *header, 5, 0, 0, 0, 0, 0, 0) + b"a.png"
    end = struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, 1, 1, len(index), len(local) + len(raw), 0)
    return local + raw + index + end


def test_a_bomb_is_refused_by_the_length_in_the_index(tmp_path: Path) -> None:
    (tmp_path / "bomb.zip").write_bytes(bomb(1100))
    assert (tmp_path / "bomb.zip").stat().st_size < 2**21
    with pytest.raises(BadImage, match=f"longer than the {MAX_FILE_BYTES:,} bytes"):
        ImageFiles.open(tmp_path / "bomb.zip").read("a.png")


def test_no_more_is_unpacked_than_the_index_says(tmp_path: Path) -> None:
    (tmp_path / "liar.zip").write_bytes(with_size(bomb(1100), 1000))
    with pytest.raises(BadImage, match="cannot be read from the zip"):
        ImageFiles.open(tmp_path / "liar.zip").read("a.png")


def test_an_archive_in_an_archive_is_not_opened(tmp_path: Path) -> None:
    inner = zipped({"deep.png": sound()["png grey"]})
    (tmp_path / "outer.zip").write_bytes(zipped({"inner.zip": inner, "false.png": inner, "a.png": sound()["png grey"]}))
    files = ImageFiles.open(tmp_path / "outer.zip")
    assert files.names() == ["a.png", "false.png"]
    with pytest.raises(BadImage, match="missing"):
        files.find("deep.png")
    (tmp_path / "labels.csv").write_text("image,finding\na.png,1\nfalse.png,0\n")
    options = SourceOptions(str(tmp_path / "labels.csv"), images=tmp_path / "outer.zip", cache=tmp_path / "cache")
    with pytest.raises(UserError, match=r"false\.png: it is not an image that can be read"):
        find_source(options).open(("train", "validation", "test"))


def test_nothing_is_ever_unpacked_to_the_disk(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    members = {"../climbs.png": b"x", "/absolute.png": b"x", "..\\climbs-too.png": b"x", "a.png": sound()["png grey"]}
    (home / "images.zip").write_bytes(zipped(members))
    files = ImageFiles.open(home / "images.zip")
    for name in files.names():
        try:
            files.read(files.find(name))
        except BadImage:
            continue
    assert [path.name for path in tmp_path.rglob("*")] == ["home", "images.zip"]


@pytest.mark.parametrize("cut", range(1, 16))
def test_an_archive_that_ends_too_early_is_refused(cut: int, tmp_path: Path) -> None:
    whole = archive()
    (tmp_path / "cut.zip").write_bytes(whole[: len(whole) * cut // 16])
    with pytest.raises(UserError, match=r"neither a folder nor a zip|cannot be opened as a zip"):
        ImageFiles.open(tmp_path / "cut.zip")


def npz(**changed: bytes) -> bytes:
    """A MedMNIST file with some members replaced."""
    members = {}
    with zipfile.ZipFile(io.BytesIO(arrays())) as packed:
        members = {name: packed.read(name) for name in packed.namelist()}
    return zipped(members | {f"{name}.npy": content for name, content in changed.items()})


def header(shape: str, kind: str = "|u1") -> bytes:
    """A NumPy array that claims a shape and holds a hundred bytes."""
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + bytes(100)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"train_images": header("(1000000000000, 28, 28)")}, "says that it is (1000000000000, 28, 28), but holds"),
        ({"train_images": header("(-1, 28, 28)")}, "says that it is (-1, 28, 28), but holds"),
        ({"train_images": header("(100, 1, 0)")}, "says that it is (100, 1, 0), but holds"),
        ({"train_images": header("(10**9,)")}, "is not a MedMNIST file"),
        ({"train_labels": header("(1000000000000, 1)")}, "train_labels should be whole numbers, but is uint8"),
        ({"train_labels": header("(100, 1)", "|O")}, "Object arrays cannot be loaded"),
        ({"train_labels": b"\x93NUMPY"}, "is not a MedMNIST file"),
        ({"train_images": b""}, "is not a MedMNIST file"),
    ],
)
def test_an_array_that_lies_about_its_size_is_refused(changed: dict[str, bytes], sentence: str, tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(npz(**changed))
    with pytest.raises(UserError) as refused:
        find_source(SourceOptions(f"medmnist:{tmp_path / 'x.npz'}"))
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_more_images_than_names_can_number_are_refused(tmp_path: Path) -> None:
    file = io.BytesIO()
    np.save(file, np.zeros((1_000_001, 1, 1), dtype=np.uint8))
    (tmp_path / "x.npz").write_bytes(npz(train_images=file.getvalue()))
    with pytest.raises(UserError, match="1000001 images; at most 1,000,000 are read"):
        find_source(SourceOptions(f"medmnist:{tmp_path / 'x.npz'}"))

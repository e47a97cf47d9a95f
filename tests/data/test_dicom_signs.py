"""How a DICOM file is known by its first bytes, in a folder, a zip, a tar and wherever it is decoded."""

import io
import random
import struct
import zipfile
from contextlib import closing
from pathlib import Path

import numpy as np
import pydicom
import pytest
from PIL import Image
from pydicom.uid import ExplicitVRBigEndian, ExplicitVRLittleEndian, ImplicitVRLittleEndian
from tests.data.tars import tarred
from tests.hostile.corpus import dicom, encoded

from acpl.data.decode import Decoding, decode
from acpl.data.dicom_signs import DICOM_HEADER, looks_like_dicom
from acpl.data.files import ImageFiles
from acpl.data.streams import Stream
from acpl.data.tars import members

SAMPLES = Path(pydicom.__file__).parent / "data" / "test_files"
PIXELS = np.random.default_rng(3).integers(0, 256, (16, 16), dtype=np.uint8)
SYNTAXES = [ExplicitVRLittleEndian, ImplicitVRLittleEndian, ExplicitVRBigEndian]


def bare(syntax: str = ExplicitVRLittleEndian) -> bytes:
    """A file that begins with its first element: no preamble, no letters, no group 2."""
    dataset = dicom(PIXELS)
    file = io.BytesIO()
    pydicom.dcmwrite(
        file,
        pydicom.Dataset(dict(dataset.items())),
        implicit_vr=syntax == ImplicitVRLittleEndian,
        little_endian=syntax != ExplicitVRBigEndian,
    )
    assert file.getvalue()[:2] in (b"\x08\x00", b"\x00\x08")
    return file.getvalue()


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_a_file_of_an_old_archive_is_known_and_read(syntax: str) -> None:
    assert looks_like_dicom(bare(syntax))
    assert (decode(bare(syntax), Decoding(16, 1))[0] == PIXELS).all()


@pytest.mark.parametrize("name", ["rtstruct", "ExplVR_LitEndNoMeta", "ExplVR_BigEndNoMeta", "CT_small", "MR_small_RLE"])
def test_files_of_other_makers_are_known_by_their_first_bytes_alone(name: str) -> None:
    content = (SAMPLES / f"{name}.dcm").read_bytes()
    assert looks_like_dicom(content)
    assert looks_like_dicom(content[:DICOM_HEADER])
    if content[128:132] == b"DICM":
        assert looks_like_dicom(content[132:])


def test_a_group_length_may_come_first() -> None:
    length = struct.pack("<HHII", 8, 0, 4, 90)
    assert looks_like_dicom(length + struct.pack("<HHI", 8, 5, 10) + b"ISO_IR 100")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x08\x00",
        b"\x08\x00\x08\x00",
        b"\x02\x00\x01\x00" + bytes(300),
        b"\x08\x00\x05\x00" + bytes(300),
        b"\x08\x00\x05\x00CS" + b"\xff" * 200,
        b"\x08\x00\x05\x00\x0a\x00\x00\x00ISO_IR 100" + bytes(100),
        np.arange(8, 300, dtype="<u2").tobytes(),
        np.arange(8, 300, dtype="<u4").tobytes(),
        np.arange(2, 300, dtype="<u4").tobytes(),
        np.arange(8, 300, dtype=">u2").tobytes(),
        np.full(300, 8, dtype="<u2").tobytes(),
        np.array([8, 4, 1, 9, 4, 2, 10, 4] * 20, dtype="<u4").tobytes(),
        b"image,label\n" * 30,
        encoded(Image.fromarray(PIXELS), "PNG"),
        encoded(Image.fromarray(PIXELS), "BMP"),
        bytes(128) + b"DICOM"[:3],
    ],
)
def test_other_bytes_are_not_taken_for_dicom(content: bytes) -> None:
    assert not looks_like_dicom(content)


def test_chance_makes_no_dicom() -> None:
    chance = random.Random(4)
    assert not any(looks_like_dicom(b"\x08\x00" + chance.randbytes(200)) for _ in range(20_000))


def contents() -> dict[str, bytes]:
    return {"IM1": bare(), "IM2": bare(ImplicitVRLittleEndian), "counts": np.arange(8, 99, dtype="<u4").tobytes()}


def test_old_files_without_a_suffix_are_found_in_folders_and_zips(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    with zipfile.ZipFile(tmp_path / "images.zip", "w") as file:
        for name, content in contents().items():
            (tmp_path / "images" / name).write_bytes(content)
            file.writestr(name, content)
    assert ImageFiles.open(tmp_path / "images").names() == ["IM1", "IM2"]
    assert ImageFiles.open(tmp_path / "images.zip").names() == ["IM1", "IM2"]


def test_old_files_without_a_suffix_are_found_in_tars(tmp_path: Path) -> None:
    path = tmp_path / "images.tar"
    path.write_bytes(tarred(contents().items()))
    with closing(Stream(str(path))) as stream:
        found = [member.name for member in members(stream) if member.read() is not None]
    assert found == ["IM1", "IM2"]

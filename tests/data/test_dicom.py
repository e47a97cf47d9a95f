"""Compressed DICOM files whose picture was cut short are bad, whichever library would make something of them."""

import io
from pathlib import Path

import numpy as np
import pydicom
import pytest
from PIL import Image, ImageFile
from pydicom.encaps import get_frame
from pydicom.uid import JPEG2000, JPEGBaseline8Bit, JPEGExtended12Bit
from tests.hostile.corpus import compressed, encoded

from acpl.data.decode import BadImage, Decoding, decode

SAMPLES = Path(pydicom.__file__).parent / "data" / "test_files"
SMALL = np.random.default_rng(0).integers(0, 256, (12, 16), dtype=np.uint8)
PICTURE = np.asarray(Image.fromarray(SMALL).resize((160, 120), Image.Resampling.BICUBIC))
KINDS: dict[str, tuple[str, bytes]] = {
    "JPEG": (JPEGBaseline8Bit, encoded(Image.fromarray(PICTURE), "JPEG")),
    "JPEG in several passes": (JPEGBaseline8Bit, encoded(Image.fromarray(PICTURE), "JPEG", progressive=True)),
    "extended JPEG": (JPEGExtended12Bit, encoded(Image.fromarray(PICTURE), "JPEG")),
    "JPEG 2000": (JPEG2000, encoded(Image.fromarray(PICTURE), "JPEG2000", no_jp2=True)),
}
WAY = Decoding(32, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_picture_is_read(kind: str) -> None:
    syntax, frame = KINDS[kind]
    plain = decode(encoded(Image.fromarray(PICTURE), "PNG"), WAY).astype(int)
    assert np.abs(decode(compressed(syntax, frame, PICTURE), WAY) - plain).mean() < 3
    assert np.abs(decode(compressed(syntax, frame + bytes(6), PICTURE), WAY) - plain).mean() < 3


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9, 0.98])
@pytest.mark.parametrize("kind", KINDS)
def test_a_picture_that_ends_too_early_is_bad(kind: str, share: float) -> None:
    syntax, frame = KINDS[kind]
    with pytest.raises(BadImage, match="it is truncated"):
        decode(compressed(syntax, frame[: int(share * len(frame))], PICTURE), WAY)


def test_the_callers_leniency_makes_no_picture_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    syntax, frame = KINDS["JPEG"]
    with pytest.raises(BadImage, match="it is truncated"):
        decode(compressed(syntax, frame[: len(frame) // 2], PICTURE), WAY)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("name", ["MR_small_jpeg_ls_lossless", "JPGExtended", "JPEG2000", "MR_small_RLE"])
def test_files_of_other_makers_that_end_too_early_are_bad(name: str, share: float) -> None:
    content = (SAMPLES / f"{name}.dcm").read_bytes()
    dataset = pydicom.dcmread(io.BytesIO(content))
    frame = get_frame(dataset.PixelData, 0, number_of_frames=1)
    dataset.PixelData = pydicom.encaps.encapsulate([frame[: int(share * len(frame))]])
    cut_inside = io.BytesIO()
    dataset.save_as(cut_inside)
    header = content.index(frame[:64])
    cut_as_a_file = content[: header + int(share * (len(content) - header))]
    for broken in (cut_inside.getvalue(), cut_as_a_file):
        with pytest.raises(BadImage):
            decode(broken, WAY)

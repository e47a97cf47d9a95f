"""DICOM files to eight-bit images, as their own window shows them."""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from struct import unpack_from
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from acpl.data.dicom_grey import grey_levels
from acpl.data.dicom_signs import LONG_VALUES
from acpl.data.files import MAX_FILE_BYTES, TOO_LARGE, BadImage

if TYPE_CHECKING:
    from pydicom import Dataset

MAX_PIXELS = 178_956_970
"""What Pillow, too, takes for a decompression bomb."""
DEFLATED = "1.2.840.10008.1.2.1.99"
HEADER_SEARCHED = 2**20
PLUGINS = ("pillow", "pyjpegls", "pylibjpeg", "pydicom")
JPEG_DATA, J2K_DATA, END = b"\xff\xda", b"\xff\x93", b"\xff\xd9"
"""The marks before compressed data, and the one after."""
CUT_SHORT = "it is truncated: the picture inside ends too early"
RLE_MARGIN = 64 + 16 * 3
"""Its header, and a byte of padding and a little more for each of at most 16 segments."""
COLOUR = ("RGB", "YBR_FULL", "YBR_FULL_422", "YBR_PARTIAL_420", "YBR_PARTIAL_422", "YBR_ICT", "YBR_RCT")


def refuse_too_many_pixels(width: int, height: int) -> None:
    """BadImage where a header promises more than is read."""
    if width * height > MAX_PIXELS:
        raise BadImage(f"{width} x {height} pixels are more than the {MAX_PIXELS:,} that are read")


def read_dicom(content: bytes) -> Image.Image:
    """Mode L or RGB; BadImage with one plain reason.

    Grey values are rescaled, then seen through the first VOI table or window, which stand at the top or in the
    frame's functional groups. Without one, eight bits have the range that eight bits can have, as in a PNG, and
    wider values are stretched from the least to the greatest. MONOCHROME1 is inverted and padding is black.
    """
    with _blaming_the_file():
        dataset = _parsed(content)
        _refuse(dataset)
        return _image(dataset)


def dicom_is_grey(content: bytes) -> bool:
    """Whether the header says that a pixel is one grey value."""
    with _blaming_the_file():
        dataset = _parsed(content)
        _refuse(dataset)
        return str(dataset.get("PhotometricInterpretation", "")).startswith("MONOCHROME")


@contextmanager
def _blaming_the_file() -> Iterator[None]:
    """pydicom and its plugins raise whatever a broken file leads them to; all of it is a BadImage."""
    try:
        yield
    except BadImage:
        raise
    except MemoryError:
        raise BadImage(TOO_LARGE) from None
    except Exception as error:
        raise BadImage(_reason(error)) from None


def _parsed(content: bytes) -> "Dataset":
    from pydicom import dcmread
    from pydicom.uid import ExplicitVRBigEndian, ExplicitVRLittleEndian, ImplicitVRLittleEndian

    _refuse_deflated_bomb(content)
    dataset = dcmread(BytesIO(content), force=True)
    if not dataset.file_meta.get("TransferSyntaxUID"):
        implicit, little = dataset.original_encoding
        explicit = ExplicitVRLittleEndian if little else ExplicitVRBigEndian
        dataset.file_meta.TransferSyntaxUID = ImplicitVRLittleEndian if implicit else explicit
    return dataset


def _refuse_deflated_bomb(content: bytes) -> None:
    """A deflated file is inflated as a whole by pydicom, so its length is measured first."""
    if DEFLATED.encode() not in content[:HEADER_SEARCHED]:
        return
    inflate, total, rest = zlib.decompressobj(-zlib.MAX_WBITS), 0, content[_end_of_meta(content) :]
    while rest and not inflate.eof:
        total += len(inflate.decompress(rest, 2**20))
        rest = inflate.unconsumed_tail
        if total > MAX_FILE_BYTES:
            raise BadImage(f"inflated it is longer than the {MAX_FILE_BYTES:,} bytes that are read")


def _end_of_meta(content: bytes) -> int:
    """Where the elements of group 2 end, by walking over them as pydicom does: the length they state may be a lie."""
    place = 132 if content[128:132] == b"DICM" else 0
    while content[place : place + 2] == b"\x02\x00" and place + 8 <= len(content):
        if content[place + 4 : place + 6] in LONG_VALUES:
            length, start = int.from_bytes(content[place + 8 : place + 12], "little"), place + 12
        else:
            length, start = int.from_bytes(content[place + 6 : place + 8], "little"), place + 8
        if start + length > len(content):
            raise BadImage("it is truncated: its header goes on beyond its end")
        place = start + length
    return place


def _refuse(dataset: "Dataset") -> None:
    """What can be told from the header, before any pixel is decoded."""
    from pydicom.pixels import get_decoder

    if not any(name in dataset for name in ("PixelData", "FloatPixelData", "DoubleFloatPixelData")):
        if dataset.get("Rows") or dataset.file_meta.TransferSyntaxUID.is_encapsulated:
            raise BadImage("it is truncated: its header tells of pixels that are not there")
        raise BadImage(f"it is a DICOM file without pixels (modality {dataset.get('Modality') or 'unknown'})")
    frames = int(dataset.get("NumberOfFrames") or 1)
    if frames > 1:
        raise BadImage(f"it holds {frames} frames; only single images are read")
    if not dataset.get("Rows") or not dataset.get("Columns"):
        raise BadImage("it is a DICOM file that does not say how many rows and columns it has")
    refuse_too_many_pixels(int(dataset.Columns), int(dataset.Rows))
    syntax = dataset.file_meta.TransferSyntaxUID
    try:
        decoder = get_decoder(syntax)
    except NotImplementedError:
        raise BadImage(f"it is compressed as {syntax.name}, which cannot be read") from None
    if not decoder.is_available:
        raise BadImage(f"it is compressed as {syntax.name}: pip install 'acpl[dicom]'")
    if syntax.is_compressed and syntax.is_encapsulated:
        _refuse_codestream(dataset)


def _refuse_codestream(dataset: "Dataset") -> None:
    """A JPEG or JPEG 2000 inside may promise more than the DICOM header does, or end too early; runs may hold more."""
    from pydicom.encaps import get_frame
    from pydicom.uid import RLELossless

    frame = get_frame(dataset.PixelData, 0, number_of_frames=1)
    if dataset.file_meta.TransferSyntaxUID == RLELossless:
        return _refuse_long_runs(frame, dataset)
    start = frame[:4096].find(b"\xff\x4f\xff\x51")
    if start >= 0:
        right, bottom, left, top = unpack_from(">IIII", frame, start + 8)
        _refuse_other_size(right - left, bottom - top, dataset)
        _refuse_without_end(frame, J2K_DATA)
    elif frame[:2] == b"\xff\xd8":
        size = _size_of_jpeg(frame)
        if size is not None:
            _refuse_other_size(*size, dataset)
        _refuse_without_end(frame, JPEG_DATA)
    return None


def _size_of_jpeg(frame: bytes) -> tuple[int, int] | None:
    place = 2
    while place + 9 <= len(frame) and frame[place] == 0xFF:
        marker, length = frame[place + 1], int.from_bytes(frame[place + 2 : place + 4], "big")
        if marker == 0xF7 or (0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC)):
            height, width = unpack_from(">HH", frame, place + 5)
            return width, height
        place += 2 + length
    return None


def _refuse_without_end(frame: bytes, data: bytes) -> None:
    """What was cut short would show grey where it ends; compressed data never holds the mark that must close it."""
    if frame.rfind(END) <= frame.rfind(data):
        raise BadImage(CUT_SHORT)


def _refuse_other_size(width: int, height: int, dataset: "Dataset") -> None:
    """Nothing good comes of it, and a JPEG without a height leads libjpeg to take all the memory there is."""
    refuse_too_many_pixels(width, height)
    if (width, height) != (int(dataset.Columns), int(dataset.Rows)):
        said = f"{int(dataset.Columns)} x {int(dataset.Rows)}"
        raise BadImage(f"the picture inside has {width} x {height} pixels, but its DICOM header says {said}")


def _refuse_long_runs(frame: bytes, dataset: "Dataset") -> None:
    """Two bytes of run-length code make at least one value, so that a longer frame holds more than it should."""
    values = int(dataset.Rows) * int(dataset.Columns) * int(dataset.SamplesPerPixel) * int(dataset.BitsAllocated) // 8
    if len(frame) > 2 * values + RLE_MARGIN:
        raise BadImage("its run-length code is longer than its rows and columns have room for")


def _image(dataset: "Dataset") -> Image.Image:
    from pydicom.pixels import apply_color_lut

    pixels = _decompressed(dataset)
    kind = str(dataset.PhotometricInterpretation)
    if kind in ("MONOCHROME1", "MONOCHROME2"):
        return Image.fromarray(grey_levels(pixels, dataset, lambda: _decompressed(dataset, correct_unused_bits=False)))
    if kind == "PALETTE COLOR":
        pixels = apply_color_lut(pixels, dataset)
        bits = 8 * pixels.dtype.itemsize
    elif kind in COLOUR:
        bits = int(dataset.BitsStored)
    else:
        raise BadImage(f"its colours are {kind}, which cannot be read")
    return Image.fromarray((pixels >> max(0, bits - 8)).clip(0, 255).astype(np.uint8), "RGB")


def _decompressed(dataset: "Dataset", **options: bool) -> npt.NDArray[Any]:
    """By the first plugin that can: Pillow at best, GDCM only alone, for it aborts the process over a broken file."""
    from pydicom.pixels import get_decoder, pixel_array

    available = get_decoder(dataset.file_meta.TransferSyntaxUID).available_plugins
    plugins = [name for name in PLUGINS if name in available] or ["gdcm" if "gdcm" in available else ""]
    for plugin in plugins[:-1]:
        try:
            return np.asarray(pixel_array(dataset, decoding_plugin=plugin, **options))
        except RuntimeError as error:
            if "truncated" in str(error):  # others are more lenient, and show grey for what is not there
                raise BadImage(CUT_SHORT) from None
    return np.asarray(pixel_array(dataset, decoding_plugin=plugins[-1], **options))


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, EOFError) or "less than expected" in text:
        return "it is truncated"
    if "JPEG Extended" in text and "12-bit" in text:
        return "it is compressed as 12-bit JPEG: pip install 'acpl[dicom]'"
    text = text.removeprefix("Unable to decode as exceptions were raised by all available plugins: ")
    return f"it is a DICOM file that cannot be decoded: {text.split('. ')[0][:160]}"

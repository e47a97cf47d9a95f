"""The bytes of an image file to pixels of one size."""

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import Literal

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFile, ImageOps, UnidentifiedImageError

from acpl.data.dicom import MAX_PIXELS, dicom_is_grey, read_dicom, refuse_too_many_pixels
from acpl.data.dicom_signs import looks_like_dicom
from acpl.data.files import TOO_LARGE, BadImage
from acpl.data.wide_colour import Tiles, halves_of, stretched_colour

__all__ = [
    "MAX_PIXELS",
    "Aspect",
    "BadImage",
    "Colour",
    "Decoding",
    "decode",
    "decode_image",
    "is_grey",
]

Aspect = Literal["stretch", "crop", "pad"]
Colour = Literal["auto", "grey", "rgb"]
Pixels = npt.NDArray[np.uint8]

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "TIFF", "GIF", "JPEG2000", "PPM")
GREY_TOLERANCE = 2
"""Colour formats give grey back with channels that differ by rounding; WebP's do by one level."""
TIFF_PHOTOMETRIC, WHITE_IS_ZERO = 262, 0
STRETCHED_AT_ONCE = 2**22
"""Pixels."""


@dataclass(frozen=True)
class Decoding:
    """What every image becomes: a square of ``size`` pixels with 1 (grey) or 3 (RGB) channels."""

    size: int
    channels: int
    aspect: Aspect = "stretch"
    """How a rectangle becomes a square: stretched, cut to its centre, or filled up with black on both sides."""


def decode(content: bytes, how: Decoding) -> Pixels:
    """uint8 (channels, size, size), upright; BadImage with one plain reason, never another exception.

    Eight-bit values stay what they are. Wider ones (16-bit, integer, float) are stretched from the image's least to
    its greatest, of all channels together, since scanners rarely use the whole range; DICOM states its own window.
    Transparent is black. A file of several frames is refused: which one is meant is not ours to guess.
    """
    with _strictly:
        if looks_like_dicom(content):
            image = read_dicom(content)
        else:
            with _pillow(content) as file:
                _shrink_jpeg(file, how)
                image = _read(file, content)
    return _pixels(image, how)


def decode_image(image: Image.Image, how: Decoding) -> Pixels:
    """What ``decode`` would make of a file that holds this image; the image itself is left as it is."""
    with _strictly:
        try:
            return _pixels(_eight_bit(_upright(image.copy())), how)
        except BadImage:
            raise
        except Exception as error:
            raise BadImage(_reason(error)) from None


def _pixels(image: Image.Image, how: Decoding) -> Pixels:
    mode = "L" if how.channels == 1 else "RGB"
    try:
        square = _square(image if image.mode == mode else image.convert(mode), how)
    except MemoryError:
        raise BadImage(TOO_LARGE) from None
    pixels = np.frombuffer(square.tobytes(), dtype=np.uint8).reshape(how.size, how.size, how.channels)
    return pixels.transpose(2, 0, 1).copy()


def is_grey(content: bytes) -> bool:
    """Whether an image has one channel, or colour channels that never differ; BadImage as in ``decode``."""
    with _strictly:
        if looks_like_dicom(content):
            return dicom_is_grey(content) or _channels_agree(read_dicom(content))
        with _pillow(content) as file:
            return _channels_agree(_read(file, content))


@contextmanager
def _pillow(content: bytes) -> Iterator[Image.Image]:
    """The image in Pillow's hands; whatever is raised while it is there is the file's fault, and a BadImage."""
    if not content:
        raise BadImage("the file is empty")
    try:
        with Image.open(BytesIO(content), formats=FORMATS) as image:
            refuse_too_many_pixels(*image.size)
            if getattr(image, "is_animated", False) and image.format != "MPO":  # MPO: a photograph and its preview
                raise BadImage("it holds several frames; only single images are read")
            yield image
    except BadImage:
        raise
    except UnidentifiedImageError:
        raise BadImage("it is not an image that can be read") from None
    except Image.DecompressionBombError:
        raise _too_many_pixels(content) from None
    except MemoryError:
        raise BadImage(TOO_LARGE) from None
    except Exception as error:
        raise BadImage(_reason(error)) from None


class _Strictly:
    """While any thread decodes, truncated files are errors and libraries do not warn; then all is as it was.

    Both are switches of the whole process, so the first thread in sets them and the last one out sets them back.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.inside = 0

    def __enter__(self) -> None:
        with self.lock:
            if self.inside == 0:
                self.warnings = warnings.catch_warnings()
                self.warnings.__enter__()
                warnings.simplefilter("ignore")
                self.lenient, ImageFile.LOAD_TRUNCATED_IMAGES = ImageFile.LOAD_TRUNCATED_IMAGES, False
            self.inside += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.inside -= 1
            if self.inside == 0:
                ImageFile.LOAD_TRUNCATED_IMAGES = self.lenient
                self.warnings.__exit__(None, None, None)


_strictly = _Strictly()
_limit_lifted = threading.Lock()


def _too_many_pixels(content: bytes) -> BadImage:
    """What to say of an image that Pillow finds too large to open, or to go on with: how large it claims to be."""
    with _limit_lifted:
        limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
        try:
            with Image.open(BytesIO(content), formats=FORMATS) as image:
                refuse_too_many_pixels(*image.size)
        except BadImage as bad:
            return bad
        except Exception:  # it is broken besides; that it is too large has been seen  # nosec B110
            pass
        finally:
            Image.MAX_IMAGE_PIXELS = limit
    return BadImage(f"it has more than the {MAX_PIXELS:,} pixels that are read")


def _shrink_jpeg(file: Image.Image, how: Decoding) -> None:
    """Let libjpeg leave out detail that goes anyway: its 1/2, 1/4, 1/8 while at least twice the target is left."""
    if isinstance(file, ImageFile.ImageFile) and file.format in ("JPEG", "MPO"):
        luma = file.mode == "RGB" and how.channels == 1
        file.draft("L" if luma else None, (2 * how.size, 2 * how.size))


def _read(file: Image.Image, content: bytes) -> Image.Image:
    """Mode L or RGB, upright, of a file that was opened from this content."""
    halves = halves_of(file)
    if halves is None:
        return _eight_bit(_upright(file))
    upper = _upright_from(file, halves.upper)
    if not halves.lower:
        return stretched_colour(upper, None)
    with Image.open(BytesIO(content), formats=FORMATS) as again:
        return stretched_colour(upper, _upright_from(again, halves.lower))


def _upright_from(file: Image.Image, tiles: Tiles) -> Image.Image:
    file.tile = tiles  # type: ignore[attr-defined]
    return _upright(file)


def _upright(file: Image.Image) -> Image.Image:
    file.load()
    try:
        ImageOps.exif_transpose(file, in_place=True)
    except MemoryError:
        raise
    except Exception:  # pixels that are there are not lost to a camera's broken notes  # nosec B110
        pass
    return file


def _eight_bit(image: Image.Image) -> Image.Image:
    """Mode L or RGB."""
    if image.mode.startswith("I") or image.mode == "F":
        return _stretched(image)
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", rgba.size, "black"), rgba).convert("RGB")
    if image.mode in ("L", "RGB"):
        return image
    return image.convert("L" if image.mode == "1" else "RGB")


def _stretched(image: Image.Image) -> Image.Image:
    values = np.asarray(image)
    if not np.isfinite(values).all():
        raise BadImage("it holds values that are not numbers")
    least, greatest = float(values.min()), float(values.max())
    scale = 255 / max(greatest - least, np.finfo(np.float64).tiny)
    inverted = getattr(image, "tag_v2", {}).get(TIFF_PHOTOMETRIC) == WHITE_IS_ZERO  # Pillow heeds it in eight bits only
    shown = np.empty(values.shape, dtype=np.uint8)
    rows = max(1, STRETCHED_AT_ONCE // values.shape[1])
    for start in range(0, len(values), rows):  # in float64, the largest images would take gigabytes at once
        levels = (values[start : start + rows].astype(np.float64) - least) * scale
        shown[start : start + rows] = (255 - levels if inverted else levels).round()
    return Image.fromarray(shown)


def _square(image: Image.Image, how: Decoding) -> Image.Image:
    """Down-scaled with an antialiasing bicubic filter."""
    size, (width, height) = how.size, image.size
    if how.aspect == "pad" and width != height:
        longer = max(width, height)
        inner = (max(1, round(size * width / longer)), max(1, round(size * height / longer)))
        square = Image.new(image.mode, (size, size))
        square.paste(_resized(image, inner, None), ((size - inner[0]) // 2, (size - inner[1]) // 2))
        return square
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    return _resized(image, (size, size), (left, top, left + side, top + side) if how.aspect == "crop" else None)


def _resized(image: Image.Image, size: tuple[int, int], box: tuple[float, float, float, float] | None) -> Image.Image:
    return image.resize(size, Image.Resampling.BICUBIC, box=box, reducing_gap=3.0)


def _channels_agree(image: Image.Image) -> bool:
    if image.mode == "L":
        return True
    pixels = np.asarray(image)
    return bool((pixels.max(axis=2) - pixels.min(axis=2)).max() <= GREY_TOLERANCE)


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    if "truncated" in text.lower() or isinstance(error, EOFError):
        return "it is truncated"
    return f"it cannot be decoded: {text}"

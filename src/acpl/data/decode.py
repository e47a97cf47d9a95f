"""Image files to pixels of one size."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError

from acpl.errors import UserError

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff"})


class BadImage(Exception):  # noqa: N818 — named for what it is about, not for being an exception
    """An image that cannot be read, and why."""


def find_images(paths: Iterable[Path]) -> list[Path]:
    """Files as given, and every image below a folder, in order of name."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found += sorted(file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file())
        elif path.is_file():
            found.append(path)
        else:
            raise UserError(f"{path} does not exist")
    if not found:
        raise UserError(f"no image was found; files may end in {', '.join(sorted(SUFFIXES))}")
    return found


def decode(path: Path, *, size: int, channels: int) -> npt.NDArray[np.uint8]:
    """uint8 (channels, size, size): upright, grey or colour as asked, stretched to a square."""
    try:
        with Image.open(path) as file:
            upright: Image.Image = ImageOps.exif_transpose(file)
            image = _eight_bit(upright).convert("L" if channels == 1 else "RGB")
    except UnidentifiedImageError:
        raise BadImage("not an image that can be read") from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise BadImage(" ".join(str(error).split())) from None
    pixels = np.asarray(image.resize((size, size), Image.Resampling.BILINEAR))
    return pixels[None] if channels == 1 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def _eight_bit(image: Image.Image) -> Image.Image:
    """16-bit grey keeps its high byte; Pillow's own conversion would cut everything above 255."""
    if not image.mode.startswith("I"):
        return image
    values = np.asarray(image).astype(np.float64)
    return Image.fromarray(np.clip(values / 257, 0, 255).round().astype(np.uint8))

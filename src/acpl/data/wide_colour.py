"""Colours of sixteen bits a channel, of which Pillow gives the upper eight: both halves, stretched to eight bits.

Pillow's unpackers take one byte of each two. Those for the other byte order take the other one, so that a file that
is read in either order gives all.
"""

import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

Bytes = npt.NDArray[np.uint8]
Tile = Any
"""Codec, place in the picture, place in the file, arguments: a plain tuple in older versions of Pillow."""
Tiles = list[Tile]
AT_ONCE = 2**22
"""Pixels."""
OTHER_ORDER = {"B": "L", "L": "B", "N": "B" if sys.byteorder == "little" else "L"}
GREY_WITH_ALPHA = "LA;16B"
SAME_BYTES = "RGBA"
"""What reads two values of two bytes each as the four bytes that they are."""
TIFF_BITS, TIFF_PLANES, APART = 258, 284, 2


class Halves(NamedTuple):
    """How a file is told to give the upper and the lower bytes; no lower ones where one reading gives both."""

    upper: Tiles
    lower: Tiles


def halves_of(file: Image.Image) -> Halves | None:
    """For a file that was opened and not yet loaded; None where its colours do not have sixteen bits."""
    tiles: Tiles = list(getattr(file, "tile", ()))
    if not tiles or "transparency" in file.info:
        return None
    if _rawmode(tiles[0]) == GREY_WITH_ALPHA:
        return Halves([_read_as(tile, SAME_BYTES) for tile in tiles], [])
    if _is_apart(file):
        order = "L" if file.tag_v2.prefix == b"II" else "B"  # type: ignore[attr-defined]
        return Halves(
            *([_read_as(tile, f"{_rawmode(tile)};16{way}") for tile in tiles] for way in (order, OTHER_ORDER[order]))
        )
    channels, _, order = _rawmode(tiles[0]).partition(";16")
    if channels not in ("RGB", "RGBA", "RGBX") or order not in OTHER_ORDER:
        return None
    return Halves(tiles, [_read_as(tile, f"{channels};16{OTHER_ORDER[order]}") for tile in tiles])


def stretched_colour(upper: Image.Image, lower: Image.Image | None) -> Image.Image:
    """Mode L or RGB: from the least value of all channels to the greatest, transparent is black."""
    high, low, alpha = _parts(np.asarray(upper), None if lower is None else np.asarray(lower))
    least, greatest = 2**16, -1
    for rows in _slices(high):
        values = _values(high[rows], low[rows])
        shown = values if alpha is None else values[alpha[rows] > 0]
        if shown.size:
            least, greatest = min(least, int(shown.min())), max(greatest, int(shown.max()))
    levels: Bytes = np.empty(high.shape, dtype=np.uint8)
    for rows in _slices(high):
        shares = (_values(high[rows], low[rows]) - np.float64(least)) / max(greatest - least, 1)
        if alpha is not None:
            shares = shares.clip(0, 1) * (alpha[rows, :, None] / 255)
        levels[rows] = (255 * shares).round()
    return Image.fromarray(levels if lower is not None else levels[..., 0])


def _parts(upper: Bytes, lower: Bytes | None) -> tuple[Bytes, Bytes, Bytes | None]:
    """Upper and lower bytes (height, width, channels), and the alpha's upper ones (height, width)."""
    if lower is None:
        return upper[..., :1], upper[..., 1:2], upper[..., 2]
    return upper[..., :3], lower[..., :3], upper[..., 3] if upper.shape[2] == 4 else None


def _values(high: Bytes, low: Bytes) -> npt.NDArray[np.uint16]:
    return np.asarray(high.astype(np.uint16) << 8 | low, dtype=np.uint16)


def _slices(pixels: Bytes) -> Iterator[slice]:
    rows = max(1, AT_ONCE // pixels.shape[1])
    return (slice(start, start + rows) for start in range(0, len(pixels), rows))


def _is_apart(file: Image.Image) -> bool:
    """A plane a channel, not compressed, which Pillow takes for planes of eight bits."""
    tags = getattr(file, "tag_v2", {})
    tiles: Tiles = file.tile  # type: ignore[attr-defined]
    return (
        tags.get(TIFF_PLANES) == APART
        and set(tags.get(TIFF_BITS, ())) == {16}
        and all(tile[0] == "raw" and _rawmode(tile) in ("R", "G", "B", "A") for tile in tiles)
    )


def _rawmode(tile: Tile) -> str:
    return str(tile[3][0] if isinstance(tile[3], tuple) and tile[3] else tile[3])


def _read_as(tile: Tile, rawmode: str) -> Tile:
    args = (rawmode, *tile[3][1:]) if isinstance(tile[3], tuple) else rawmode
    return tile._replace(args=args) if hasattr(tile, "_replace") else (*tile[:3], args)

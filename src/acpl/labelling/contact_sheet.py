"""Many images on one: numbered, named, for people to look through."""

from collections.abc import Sequence
from io import BytesIO
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

TILE, GAP, LINE = 160, 12, 15
COLUMNS = 6
MOST = 600
"""More would make a picture that no viewer likes to open."""
_PAPER, _INK, _PALE = (250, 250, 248), (30, 32, 36), (105, 110, 118)


class Tile(NamedTuple):
    """One image, and what stands under it."""

    pixels: npt.NDArray[np.uint8]
    """(channels, height, width)"""
    lines: Sequence[str]


def contact_sheet(title: str, tiles: Sequence[Tile]) -> bytes:
    """A PNG of the tiles, row after row, with at most ``MOST`` of them."""
    shown = tiles[:MOST]
    columns = max(1, min(COLUMNS, len(shown)))
    below = LINE * max((len(tile.lines) for tile in shown), default=0) + 6
    rows = -(-len(shown) // columns)
    width = max(GAP + columns * (TILE + GAP), 3 * TILE)
    sheet = Image.new("RGB", (width, 2 * GAP + 24 + rows * (TILE + below + GAP)), _PAPER)
    draw, font, small = ImageDraw.Draw(sheet), ImageFont.load_default(17), ImageFont.load_default(12)
    draw.text((GAP, GAP), _fitted(title, font, width - 2 * GAP, draw), _INK, font)
    for number, tile in enumerate(shown):
        left = GAP + number % columns * (TILE + GAP)
        top = 2 * GAP + 24 + number // columns * (TILE + below + GAP)
        sheet.paste(_picture(tile.pixels), (left, top))
        for line, text in enumerate(tile.lines):
            place = (left, top + TILE + 4 + line * LINE)
            draw.text(place, _fitted(text, small, TILE, draw), _PALE if line else _INK, small)
    stream = BytesIO()
    sheet.save(stream, "PNG")
    return stream.getvalue()


def picture_of(pixels: npt.NDArray[np.uint8]) -> Image.Image:
    """(channels, height, width) as an image."""
    return Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))


def _picture(pixels: npt.NDArray[np.uint8]) -> Image.Image:
    return picture_of(pixels).convert("RGB").resize((TILE, TILE), Image.Resampling.BICUBIC)


def _fitted(
    text: str, font: "ImageFont.FreeTypeFont | ImageFont.ImageFont", width: int, draw: ImageDraw.ImageDraw
) -> str:
    """The text on one line, its middle left out where it is too long: names differ most at their ends."""
    text = " ".join(text.split())
    if draw.textlength(text, font) <= width:
        return text
    kept = len(text)
    while kept > 2 and draw.textlength(shortened := f"{text[: kept // 2]}…{text[-(kept // 2) :]}", font) > width:
        kept -= 1
    return shortened

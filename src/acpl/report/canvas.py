"""A drawing that can be had as SVG and as PNG, from the same few shapes."""

import base64
from html import escape
from io import BytesIO
from typing import Literal

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

Point = tuple[float, float]
Anchor = Literal["start", "middle", "end"]
INK, FAINT, PAPER = "#222222", "#d9d9d9", "#ffffff"
_FINE, _SCALE = 2, 2  # drawn finer and reduced, for Pillow's own edges are not smooth; then so many pixels a unit
_PILLOW_ANCHOR = {"start": "ls", "middle": "ms", "end": "rs"}


class Canvas:
    """Shapes in units of about a pixel, the origin at the top left; later ones lie over earlier ones."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = round(width), round(height)
        self._svg: list[str] = []
        zoom = _FINE * _SCALE
        self._zoom = zoom
        self._image = Image.new("RGB", (self.width * zoom, self.height * zoom), PAPER)

    def line(self, points: list[Point], colour: str = INK, width: float = 1.0) -> None:
        """Through all points."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self._svg.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width:g}"/>')
        pen = ImageDraw.Draw(self._image)
        pen.line(self._scaled(points), fill=colour, width=max(1, round(width * self._zoom)), joint="curve")

    def area(self, points: list[Point], colour: str, opacity: float = 0.2) -> None:
        """What the points enclose, see-through."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self._svg.append(f'<polygon points="{path}" fill="{colour}" fill-opacity="{opacity:g}"/>')
        mask = Image.new("L", self._image.size, 0)
        ImageDraw.Draw(mask).polygon(self._scaled(points), fill=round(255 * opacity))
        self._image.paste(Image.new("RGB", self._image.size, colour), mask=mask)

    def box(
        self, corner: Point, size: Point, fill: str | None = None, edge: str | None = None, width: float = 1
    ) -> None:
        """A rectangle from its top left corner."""
        (x, y), (across, down) = corner, size
        self._svg.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{across:.1f}" height="{down:.1f}" fill="{fill or "none"}" '
            f'stroke="{edge or "none"}" stroke-width="{width:g}"/>'
        )
        ends = self._scaled([(x, y), (x + across, y + down)])
        ImageDraw.Draw(self._image).rectangle(ends, fill=fill, outline=edge, width=round(width * self._zoom))

    def dot(self, centre: Point, radius: float, colour: str) -> None:
        """A filled circle."""
        x, y = centre
        self._svg.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{colour}"/>')
        ends = self._scaled([(x - radius, y - radius), (x + radius, y + radius)])
        ImageDraw.Draw(self._image).ellipse(ends, fill=colour)

    def text(self, at: Point, words: str, size: float = 12, anchor: Anchor = "start", colour: str = INK) -> None:
        """A line of words on the base line ``at``."""
        x, y = at
        self._svg.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" text-anchor="{anchor}" fill="{colour}">'
            f"{escape(words)}</text>"
        )
        font = ImageFont.load_default(size * self._zoom)
        place = (x * self._zoom, y * self._zoom)
        ImageDraw.Draw(self._image).text(place, words, fill=colour, font=font, anchor=_PILLOW_ANCHOR[anchor])

    def upright_text(self, at: Point, words: str, size: float = 12, anchor: Anchor = "middle") -> None:
        """A line of words read from below; its middle, or its end, which is its top, ``at``."""
        x, y = at
        self._svg.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" text-anchor="{anchor}" fill="{INK}" '
            f'transform="rotate(-90 {x:.1f} {y:.1f})">{escape(words)}</text>'
        )
        font = ImageFont.load_default(size * self._zoom)
        length = round(font.getlength(words)) + 4
        strip = Image.new("RGB", (length, round(1.6 * size * self._zoom)), PAPER)
        ImageDraw.Draw(strip).text((length / 2, 1.2 * size * self._zoom), words, fill=INK, font=font, anchor="ms")
        turned = strip.rotate(90, expand=True)
        left = x * self._zoom - 1.2 * size * self._zoom
        above = {"start": length, "middle": length / 2, "end": 0}[anchor]
        self._image.paste(turned, (round(left), round(y * self._zoom - above)))

    def picture(self, corner: Point, size: Point, pixels: npt.NDArray[np.uint8]) -> None:
        """An image (height, width) or (height, width, 3), stretched to ``size``."""
        (x, y), (across, down) = corner, size
        image = Image.fromarray(pixels).convert("RGB")
        file = BytesIO()
        image.save(file, "PNG", optimize=True)
        data = base64.b64encode(file.getvalue()).decode()
        self._svg.append(
            f'<image x="{x:.1f}" y="{y:.1f}" width="{across:.1f}" height="{down:.1f}" '
            f'preserveAspectRatio="none" href="data:image/png;base64,{data}"/>'
        )
        stretched = image.resize((round(across * self._zoom), round(down * self._zoom)), Image.Resampling.BICUBIC)
        self._image.paste(stretched, (round(x * self._zoom), round(y * self._zoom)))

    def svg(self) -> str:
        """As a file for browsers and papers."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:g} {self.height:g}" '
            f'width="{self.width:g}" height="{self.height:g}" font-family="sans-serif">'
            f'<rect width="100%" height="100%" fill="{PAPER}"/>'
        )
        return "\n".join([head, *self._svg, "</svg>"]) + "\n"

    def png(self) -> bytes:
        """As pixels, twice as many as units."""
        size = (self.width * _SCALE, self.height * _SCALE)
        file = BytesIO()
        self._image.resize(size, Image.Resampling.LANCZOS).save(file, "PNG", optimize=True)
        return file.getvalue()

    def _scaled(self, points: list[Point]) -> list[Point]:
        return [(x * self._zoom, y * self._zoom) for x, y in points]

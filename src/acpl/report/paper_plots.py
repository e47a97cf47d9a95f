"""The paper's figures: lines with bands, bars by group, and images with what was said of them."""

from collections.abc import Mapping, Sequence
from math import ceil, floor, isfinite, log10
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from acpl.report.canvas import FAINT, INK, Canvas

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
"""Told apart by colour-blind readers too (Okabe and Ito)."""
RIGHT, WRONG = "#1a8f3c", "#c8202f"
_WIDTH, _HEIGHT = 640.0, 400.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 64.0, 16.0, 60.0, 48.0


class Line(NamedTuple):
    """A named line of points (x, y), and what it may lie between at each x: (x, low, high)."""

    name: str
    points: list[tuple[float, float]]
    band: list[tuple[float, float, float]]


class Example(NamedTuple):
    """An image, whether what was said of it is right, and the lines below it."""

    pixels: npt.NDArray[np.uint8]
    right: bool
    lines: tuple[str, ...]


def line_plot(title: str, lines: Sequence[Line], across: str, up: str) -> Canvas:
    """Lines over a common axis, each with its band."""
    canvas = Canvas(_WIDTH, _HEIGHT)
    points = [(x, y) for line in lines for x, y in line.points if isfinite(y)]
    if not points:
        return _nothing(canvas, title)
    xs = [x for x, _ in points]
    ys = [y for _, y in points] + [y for line in lines for _, *ends in line.band for y in ends if isfinite(y)]
    (left, right), (bottom, top) = _span(xs, 0.03), _span(ys, 0.06)

    def place(x: float, y: float) -> tuple[float, float]:
        return (
            _LEFT + (x - left) / (right - left) * (_WIDTH - _LEFT - _RIGHT),
            _HEIGHT - _BOTTOM - (y - bottom) / (top - bottom) * (_HEIGHT - _TOP - _BOTTOM),
        )

    _frame(
        canvas, title, up, _HEIGHT - _BOTTOM, [(place(left, value)[1], f"{value:g}") for value in ticks(bottom, top)]
    )
    distinct = sorted(set(xs))
    for x in distinct if len(distinct) <= 10 else ticks(left, right):
        canvas.text((place(x, bottom)[0], _HEIGHT - _BOTTOM + 16), f"{x:g}", 11, "middle")
    canvas.text(((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 10), across, 12, "middle")
    for number, line in enumerate(lines):
        colour = COLOURS[number % len(COLOURS)]
        band = [one for one in line.band if isfinite(one[1]) and isfinite(one[2])]
        if len(band) > 1:
            edge = [place(x, low) for x, low, _ in band] + [place(x, high) for x, _, high in reversed(band)]
            canvas.area(edge, colour)
    for number, line in enumerate(lines):
        colour = COLOURS[number % len(COLOURS)]
        drawn = [place(x, y) for x, y in line.points if isfinite(y)]
        if len(drawn) > 1:
            canvas.line(drawn, colour, 2)
        for point in drawn:
            canvas.dot(point, 3, colour)
    _legend(canvas, [line.name for line in lines])
    return canvas


def bar_plot(title: str, groups: Sequence[str], bars: Mapping[str, Sequence[float]], up: str) -> Canvas:
    """A group of bars for each name, from 0; what is not finite has no bar. Names stand upright where they must."""
    longest = 5.2 * max((len(name) for name in groups), default=0)
    width = max(_WIDTH, _LEFT + _RIGHT + 46.0 * len(groups))
    room = (width - _LEFT - _RIGHT) / max(1, len(groups))
    lying = 1.3 * longest < room
    below = 34.0 if lying else 24.0 + longest
    canvas = Canvas(width, _HEIGHT + below - _BOTTOM)
    values = [value for one in bars.values() for value in one if isfinite(value)]
    if not values:
        return _nothing(canvas, title)
    top = max(values) * 1.06 or 1.0
    base, height = canvas.height - below, canvas.height - below - _TOP
    _frame(canvas, title, up, base, [(base - value / top * height, f"{value:g}") for value in ticks(0, top)])
    canvas.line([(_LEFT, base), (width - _RIGHT, base)])
    each = room * 0.8 / len(bars)
    for place, name in enumerate(groups):
        start = _LEFT + place * room + room * 0.1
        for number, one in enumerate(bars.values()):
            if isfinite(one[place]):
                tall = one[place] / top * height
                canvas.box((start + number * each, base - tall), (each * 0.92, tall), COLOURS[number % len(COLOURS)])
        if lying:
            canvas.text((start + room * 0.4, base + 18), name, 11, "middle")
        else:
            canvas.upright_text((start + room * 0.4 + 4, base + 6), name, 11, "end")
    _legend(canvas, list(bars))
    return canvas


def example_sheet(title: str, examples: Sequence[Example], columns: int = 6) -> Canvas:
    """Images in rows, a green edge where what was said is right and a red one where it is wrong."""
    tile, gap, words = 116.0, 12.0, 13.0
    lines = max((len(example.lines) for example in examples), default=0)
    high = tile + gap + words * lines + 6
    rows = max(1, ceil(len(examples) / columns))
    canvas = Canvas(gap + columns * (tile + gap), 36 + rows * high)
    canvas.text((gap, 22), title, 13)
    for number, example in enumerate(examples):
        x, y = gap + number % columns * (tile + gap), 36 + number // columns * high
        canvas.picture((x, y), (tile, tile), example.pixels)
        canvas.box((x, y), (tile, tile), edge=RIGHT if example.right else WRONG, width=3)
        for line, text in enumerate(example.lines):
            canvas.text((x, y + tile + words * (line + 1)), text, 10, colour=INK)
    return canvas


def ticks(low: float, high: float) -> list[float]:
    """Five or so round numbers from low to high."""
    rough = (high - low) / 5
    size = 10 ** floor(log10(rough))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough)
    return [round(number * step, 10) for number in range(ceil(low / step), floor(high / step) + 1)]


def _frame(canvas: Canvas, title: str, up: str, base: float, marks: Sequence[tuple[float, str]]) -> None:
    canvas.text((_LEFT, 22), title, 13)
    for y, text in marks:
        canvas.line([(_LEFT, y), (canvas.width - _RIGHT, y)], FAINT)
        canvas.text((_LEFT - 6, y + 4), text, 11, "end")
    canvas.upright_text((18, (_TOP + base) / 2), up, 12)


def _legend(canvas: Canvas, names: Sequence[str]) -> None:
    x = _LEFT
    for number, name in enumerate(names):
        canvas.box((x, 34), (12, 12), COLOURS[number % len(COLOURS)])
        canvas.text((x + 17, 44), name, 12)
        x += 36 + 6.6 * len(name)


def _nothing(canvas: Canvas, title: str) -> Canvas:
    canvas.text((_LEFT, 22), title, 13)
    canvas.text((canvas.width / 2, canvas.height / 2), "no run finished", 13, "middle")
    return canvas


def _span(values: Sequence[float], margin: float) -> tuple[float, float]:
    low, high = min(values), max(values)
    room = (high - low) * margin or abs(high) * margin or 1.0
    return low - room, high + room

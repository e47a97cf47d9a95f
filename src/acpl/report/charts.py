"""Small line charts as SVG, no library and no script needed."""

from html import escape
from math import floor, isfinite, log10
from typing import NamedTuple

WIDTH, HEIGHT = 560, 220
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 12, 28


class Series(NamedTuple):
    """A named line."""

    name: str
    points: list[tuple[float, float]]


def line_chart(series: list[Series]) -> str:
    """An SVG whose colours follow the page's ``--series-N``; points that are not finite are left out."""
    series = [Series(s.name, [p for p in s.points if isfinite(p[0]) and isfinite(p[1])]) for s in series]
    points = [point for line in series for point in line.points]
    if not points:
        return ""
    x_low, x_high = _span([x for x, _ in points])
    y_low, y_high = _span([y for _, y in points])

    def place(x: float, y: float) -> tuple[float, float]:
        across = LEFT + (x - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)
        return across, HEIGHT - BOTTOM - (y - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM)

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">']
    for value in _ticks(y_low, y_high):
        _, y = place(x_low, value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    for value in _ticks(x_low, x_high):
        x, _ = place(value, y_low)
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - 8}" text-anchor="middle">{value:g}</text>')
    for number, line in enumerate(series):
        placed = [place(x, y) for x, y in line.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        parts.append(f'<polyline class="line" style="stroke:var(--series-{number})" points="{path}"/>')
        if len(placed) <= 12:
            dots = (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in placed)
            parts.append(f'<g style="fill:var(--series-{number})">{"".join(dots)}</g>')
    parts.append("</svg>")
    names = "".join(
        f'<span><i style="background:var(--series-{number})"></i>{escape(line.name)}</span>'
        for number, line in enumerate(series)
    )
    return "".join(parts) + f'<div class="legend">{names}</div>'


def _span(values: list[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    margin = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    return low - margin, high + margin


def _ticks(low: float, high: float) -> list[float]:
    """Four or so round numbers within."""
    rough = (high - low) / 4
    size = 10 ** floor(log10(rough))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough)
    first = int(low // step) + 1
    return [round(number * step, 10) for number in range(first, int(high // step) + 1)]

"""Charts as SVG: axes with labels and units, lines, bands and dots; no library and no script needed.

Colours are the page's own ``--series-N``, so that a chart follows light, dark and paper. A chart is drawn at the size
at which it is shown, so that its letters are as large as the page's.
"""

from collections.abc import Callable, Sequence
from math import floor, isfinite, log10
from typing import NamedTuple

from markupsafe import Markup, escape

WIDTH, HEIGHT = 360, 220
LEFT, RIGHT, TOP, BOTTOM = 44, 12, 24, 38
FEW = 12
"""Points of a line that are marked one by one."""

Point = tuple[float, float]
Span = tuple[float, float]


class Series(NamedTuple):
    """A named line."""

    name: str
    points: list[Point]


class Chart:
    """An empty pair of axes that marks are added to, in the order in which they are painted."""

    def __init__(
        self,
        alt: str,
        x: Span,
        y: Span,
        *,
        x_label: str = "",
        y_label: str = "",
        width: int = WIDTH,
        height: int = HEIGHT,
        left: int = LEFT,
        x_ticks: Sequence[tuple[float, str]] | None = None,
        y_ticks: Sequence[tuple[float, str]] | None = None,
        axis: bool = True,
    ) -> None:
        self.alt = alt
        self.x_span, self.y_span = _widened(x), _widened(y)
        self.width, self.height, self.left = width, height, left
        self.bottom = height - BOTTOM
        self.top = TOP if y_label else 10
        self._parts: list[str] = []
        self._frame(
            list(x_ticks if x_ticks is not None else labelled_ticks(*self.x_span)),
            list(y_ticks if y_ticks is not None else labelled_ticks(*self.y_span)),
            x_label,
            y_label,
        )
        if axis:
            right = width - RIGHT
            self.add(f'<line class="axis" x1="{left}" x2="{right}" y1="{self.bottom}" y2="{self.bottom}"/>')

    def x(self, value: float) -> float:
        """Where a value lies across."""
        low, high = self.x_span
        return self.left + (value - low) / (high - low) * (self.width - RIGHT - self.left)

    def y(self, value: float) -> float:
        """Where a value lies from the top."""
        low, high = self.y_span
        return self.bottom - (value - low) / (high - low) * (self.bottom - self.top)

    def add(self, part: str) -> None:
        """Any further SVG; whatever came from outside must be escaped in it."""
        self._parts.append(part)

    def line(self, points: Sequence[Point], colour: int, *, kind: str = "line", marked: bool = False) -> None:
        """A line through the points, each with a dot where ``marked``."""
        placed = [(self.x(x), self.y(y)) for x, y in points if isfinite(x) and isfinite(y)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        self.add(f'<polyline class="{kind}" style="stroke:var(--series-{colour})" points="{path}"/>')
        if marked:
            dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.8"/>' for x, y in placed)
            self.add(f'<g style="fill:var(--series-{colour})">{dots}</g>')

    def band(self, xs: Sequence[float], lows: Sequence[float], highs: Sequence[float], colour: int) -> None:
        """The area between two lines."""
        there = [(x, a, b) for x, a, b in zip(xs, lows, highs, strict=True) if isfinite(a) and isfinite(b)]
        edge = [(x, b) for x, _, b in there] + [(x, a) for x, a, _ in reversed(there)]
        path = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in edge)
        self.add(f'<polygon class="band" style="fill:var(--series-{colour})" points="{path}"/>')

    def bar(self, x: Span, y: Span, colour: int, *, hint: str = "", kind: str = "fill") -> None:
        """A filled rectangle; ``hint`` is shown when it is pointed at."""
        left, right, top, bottom = self.x(x[0]), self.x(x[1]), self.y(y[1]), self.y(y[0])
        title = f"<title>{escape(hint)}</title>" if hint else ""
        self.add(
            f'<rect class="{kind}" style="fill:var(--series-{colour})" x="{left:.1f}" y="{top:.1f}" '
            f'width="{max(right - left, 0):.1f}" height="{max(bottom - top, 0):.1f}">{title}</rect>'
        )

    def cloud(self, points: Sequence[Point], colour: int, size: float) -> None:
        """Many dots as one shape, so that thousands of them stay light."""
        path = "".join(f"M{self.x(x):.1f} {self.y(y):.1f}h0" for x, y in points if isfinite(x) and isfinite(y))
        self.add(f'<path class="cloud" style="stroke:var(--series-{colour});stroke-width:{size}" d="{path}"/>')

    def text(self, x: float, y: float, words: str, *, anchor: str = "start", kind: str = "") -> None:
        """Words at a place of the drawing."""
        self.add(f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>')

    def svg(self, legend: Sequence[tuple[str, int]] = ()) -> Markup:
        """The drawing, and below it what its colours mean."""
        head = (
            f'<svg viewBox="0 0 {self.width} {self.height}" style="max-width:{self.width * 1.12:.0f}px" '
            f'role="img" aria-label="{escape(self.alt)}">'
        )
        # Every word in it went through escape().
        return Markup(head + "".join(self._parts) + "</svg>") + legend_of(legend)  # nosec B704

    def _frame(
        self, x_ticks: list[tuple[float, str]], y_ticks: list[tuple[float, str]], x_label: str, y_label: str
    ) -> None:
        right = self.width - RIGHT
        for value, words in y_ticks:
            y = self.y(value)
            self.add(f'<line class="grid" x1="{self.left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
            self.text(self.left - 6, y + 4, words, anchor="end")
        for value, words in x_ticks:
            self.text(self.x(value), self.bottom + 15, words, anchor="middle")
        self.text(0, 11, y_label, kind="label")
        self.text(right, self.height - 5, x_label, anchor="end", kind="label")


def line_chart(
    series: Sequence[Series],
    *,
    alt: str = "",
    x_label: str = "",
    y_label: str = "",
    y: Span | None = None,
    markers: Sequence[tuple[float, str]] = (),
) -> Markup:
    """Lines over a common axis; points that are not finite are left out. ``markers`` are named places across."""
    there = [Series(s.name, [p for p in s.points if isfinite(p[0]) and isfinite(p[1])]) for s in series]
    points = [point for line in there for point in line.points]
    if not points:
        return Markup("")
    words = alt or f"{y_label or 'values'} by {x_label or 'step'}: {', '.join(line.name for line in there)}"
    chart = Chart(
        words, span([x for x, _ in points]), y or span([v for _, v in points], 0.06), x_label=x_label, y_label=y_label
    )
    for place, name in markers:
        x = chart.x(place)
        chart.add(f'<line class="marker" x1="{x:.1f}" x2="{x:.1f}" y1="{chart.top}" y2="{chart.bottom}"/>')
        chart.text(x + 3, chart.top + 8, name, kind="small")
    for number, line in enumerate(there):
        chart.line(line.points, number % 8, marked=len(line.points) <= FEW)
    return chart.svg([(line.name, number % 8) for number, line in enumerate(there)] if len(there) > 1 else [])


def legend_of(entries: Sequence[tuple[str, int]]) -> Markup:
    """Names beside their colours."""
    if not entries:
        return Markup("")
    keys = Markup("").join(
        Markup('<span><i style="background:var(--series-{})"></i>{}</span>').format(colour, name)
        for name, colour in entries
    )
    return Markup('<div class="legend">{}</div>').format(keys)


def span(values: Sequence[float], margin: float = 0.0) -> Span:
    """Least and greatest, with a share of their distance to spare."""
    low, high = min(values), max(values)
    spare = (high - low) * margin
    return low - spare, high + spare


def labelled_ticks(low: float, high: float, words: Callable[[float], str] | None = None) -> list[tuple[float, str]]:
    """Four or so round numbers within, and how they are written."""
    return [(value, words(value) if words else short(value)) for value in ticks(low, high)]


def ticks(low: float, high: float) -> list[float]:
    """Four or so round numbers within."""
    rough = (high - low) / 4
    size = 10 ** floor(log10(rough))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough * 0.999)
    first = int(-(-(low - step * 1e-6) // step))
    return [round(number * step, 10) for number in range(first, int((high + step * 1e-6) // step) + 1)]


def short(value: float) -> str:
    """A number for an axis: 0.25, 12, 3.5k."""
    if abs(value) >= 10_000:
        return f"{value / 1000:g}k"
    return f"{value:g}"


def _widened(limits: Span) -> Span:
    """A span of some width, whatever the values were."""
    low, high = limits
    if high > low:
        return low, high
    spare = abs(high) * 0.05 or 1.0
    return low - spare, high + spare

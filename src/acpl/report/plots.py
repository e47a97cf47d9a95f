"""The report's own pictures: intervals, pools, densities, balance, map, curves, calibration."""

from collections.abc import Mapping, Sequence
from math import exp, pi, sqrt
from typing import Any, NamedTuple

from markupsafe import Markup

from acpl.duration import duration
from acpl.report.charts import HEIGHT, RIGHT, Chart, labelled_ticks, legend_of, span

BLUE, ORANGE, GREY, VIOLET, GREEN, ROSE, PALE = 0, 1, 2, 3, 4, 5, 6
LEVELS = {2: ("low", "high"), 3: ("low", "medium", "high")}
SHARE_TICKS = [(0.0, "0"), (0.25, "25"), (0.5, "50"), (0.75, "75"), (1.0, "100")]


class Interval(NamedTuple):
    """A named figure and how far it can be trusted."""

    name: str
    point: float
    low: float | None
    high: float | None
    colour: int = BLUE
    note: str = ""


def forest(rows: Sequence[Interval], *, alt: str, x_label: str, zero: bool = False, width: int = 420) -> Markup:
    """A row a figure: its name, its interval as a bar on a common axis, its numbers."""
    ends = [value for row in rows for value in (row.point, row.low, row.high) if value is not None]
    low, high = span([*ends, 0.0] if zero else ends, 0.08)
    line, name_room = 34, 0
    height = 16 + line * len(rows) + 36
    chart = Chart(alt, (low, high), (0, 1), x_label=x_label, width=width, height=height, left=12, y_ticks=[])
    for value, _ in labelled_ticks(*chart.x_span):
        x = chart.x(value)
        chart.add(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="6" y2="{chart.bottom}"/>')
    if zero:
        x = chart.x(0.0)
        chart.add(f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="6" y2="{chart.bottom}"/>')
    for number, row in enumerate(rows):
        y = 16 + line * number + 8
        chart.text(chart.left + name_room, y - 2, row.name, kind="name")
        chart.text(width - RIGHT, y - 2, row.note, anchor="end", kind="name value")
        bar = y + 10
        colour = f"var(--series-{row.colour})"
        if row.low is not None and row.high is not None:
            a, b = chart.x(row.low), chart.x(row.high)
            chart.add(
                f'<line class="whisker" style="stroke:{colour}" x1="{a:.1f}" x2="{b:.1f}" y1="{bar}" y2="{bar}"/>'
            )
        chart.add(f'<circle style="fill:{colour}" cx="{chart.x(row.point):.1f}" cy="{bar}" r="4.5"/>')
    return chart.svg()


def pool_bars(rows: Sequence[Mapping[str, Any]]) -> Markup:
    """A column a stage: labels that were given, pseudo-labels so far, what is left; anchors as a line."""
    parts = (("labelled", BLUE), ("pseudo-labelled", ORANGE), ("left", PALE))
    top = max(sum(row[name] for name, _ in parts) for row in rows)
    chart = Chart(
        "images in each pool, stage by stage",
        (-0.6, len(rows) - 0.4),
        (0, top * 1.05 or 1),
        x_label="stage",
        y_label="images",
        x_ticks=[(number, row["short"]) for number, row in enumerate(rows)],
    )
    for number, row in enumerate(rows):
        base = 0.0
        for name, colour in parts:
            hint = f"{row['name']}: {row[name]:,} {name}"
            chart.bar((number - 0.32, number + 0.32), (base, base + row[name]), colour, hint=hint)
            base += row[name]
    anchors = [(float(n), float(row["anchors"])) for n, row in enumerate(rows) if row.get("anchors") is not None]
    legend = [(name, colour) for name, colour in parts if any(row[name] for row in rows)]
    if anchors:
        chart.line(anchors, VIOLET, marked=True)
        legend.append(("anchors", VIOLET))
    return chart.svg(legend)


def density_histogram(density: Mapping[str, Any]) -> Markup:
    """How dense the candidates are among the anchors, by information level, under the mixture's components."""
    edges, counts = density["edges"], density["counts"]
    sets = len(counts)
    names = LEVELS.get(sets, tuple(f"set {number + 1}" for number in range(sets)))
    total, width = sum(map(sum, counts)), edges[1] - edges[0]
    heights = [sum(column) for column in zip(*counts, strict=True)]
    xs = [edges[0] + (edges[-1] - edges[0]) * place / 160 for place in range(161)]
    curves = [[(x, total * width * _normal(x, part)) for x in xs] for part in density["components"]]
    # A component that is one narrow needle would flatten all the rest.
    top = min(max([*heights, *(y for curve in curves for _, y in curve)]), 1.6 * max(heights))
    chart = Chart(
        f"histogram of the density of {total} candidates with the mixture's {sets} components",
        (edges[0], edges[-1]),
        (0, top * 1.05),
        x_label="density: mean cosine to the nearest anchors",
        y_label="candidates",
    )
    colours = [_level_colour(level, sets) for level in range(sets)]
    for place in range(len(heights)):
        base = 0
        for level in reversed(range(sets)):
            count = counts[level][place]
            if count:
                hint = f"{count:,} of {names[level]} information from {edges[place]:.3f} to {edges[place + 1]:.3f}"
                across = (edges[place], edges[place + 1])
                chart.bar(across, (base, base + count), colours[level], hint=hint, kind="fill soft")
                base += count
    for level, curve in enumerate(curves):
        chart.line([(x, min(y, top * 1.05)) for x, y in curve], colours[level])
    taken = [f"{names[level]}{' (selected)' if level in density['taken'] else ''}" for level in range(sets)]
    return chart.svg([(f"{taken[level]} information", colours[level]) for level in reversed(range(sets))])


def balance_chart(classes: Sequence[str], balance: Mapping[str, Any]) -> Markup:
    """A row a class: its share of the pool and of what was selected."""
    pool, chosen = balance["pool"], balance["selected"]
    if pool is None or chosen is None or None in pool or None in chosen:
        return Markup("")
    order = sorted(range(len(classes)), key=lambda place: -pool[place])
    line = 22
    height = 24 + line * len(order) + 34
    longest = max(len(name) for name in classes)
    left = min(130, 12 + 6 * longest)
    top = max([*pool, *chosen]) * 1.08 or 1.0
    percent = labelled_ticks(0, top * 100)
    chart = Chart(
        "share of each class in the pool and among the selected",
        (0, top),
        (0, 1),
        x_label="share of images, %",
        height=height,
        left=left,
        x_ticks=[(value / 100, words) for value, words in percent],
        y_ticks=[],
    )
    for value, _ in percent:
        x = chart.x(value / 100)
        chart.add(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="10" y2="{chart.bottom}"/>')
    for number, place in enumerate(order):
        y = 22 + line * number
        a, b = chart.x(pool[place]), chart.x(chosen[place])
        name = classes[place] if len(classes[place]) <= 20 else classes[place][:19] + "…"
        chart.text(left - 8, y + 4, name, anchor="end", kind="ink")
        hint = f"{classes[place]}: {pool[place]:.1%} of the pool, {chosen[place]:.1%} of the selected"
        chart.add(Markup("<g><title>{}</title>").format(hint))
        chart.add(f'<line class="link" x1="{a:.1f}" x2="{b:.1f}" y1="{y}" y2="{y}"/>')
        chart.add(f'<circle class="hollow" style="stroke:var(--series-{GREY})" cx="{a:.1f}" cy="{y}" r="4"/>')
        chart.add(f'<circle style="fill:var(--series-{ORANGE})" cx="{b:.1f}" cy="{y}" r="4.5"/></g>')
    return chart.svg([("pool", GREY), ("selected", ORANGE)])


def feature_map(found: Mapping[str, Any]) -> Markup:
    """Where anchors, selected and rest lie among each other."""
    kinds = (
        ("rest", "not selected", PALE, 3.0),
        ("labelled", "labelled anchors", BLUE, 3.6),
        ("joined", "anchors that joined", VIOLET, 3.6),
        ("selected", "selected", ORANGE, 3.4),
    )
    points = found["points"]
    every = [point for group in points.values() for point in group]
    if not every:
        return Markup("")
    x, y = (span([point[axis] for point in every], 0.04) for axis in (0, 1))
    chart = Chart(
        f"{found['how']} of the features of {len(every)} sampled images",
        x,
        y,
        x_label=f"{found['how']}, first direction",
        y_label="second direction",
        height=HEIGHT + 80,
        left=12,
        x_ticks=[],
        y_ticks=[],
        axis=False,
    )
    for kind, _, colour, size in kinds:
        chart.cloud([(a, b) for a, b in points[kind]], colour, size)
    return chart.svg([(name, colour) for kind, name, colour, _ in kinds if points[kind]])


def curve_panel(
    name: str,
    curve: Mapping[str, Any],
    *,
    alt: str,
    x_label: str,
    y_label: str,
    at: Sequence[float | None] | None,
    even: Sequence[tuple[float, float]],
    start: Sequence[tuple[float, float]] = (),
) -> Markup:
    """A small square: a curve in its band, chance as a dotted line, and where the model's own rule stands."""
    ticks = [(0.0, "0"), (0.5, "50"), (1.0, "100")]
    side = 220
    chart = Chart(
        f"{name}: {alt}",
        (0, 1),
        (0, 1),
        x_label=x_label,
        y_label=y_label,
        width=side,
        height=side + 4,
        left=32,
        x_ticks=ticks,
        y_ticks=ticks,
    )
    xs = [number / (len(curve["y"]) - 1) for number in range(len(curve["y"]))]
    chart.line(list(even), GREY, kind="line chance")
    y, low, high = ([float("nan") if v is None else v for v in curve[key]] for key in ("y", "low", "high"))
    chart.band(xs, low, high, BLUE)
    chart.line([*start, *zip(xs, y, strict=True)], BLUE)
    here = [value for value in at or () if value is not None]
    if len(here) == 2:
        x, up = chart.x(here[0]), chart.y(here[1])
        chart.add(f'<circle class="ring" style="fill:var(--series-{ORANGE})" cx="{x:.1f}" cy="{up:.1f}" r="4.5"/>')
    return chart.svg()


def reliability_chart(found: Mapping[str, Any], question: str) -> Markup:
    """Said against true: on the diagonal a probability means what it says."""
    chart = Chart(
        "share that is true against the probability that was said",
        (0, 1),
        (0, 1),
        x_label=f"{question}, %",
        y_label="share that is true, %",
        height=HEIGHT + 60,
        x_ticks=SHARE_TICKS,
        y_ticks=SHARE_TICKS,
    )
    chart.line([(0, 0), (1, 1)], GREY, kind="line chance")
    most = max(found["answers"])
    rows = list(zip(*(found[key] for key in ("score", "share", "low", "high", "answers")), strict=True))
    for said, true, low, high, answers in rows:
        if said is None or true is None:
            continue
        x = chart.x(said)
        if low is not None and high is not None:
            chart.add(
                f'<line class="whisker thin" style="stroke:var(--series-{BLUE})" x1="{x:.1f}" x2="{x:.1f}" '
                f'y1="{chart.y(high):.1f}" y2="{chart.y(low):.1f}"/>'
            )
        radius = 2.5 + 4.5 * sqrt(answers / most)
        hint = f"{answers:,} answers around {said:.0%}: {true:.1%} true"
        chart.add(
            Markup('<circle style="fill:var(--series-{})" cx="{}" cy="{}" r="{}"><title>{}</title></circle>').format(
                BLUE, f"{x:.1f}", f"{chart.y(true):.1f}", f"{radius:.1f}", hint
            )
        )
    return chart.svg()


def time_bar(parts: Mapping[str, float]) -> Markup:
    """One bar for the whole time, cut by part."""
    total = sum(parts.values()) or 1.0
    colours = (BLUE, ORANGE, VIOLET, GREEN, ROSE, GREY, PALE)
    entries = list(zip(parts.items(), (colours[n % len(colours)] for n in range(len(parts))), strict=True))
    bar = Markup("").join(
        Markup('<i style="flex:{} 0 0;background:var(--series-{})" title="{}"></i>').format(
            f"{max(seconds / total, 0.002):.4f}", colour, f"{name}: {duration(seconds)}"
        )
        for (name, seconds), colour in entries
    )
    legend = legend_of([(f"{name} {duration(seconds)}", colour) for (name, seconds), colour in entries])
    alt = ", ".join(f"{name} {duration(seconds)}" for (name, seconds), _ in entries)
    return Markup('<div class="timebar" role="img" aria-label="{}">{}</div>{}').format(alt, bar, legend)


def _normal(x: float, part: Mapping[str, float]) -> float:
    spread = max(part["sd"], 1e-9)
    return part["weight"] * exp(-0.5 * ((x - part["mean"]) / spread) ** 2) / (spread * sqrt(2 * pi))


def _level_colour(level: int, sets: int) -> int:
    """High information as what is selected, low as what is left."""
    return {0: GREY, sets - 1: ORANGE}.get(level, BLUE if level == 1 else VIOLET)

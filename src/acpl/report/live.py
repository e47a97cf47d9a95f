"""A comparison while it runs: one table that is drawn again and again."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from acpl.duration import duration

MARKS = {"done": ("●", "green"), "running": ("◐", "yellow"), "failed": ("✗", "red"), "waiting": ("○", "dim")}
_AROUND = 10
"""Lines of a terminal that are not rows of the table."""

Rows = Sequence[Mapping[str, Any]]


def live_table(
    rows: Rows,
    *,
    title: str,
    counts: Mapping[str, int],
    failures: Mapping[str, str],
    gone: float,
    left: float | None,
    height: int = 50,
) -> Group:
    """A method at a fraction a row: its cells, what runs now, and mean AUROCs of what is done; below, what is left."""
    reasons = [
        Text(f"✗ {name}: {reason}", style="red", no_wrap=True, overflow="ellipsis") for name, reason in failures.items()
    ]
    shown_reasons = reasons[-3:]
    shown, hidden = _fitting(rows, max(3, height - _AROUND - len(shown_reasons)))
    best: dict[float, float] = {}
    for row in rows:
        if row["test"] is not None:
            best[row["fraction"]] = max(row["test"], best.get(row["fraction"], 0.0))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    several = len({row["fraction"] for row in rows}) > 1
    if several:
        table.add_column("labels", justify="right", no_wrap=True)
    table.add_column("method", no_wrap=True)
    table.add_column("cells", no_wrap=True)
    table.add_column("steps now", no_wrap=True, min_width=24)  # so that the table does not jump
    table.add_column("validation", justify="right", no_wrap=True)
    table.add_column("test", justify="right", no_wrap=True)
    for row in shown:
        waits = set(row["states"]) == {"waiting"}
        test = Text(_figure(row["test"]), style="bold" if row["test"] == best.get(row["fraction"], -1) else "")
        cells: list[RenderableType] = [
            Text(row["method"], style="dim" if waits else ""),
            Text.assemble(*(MARKS[state] for state in row["states"])),
            _now(row["now"]),
            Text(_figure(row["validation"])),
            test,
        ]
        table.add_row(*([Text(f"{row['fraction']:.3g}"), *cells] if several else cells))
    blocks: list[RenderableType] = [Text(title, style="bold"), table]
    if hidden:
        blocks.append(Text(f"and {hidden} rows more that wait or are done", style="dim"))
    return Group(*blocks, *shown_reasons, _total(counts, gone, left))


def _total(counts: Mapping[str, int], gone: float, left: float | None) -> Table:
    total = sum(counts.values())
    ended = counts["done"] + counts["failed"]
    words = [f"{ended} of {total}"]
    words += [f"{counts[name]} {name}" for name in ("running", "failed") if counts[name]]
    rest = "" if ended == total else ", estimating what is left" if left is None else f", about {duration(left)} left"
    words.append(f"{duration(gone)} gone{rest}")
    line = Table.grid(padding=(0, 2))
    line.add_row(_bar(ended, max(1, total), 12), Text(" · ".join(words)))
    return line


def _now(running: Sequence[tuple[int, int | None]]) -> RenderableType:
    """A bar and a count for each cell that runs."""
    lines = Table.grid(padding=(0, 1))
    for done, budget in running:
        count = Text(f"{done:,}" if budget is None else f"{done:,} of {budget:,}", style="yellow")
        lines.add_row(_bar(min(done, budget or 0), budget or 1, 12), count)
    return lines


def _bar(done: int, total: int, width: int) -> ProgressBar:
    return ProgressBar(total=total, completed=done, width=width, complete_style="cyan", finished_style="green")


def _figure(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.2f}"


def _fitting(rows: Rows, room: int) -> tuple[list[Mapping[str, Any]], int]:
    """The rows that a terminal has room for, in their order: first those that run, then what is begun or done."""
    lines = [max(1, len(row["now"])) for row in rows]
    if sum(lines) <= room:
        return list(rows), 0

    def matters(place: int) -> tuple[bool, bool, int]:
        states = rows[place]["states"]
        return "running" not in states, set(states) == {"waiting"}, place

    kept = []
    for place in sorted(range(len(rows)), key=matters):
        if lines[place] > room:
            break
        room -= lines[place]
        kept.append(place)
    return [rows[place] for place in sorted(kept)], len(rows) - len(kept)

"""A finished comparison as a table: for the terminal, Markdown, CSV and LaTeX."""

import csv
import json
from collections.abc import Mapping, Sequence
from io import StringIO
from math import isnan
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from acpl.report.text import in_latex, p_value

Rows = Sequence[Mapping[str, Any]]
Row = Mapping[str, Any]
SPREAD = "± seeds"
WIDER = "trainings, too"
FIGURES = ("rank", "method", "AUROC [95 %]", SPREAD, "behind best [95 %]", "p", WIDER)
OTHER_TRAININGS = (
    f"{WIDER}: the 95 % interval of what a method is behind by, for other trainings on other patients (each method by "
    "itself, however many there are); the other intervals, and p, are for these trainings on other patients"
)
COST = ("seeds", "steps", "images", "time")
PUBLISHED = "published"
WIDE = 150
"""Columns of a terminal that one table of everything needs."""


def comparison_tables(rows: Rows, notes: Sequence[str] = (), width: int = 80) -> Group:
    """For the terminal: a table a fraction, or two where one is too wide for it; then what must be said."""
    whole = (*FIGURES, *((PUBLISHED,) if _has_published(rows) else ()), *COST)
    first = tuple(heading for heading in FIGURES if heading not in (SPREAD, WIDER))
    second = ("method", *(heading for heading in whole if heading not in first))
    blocks: list[RenderableType] = []
    for fraction in dict.fromkeys(row["fraction"] for row in rows):
        own = [row for row in rows if row["fraction"] == fraction]
        title = f"mean test AUROC × 100, {100 * fraction:.3g} % of the labels"
        parts = {title: whole} if width >= WIDE else {title: first, "over seeds, and the mean cost of a run": second}
        for heading, columns in parts.items():
            table = _table(heading, columns)
            for row in own:
                style = "bold" if row["rank"] == 1 else "red" if row["rank"] is None else ""
                cells = dict(zip(_headings(rows), _cells(row, rows), strict=True))
                table.add_row(*(Text(cells[column], style=style) for column in columns))
            blocks.append(table)
    return Group(*blocks, *(Text(f"• {note}") for note in notes))


def as_markdown(rows: Rows, notes: Sequence[str] = ()) -> str:
    """A Markdown table, the best of each fraction in bold, and the notes."""
    headings = _headings(rows)
    lines = [f"| {' | '.join(headings)} |", "|" + "---|" * len(headings)]
    for row in rows:
        cells = [cell.replace("|", "\\|") for cell in _cells(row, rows)]
        lines.append(f"| {' | '.join(f'**{cell}**' if row['rank'] == 1 and cell else cell for cell in cells)} |")
    said = [f"- {note}" for note in notes]
    return "\n".join(lines) + "\n" + ("\n" + "\n".join(said) + "\n" if said else "")


def as_csv(rows: Rows) -> str:
    """Every number in full."""
    file = StringIO()
    writer = csv.DictWriter(file, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({**row, "failed": "; ".join(row["failed"]), "chosen": json.dumps(row["chosen"])})
    return file.getvalue()


def as_latex(rows: Rows, notes: Sequence[str] = ()) -> str:
    """A ``tabular``, the best of each fraction in bold; the notes as comments."""
    headings = _headings(rows)
    columns = "".join("l" if heading == "method" else "r" for heading in headings)
    lines = [rf"\begin{{tabular}}{{{columns}}}", r"\hline", " & ".join(map(in_latex, headings)) + r" \\", r"\hline"]
    for row in rows:
        cells = [in_latex(cell) for cell in _cells(row, rows)]
        bold = [rf"\textbf{{{cell}}}" if row["rank"] == 1 and cell else cell for cell in cells]
        lines.append(" & ".join(bold) + r" \\")
    return "\n".join([*(f"% {note}" for note in notes), *lines, r"\hline", r"\end{tabular}"]) + "\n"


def _table(title: str, headings: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in headings:
        name = heading == "method"
        table.add_column(heading, justify="left" if name else "right", no_wrap=not name, overflow="fold")
    return table


def _has_published(rows: Rows) -> bool:
    return any(row["published"] is not None for row in rows)


def _headings(rows: Rows) -> tuple[str, ...]:
    return ("labels", *FIGURES, *((PUBLISHED,) if _has_published(rows) else ()), *COST)


def _cells(row: Row, rows: Rows) -> list[str]:
    paper = [_published(row)] if _has_published(rows) else []
    return [f"{row['fraction']:.3g}", *_figures(row), *paper, *_cost(row)]


def _figures(row: Row) -> list[str]:
    if row["auroc"] is None:
        return ["", row["method"], "failed", "", "", "", ""]
    missing = "" if row["finished"] == row["seeds"] else f" ({row['finished']} of {row['seeds']})"
    return [
        str(row["rank"]),
        row["method"] + missing,
        _interval([row[key] for key in ("auroc", "low", "high")]),
        "" if row["spread"] is None else f"{100 * row['spread']:.2f}",
        behind(row),
        "" if row["p"] is None else p_value(row["p"]),
        wider(row),
    ]


def behind(row: Row) -> str:
    """The difference to the best with its interval; nothing for the best itself."""
    if row["behind"] in (None, ""):
        return ""
    return _interval([row[key] for key in ("behind", "behind_low", "behind_high")], "+")


def wider(row: Row) -> str:
    """The same difference's interval for other trainings; nothing where there are too few to tell."""
    ends = [100 * float(row[key]) for key in ("wider_low", "wider_high") if row.get(key) not in (None, "")]
    return f"[{ends[0]:+.2f}, {ends[1]:+.2f}]" if len(ends) == 2 else ""


def _interval(values: Sequence[Any], sign: str = "") -> str:
    """In percent; there is none where the test part has no class with both kinds of image."""
    point, low, high = (100 * float(value) for value in values)
    return "undefined" if isnan(point) else f"{point:{sign}.2f} [{low:{sign}.2f}, {high:{sign}.2f}]"


def _published(row: Row) -> str:
    return "" if row["published"] is None else f"{100 * row['published']:.2f}"


def _cost(row: Row) -> list[str]:
    done = f"{row['finished']} of {row['seeds']}"
    if row["steps"] is None:
        return [done, "", "", ""]
    return [done, f"{row['steps']:,.0f}", f"{row['images']:,.0f}", f"{row['seconds']:.0f} s"]

"""A comparison as a table: for the terminal, Markdown, CSV and LaTeX."""

import csv
from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any

from rich.table import Table
from rich.text import Text

Rows = Sequence[Mapping[str, Any]]
HEADINGS = ("labels", "rank", "method", "AUROC [95 %]", "± seeds", "behind the best [95 %]", "p", "images", "time")


def comparison_table(rows: Rows) -> Table:
    """For the terminal; failures in full below their method."""
    table = Table(title="mean test AUROC × 100", title_justify="left")
    for place, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="left" if place == 2 else "right")
    for row in rows:
        table.add_row(*(Text(cell) for cell in _cells(row)))
        for reason in row["failed"]:
            table.add_row("", "", Text(f"failed, {reason}", style="red"))
    return table


def as_markdown(rows: Rows) -> str:
    """A Markdown table, the best of each fraction in bold, failures as notes."""
    lines = [f"| {' | '.join(HEADINGS)} |", "|" + "---|" * len(HEADINGS)]
    for row in rows:
        cells = [cell.replace("|", "\\|") for cell in _cells(row)]
        lines.append(f"| {' | '.join(f'**{cell}**' if row['rank'] == 1 and cell else cell for cell in cells)} |")
    notes = [f"- {row['method']} at {row['fraction']:.3g} failed, {why}" for row in rows for why in row["failed"]]
    return "\n".join(lines) + "\n" + ("\n" + "\n".join(notes) + "\n" if notes else "")


def as_csv(rows: Rows) -> str:
    """Every number in full."""
    file = StringIO()
    writer = csv.DictWriter(file, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({**row, "failed": "; ".join(row["failed"])})
    return file.getvalue()


def as_latex(rows: Rows) -> str:
    """A ``tabular``, the best of each fraction in bold."""
    lines = [r"\begin{tabular}{rrlrrrrrr}", r"\hline", " & ".join(map(_escaped, HEADINGS)) + r" \\", r"\hline"]
    for row in rows:
        cells = [_escaped(cell) for cell in _cells(row)]
        bold = [rf"\textbf{{{cell}}}" if row["rank"] == 1 and cell else cell for cell in cells]
        lines.append(" & ".join(bold) + r" \\")
    return "\n".join([*lines, r"\hline", r"\end{tabular}"]) + "\n"


def _cells(row: Mapping[str, Any]) -> list[str]:
    if row["auroc"] is None:
        return [f"{row['fraction']:.3g}", "", row["method"], "failed", "", "", "", "", ""]
    missing = f" ({len(row['failed'])} failed)" if row["failed"] else ""
    return [
        f"{row['fraction']:.3g}",
        str(row["rank"]),
        row["method"] + missing,
        f"{100 * row['auroc']:.2f} [{100 * row['low']:.2f}, {100 * row['high']:.2f}]",
        "" if row["spread"] is None else f"{100 * row['spread']:.2f}",
        ""
        if row["behind"] is None
        else f"{100 * row['behind']:+.2f} [{100 * row['behind_low']:+.2f}, {100 * row['behind_high']:+.2f}]",
        "" if row["p"] is None else f"{row['p']:.3f}",
        f"{row['images']:,.0f}",
        f"{row['seconds']:.0f} s",
    ]


def _escaped(text: str) -> str:
    marks = {"%": r"\%", "&": r"\&", "_": r"\_", "#": r"\#", "±": r"$\pm$", "×": r"$\times$", "−": "--"}
    return "".join(marks.get(letter, letter) for letter in text)

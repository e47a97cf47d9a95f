"""A reproduced table as Markdown, CSV and LaTeX, with the paper's own figures beside ours."""

import csv
from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any, NamedTuple

from acpl.report.text import in_latex

Entries = Sequence[Mapping[str, Any]]
MEASURES = {
    "auroc": "AUC",
    "sensitivity": "sensitivity",
    "f1": "F1",
    "together": "AUC, seeds together",
    "calibration_error": "calibration error",
    "top_label_calibration_error": "… of the class called",
    "stages": "stages",
    "pseudo_labelled": "of the pool pseudo-labelled",
    "size": "size",
    "share": "share",
}
"""Measures and their headings."""
COMPETING = ("auroc", "sensitivity", "f1", "together")
"""Measures of which the greatest is the best."""
ERRORS = ("calibration_error", "top_label_calibration_error")
"""Measures of which the least is the best (``acpl.evaluation.ERRORS``, which a report does not know)."""
COUNTS = ("stages", "size")
"""Measures that are shown as they are; all others are shares, shown × 100."""


class Sheet(NamedTuple):
    """A title, headings and rows of text; ``strong`` are the (row, column) places of the best."""

    title: str
    headings: list[str]
    rows: list[list[str]]
    strong: set[tuple[int, int]]


def sheets(entries: Entries, *, reference: str, beside: Sequence[str] = ()) -> list[Sheet]:
    """The figures, their differences to the reference (with two intervals), and their shares of the gap: what there is.

    A table of one column has all in one sheet. ``beside`` are rows that do not compete for the best.
    """
    rows = list(dict.fromkeys(entry["row"] for entry in entries))
    pairs = list(dict.fromkeys((entry["column"], entry["measure"]) for entry in entries))
    found = {(entry["row"], entry["column"], entry["measure"]): entry for entry in entries}
    blocks = [
        _block("mean", "mean over seeds [95 % interval] ± between seeds", rows, pairs, found),
        _block("difference", f"difference to {reference} [95 % interval]", rows, pairs, found),
        _block("wider", "the difference's interval for other trainings, too", rows, pairs, found),
        _block("share", "share of the gap from floor to ceiling, % [95 % interval]", rows, pairs, found),
    ]
    blocks = [block for block in blocks if block is not None]
    best = _best(rows, pairs, found, beside)
    if len(pairs) == 1 and blocks:
        headings = ["", *(heading for block in blocks if block for heading in block[1])]
        joined = [
            [row, *(cell for block in blocks if block for cell in block[2][place])] for place, row in enumerate(rows)
        ]
        return [Sheet(blocks[0][0] if blocks[0] else "", headings, joined, {(place, 1) for place, _ in best})]
    made = []
    for block in blocks:
        if block is None:
            continue
        title, headings, cells = block
        strong = set()
        if block is blocks[0]:
            starts = {name: position + 1 for position, name in enumerate(headings)}
            strong = {(place, starts[_heading(*pairs[pair], pairs)]) for place, pair in best}
        made.append(Sheet(title, ["", *headings], [[row, *cells[n]] for n, row in enumerate(rows)], strong))
    return made


def lead_sheets(leads: Entries) -> list[Sheet]:
    """A sheet for each row that is ahead of others, or behind: a line for each of those, two intervals a difference."""
    return _lead_sheets(leads, of="of", lines="over", title="how far {} is ahead of each of the others")


def against_sheets(leads: Entries) -> list[Sheet]:
    """A sheet for each other table: a line for each row, with how far it is ahead of itself there."""
    return _lead_sheets(leads, of="over", lines="of", title="how far each is ahead of itself in {}")


def _lead_sheets(leads: Entries, *, of: str, lines: str, title: str) -> list[Sheet]:
    """A sheet for each that ``of`` names, a line for each that ``lines`` names."""
    made = []
    for one in dict.fromkeys(lead[of] for lead in leads):
        own = {(lead[lines], lead["column"], lead["measure"]): lead for lead in leads if lead[of] == one}
        rows = list(dict.fromkeys(row for row, *_ in own))
        pairs = list(dict.fromkeys((column, measure) for _, column, measure in own))
        columns = [
            column
            for pair in pairs
            for column in _lead_columns(_heading(*pair, pairs), [own.get((row, *pair)) for row in rows])
        ]
        cells = [[row, *(column[place] for _, column in columns)] for place, row in enumerate(rows)]
        headings = ["", *(heading for heading, _ in columns)]
        made.append(Sheet(f"{title.format(one)} [95 % interval]", headings, cells, set()))
    return made


def as_markdown(title: str, made: Sequence[Sheet], notes: Sequence[str]) -> str:
    """The sheets one below the other, then the notes."""
    parts = [f"# {title}", ""]
    for sheet in made:
        parts += [sheet.title, "", f"| {' | '.join(sheet.headings)} |", "|" + "---|" * len(sheet.headings)]
        for place, row in enumerate(sheet.rows):
            cells = [cell.replace("|", "\\|") for cell in row]
            shown = [f"**{cell}**" if (place, column) in sheet.strong else cell for column, cell in enumerate(cells)]
            parts.append(f"| {' | '.join(shown)} |")
        parts.append("")
    return "\n".join([*parts, *(f"- {note}" for note in notes)]) + "\n"


def as_latex(title: str, made: Sequence[Sheet], notes: Sequence[str]) -> str:
    """A ``tabular`` a sheet; title and notes as comments."""
    parts = [f"% {title}"]
    for sheet in made:
        parts += [f"% {sheet.title}", rf"\begin{{tabular}}{{l{'r' * (len(sheet.headings) - 1)}}}", r"\hline"]
        parts += [" & ".join(in_latex(heading) for heading in sheet.headings) + r" \\", r"\hline"]
        for place, row in enumerate(sheet.rows):
            cells = [in_latex(cell) for cell in row]
            shown = [
                rf"\textbf{{{cell}}}" if (place, column) in sheet.strong else cell for column, cell in enumerate(cells)
            ]
            parts.append(" & ".join(shown) + r" \\")
        parts += [r"\hline", r"\end{tabular}", ""]
    return "\n".join([*parts, *(f"% {note}" for note in notes)]) + "\n"


def as_csv(entries: Entries) -> str:
    """A line a figure, every number in full."""
    file = StringIO()
    writer = csv.DictWriter(file, fieldnames=list(entries[0]) if entries else [], lineterminator="\n")
    writer.writeheader()
    for entry in entries:
        writer.writerow({key: "; ".join(value) if key == "failed" else value for key, value in entry.items()})
    return file.getvalue()


Block = tuple[str, list[str], list[list[str]]]
Pairs = Sequence[tuple[str, str]]
Found = Mapping[tuple[str, str, str], Mapping[str, Any]]


def _block(kind: str, title: str, rows: Sequence[str], pairs: Pairs, found: Found) -> Block | None:
    """One kind of number for every row: its title, a heading or two a column, and the cells."""
    there = [pair for pair in pairs if any(_has(found.get((row, *pair)), kind) for row in rows)]
    if not there and kind != "mean":
        return None
    headings: list[str] = []
    cells: list[list[str]] = [[] for _ in rows]
    for pair in pairs if kind == "mean" else there:
        own = [found.get((row, *pair)) for row in rows]
        name = _heading(*pair, pairs)
        headings.append(name if kind == "mean" or len(pairs) > 1 else title)
        for line, entry in zip(cells, own, strict=True):
            line.append(_cell(entry, kind))
        if kind == "mean" and any(entry is not None and entry["paper"] is not None for entry in own):
            headings.append("paper" if len(pairs) == 1 else f"paper, {name}")
            for line, entry in zip(cells, own, strict=True):
                line.append("" if entry is None or entry["paper"] is None else _number(entry["paper"], pair[1]))
    return title, headings, cells


def _has(entry: Mapping[str, Any] | None, kind: str) -> bool:
    return entry is not None and entry["mean" if kind == "mean" else f"{kind}_low"] is not None


def _heading(column: str, measure: str, pairs: Pairs) -> str:
    measures, columns = {m for _, m in pairs}, {c for c, _ in pairs}
    name = MEASURES.get(measure, measure)
    if len(columns) == 1 and len(measures) > 1:
        return name
    return column if len(measures) == 1 and len(columns) > 1 else f"{name}, {column}"


def _cell(entry: Mapping[str, Any] | None, kind: str) -> str:
    if entry is None:
        return ""
    if kind == "mean":
        if entry["mean"] is None:
            return "missing" if entry["failed"] else "undefined"
        text = _number(entry["mean"], entry["measure"])
        if entry["low"] is not None and entry["high"] is not None:
            text += f" [{_number(entry['low'], entry['measure'])}, {_number(entry['high'], entry['measure'])}]"
        if entry["spread"] is not None:
            text += f" ± {_number(entry['spread'], entry['measure'])}"
        whole = entry["seeds"] + len(entry["failed"])
        return text + (f" ({entry['seeds']} of {whole} seeds)" if entry["failed"] else "")
    if not _has(entry, kind):
        return ""
    low, high = entry[f"{kind}_low"], entry[f"{kind}_high"]
    if kind == "share":
        return f"{100 * entry[kind]:.0f} [{100 * low:.0f}, {100 * high:.0f}]"
    sign = "" if low <= 0 <= high else " above" if low > 0 else " below"
    point = f"{100 * entry[kind]:+.2f} " if kind in entry else ""
    return f"{point}[{100 * low:+.2f}, {100 * high:+.2f}]{sign}"


def _lead_columns(name: str, leads: Sequence[Mapping[str, Any] | None]) -> list[tuple[str, list[str]]]:
    """The differences, and where there are any their intervals for other trainings: heading and cells of each."""
    most = max(one["seeds"] for one in leads if one is not None)
    seeds = ["" if one is None or one["seeds"] == most else f" ({one['seeds']} of {most} seeds)" for one in leads]
    columns = [(name, [_cell(one, "difference") + of for one, of in zip(leads, seeds, strict=True)])]
    if any(_has(one, "wider") for one in leads):
        columns.append(("for other trainings, too", [_cell(one, "wider") for one in leads]))
    return columns


def _number(value: float, measure: str) -> str:
    return f"{value:.1f}".removesuffix(".0") if measure in COUNTS else f"{100 * value:.2f}"


def _best(rows: Sequence[str], pairs: Pairs, found: Found, beside: Sequence[str]) -> set[tuple[int, int]]:
    """(row, pair) of the best mean of each column, where rows compete; a mean over fewer seeds does not."""
    best = set()
    for number, (column, measure) in enumerate(pairs):
        means = {
            place: entry["mean"]
            for place, row in enumerate(rows)
            if row not in beside
            and (entry := found.get((row, column, measure)))
            and entry["mean"] is not None
            and not entry["failed"]
        }
        if measure in (*COMPETING, *ERRORS) and len(means) > 1:
            first = min if measure in ERRORS else max
            best.add((first(means, key=lambda place: means[place]), number))
    return best

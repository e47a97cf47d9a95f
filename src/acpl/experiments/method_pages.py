"""A page for each method, from what its module says of itself and what a comparison measured."""

import csv
from collections.abc import Mapping, Sequence
from importlib import import_module
from inspect import cleandoc
from pathlib import Path

from acpl import algorithms
from acpl.engine.run_folder import write_whole
from acpl.errors import UserError
from acpl.experiments.about import ABOUT, read_about, sentence
from acpl.report.comparison import behind
from acpl.report.text import p_value

TABLE = "table.csv"
MEASURED = "measured.csv"
"""A comparison's ``table.csv`` beside the pages, where there is one."""
ACCOUNT = "measured.json"
"""Its ``about.json``: the command and the machine."""


def write_pages(folder: Path) -> list[Path]:
    """``NAME.md`` for every method of our own; written anew."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = []
    for name in algorithms.own_names():
        pages.append(folder / f"{name}.md")
        pages[-1].write_text(method_page(name, folder / MEASURED), encoding="utf-8")
    return pages


def method_page(name: str, measured: Path) -> str:
    """Idea, source and departures; settings; figures."""
    found = algorithms.find(name)
    title, _, idea = cleandoc(import_module(found.__module__).__doc__ or "").partition("\n\n")
    lines = [f"# `{name}`", "", f"**{title}**", "", idea.strip(), "", "## Settings", ""]
    lines += ["| option | default | meaning |", "|---|---|---|"]
    for key, field in found.Settings.model_fields.items():
        default = "" if field.default is None else f"`{field.default}`"
        meaning = " ".join((field.description or "").split()).replace("|", "\\|")
        lines.append(f"| `--{key.replace('_', '-')}` | {default} | {meaning} |")
    return "\n".join([*lines, "", "## Measured", "", *_figures(name, measured)]) + "\n"


def take_measured(comparison: Path, folder: Path) -> None:
    """The figures of a finished comparison, and where they come from, beside the pages."""
    folder.mkdir(parents=True, exist_ok=True)
    for source, name in ((TABLE, MEASURED), (ABOUT, ACCOUNT)):
        if not (comparison / source).is_file():
            raise UserError(f"{comparison} holds no finished comparison: it has no {source}")
        write_whole(folder / name, (comparison / source).read_bytes())


def _figures(name: str, measured: Path) -> list[str]:
    if not measured.exists():
        return ["Not yet: `acpl compare --methods all` measures every method under one budget."]
    with measured.open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    about = read_about(measured.with_name(ACCOUNT))
    lines = [f"`{about['command']}`", ""] if about.get("command") else []
    lines += [f"Mean over seeds; {sentence(about)}.", ""] if about else []
    lines += [
        "| labels | rank | mean test AUROC × 100 [95 %] | behind the best [95 %] | p | seeds | steps | images | time |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [_line(row, table) for row in table if row["method"] == name]
    lines += [f"\nFailed, {row['failed']}." for row in table if row["method"] == name and row["failed"]]
    return lines


def _line(row: Mapping[str, str], table: Sequence[Mapping[str, str]]) -> str:
    labels, seeds = f"{float(row['fraction']):.3g}", f"{row['finished']} of {row['seeds']}"
    if not row["auroc"]:
        return f"| {labels} |  | failed |  |  | {seeds} |  |  |  |"
    others = sum(other["fraction"] == row["fraction"] for other in table)
    auroc, low, high = (f"{100 * float(row[key]):.2f}" for key in ("auroc", "low", "high"))
    p = p_value(float(row["p"])) if row["p"] else ""
    spent = f"{float(row['steps']):,.0f} | {float(row['images']):,.0f} | {float(row['seconds']):.0f} s"
    rank = f"{row['rank']} of {others}"
    return f"| {labels} | {rank} | {auroc} [{low}, {high}] | {behind(row)} | {p} | {seeds} | {spent} |"

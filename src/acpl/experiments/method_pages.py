"""A page for each method, from what its module says of itself and what a comparison measured."""

import csv
from importlib import import_module
from inspect import cleandoc
from pathlib import Path

from acpl import algorithms

MEASURED = "measured.csv"
"""A comparison's ``table.csv`` beside the pages, where there is one."""


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


def _figures(name: str, measured: Path) -> list[str]:
    if not measured.exists():
        return ["Not yet: `acpl compare --methods all` measures every method under one budget."]
    with measured.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["method"] == name]
    lines = [
        "| labels | rank | mean test AUROC × 100 [95 %] | gradient steps | images | time |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        auroc, low, high = (f"{100 * float(row[key]):.2f}" for key in ("auroc", "low", "high"))
        spent = f"{float(row['steps']):.0f} | {float(row['images']):,.0f} | {float(row['seconds']):.0f} s"
        lines.append(f"| {float(row['fraction']):.3g} | {row['rank']} | {auroc} [{low}, {high}] | {spent} |")
    return lines

"""What the paper reports, to stand beside what was measured."""

from functools import cache
from importlib import resources
from typing import Any

import yaml


@cache
def _all() -> dict[str, Any]:
    text = (resources.files("acpl.experiments.reproduce") / "paper_figures.yaml").read_text(encoding="utf-8")
    values: dict[str, Any] = yaml.safe_load(text)
    return values


def source(name: str) -> str:
    """Where the paper's figures of this table are from, and what to know of them."""
    return " ".join(str(_all()[name]["source"]).split())


def figure(name: str, row: str, column: str, measure: str = "auroc", *, only_column: bool = False) -> float | None:
    """The paper's figure in [0, 1] (counts as they are), or None where it has none.

    ``only_column``: ours is a table of one column; where the paper's is too, its figure stands beside ours whatever
    share of labels either has, for its source says which.
    """
    columns = _all()[name]["figures"].get(row, {})
    widest = max((len(each) for each in _all()[name]["figures"].values()), default=0)
    if only_column and widest == 1 and len(columns) == 1:
        (found,) = columns.values()
    else:
        found = columns.get(column)
    if isinstance(found, dict):
        found = found.get(measure)
    elif measure != "auroc":
        found = None
    if found is None:
        return None
    return float(found) if measure in COUNTS else float(found) / 100


def note(name: str, row: str, column: str) -> str:
    """What to know of one figure, if anything."""
    found = _all()[name].get("notes", {}).get(row, "")
    return str(found.get(column, "") if isinstance(found, dict) else found)


COUNTS = ("stages",)
"""Measures that are numbers of things, not shares."""

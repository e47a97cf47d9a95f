"""Figures as tables for the terminal."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

SNAPSHOT_TITLES = {"warm-up": "supervised warm-up"}


def evaluation_table(result: Mapping[str, Any]) -> Table:
    """A column a model (snapshots first), a row a figure, each with its 95 % interval."""
    columns = evaluation_columns(result)
    table = Table(
        title=f"{result['data']}, test part: {result['images']} images of {result['groups']} patients",
        caption=gain_sentence(result),
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("")
    for title in columns:
        table.add_column(title, justify="right")
    for label, cells in evaluation_rows(columns):
        table.add_row(Text(label), *(Text(cell) for cell in cells))
        if label == "AUROC":
            table.add_section()
    return table


def evaluation_columns(result: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Each judged model's title and figures, the final model last."""
    snapshots = result.get("snapshots", {})
    columns = {SNAPSHOT_TITLES.get(name, name): figures for name, figures in snapshots.items()}
    return {**columns, str(result["method"]): result}


def evaluation_rows(columns: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    """A label and one cell a column for every figure."""
    first = next(iter(columns.values()))
    rows = [
        (
            "AUROC",
            [_cell(c["auroc"]["mean"], c["auroc"]["low"], c["auroc"]["high"]) for c in columns.values()],
        )
    ]
    for name in ("sensitivity", "f1"):
        if name in first:
            title = {"f1": "F1"}.get(name, name)
            rows.append((title, [_cell(c[name], *c[f"{name}_interval"]) for c in columns.values()]))
    for label in first["auroc"]["per_class"]:
        areas = [c["auroc"] for c in columns.values()]
        cells = [_cell(a["per_class"][label], a["per_class_low"][label], a["per_class_high"][label]) for a in areas]
        rows.append((f"AUROC {label}", cells))
    return rows


def gain_sentence(result: Mapping[str, Any]) -> str:
    """Is it better than its warm-up, and is the difference real?"""
    warmup = result.get("snapshots", {}).get("warm-up")
    if warmup is None:
        return "95 % intervals: bootstrap over patients."
    gain = warmup["gain"]
    verdict = "better" if gain["low"] > 0 else "worse" if gain["high"] < 0 else "no clear difference"
    return (
        f"{result['method']} − warm-up: {gain['mean']:+.4f} [{gain['low']:+.4f}, {gain['high']:+.4f}], "
        f"{verdict} (paired bootstrap over patients, 95 %)."
    )


def _cell(value: float | None, low: float | None, high: float | None) -> str:
    if value is None or low is None or high is None:
        return "undefined"
    return f"{value:.4f} [{low:.4f}, {high:.4f}]"

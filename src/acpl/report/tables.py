"""Figures as tables for the terminal."""

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from acpl.report.text import p_value

SNAPSHOT_TITLES = {"warm-up": "supervised warm-up"}
FIGURES = {
    "auroc": "AUROC",
    "average_precision": "average precision",
    "sensitivity": "sensitivity",
    "specificity": "specificity",
    "f1": "F1",
    "balanced_accuracy": "balanced accuracy",
    "calibration_error": "calibration error",
    "top_label_calibration_error": "… of the top label",
}
"""The figures in the order they are shown, and their titles."""
CLASS_FIGURES = ("auroc", "average_precision", "sensitivity", "specificity", "f1")
"""What is shown of each class."""
SHORT = {"average precision": "AP", "sensitivity": "sens.", "specificity": "spec."}
"""So that a table of classes fits into 80 columns."""
DIFFERENCES = (*CLASS_FIGURES, "balanced_accuracy")
"""What two runs are compared by."""
DIFFERENCE_COLUMNS = ("difference", "p", "")
"""The headings of a table of differences."""


def evaluation_tables(result: Mapping[str, Any]) -> Group:
    """All that ``evaluate`` found: the means, each class, and the difference to another run where there is one."""
    blocks: list[RenderableType] = [Text(title(result)), evaluation_table(result), Text(" ".join(sentences(result)))]
    blocks += [Text("\nclass by class"), class_table(result)]
    if "against" in result:
        blocks += [Text(f"this run − {result['against']['run']}, on the same images"), difference_table(result)]
        blocks.append(Text(f"Paired bootstrap over groups; {difference_sentence(result)}"))
    return Group(*blocks)


def evaluation_table(result: Mapping[str, Any]) -> Table:
    """A column a model (snapshots first), a row a figure's mean over classes, each with its 95 % interval."""
    columns = evaluation_columns(result)
    table = _table()
    table.add_column("")
    for name in columns:
        table.add_column(Text(name), justify="right")
    for label, cells in evaluation_rows(columns):
        table.add_row(Text(label), *(Text(cell) for cell in cells))
    return table


def class_table(result: Mapping[str, Any]) -> Table:
    """A row a class of the final model."""
    table = _table()
    table.add_column("", overflow="fold")
    for heading in class_columns(result):
        table.add_column(SHORT.get(heading, heading), justify="right", no_wrap=True)
    for label, cells in class_rows(result):
        table.add_row(Text(label), *(Text(cell) for cell in cells))
    return table


def difference_table(result: Mapping[str, Any]) -> Table:
    """What this run has more or less than the other: the means, then each class's AUROC."""
    table = _table()
    table.add_column("")
    for heading in DIFFERENCE_COLUMNS:
        table.add_column(heading, justify="left" if heading == "" else "right")
    rows = difference_rows(result)
    for number, (label, cells) in enumerate(rows):
        table.add_row(Text(label), *(Text(cell) for cell in cells), end_section=number == len(DIFFERENCES) - 1)
    return table


def title(result: Mapping[str, Any]) -> str:
    """What was judged, and how much of it."""
    counted = f"{result['data']}, {result['part']} part: {result['images']} images of {result['groups']} groups"
    without = [
        f"{result[key]} {word}"
        for key, word in (("unlabelled_left_out", "without labels"), ("unreadable_left_out", "unreadable"))
        if result.get(key)
    ]
    return f"{counted} (left out: {', '.join(without)})" if without else counted


def sentences(result: Mapping[str, Any]) -> list[str]:
    """What a reader must know to read the means: what to be careful about, gain over the warm-up, rule, classes."""
    found = [
        *(f"Care: {sentence}" for sentence in result.get("care", [])),
        *([f"The answers know more than the image: {result['beside']}."] if result.get("beside") else []),
        gain_sentence(result),
        rule_sentence(result),
    ]
    missing = [name for name in result["auroc"]["per_class"] if result["auroc"]["per_class"][name] is None]
    if missing:
        found.append(f"Left out of the means that need both kinds of image: {', '.join(missing)}.")
    return found


def rule_sentence(result: Mapping[str, Any]) -> str:
    """When a class is called."""
    rule = result["rule"]
    if rule == "argmax":
        return "The most probable class is called."
    if rule == "validation":
        return "A class is called from its own threshold on, set on the validation part (sensitivity + specificity)."
    return f"A class is called from a probability of {rule:g} on."


def evaluation_columns(result: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Each judged model's title and figures, the final model last."""
    snapshots = result.get("snapshots", {})
    columns = {SNAPSHOT_TITLES.get(name, name): figures for name, figures in snapshots.items()}
    return {**columns, str(result["method"]): result}


def evaluation_rows(columns: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    """A label and one cell a column for every figure's mean."""
    there = [name for name in FIGURES if all(_figure(figures, name) for figures in columns.values())]
    return [(FIGURES[name], [_interval(_figure(figures, name)) for figures in columns.values()]) for name in there]


def class_columns(result: Mapping[str, Any]) -> list[str]:
    """The headings of a table of classes."""
    return ["images", *(FIGURES[name] for name in CLASS_FIGURES), *(["from"] if result["thresholds"] else [])]


def class_rows(result: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """A class's name and its cells: how many images have it, its figures, and the threshold where it has one."""
    rows = []
    for name, positives in result["positives"].items():
        cells = [str(positives)]
        for figure in CLASS_FIGURES:
            table = _figure(result, figure)
            low, high = table["per_class_low"][name], table["per_class_high"][name]
            value = table["per_class"][name]
            cells.append(_short(value, low, high) if figure == "auroc" else _short(value))
        if result["thresholds"]:
            cells.append(f"{result['thresholds'][name]:.3g}")
        rows.append((name, cells))
    return rows


def difference_rows(result: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """Each figure's and each class's difference, its p, and whether it is above, below or unclear."""
    against = result["against"]
    rows = [
        (FIGURES[name], [_signed(against[name]), _p(against[name]), against[name]["verdict"]]) for name in DIFFERENCES
    ]
    area = against["auroc"]
    for name in area["per_class"]:
        one = {
            "mean": area["per_class"][name],
            "low": area["per_class_low"][name],
            "high": area["per_class_high"][name],
            # Runs that were judged by an earlier version have none.
            "p": area.get("per_class_p", {}).get(name),
        }
        rows.append((f"AUROC {name}", [_signed(one), _p(one), verdict(one)]))
    return rows


def difference_sentence(result: Mapping[str, Any]) -> str:
    """How the differences are to be read."""
    number = len(result["against"]["auroc"]["per_class"])
    found = "above or below where the 95 % interval leaves out 0 and p is below 0.05."
    if number < 2:
        return found
    return f"{found} Each class's p is its own, not corrected for there being {number} classes."


def gain_sentence(result: Mapping[str, Any]) -> str:
    """Is it better than its warm-up, and is the difference real?"""
    warmup = result.get("snapshots", {}).get("warm-up")
    if warmup is None or warmup["gain"]["low"] is None:
        return "95 % intervals: bootstrap over groups."
    gain = warmup["gain"]
    word = {"above": "better", "below": "worse"}.get(verdict(gain), "no clear difference")
    return (
        f"{result['method']} − warm-up: {gain['mean']:+.4f} [{gain['low']:+.4f}, {gain['high']:+.4f}], "
        f"{word} (paired bootstrap over groups, 95 %)."
    )


def _table() -> Table:
    return Table(box=box.SIMPLE, collapse_padding=True, pad_edge=False)


def _figure(figures: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A figure's table, wherever it stands."""
    found: Mapping[str, Any] = figures["decisions"].get(name) or figures.get(name) or {}
    return found


def _interval(figure: Mapping[str, Any]) -> str:
    value, low, high = figure["mean"], figure["low"], figure["high"]
    if value is None or low is None or high is None:
        return "undefined"
    return f"{value:.4f} [{low:.4f}, {high:.4f}]"


def _short(value: float | None, low: float | None = None, high: float | None = None) -> str:
    if value is None:
        return "–"
    return f"{value:.3f}" if low is None or high is None else f"{value:.3f} [{low:.2f}, {high:.2f}]"


def _p(figure: Mapping[str, Any]) -> str:
    return "" if figure.get("p") is None else p_value(figure["p"])


def _signed(figure: Mapping[str, Any]) -> str:
    if figure["mean"] is None:
        return "undefined"
    if figure["low"] is None or figure["high"] is None:
        return f"{figure['mean']:+.4f} [–, –]"
    return f"{figure['mean']:+.4f} [{figure['low']:+.4f}, {figure['high']:+.4f}]"


def verdict(figure: Mapping[str, Any]) -> str:
    """``above``, ``below`` or ``unclear``; of few patients an interval may have no width, and p is large."""
    if figure["mean"] is None:
        return ""
    p = figure.get("p")
    if figure["low"] is None or figure["low"] == figure["high"] or (p is not None and p >= 0.05):
        return "unclear"
    return "above" if figure["low"] > 0 else "below" if figure["high"] < 0 else "unclear"

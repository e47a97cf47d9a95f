"""The judge: curves by class, calibration, who is taken for whom, mistakes and subgroups."""

from collections.abc import Callable
from typing import Any

from markupsafe import Markup

from acpl.report.plots import BLUE, Interval, curve_panel, forest, reliability_chart
from acpl.report.run_data import Json, RunData
from acpl.report.tables import (
    DIFFERENCE_COLUMNS,
    class_columns,
    class_rows,
    difference_rows,
    difference_sentence,
    evaluation_columns,
    evaluation_rows,
    sentences,
    title,
)


def judge(run: RunData) -> Json | None:
    """Tables always, charts where ``evaluate`` has gathered them; None before it."""
    result = run.evaluation
    if result is None:
        return None
    columns = evaluation_columns(result)
    found: Json = {
        "part": run.part,
        "title": title(result),
        "sentences": sentences(result),
        "means": {"columns": list(columns), "rows": evaluation_rows(columns)},
        "classes": {"columns": class_columns(result), "rows": class_rows(result)},
        "against": result["against"]["run"] if "against" in result else None,
        "differences": difference_rows(result) if "against" in result else [],
        "difference_columns": DIFFERENCE_COLUMNS,
        "difference_sentence": difference_sentence(result) if "against" in result else "",
    }
    return found | (_drawn(run, result) if run.judged is not None else {})


def _drawn(run: RunData, result: Json) -> Json:
    judged: Json = run.judged or {}
    question = "probability of the class that was called" if run.task == "multi-class" else "probability of a finding"
    return {
        "roc": _roc(judged, result),
        "precision_recall": _precision_recall(judged, result),
        "reliability": reliability_chart(judged["reliability"], question),
        "taken_for": taken_for(judged),
        "mistakes": bool(judged["mistakes"]),
        "subgroups": [_subgroup(kind) for kind in judged["subgroups"]],
    }


def _roc(judged: Json, result: Json) -> list[Json]:
    def chart(name: str, curve: Json, value: float, at: Json) -> str:
        return curve_panel(
            name,
            curve,
            alt=f"ROC curve, area {value:.3f}",
            x_label="false alarms, %",
            y_label="sensitivity, %",
            at=(at["false_alarms"], at["sensitivity"]),
            even=[(0, 0), (1, 1)],
            start=[(0, 0)],
        )

    return _panels(judged, "roc", result["auroc"], chart)


def _precision_recall(judged: Json, result: Json) -> list[Json]:
    def chart(name: str, curve: Json, value: float, at: Json) -> str:
        return curve_panel(
            name,
            # Where nothing is found yet precision is the luck of one image.
            {key: [None, *values[1:]] for key, values in curve.items()},
            alt=f"precision–recall curve, average precision {value:.3f}",
            x_label="found (recall), %",
            y_label="precision, %",
            at=(at["sensitivity"], at["precision"]),
            even=[(0, at["prevalence"]), (1, at["prevalence"])],
        )

    return _panels(judged, "precision_recall", result["average_precision"], chart)


def _panels(judged: Json, curves: str, figures: Json, chart: Callable[[str, Json, float, Json], str]) -> list[Json]:
    """A panel for each class that has a curve and a figure."""
    panels = []
    for name, curve, at in zip(judged["classes"], judged[curves], judged["at"], strict=True):
        value = figures["per_class"].get(name)
        if curve is not None and value is not None:
            panels.append({"name": name, "value": f"{value:.3f}", "chart": chart(name, curve, value, at)})
    return panels


def taken_for(judged: Json) -> Json:
    """A table of shares with their counts, for a heat map: multi-class confusion, or multi-label wrong company."""
    table, classes = judged["taken_for"], judged["classes"]
    kind, counts = table["kind"], table["counts"]
    names = classes if kind == "confusion" else [*classes, "no finding"]
    rows: list[dict[str, Any]] = []
    for row, name in enumerate(names):
        cells = []
        for column, called in enumerate(classes):
            of = table["of"][row] if kind == "confusion" else table["of"][row][column]
            share = counts[row][column] / of if of else None
            cells.append(
                {"share": share, "hint": _hint(kind, name, called, counts[row][column], int(of)), "own": row == column}
            )
        rows.append({"name": name, "cells": cells})
    return {"kind": kind, "columns": classes, "rows": rows}


def _hint(kind: str, name: str, called: str, count: int, of: int) -> str:
    if kind == "confusion":
        return f"{count:,} of {of:,} images of {name} were called {called}"
    if name == called:
        return f"{name} was missed in {count:,} of {of:,} images that have it"
    return f"{called} was called in {count:,} of {of:,} images with {name} and without {called}"


def _subgroup(kind: Json) -> Json:
    rows = [
        Interval(
            f"{row['name']} ({row['images']:,} images)",
            row["auroc"],
            row["low"],
            row["high"],
            BLUE,
            f"{row['auroc']:.3f} [{row['low']:.3f}, {row['high']:.3f}]",
        )
        for row in kind["rows"]
        if row["auroc"] is not None and row["low"] is not None
    ]
    alt = "; ".join(f"{row.name}: {row.note}" for row in rows)
    chart = forest(rows, alt=alt, x_label="mean AUROC, 95 % interval", width=360) if rows else Markup("")
    return {"by": kind["by"], "classes": kind["classes"], "chart": chart}

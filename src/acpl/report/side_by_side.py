"""One self-contained page that compares runs, or shows the folder of a comparison."""

import csv
import os
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from markupsafe import Markup

from acpl.duration import duration
from acpl.report.charts import Series, line_chart
from acpl.report.page import render, write_page
from acpl.report.plots import BLUE, GREEN, GREY, ROSE, Interval, forest
from acpl.report.run_data import Json, RunData, read_run
from acpl.report.text import p_value

RUN_HEADINGS = ("run", "method", "labelled", "AUROC [95 %]", "p", "steps", "time")
METHOD_HEADINGS = (
    "method",
    "rank",
    "AUROC [95 %]",
    "± seeds",
    "less the best [95 %]",
    "for other trainings, too",
    "p",
    "images shown",
    "time",
)
MOST_LINES = 8
"""Methods whose validation curves are drawn; more cannot be told apart."""


def write_side_by_side(runs: Sequence[Path], differences: Sequence[Json | None], part: str, target: Path) -> Path:
    """A table of the runs, their intervals, the paired differences to the first, class by class, and their curves."""
    data = [read_run(run, part) for run in runs]
    results = [run.evaluation or {} for run in data]
    names = run_names(runs)
    rows = [
        _row(name, run, result, difference)
        for name, run, result, difference in zip(names, data, results, differences, strict=True)
    ]
    page = render(
        "side_by_side.html",
        title=f"{len(runs)} runs side by side",
        lead=f"{results[0]['data']}, {part} part: {results[0]['images']:,} images of {results[0]['groups']:,} groups. "
        f"Differences are to {names[0]}, paired on the same images, 95 % by bootstrap over groups.{_care(data)}",
        blocks=[
            {
                "title": "",
                "headings": [*RUN_HEADINGS[:4], f"less {names[0]} [95 %]", *RUN_HEADINGS[4:]],
                "rows": rows,
                "intervals": _intervals(names, results, part),
                "differences": _differences(names, differences),
            }
        ],
        classes=_classes(names, results),
        curves=_curves({name: [run] for name, run in zip(names, data, strict=True)}),
        failed=[],
    )
    return write_page(target, page)


def write_comparison(folder: Path) -> Path:
    """``report.html`` of a folder that ``acpl compare`` made: a block a labelled fraction, the best method first."""
    with (folder / "table.csv").open(encoding="utf-8", newline="") as file:
        entries = list(csv.DictReader(file))
    fractions = list(dict.fromkeys(entry["fraction"] for entry in entries))
    runs: dict[str, list[RunData]] = {}
    order = list(dict.fromkeys(entry["method"] for entry in entries if entry["auroc"]))
    for run in sorted(path.parent for path in folder.glob("*/evaluation.json")):
        data = read_run(run)
        if _same(data.config.get("fraction"), fractions[0]):
            runs.setdefault(str(data.config["method"]), []).append(data)
    page = render(
        "side_by_side.html",
        title=f"{len(order)} methods compared",
        lead="Mean test AUROC over seeds. Every method has the same splits, network and gradient steps. Intervals and "
        "paired differences to the best are bootstraps over the patients of the test part; p allows for all pairs. "
        "The interval for other trainings takes the seeds for a sample, too."
        + _care([run for own in runs.values() for run in own]),
        blocks=[_block(share, [entry for entry in entries if entry["fraction"] == share]) for share in fractions],
        classes=None,
        curves=_curves({method: runs[method] for method in order if method in runs}),
        failed=[(entry["method"], entry["failed"]) for entry in entries if entry["failed"]],
    )
    return write_page(folder / "report.html", page)


def _care(runs: Sequence[RunData]) -> str:
    """What judging found to be careful about, each sentence once."""
    found = dict.fromkeys(sentence for run in runs for sentence in (run.evaluation or {}).get("care", []))
    return "".join(f" Care: {sentence}" for sentence in found)


def run_names(runs: Sequence[Path]) -> list[str]:
    """What tells the folders apart: their last parts, or all from where they differ on."""
    last = [run.resolve().name for run in runs]
    if len(set(last)) == len(last):
        return last
    common = os.path.commonpath([run.resolve() for run in runs])
    return [str(run.resolve().relative_to(common)) or run.name for run in runs]


def _row(name: str, run: RunData, result: Json, difference: Json | None) -> list[str]:
    area = result["auroc"]
    change = "–"
    if difference is not None and difference["low"] is None:
        change = "undefined"
    elif difference is not None:
        change = f"{difference['mean']:+.4f} [{difference['low']:+.4f}, {difference['high']:+.4f}]"
    return [
        name,
        str(run.config["method"]),
        f"{run.roles.get('labelled', 0):,}",
        "undefined" if area["mean"] is None else f"{area['mean']:.4f} [{area['low']:.4f}, {area['high']:.4f}]",
        change,
        "" if difference is None else p_value(difference["p"]),
        f"{run.steps:,}",
        duration(run.seconds),
    ]


def _intervals(names: Sequence[str], results: Sequence[Json], part: str) -> Markup:
    rows = [
        Interval(name, area["mean"], area["low"], area["high"], BLUE, f"{area['mean']:.4f}")
        for name, area in ((name, result["auroc"]) for name, result in zip(names, results, strict=True))
        if area["mean"] is not None
    ]
    return _forest(rows, f"mean AUROC on the {part} part, 95 % interval")


def _differences(names: Sequence[str], differences: Sequence[Json | None]) -> Markup:
    rows = [
        Interval(name, d["mean"], d["low"], d["high"], _colour(d["low"], d["high"], d["p"]), f"{d['mean']:+.4f}")
        for name, d in zip(names, differences, strict=True)
        if d is not None and d["low"] is not None
    ]
    return _forest(rows, f"mean AUROC less that of {names[0]}", zero=True)


def _block(fraction: str, entries: Sequence[Mapping[str, str]]) -> Json:
    there = [entry for entry in entries if _number(entry["auroc"]) is not None]
    behind = [entry for entry in there if _number(entry["behind"]) is not None]
    intervals = [
        Interval(
            entry["method"],
            float(entry["auroc"]),
            _number(entry["low"]),
            _number(entry["high"]),
            BLUE,
            f"{float(entry['auroc']):.4f}",
        )
        for entry in there
    ]
    changes = [
        Interval(
            e["method"],
            float(e["behind"]),
            _number(e["behind_low"]),
            _number(e["behind_high"]),
            _colour(_number(e["behind_low"]), _number(e["behind_high"]), _number(e["p"])),
            f"{float(e['behind']):+.4f}",
        )
        for e in behind
    ]
    return {
        "title": f"{100 * float(fraction):g} % labelled",
        "headings": METHOD_HEADINGS,
        "rows": [_entry(entry) for entry in entries],
        "intervals": _forest(intervals, "mean test AUROC, 95 % interval"),
        "differences": _forest(changes, "mean test AUROC less that of the best", zero=True),
    }


def _entry(entry: Mapping[str, str]) -> list[str]:
    if not entry["auroc"]:
        return [entry["method"], "", "failed", *[""] * (len(METHOD_HEADINGS) - 3)]
    found = [_number(entry[key]) for key in ("auroc", "low", "high")]
    area = [value for value in found if value is not None]
    behind = [_number(entry[key]) for key in ("behind", "behind_low", "behind_high")]
    there = [value for value in behind if value is not None]
    # Tables of before there were these intervals have no such columns.
    wider = [v for key in ("wider_low", "wider_high") if (v := _number(entry.get(key, ""))) is not None]
    return [
        entry["method"],
        entry["rank"],
        f"{area[0]:.4f} [{area[1]:.4f}, {area[2]:.4f}]" if len(area) == 3 else "undefined",
        f"{float(entry['spread']):.4f}" if entry["spread"] else "",
        f"{there[0]:+.4f} [{there[1]:+.4f}, {there[2]:+.4f}]" if len(there) == 3 else "–",
        f"[{wider[0]:+.4f}, {wider[1]:+.4f}]" if len(wider) == 2 else "–",
        p_value(float(entry["p"])) if entry["p"] else "",
        f"{float(entry['images']):,.0f}" if entry["images"] else "",
        duration(float(entry["seconds"])) if entry["seconds"] else "",
    ]


def _forest(rows: Sequence[Interval], x_label: str, *, zero: bool = False) -> Markup:
    if not rows:
        return Markup("")
    return forest(rows, alt="; ".join(f"{row.name}: {row.note}" for row in rows), x_label=x_label, zero=zero)


def _classes(names: Sequence[str], results: Sequence[Json]) -> Json:
    """AUROC class by class, the best of each marked."""
    rows = []
    for name in results[0]["auroc"]["per_class"]:
        values = [result["auroc"]["per_class"].get(name) for result in results]
        best = max((value for value in values if value is not None), default=None)
        cells = [{"text": "–" if v is None else f"{v:.3f}", "best": v is not None and v == best} for v in values]
        rows.append({"name": name, "cells": cells})
    return {"columns": list(names), "rows": rows}


def _curves(runs: Mapping[str, Sequence[RunData]]) -> Markup:
    """Validation AUROC by gradient step: one line a run, or the mean over the seeds of a method."""
    series = []
    for name, group in list(runs.items())[:MOST_LINES]:
        scores: dict[int, list[float]] = {}
        for run in group:
            for event in run.epochs:
                value = event.get("validation_auroc")
                if value is not None and isfinite(value):
                    scores.setdefault(int(event["step"]), []).append(value)
        points = [(float(step), sum(v) / len(v)) for step, v in sorted(scores.items()) if len(v) == len(group)]
        if len(points) > 1:
            series.append(Series(name, points))
    return line_chart(series, x_label="gradient steps", y_label="validation AUROC") if series else Markup("")


def _colour(low: float | None, high: float | None, p: float | None) -> int:
    """Of few patients an interval may have no width, and p is large."""
    if low is None or high is None or p is None or not p < 0.05:
        return GREY
    return GREEN if low > 0 else ROSE if high < 0 else GREY


def _number(text: str) -> float | None:
    return float(text) if text and isfinite(float(text)) else None


def _same(value: Any, text: str) -> bool:
    return value is not None and abs(float(value) - float(text)) < 1e-9

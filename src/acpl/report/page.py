"""One self-contained page about a run."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from jinja2 import Environment, PackageLoader, select_autoescape

from acpl.report.charts import Series, line_chart
from acpl.report.tables import (
    class_columns,
    class_rows,
    difference_rows,
    evaluation_columns,
    evaluation_rows,
    sentences,
    title,
)


def write_report(run: Path) -> Path:
    """``report.html`` from what the run folder holds: before ``evaluate`` without test figures, after it with."""
    config = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    events = [json.loads(line) for line in (run / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    stages = [event for event in events if event["event"] == "stage"]
    epochs = [event for event in events if event["event"] == "epoch"]
    environment = Environment(loader=PackageLoader("acpl.report", "."), autoescape=select_autoescape(["html"]))
    page = environment.get_template("page.html").render(
        config=config,
        roles=Counter(pd.read_csv(run / "split.csv", usecols=["role"])["role"]),
        evaluation=_evaluation(run),
        stages=[{**stage, "validation_auroc": _last_score(epochs, stage["stage"])} for stage in stages],
        charts=_charts(stages, epochs),
        seconds=epochs[-1]["seconds"] if epochs else 0,
        steps=epochs[-1]["step"] if epochs else 0,
    )
    target = run / "report.html"
    beside = target.with_suffix(".part")
    beside.write_text(page, encoding="utf-8")
    beside.replace(target)
    return target


def _evaluation(run: Path) -> dict[str, Any] | None:
    file = run / "evaluation.json"
    if not file.exists():
        return None
    result = json.loads(file.read_text(encoding="utf-8"))
    columns = evaluation_columns(result)
    return {
        **result,
        "title": title(result),
        "sentences": sentences(result),
        "means": {"columns": list(columns), "rows": evaluation_rows(columns)},
        "classes": {"columns": class_columns(result), "rows": class_rows(result)},
        "differences": difference_rows(result) if "against" in result else [],
    }


def _last_score(epochs: list[dict[str, Any]], stage: int) -> float | None:
    scores = [e["validation_auroc"] for e in epochs if e["stage"] == stage and "validation_auroc" in e]
    return scores[-1] if scores else None


def _charts(stages: list[dict[str, Any]], epochs: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Title and SVG of each chart that has something to show."""
    charts = []
    scored = [(e["step"], e["validation_auroc"]) for e in epochs if e.get("validation_auroc") is not None]
    if len(scored) > 1:
        title = "Validation AUROC by gradient step"
        charts.append((title, line_chart([Series("validation AUROC", scored)])))
    names = list(dict.fromkeys(name for epoch in epochs for name in epoch["losses"]))
    series = [Series(n, [(e["step"], e["losses"][n]) for e in epochs if n in e["losses"]]) for n in names]
    if epochs:
        charts.append(("Losses by gradient step", line_chart(series)))
    pools = [stage for stage in stages if "selected" in stage]
    if len(pools) > 1:
        names = [name for name in ("selected", "anchors", "left") if all(name in stage for stage in pools)]
        series = [Series(n, [(s["stage"], s[n]) for s in pools]) for n in names]
        charts.append(("Pools by stage", line_chart(series)))
    return charts

"""The way there: pools by stage, validation curve, losses by name, time by part."""

from math import isfinite

from markupsafe import Markup

from acpl.report.charts import Series, line_chart
from acpl.report.first_screen import validation_scores
from acpl.report.plots import pool_bars, time_bar
from acpl.report.run_data import Json, RunData

MOST_POINTS = 400
"""Of a line; more cannot be told apart and would only weigh."""
PARTS = {
    "opening images": "opening images",
    "training": "training",
    "selection": "looking and selecting",
    "validation": "validation",
    "pictures": "pictures for this page",
}


def journey(run: RunData) -> Json:
    """Charts with their titles, the stages as rows, and the bar of time."""
    charts = [(title, chart) for title, chart in (_pools(run), _validation(run), _losses(run)) if chart]
    return {"charts": charts, "stages": _stages(run), "time": time_bar(time_by_part(run)) if run.epochs else Markup("")}


def time_by_part(run: RunData) -> dict[str, float]:
    """Seconds by part of the work; what no part accounts for is ``other``."""
    noted: dict[str, float] = run.made.get("seconds") or (run.epochs[-1].get("time", {}) if run.epochs else {})
    parts = {words: noted[name] for name, words in PARTS.items() if noted.get(name)}
    before = sum(noted.get(name, 0.0) for name in ("opening images", "pictures"))
    other = run.seconds - (sum(parts.values()) - before)
    if not parts:
        return {"training, selection and validation": run.seconds}
    return {**parts, **({"other": other} if other > 0.01 * run.seconds else {})}


def _stages(run: RunData) -> list[Json]:
    scores = dict(validation_scores(run))
    return [{**stage, "validation_auroc": scores.get(str(stage["name"]))} for stage in run.stages]


def _pools(run: RunData) -> tuple[str, Markup]:
    labelled, left = run.roles.get("labelled", 0), run.roles.get("unlabelled", 0)
    if not any("selected" in stage for stage in run.stages):
        return "", Markup("")
    # Methods with anchors merge what they selected; the others label anew in each round.
    grows = any("anchors" in stage for stage in run.stages)
    rows, pseudo = [], 0
    for stage in run.stages:
        chosen = int(stage.get("selected", 0))
        pseudo = pseudo + chosen if grows else chosen
        remaining = int(stage.get("left", left - pseudo))
        anchors = stage.get("anchors", labelled if grows else None)
        rows.append(
            {
                "name": stage["name"],
                "short": str(stage["name"]).removeprefix("stage ").removeprefix("round "),
                "labelled": labelled,
                "pseudo-labelled": pseudo,
                "left": remaining,
                "anchors": anchors,
            }
        )
    return "Pools by stage", pool_bars(rows)


def _validation(run: RunData) -> tuple[str, Markup]:
    # Between two looks an epoch repeats the last score.
    every, last = run.config.get("validate_every") or 0, {e["stage"]: e["epoch"] for e in run.epochs}
    looked = [e for e in run.epochs if e["epoch"] == last[e["stage"]] or (every and e["epoch"] % every == 0)]
    scored = [(e["step"], e["validation_auroc"]) for e in looked if e.get("validation_auroc") is not None]
    if len([score for _, score in scored if isfinite(score)]) < 2:
        return "", Markup("")
    series = [Series("validation AUROC", _thinned(scored))]
    chart = line_chart(series, x_label="gradient steps", y_label="mean AUROC", markers=_starts(run))
    return "Validation AUROC", chart


def _losses(run: RunData) -> tuple[str, Markup]:
    names = list(dict.fromkeys(name for epoch in run.epochs for name in epoch["losses"]))
    series = [Series(n, _thinned([(e["step"], e["losses"][n]) for e in run.epochs if n in e["losses"]])) for n in names]
    chart = line_chart(series, x_label="gradient steps", y_label="mean of an epoch", markers=_starts(run))
    return "Losses by name", chart


def _starts(run: RunData) -> list[tuple[float, str]]:
    """Where each stage after the first began."""
    found = []
    for stage in run.stages[1:]:
        before = [e["step"] for e in run.epochs if e["stage"] < stage["stage"]]
        if before:
            found.append((float(before[-1]), str(stage["name"]).removeprefix("stage ").removeprefix("round ")))
    return found if len(found) <= 12 else []


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    step = -(-len(points) // MOST_POINTS)
    return points if step <= 1 else [*points[::step], points[-1]]

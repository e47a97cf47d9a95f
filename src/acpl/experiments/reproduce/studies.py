"""The tables and figures as declarations: which arms, on what, compared with what."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from acpl import algorithms
from acpl.config import Config
from acpl.errors import UserError
from acpl.experiments.reproduce.entries import judge_calibration
from acpl.experiments.reproduce.gathered import Study
from acpl.experiments.reproduce.known_beside import ALONE, answering_alone, beside_table, ways_of
from acpl.experiments.reproduce.plan import SCHEDULE, Arm, Ground, Planned, Request
from acpl.experiments.reproduce.pool_figures import balance_figure, examples_figure, k_figure, size_figure
from acpl.experiments.reproduce.scores import (
    CEILING,
    FLOOR,
    calibration_table,
    class_table,
    methods_table,
    score_table,
    sets_table,
)
from acpl.experiments.reproduce.selection import SNAPSHOTS, departures_table, judge_snapshots
from acpl.experiments.reproduce.trust import POOL, trust_table
from acpl.task import Task

CHEST, LESIONS = "chestxray14", "isic2018"
TABLE2 = ("mean-teacher", "src-mt", "s2mts2", "graph-xnet", "ups", "acpl", "acpl-plus")
PAPER = "the paper"
OFF: dict[str, Any] = {
    "teachers": 0,
    "k_share": None,
    "centre": False,
    "sharpen": 1.0,
    "relabel": False,
    "balance": 0.0,
    "consistency": 0.0,
    "consistency_in": "stages",
    "labelled_loss": "plain",
}
"""``acpl-plus`` with nothing added."""
ON: dict[str, Any] = {
    **{"teachers": 2, "k_share": 0.05, "centre": True, "sharpen": 0.5},
    **{"relabel": True, "balance": 0.5, "consistency": 1.0},
}
"""Usual values of what it can add, where none were tuned."""
PAPER_KS, PAPER_LABELLED = (50, 100, 150, 200, 250, 300), 1730
"""The K of the paper's figure, and how many images were labelled there."""


def methods_and_ceiling(request: Request, ground: Ground, fraction: float) -> list[Arm]:
    """Supervised training with few labels, every method, and supervised training with all."""
    names = dict.fromkeys([FLOOR, *request.methods])
    return [*(Arm(name, name) for name in names), Arm(CEILING, "supervised", all_labels=True)]


def methods_alone(request: Request, ground: Ground, fraction: float) -> list[Arm]:
    """Supervised training and every method."""
    return [Arm(name, name) for name in dict.fromkeys([FLOOR, *request.methods])]


def images_alone(request: Request, ground: Ground, fraction: float) -> list[Arm]:
    """The runs of table3 (and table1), which answer by the image alone."""
    shared = request.shared(fraction)
    ways_of(shared)  # nothing is trained where nothing could be added
    alone = answering_alone(shared)
    return [replace(arm, settings={**arm.settings, **alone}) for arm in methods_and_ceiling(request, ground, fraction)]


def information(request: Request, ground: Ground, fraction: float) -> list[Arm]:
    """Which samples are pseudo-labelled, and which of them become anchors."""
    arms = [Arm(FLOOR, "supervised")]
    for which in ("low", "medium", "high"):
        arms.append(Arm(f"{which}, all join", "acpl", {"select": which, "purification": False}))
        arms.append(Arm(f"{which}, purified", "acpl", {"select": which, "purification": True}))
    return arms


def strategies(request: Request, ground: Ground, fraction: float) -> list[Arm]:
    """Where pseudo-labels come from."""
    rows = {
        "model": "model",
        "neighbours": "neighbours",
        "random weight": "random-weight",
        "MixUp of images": "mixup",
        "informative mixup": "informative-mixup",
    }
    return [
        Arm(FLOOR, "supervised"),
        *(Arm(row, "acpl", {"pseudo_label": strategy}) for row, strategy in rows.items()),
    ]


def sets(request: Request, ground: Ground, fraction: float) -> list[Arm]:
    """Two, three, four information sets; and four with the paper's longer run, 9 stages where 3 sets have 5."""
    stages = int(_acpl(request, fraction, "stages"))
    more = Arm("4 sets, 9/5 of the stages", "acpl", {"sets": 4, "stages": -(-9 * stages // 5)})
    return [Arm(FLOOR, "supervised"), *(Arm(f"{n} sets", "acpl", {"sets": n}) for n in (2, 3, 4)), more]


def neighbours(request: Request, ground: Ground, fraction: float) -> list[Arm]:
    """K in the paper's steps, as shares of the labelled images where these are fewer or more than there."""
    labelled = ground.labelled(fraction)
    scaled = tuple(max(1, min(labelled, round(k * labelled / PAPER_LABELLED))) for k in PAPER_KS)
    return [
        Arm(row, "acpl", {"k": k, "purification": purified}, column=f"K = {k}")
        for row, purified in (("purified", True), ("all join", False))
        for k in dict.fromkeys(request.ks or scaled)
    ]


def levels(request: Request, ground: Ground, fraction: float) -> list[Arm]:
    """Low, medium and high information, purified."""
    return [Arm(which, "acpl", {"select": which, "purification": True}) for which in ("low", "medium", "high")]


def acpl_alone(request: Request, ground: Ground, fraction: float) -> list[Arm]:
    """ACPL as it is."""
    return [Arm("acpl", "acpl", more=("stages",))]


def acpl_or_plus(request: Request, ground: Ground, fraction: float) -> list[Arm]:
    """The one method that was named, of those that select by information."""
    if len(request.methods) != 1 or "sets" not in algorithms.find(request.methods[0]).Settings.model_fields:
        raise UserError(f"{request.name} is about one method that selects by information: acpl or acpl-plus")
    return [Arm(request.methods[0], request.methods[0], more=("stages",))]


def departures(request: Request, ground: Ground, fraction: float) -> list[Arm]:
    """The paper's text, and each departure of the published code from it alone."""
    rows: dict[str, dict[str, Any]] = {
        "density min-max normalised": {"density": "min-max"},
        "high information by the sparsest sample": {"high_component": "minimum"},
        "mixture cut short (20 steps, tolerance 0.01)": {"mixture_iterations": 20, "mixture_tolerance": 0.01},
        "one mean over labelled and selected": {"loss": "union"},
        "fresh weights at every stage": {"reinitialise": True},
        "averaged copy makes the pseudo-labels": {"features_from": "averaged"},
        "best averaged copy makes the pseudo-labels": {"features_from": "best"},
        "averaged copy sees every batch": {"averaging_statistics": "forward"},
        "learning rate a tenth from 70 % of a stage": {"schedule": "step"},
        "its optimiser (rate 0.05, eps 0.1, betas 0.9, 0.99)": {
            "learning_rate": 0.05,
            "eps": 0.1,
            "betas": (0.9, 0.99),
        },
        "LeakyReLU for every ReLU": {"activation": "leaky-relu"},
        "labelled images drawn class by class": {"draw": "per-class"},
        "best checkpoint kept (by validation)": {"keep": "best"},
    }
    if ground.task is Task.MULTI_LABEL:
        rows["a 15th output, No Finding"] = {"normal_output": True}
    here = {**request.shared(fraction).model_dump(), **_paper_text()}
    rows = {row: own for row, own in rows.items() if any(here[name] != value for name, value in own.items())}
    first = Arm(PAPER, "acpl", {**_paper_text(), "snapshots": True}, more=(SNAPSHOTS,))
    apart = [Arm(row, "acpl", {**_paper_text(), **own}) for row, own in rows.items()]
    return [first, *apart, Arm("epochs doubled (two GPUs)", "acpl", _paper_text(), budget=2.0)]


def beyond(request: Request, ground: Ground, fraction: float) -> list[Arm]:
    """ACPL; each setting of ``acpl-plus`` added to it alone, at the value that was tuned or a usual one; and all."""
    config = request.shared(fraction).model_copy(update={"method": "acpl"})
    own = {**config.settings, **request.own("acpl", fraction)}
    plain = {**_without(own, "steps"), **OFF, **{name: _acpl(request, fraction, name) for name in SCHEDULE}}
    tuned = request.own("acpl-plus", fraction)
    on = {name: usual if tuned.get(name, OFF[name]) == OFF[name] else tuned[name] for name, usual in ON.items()}
    rows: dict[str, dict[str, Any]] = {f"{name} {value}": {name: value} for name, value in on.items()}
    rows |= {f"labelled loss {loss}": {"labelled_loss": loss} for loss in ("logit-adjusted", "class-balanced")}
    rows["consistency from the warm-up on"] = {
        "consistency": on["consistency"],
        "consistency_in": "all",
    }
    rows["fresh weights at every stage"] = {"reinitialise": True}
    rows["true labels apart"] = {"true_labels": "apart"}
    arms = [Arm(row, "acpl-plus", {**plain, **setting}) for row, setting in rows.items()]
    return [Arm(FLOOR, "supervised"), Arm("acpl", "acpl"), *arms, Arm("acpl-plus", "acpl-plus")]


def snapshots(planned: Planned, run: Path) -> None:
    """Judge every kept predictor of the runs that kept them, once."""
    if SNAPSHOTS in planned.arm.more and not (run / SNAPSHOTS).exists():
        judge_snapshots(run, str(planned.cell.settings.get("device", "auto")))


def _paper_text() -> dict[str, Any]:
    """What has a departure, as the paper's text has it, whatever was tuned; but the optimiser and who is labelled."""
    own = algorithms.find("acpl").Settings.model_fields
    names = ("density", "high_component", "loss", "reinitialise", "features_from", "true_labels")
    settings = {name: own[name].default for name in (*names, "mixture_iterations", "mixture_tolerance")}
    shared = ("keep", "schedule", "activation", "averaging_statistics", "normal_output")
    return settings | {name: Config.model_fields[name].default for name in shared}


def _without(settings: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key != name}


def _acpl(request: Request, fraction: float, name: str) -> Any:
    return request.own("acpl", fraction).get(name, getattr(request.shared(fraction), name))


_ALL = ("all",)
STUDIES = {
    study.name: study
    for study in (
        Study(
            "table1",
            CHEST,
            (0.02, 0.05, 0.1, 0.15, 0.2),
            methods_and_ceiling,
            partial(methods_table, reference=FLOOR),
            beside=(CEILING,),
            methods=_ALL,
        ),
        Study("table2", CHEST, (0.2,), methods_alone, partial(class_table, reference=FLOOR), methods=TABLE2),
        Study(
            "table3",
            LESIONS,
            (0.2,),
            methods_and_ceiling,
            partial(methods_table, reference=FLOOR, measures=("auroc", "sensitivity", "f1")),
            beside=(CEILING,),
            methods=_ALL,
            settings={"threshold": 0.18},
        ),
        Study(
            "table4",
            CHEST,
            (0.02,),
            information,
            partial(score_table, reference="high, purified"),
            reference="high, purified",
        ),
        Study(
            "table5",
            CHEST,
            (0.02,),
            strategies,
            partial(score_table, reference="informative mixup"),
            reference="informative mixup",
        ),
        Study("supplement1", CHEST, (0.02, 0.2), sets, partial(sets_table, reference="3 sets"), reference="3 sets"),
        Study("figure-k", CHEST, (0.02,), neighbours, k_figure, reference="purified"),
        Study("figure-size", CHEST, (0.02,), levels, size_figure, reference="high"),
        Study("figure-balance", CHEST, (0.02,), acpl_alone, balance_figure, reference="the pool"),
        Study("figure-examples", CHEST, (0.02,), acpl_alone, examples_figure, reference=""),
        Study(
            "departures",
            CHEST,
            (0.02,),
            departures,
            partial(departures_table, reference=PAPER),
            reference=PAPER,
            prepare=snapshots,
        ),
        Study("trust", CHEST, (0.02,), acpl_or_plus, trust_table, reference=POOL, methods=("acpl",)),
        Study(
            "beside",
            LESIONS,
            (0.2,),
            images_alone,
            beside_table,
            reference=ALONE,
            beside=(CEILING,),
            methods=_ALL,
        ),
        Study(
            "calibration",
            LESIONS,
            (0.2,),
            methods_and_ceiling,
            partial(calibration_table, reference=FLOOR),
            beside=(CEILING,),
            methods=_ALL,
            judge=judge_calibration,
        ),
        Study("beyond", LESIONS, (0.2,), beyond, partial(score_table, reference="acpl"), reference="acpl"),
    )
}
"""Every study by its name."""

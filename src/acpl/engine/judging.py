"""From a finished run to honest figures, and from two runs to what lies between them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from acpl.data.store import ImageStore
from acpl.data.workers import Progress, nothing
from acpl.engine.beside import Beside, asked_for
from acpl.engine.judged_figures import judged_figures
from acpl.engine.parts import SeenGroups, refuse_other_parts, seen_groups
from acpl.engine.predicting import FINAL, Predictor
from acpl.engine.reporting import keep
from acpl.engine.run_folder import ModelCard, RunFolder
from acpl.engine.training import source_of
from acpl.errors import UserError
from acpl.evaluation import (
    ERRORS,
    MeanInterval,
    PairedDifference,
    Resampled,
    Statistic,
    arg_max_figures,
    calibration_figures,
    decide,
    decision_figures,
    needed_kinds,
    ranking_figures,
    resample,
    together,
)
from acpl.task import Task

JudgedPart = Literal["test", "validation"]
Floats = npt.NDArray[np.float64]
Rule = Literal["argmax"] | list[float]

RANKING = ("auroc", "average_precision")
DECISIONS = ("sensitivity", "specificity", "f1", "balanced_accuracy")


class Judged(NamedTuple):
    """The images of a part whose labels are known, and what each model of a run says of them."""

    table: pd.DataFrame
    truth: Floats
    scores: dict[str, Floats]
    unlabelled: int
    unreadable: int
    seen: dict[str, SeenGroups]
    """By part that training opened: whose other images are there."""
    groups_known: bool
    """False where the data names no patients, so that each image counts as one."""
    images: ImageStore

    @property
    def groups(self) -> npt.NDArray[np.object_]:
        """Each image's patient or lesion."""
        return self.table["group"].to_numpy(dtype=object)


def run_evaluation(
    path: Path,
    *,
    part: JudgedPart = "test",
    against: Path | None = None,
    resamples: int = 2000,
    skip_bad: bool = False,
    device: str = "auto",
    progress: Progress = nothing,
) -> dict[str, Any]:
    """Open the part, judge the final model and every snapshot, write the figures and the predictions.

    ``against`` is a judged run that this one is compared with. With ``skip_bad``, or where training had it, images that
    cannot be read are left out.
    """
    if part not in get_args(JudgedPart):
        raise UserError(f"part should be test or validation, but it is '{part}'")
    folder = RunFolder.open(path)
    config, card = folder.config(), folder.card()
    judged = _judge(folder, part, device, progress, skip_bad=skip_bad)
    truth, groups = judged.truth, judged.groups
    resampled = {}
    for name, score in judged.scores.items():
        compared = _ranks_and_decides(card, card.decision_rule(name), truth, score)
        statistic = together(compared, calibration_figures(truth, score))
        resampled[name] = resample(statistic, len(truth), groups, kinds=needed_kinds(truth), resamples=resamples)
    result: dict[str, Any] = {
        "method": config.method,
        "data": config.data,
        "task": card.task,
        "part": part,
        "images": len(truth),
        "groups": len(set(groups)),
        "groups_known": judged.groups_known,
        "seen_in_training": {name: seen._asdict() for name, seen in judged.seen.items()},
        "care": _care(judged),
        "beside": asked_for(card),
        "unlabelled_left_out": judged.unlabelled,
        "unreadable_left_out": judged.unreadable,
        "positives": {name: int(n) for name, n in zip(card.classes, truth.sum(axis=0), strict=True)},
        "resamples": resamples,
        **_figures(resampled[FINAL], card, card.decision_rule()),
    }
    for name in judged.scores:
        if name != FINAL:
            change = resampled[FINAL]["auroc"].minus(resampled[name]["auroc"])
            result.setdefault("snapshots", {})[name] = {
                **_figures(resampled[name], card, card.decision_rule(name)),
                "gain": {**_summary(change, []), "p": _number(change.p)},
            }
    _write_predictions(folder, part, judged, card)
    if against is not None:
        found = compare_runs(against, path, part=part, resamples=resamples)
        result["against"] = {
            "run": str(against),
            "method": RunFolder.open(against).config().method,
            **{name: _difference(difference, card.classes) for name, difference in found.items()},
        }
    shown = judged_figures(card, judged.table, truth, judged.scores[FINAL], judged.images, resamples=resamples)
    keep(folder, f"judged{_suffix(part)}.json", shown)
    folder.write_json(f"evaluation{_suffix(part)}.json", result)
    return result


def is_judged(path: Path, part: JudgedPart = "test") -> bool:
    """Whether a run has predictions of the part that another can be compared with."""
    return (RunFolder.open(path).path / f"predictions{_suffix(part)}.csv").exists()


def compare_runs(
    before: Path, after: Path, *, part: JudgedPart = "test", resamples: int = 2000
) -> dict[str, PairedDifference]:
    """How much better ``after`` is than ``before`` on the images both were judged on, figure by figure."""
    cards = [RunFolder.open(path).card() for path in (before, after)]
    old, new = (_read_predictions(path, part) for path in (before, after))
    if cards[0].classes != cards[1].classes or cards[0].task != cards[1].task or set(old.index) != set(new.index):
        raise UserError(f"{before} and {after} were not judged on the same images and classes")
    if not old.index.equals(new.index):
        old = old.loc[new.index]
    truth = _columns(new, "truth", cards[1])
    if not np.array_equal(truth, _columns(old, "truth", cards[0])):
        raise UserError(f"{before} and {after} were judged on the same images with different labels")
    groups = new["group"].to_numpy(dtype=object)
    statistics = [
        _ranks_and_decides(card, card.decision_rule(), truth, _columns(table, "probability", card))
        for card, table in zip(cards, (old, new), strict=True)
    ]
    how: dict[str, Any] = {"kinds": needed_kinds(truth), "resamples": resamples}
    a, b = (resample(statistic, len(truth), groups, **how) for statistic in statistics)
    return {name: b[name].minus(a[name]) for name in (*RANKING, *DECISIONS)}


def resampled_auroc(path: Path, *, resamples: int = 2000) -> tuple[tuple[str, ...], Resampled]:
    """The test images of a judged run by name, in their order, and its AUROC on them and on every resample."""
    card, table = RunFolder.open(path).card(), _read_predictions(path, "test").sort_index()
    truth, score = (_columns(table, kind, card) for kind in ("truth", "probability"))
    groups = table["group"].to_numpy(dtype=object)
    kinds = needed_kinds(truth)
    found = resample(ranking_figures(truth, score), len(truth), groups, kinds=kinds, resamples=resamples)
    return tuple(map(str, table.index)), found["auroc"]


def _judge(folder: RunFolder, part: JudgedPart, device: str, progress: Progress, *, skip_bad: bool) -> Judged:
    config, card = folder.config(), folder.card()
    # Colour is found from the images that are opened; what the model was trained on is what counts.
    changes = {"colour": "grey" if card.channels == 1 else "rgb", "skip_bad": skip_bad or config.skip_bad}
    source = source_of(config.model_copy(update=changes), progress)
    whole = source.manifest()
    refuse_other_parts(folder, whole)
    dataset = source.open((part,))
    manifest = dataset.manifest
    if len(manifest.table) == 0:
        raise UserError(f"{config.data} has no {part} part")
    if list(manifest.classes) != card.classes or manifest.task != card.task:
        raise UserError(
            f"{config.data} is {manifest.task} with the classes {', '.join(manifest.classes)}, but the model was "
            f"trained for {card.task} with {', '.join(card.classes)}"
        )
    known = manifest.known
    if not known.any():
        raise UserError(f"no image in the {part} part of {config.data} has all its labels, so nothing can be judged")
    ids = torch.from_numpy(manifest.ids[known])
    beside = Beside.of(card, manifest.table)
    return Judged(
        table=manifest.table.loc[known],
        truth=manifest.labels[known].astype(np.float64),
        scores={
            name: Predictor.load(folder, name, device)(dataset.images, ids, progress, beside)
            for name in folder.weight_names()
        },
        unlabelled=int((~known).sum()),
        unreadable=len(dataset.bad),
        seen=seen_groups(folder, whole, manifest.table.loc[known], part),
        groups_known=bool((whole.table["group"] != whole.table["image"]).any()),
        images=dataset.images,
    )


def _care(judged: Judged) -> list[str]:
    """In words, why the figures may be too good or too sure: patients whom training knew, or nobody knows."""
    if not judged.groups_known:
        return [
            "The data names no patients: another image of one who is judged may have been trained on, "
            "and intervals take each image for a patient of its own."
        ]
    groups, images = len(set(judged.groups)), len(judged.table)
    use = {
        "train": "was trained on: the figures are too good",
        "validation": "choices are made on: the figures may be too good",
    }
    return [
        f"{seen.groups:,} of the {groups:,} judged groups ({seen.images:,} of {images:,} images) have other images "
        f"in the {part} part, which {use[part]} (`acpl data check` lists these groups)."
        for part, seen in judged.seen.items()
        if seen.groups
    ]


def _ranks_and_decides(card: ModelCard, rule: Rule, truth: Floats, score: Floats) -> Statistic:
    """What two runs are compared by."""
    both = together(ranking_figures(truth, score), decision_figures(truth, decide(score, rule)))
    return together(both, arg_max_figures(truth, score)) if card.task == Task.MULTI_CLASS else both


def _figures(resampled: Mapping[str, Resampled], card: ModelCard, rule: Rule) -> dict[str, Any]:
    """Ranking and calibration as tables; decisions as plain numbers, with their tables under ``decisions``."""
    intervals = {
        name: figure.error_interval() if name in ERRORS else figure.interval() for name, figure in resampled.items()
    }
    tables = {
        name: _summary(found, card.classes if len(found.per_class.point) == len(card.classes) else [])
        for name, found in intervals.items()
    }
    figures: dict[str, Any] = {name: tables[name] for name in (*RANKING, *ERRORS) if name in tables}
    figures["rule"] = card.threshold if card.threshold is not None else "argmax" if rule == "argmax" else rule[0]
    figures["thresholds"] = None if rule == "argmax" else dict(zip(card.classes, rule, strict=True))
    for name in DECISIONS:
        figures[name] = tables[name]["mean"]
        figures[f"{name}_interval"] = [tables[name]["low"], tables[name]["high"]]
    figures["decisions"] = {name: tables[name] for name in DECISIONS}
    return figures


def _summary(found: MeanInterval | PairedDifference, classes: list[str]) -> dict[str, Any]:
    """A mean with its interval, each class's, and the classes left out of the mean by name."""
    table: dict[str, Any] = {"mean": _number(found.point), "low": _number(found.low), "high": _number(found.high)}
    if classes:
        each = found.per_class
        table["per_class"] = _by_class(classes, each.point)
        table["per_class_low"] = _by_class(classes, each.low)
        table["per_class_high"] = _by_class(classes, each.high)
        table["left_out"] = [name for name, value in table["per_class"].items() if value is None]
    return table


def _difference(found: PairedDifference, classes: list[str]) -> dict[str, Any]:
    verdict = "unclear" if found.unclear else "above" if found.low > 0 else "below"
    p = {"p": _number(found.p), "per_class_p": _by_class(classes, found.per_class_p)}
    return {**_summary(found, classes), **p, "verdict": verdict}


def _write_predictions(folder: RunFolder, part: JudgedPart, judged: Judged, card: ModelCard) -> None:
    score = judged.scores[FINAL]
    called = decide(score, card.decision_rule()).astype(int)
    columns = {f"truth.{name}": judged.truth[:, i].astype(int) for i, name in enumerate(card.classes)}
    columns |= {f"probability.{name}": score[:, i] for i, name in enumerate(card.classes)}
    columns |= {f"decision.{name}": called[:, i] for i, name in enumerate(card.classes)}
    table = pd.concat([judged.table[["image", "group"]].reset_index(names="id"), pd.DataFrame(columns)], axis=1)
    folder.write_table(f"predictions{_suffix(part)}.csv", table)


def _read_predictions(run: Path, part: JudgedPart) -> pd.DataFrame:
    """What was predicted, by image; names that look like numbers or like nothing stay names."""
    file = RunFolder.open(run).path / f"predictions{_suffix(part)}.csv"
    if not file.exists():
        raise UserError(f"{run} has not been evaluated: acpl evaluate {run}")
    # As text: pandas' own reading of numbers may be off in the last digit.
    return pd.read_csv(file, dtype=str, keep_default_na=False).set_index("image")


def _columns(table: pd.DataFrame, kind: str, card: ModelCard) -> Floats:
    return table[[f"{kind}.{name}" for name in card.classes]].to_numpy(dtype=np.float64)


def _suffix(part: JudgedPart) -> str:
    return "" if part == "test" else f"-{part}"


def _by_class(classes: list[str], values: Floats) -> dict[str, float | None]:
    return {name: _number(value) for name, value in zip(classes, values, strict=True)}


def _number(value: float) -> float | None:
    """JSON has no NaN."""
    return None if np.isnan(value) else float(value)

"""What the report shows of a judged part: curves, calibration, who is taken for whom, mistakes, subgroups."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from acpl.data.store import ImageStore
from acpl.engine.pictures import thumbnails
from acpl.engine.run_folder import ModelCard
from acpl.evaluation import decide, ranking_figures, resample
from acpl.evaluation.calibration import top_label
from acpl.evaluation.curves import Curve, precision_recall_curves, reliability, roc_curves
from acpl.task import Task

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
MISTAKES = 8
"""Pictures of a class and kind, fewer where there are many classes."""
ALL_MISTAKES = 320
SUBGROUP = 20
"""Images that a subgroup must have to be judged by itself."""
MOST_SUBGROUPS = 12
DESCRIPTIONS = {
    "sex": ("sex", "gender", "patient_sex", "patient_gender"),
    "age": ("age", "patient_age", "age_approx"),
    "site": ("site", "hospital", "centre", "center", "institution", "clinic", "localization", "anatom_site_general"),
}
"""What a manifest's columns may be called, in lower case with everything but letters and digits as "_"."""
DECADES = ((0, 20), (20, 40), (40, 60), (60, 80), (80, 200))


def judged_figures(
    card: ModelCard, about: pd.DataFrame, truth: Floats, score: Floats, images: ImageStore, *, resamples: int
) -> dict[str, Any]:
    """Plain numbers and pictures; ``about`` has a row an image, indexed by id: image, group and what else is known."""
    groups = about["group"].to_numpy(dtype=object)
    called = decide(score, card.decision_rule())
    few = min(resamples, 300)
    mistakes = worst_mistakes(card, about, truth, score, called)
    multi_class = card.task == Task.MULTI_CLASS
    asked, answered = top_label(truth, score) if multi_class else (truth, score)
    return {
        "classes": card.classes,
        "roc": [_curve(curve) for curve in roc_curves(truth, score, groups, resamples=few)],
        "precision_recall": [_curve(curve) for curve in precision_recall_curves(truth, score, groups, resamples=few)],
        "at": [_operating_point(truth[:, c] > 0.5, called[:, c]) for c in range(truth.shape[1])],
        "reliability": {
            name: [_number(value) for value in values]
            for name, values in reliability(asked, answered, groups, resamples=few)._asdict().items()
        },
        "taken_for": confusion_counts(truth, called) if multi_class else wrong_company(truth, called),
        "mistakes": mistakes,
        "pictures": thumbnails(images, (mistake["id"] for mistake in mistakes)),
        "subgroups": subgroups(about, truth, score, resamples=few),
    }


def confusion_counts(truth: Floats, called: Bools) -> dict[str, Any]:
    """How many images of each true class (rows) were called each class (columns)."""
    return {"kind": "confusion", "counts": (truth.T @ called).astype(int).tolist(), "of": truth.sum(axis=0).tolist()}


def wrong_company(truth: Floats, called: Bools) -> dict[str, Any]:
    """Multi-label: of the images with finding A and without B, how many have B called; missed A on the diagonal.

    The last row has the images without any finding.
    """
    present = np.column_stack([truth > 0.5, ~(truth > 0.5).any(axis=1)])
    counts = (present.T.astype(int) @ (called & ~(truth > 0.5)).astype(int)).astype(int)
    of = present.T.astype(int) @ (~(truth > 0.5)).astype(int)
    for place in range(truth.shape[1]):
        has = truth[:, place] > 0.5
        counts[place, place], of[place, place] = int((has & ~called[:, place]).sum()), int(has.sum())
    return {"kind": "company", "counts": counts.tolist(), "of": of.tolist()}


def worst_mistakes(
    card: ModelCard, about: pd.DataFrame, truth: Floats, score: Floats, called: Bools
) -> list[dict[str, Any]]:
    """Where the model was surest of what is wrong, class by class, one image a patient: alarms and misses."""
    found: list[dict[str, Any]] = []
    most = max(1, min(MISTAKES, ALL_MISTAKES // (2 * len(card.classes))))
    for place in range(len(card.classes)):
        has = truth[:, place] > 0.5
        for kind, wrong, sureness in (
            ("alarm", called[:, place] & ~has, score[:, place]),
            ("miss", ~called[:, place] & has, -score[:, place]),
        ):
            if kind == "alarm" and card.task == Task.MULTI_CLASS:
                continue  # every false call is some class's miss
            if card.task == Task.MULTI_CLASS:
                sureness = score.max(axis=1)
            seen: set[str] = set()
            for row in np.argsort(-sureness, kind="stable"):
                group = str(about["group"].iloc[row])
                if not wrong[row] or group in seen:
                    continue
                seen.add(group)
                found.append(_mistake(about, int(row), kind, place, truth[row], score[row], called[row]))
                if len(seen) == most:
                    break
    return found


def subgroups(about: pd.DataFrame, truth: Floats, score: Floats, *, resamples: int) -> list[dict[str, Any]]:
    """AUROC by sex, age and site where the table has them, over the classes that every subgroup of a kind has."""
    found = []
    for kind, column in describing_columns(list(about.columns)).items():
        values = _age_groups(about[column]) if kind == "age" else about[column].astype("string").str.strip()
        counts = values[values.notna() & (values != "")].value_counts()
        names = [str(name) for name in counts.index if counts[name] >= SUBGROUP][:MOST_SUBGROUPS]
        names = sorted(names, key=_natural)
        rows = {name: np.flatnonzero((values == name).fillna(False).to_numpy(dtype=bool)) for name in names}
        both = [(truth[r] > 0.5).any(axis=0) & (truth[r] < 0.5).any(axis=0) for r in rows.values()]
        shared = np.logical_and.reduce(both) if both else np.zeros(truth.shape[1], dtype=bool)
        if len(names) < 2 or not shared.any():
            continue
        entries = []
        for name, row in rows.items():
            groups = about["group"].to_numpy(dtype=object)[row]
            statistic = ranking_figures(truth[row][:, shared], score[row][:, shared])
            interval = resample(statistic, len(row), groups, resamples=resamples)["auroc"].interval()
            figures = {"auroc": _number(interval.point), "low": _number(interval.low), "high": _number(interval.high)}
            entries.append({"name": name, "images": len(row), "groups": len(set(groups)), **figures})
        found.append({"by": kind, "column": column, "classes": int(shared.sum()), "rows": entries})
    return found


def describing_columns(columns: Sequence[str]) -> dict[str, str]:
    """Which of a manifest's columns say sex, age and site."""
    plain = {re.sub(r"[^a-z0-9]+", "_", str(name).lower()).strip("_"): str(name) for name in reversed(columns)}
    return {
        kind: next(plain[name] for name in names if name in plain)
        for kind, names in DESCRIPTIONS.items()
        if any(name in plain for name in names)
    }


def _age_groups(ages: "pd.Series[Any]") -> "pd.Series[Any]":
    # '058Y' is how DICOM and the older Chest X-ray14 tables write 58.
    years = pd.to_numeric(ages.astype("string").str.strip().str.rstrip("Yy"), errors="coerce")
    named = pd.Series(pd.NA, index=ages.index, dtype="string")
    for low, high in DECADES:
        named[(years >= low) & (years < high)] = f"{low} and over" if high == DECADES[-1][1] else f"{low}–{high - 1}"
    return named


def _natural(name: str) -> tuple[int, str]:
    digits = re.match(r"\d+", name)
    return (int(digits[0]) if digits else 10**9, name)


def _mistake(
    about: pd.DataFrame, row: int, kind: str, place: int, truth: Floats, score: Floats, called: Bools
) -> dict[str, Any]:
    is_true, said = np.flatnonzero(truth > 0.5), np.flatnonzero(called)
    order = sorted(range(len(score)), key=lambda c: (c != place, c not in said and c not in is_true, -score[c]))
    return {
        "id": int(about.index[row]),
        "name": str(about["image"].iloc[row]),
        "kind": kind,
        "class": place,
        "truth": [int(c) for c in is_true],
        "said": [int(c) for c in said],
        "rows": [[c, round(float(score[c]), 4)] for c in order[:3]],
    }


def _operating_point(has: Bools, called: Bools) -> dict[str, float | None]:
    """Where the model's own rule stands on the curves."""
    hits = float((has & called).sum())
    return {
        "sensitivity": _number(hits / has.sum()) if has.any() else None,
        "false_alarms": _number(float((~has & called).sum() / (~has).sum())) if (~has).any() else None,
        "precision": _number(hits / called.sum()) if called.any() else None,
        "prevalence": float(has.mean()),
    }


def _curve(curve: Curve | None) -> dict[str, list[float | None]] | None:
    return None if curve is None else {name: [_number(v) for v in values] for name, values in curve._asdict().items()}


def _number(value: float) -> float | None:
    return None if np.isnan(value) else round(float(value), 4)

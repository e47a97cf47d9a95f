"""Curves with bands, on a fixed grid so that resamples can be laid over each other: ROC, precision–recall, reliability.

Truth and score are `(images, classes)` as everywhere here. Bands are pointwise percentile intervals of a bootstrap
over groups; a class that has no curve, for want of positives or negatives, is None.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from acpl.evaluation.bootstrap import Integers, Statistic, resample
from acpl.evaluation.calibration import bins_of
from acpl.evaluation.checks import Floats, truth_and_score
from acpl.evaluation.means import ratio

GRID = np.linspace(0.0, 1.0, 101)
RESAMPLES = 300
BINS = 10


class Curve(NamedTuple):
    """A curve over `GRID` and the band it lies in, each `(101,)`; NaN where nothing is known."""

    y: Floats
    low: Floats
    high: Floats


class Reliability(NamedTuple):
    """Of each bin of probabilities: how many answers, their mean probability, and the share that is true."""

    answers: Integers
    score: Floats
    share: Floats
    low: Floats
    high: Floats


def roc_curves(
    truth: ArrayLike, score: ArrayLike, groups: ArrayLike | None = None, *, resamples: int = RESAMPLES
) -> list[Curve | None]:
    """Sensitivity at each share of false alarms in `GRID`, class by class; equal scores are joined by a straight line.

    >>> roc_curves([[1], [0]], [[0.9], [0.1]])[0].y[[0, 50, 100]]
    array([1., 1., 1.])
    """
    return _curves(truth, score, groups, _sensitivity_at, resamples)


def precision_recall_curves(
    truth: ArrayLike, score: ArrayLike, groups: ArrayLike | None = None, *, resamples: int = RESAMPLES
) -> list[Curve | None]:
    """Precision where so much of `GRID` is first found, class by class, without interpolation.

    >>> precision_recall_curves([[1], [0], [1]], [[0.9], [0.5], [0.1]])[0].y[[0, 50, 51, 100]].round(4)
    array([1.    , 1.    , 0.6667, 0.6667])
    """
    return _curves(truth, score, groups, _precision_at, resamples)


def reliability(
    truth: ArrayLike, score: ArrayLike, groups: ArrayLike | None = None, *, bins: int = BINS, resamples: int = RESAMPLES
) -> Reliability:
    """Whether a probability means what it says: all classes' yes/no answers together, in bins of equal width.

    >>> reliability([[1], [0], [0], [0]], [[0.25], [0.25], [0.25], [0.25]], bins=2).share
    array([0.25,  nan])
    """
    labels, scores = truth_and_score(truth, score)
    bin_of = bins_of(scores, bins)
    inside = bin_of[:, :, None] == np.arange(bins)
    answers = inside.sum(axis=1).astype(np.float64)
    true = (inside & labels[:, :, None]).sum(axis=1).astype(np.float64)
    summed = np.where(inside, scores[:, :, None], 0.0).sum(axis=(0, 1))

    def shares(weights: Integers) -> dict[str, Floats]:
        return {"share": ratio(weights @ true, weights @ answers)}

    found = resample(shares, len(labels), groups, resamples=resamples)["share"].interval().per_class
    count = answers.sum(axis=0)
    return Reliability(count.astype(np.int64), ratio(summed, count), found.point, found.low, found.high)


def _curves(
    truth: ArrayLike,
    score: ArrayLike,
    groups: ArrayLike | None,
    follow: Callable[[Floats, Floats], Floats],
    resamples: int,
) -> list[Curve | None]:
    labels, scores = truth_and_score(truth, score)
    found: list[Curve | None] = []
    for column in range(labels.shape[1]):
        mine = labels[:, column]
        if mine.all() or not mine.any():
            found.append(None)
            continue
        statistic = _statistic(mine, scores[:, column], follow)
        interval = resample(statistic, len(labels), groups, resamples=resamples)["curve"].interval().per_class
        found.append(Curve(interval.point, interval.low, interval.high))
    return found


def _statistic(labels: ArrayLike, scores: Floats, follow: Callable[[Floats, Floats], Floats]) -> Statistic:
    order = np.argsort(-scores, kind="stable")
    positive = np.asarray(labels)[order]
    # Only where the score changes can a threshold stand.
    ends = np.flatnonzero(np.diff(scores[order], append=-np.inf))

    def curve(weights: Integers) -> dict[str, Floats]:
        sorted_weights = weights.take(order, axis=1)
        found = np.cumsum(sorted_weights * positive, axis=1)[:, ends].astype(np.float64)
        alarms = np.cumsum(sorted_weights * ~positive, axis=1)[:, ends].astype(np.float64)
        return {"curve": np.stack([follow(f, a) for f, a in zip(found, alarms, strict=True)])}

    return curve


def _sensitivity_at(found: Floats, alarms: Floats) -> Floats:
    """Where several thresholds give one share of false alarms, the most sensitive of them stands."""
    if found[-1] == 0 or alarms[-1] == 0:
        return np.full_like(GRID, np.nan)
    x, y = np.append(0.0, alarms / alarms[-1]), np.append(0.0, found / found[-1])
    followed: Floats = np.interp(GRID, x, y)
    return followed


def _precision_at(found: Floats, alarms: Floats) -> Floats:
    if found[-1] == 0 or alarms[-1] == 0:
        return np.full_like(GRID, np.nan)
    # The first threshold finds something: a recall of 0 is read there, not where nothing is called.
    place = np.searchsorted(found, np.maximum((GRID - 1e-9) * found[-1], 1e-12), side="left")
    precision: Floats = ratio(found, found + alarms)[np.minimum(place, len(found) - 1)]
    return precision

"""How well scores rank the images, class by class: AUROC and average precision.

`truth` is `(images, classes)` of 0 and 1 and `score` is `(images, classes)`, larger meaning more likely.
Multi-class is one-vs-rest on one-hot truth, so one function serves both kinds of task. A class without a
positive or without a negative image has no such figure: it is NaN, never a made-up 0, 0.5 or 1.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from acpl.evaluation.checks import Bools, Floats, image_weights, truth_and_score
from acpl.evaluation.means import ratio

Integers = NDArray[np.int64]


class Ranking(NamedTuple):
    """One class's images in order of score: all that weighted figures need of the scores.

    Rows are rows of `truth`; the counts are, for each positive image, of negatives with a lower score, of
    negatives with a lower or equal one, and of positives with a lower one.
    """

    negatives: Integers  # (negatives,) rows, by rising score
    positives: Integers  # (positives,) rows, by rising score
    below: Integers  # (positives,)
    up_to: Integers  # (positives,)
    positives_below: Integers  # (positives,)


class RankingFigures(NamedTuple):
    """Both figures of several sets of weights, each `(sets, classes)`."""

    auroc: Floats
    average_precision: Floats


def auroc(truth: ArrayLike, score: ArrayLike) -> Floats:
    """Area under the ROC curve of each class, `(classes,)` in [0, 1]; equal scores count one half.

    NaN for a class without a positive or without a negative image.

    >>> auroc([[1, 0], [0, 0], [1, 0]], [[0.9, 0.1], [0.5, 0.2], [0.5, 0.3]])
    array([0.75,  nan])
    """
    return _unweighted(truth, score).auroc.reshape(-1)


def average_precision(truth: ArrayLike, score: ArrayLike) -> Floats:
    """Average precision of each class, `(classes,)` in (0, 1]: precision summed over the steps of recall.

    Equal scores are one step, without interpolation. NaN for a class without positives, and for one without
    negatives, where any score at all would give 1.

    >>> average_precision([[1, 0], [0, 0], [1, 0]], [[0.9, 0.1], [0.5, 0.2], [0.3, 0.3]]).round(4)
    array([0.8333,    nan])
    """
    return _unweighted(truth, score).average_precision.reshape(-1)


def rank(truth: ArrayLike, score: ArrayLike) -> tuple[Ranking, ...]:
    """Sort each class's images once, for any number of calls of `weighted_ranking`; one `Ranking` per class."""
    labels, scores = truth_and_score(truth, score)
    return tuple(_rank_one(labels[:, c], scores[:, c]) for c in range(labels.shape[1]))


def weighted_ranking(rankings: Sequence[Ranking], weights: Integers) -> RankingFigures:
    """Both figures under several sets of image weights `(sets, images)`, numbers from 0.

    A whole weight is exactly that image repeated so many times. NaN where the weight of a class's positives or of
    its negatives is 0.

    >>> rankings = rank([[1], [0], [0]], [[0.5], [0.7], [0.2]])
    >>> weighted_ranking(rankings, np.array([[1, 1, 1], [1, 3, 1], [0, 1, 1]])).auroc
    array([[0.5 ],
           [0.25],
           [ nan]])
    """
    images = len(rankings[0].negatives) + len(rankings[0].positives)
    wide = image_weights(weights, images)
    both = [_weighted_one(ranking, wide) for ranking in rankings]
    return RankingFigures(*(np.stack(columns, axis=1) for columns in zip(*both, strict=True)))


def weighted_auroc(rankings: Sequence[Ranking], weights: Integers) -> Floats:
    """AUROC `(sets, classes)` under several sets of image weights `(sets, images)`, integers from 0."""
    return weighted_ranking(rankings, weights).auroc


def _unweighted(truth: ArrayLike, score: ArrayLike) -> RankingFigures:
    rankings = rank(truth, score)
    images = len(rankings[0].negatives) + len(rankings[0].positives)
    return weighted_ranking(rankings, np.ones((1, images), dtype=np.int64))


def _rank_one(labels: Bools, scores: Floats) -> Ranking:
    negatives, positives = (_rising(np.flatnonzero(kind), scores) for kind in (~labels, labels))
    mine, others = scores[positives], scores[negatives]
    counts = (
        np.searchsorted(others, mine, side="left"),
        np.searchsorted(others, mine, side="right"),
        np.searchsorted(mine, mine, side="left"),
    )
    return Ranking(negatives, positives, *(count.astype(np.int64) for count in counts))


def _rising(rows: Integers, scores: Floats) -> Integers:
    return rows[np.argsort(scores[rows], kind="stable")]


def _weighted_one(ranking: Ranking, weights: Integers) -> tuple[Floats, Floats]:
    # `take` gathers along an axis twice as fast as indexing does, and gathering is what this spends its time on.
    mine = weights.take(ranking.positives, axis=1)
    lower_negatives, lower_positives = _running(weights.take(ranking.negatives, axis=1)), _running(mine)
    negative, positive = lower_negatives[:, -1], lower_positives[:, -1]
    below = lower_negatives.take(ranking.below, axis=1)
    # A tied negative is in `up_to` and not in `below`: half of both together counts it one half, in integers,
    # so that AUROC's one rounding is the last division.
    beaten = np.einsum("sp,sp->s", mine, below + lower_negatives.take(ranking.up_to, axis=1))
    area = ratio(beaten, 2 * positive * negative)

    found = positive[:, None] - lower_positives.take(ranking.positives_below, axis=1)
    called = found + negative[:, None] - below
    precision = found / np.where(called > 0, called, 1)
    average = ratio(np.einsum("sp,sp->s", mine, precision), positive)
    return area, np.where(negative > 0, average, np.nan)


def _running(weights: Integers) -> Integers:
    """Sums of the first 0, 1, 2, … columns, `(sets, columns + 1)`."""
    sums = np.zeros((len(weights), weights.shape[1] + 1), dtype=weights.dtype)
    np.cumsum(weights, axis=1, out=sums[:, 1:])
    return sums

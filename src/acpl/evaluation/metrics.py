"""How good the scores are, class by class: ranking, decisions and calibration.

Everywhere `truth` is `(images, classes)` of 0 and 1 and `score` is `(images, classes)`, larger meaning more
likely. Multi-class is one-vs-rest on one-hot truth, so one function serves both kinds of task. A figure that
the data cannot answer (sensitivity without a positive image, say) is NaN, never a made-up 0 or 1;
`class_mean` leaves it out by name.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Integers = NDArray[np.int64]


class Ranking(NamedTuple):
    """One class's images in order of score: all that a weighted AUROC needs of the scores.

    Rows are rows of `truth`; `below` and `up_to` count, for each positive image, the negatives with a lower
    score and those with a lower or equal one.
    """

    negatives: Integers  # (negatives,) rows, by rising score
    positives: Integers  # (positives,) rows
    below: Integers  # (positives,)
    up_to: Integers  # (positives,)


def auroc(truth: ArrayLike, score: ArrayLike) -> Floats:
    """Area under the ROC curve of each class, `(classes,)` in [0, 1]; equal scores count one half.

    NaN for a class without a positive or without a negative image.

    >>> auroc([[1, 0], [0, 0], [1, 0]], [[0.9, 0.1], [0.5, 0.2], [0.5, 0.3]])
    array([0.75,  nan])
    """
    rankings = rank(truth, score)
    images = len(rankings[0].negatives) + len(rankings[0].positives)
    return weighted_auroc(rankings, np.ones((1, images), dtype=np.int64)).reshape(-1)


def rank(truth: ArrayLike, score: ArrayLike) -> tuple[Ranking, ...]:
    """Sort each class's images once, for any number of calls of `weighted_auroc`; one `Ranking` per class."""
    labels, scores = _checked(truth, score)
    return tuple(_rank_one(labels[:, c], scores[:, c]) for c in range(labels.shape[1]))


def weighted_auroc(rankings: Sequence[Ranking], weights: Integers) -> Floats:
    """AUROC `(sets, classes)` under several sets of image weights `(sets, images)`, integers from 0.

    A weight is exactly that image repeated so many times: sums stay integers, and the one rounding is the
    last division. NaN where the weight of a class's positives or of its negatives is 0.

    >>> rankings = rank([[1], [0], [0]], [[0.5], [0.7], [0.2]])
    >>> weighted_auroc(rankings, np.array([[1, 1, 1], [1, 3, 1], [0, 1, 1]]))
    array([[0.5 ],
           [0.25],
           [ nan]])
    """
    return np.stack([_weighted_auroc_one(ranking, weights) for ranking in rankings], axis=1)


def average_precision(truth: ArrayLike, score: ArrayLike) -> Floats:
    """Average precision of each class, `(classes,)` in (0, 1]: precision summed over the steps of recall.

    Equal scores are one step, without interpolation. NaN for a class without positives, and for one without
    negatives, where any score at all would give 1.

    >>> average_precision([[1, 0], [0, 0], [1, 0]], [[0.9, 0.1], [0.5, 0.2], [0.3, 0.3]]).round(4)
    array([0.8333,    nan])
    """
    labels, scores = _checked(truth, score)
    return np.array([_average_precision_one(labels[:, c], scores[:, c]) for c in range(labels.shape[1])])


def decide(score: ArrayLike, rule: Literal["argmax"] | ArrayLike) -> Bools:
    """Decisions `(images, classes)`: the arg-max of each row, or every score that reaches a threshold.

    `rule` is `"argmax"` (equal scores go to the lower index) or the threshold, one number or one per class;
    a score equal to its threshold is a yes.

    >>> decide([[0.2, 0.5, 0.5]], "argmax")
    array([[False,  True, False]])
    >>> decide([[0.2, 0.5, 0.5]], [0.1, 0.5, 0.6])
    array([[ True,  True, False]])
    """
    scores = _finite_scores(score)
    if isinstance(rule, str):
        if rule != "argmax":
            raise ValueError(f"rule is {rule!r}; it may be 'argmax', a threshold, or one threshold per class")
        top: Bools = np.arange(scores.shape[1]) == scores.argmax(axis=1)[:, None]
        return top
    thresholds = np.asarray(rule, dtype=np.float64)
    if thresholds.shape not in ((), (scores.shape[1],)):
        raise ValueError(
            f"rule holds thresholds of shape {thresholds.shape}; it may be one number or ({scores.shape[1]},)"
        )
    if np.isnan(thresholds).any():
        raise ValueError(f"rule holds {int(np.isnan(thresholds).sum())} thresholds that are NaN")
    yes: Bools = scores >= thresholds
    return yes


@dataclass(frozen=True, eq=False)
class Confusion:
    """Counts, or summed weights, of a table of decisions; every array is `(..., classes)`."""

    true_positive: Floats
    positive: Floats  # images that have the class
    decided: Floats  # images said to have it
    total: Floats

    def sensitivity(self) -> Floats:
        """Share of the positives found; NaN without positives."""
        return _ratio(self.true_positive, self.positive)

    def specificity(self) -> Floats:
        """Share of the negatives left alone; NaN without negatives."""
        true_negative = self.total - self.positive - self.decided + self.true_positive
        return _ratio(true_negative, self.total - self.positive)

    def f1(self) -> Floats:
        """Harmonic mean of precision and sensitivity; NaN without positives."""
        f1 = _ratio(2 * self.true_positive, self.positive + self.decided)
        return np.where(self.positive > 0, f1, np.nan)


def confusion(truth: ArrayLike, decisions: ArrayLike) -> Confusion:
    """Count right and wrong decisions: arrays `(classes,)`, from decisions `(images, classes)` of 0 and 1.

    >>> confusion([[1], [1], [0]], [[True], [False], [True]]).true_positive
    array([1.])
    """
    table = decision_table(truth, decisions)
    return weighted_confusion(table, np.ones(len(table), dtype=np.int64))


def decision_table(truth: ArrayLike, decisions: ArrayLike) -> Floats:
    """Lay out truth and decisions once, `(images, 3 · classes)`, for any number of `weighted_confusion`."""
    labels, yes = _binary(truth, "truth"), _binary(decisions, "decisions")
    _same_shape(labels, yes, "decisions")
    return np.concatenate([labels & yes, labels, yes], axis=1).astype(np.float64)


def weighted_confusion(table: Floats, weights: Integers) -> Confusion:
    """Confusion under image weights `(..., images)`, integers from 0: arrays `(..., classes)`.

    >>> table = decision_table([[1], [1], [0]], [[True], [False], [True]])
    >>> weighted_confusion(table, np.array([[3, 1, 0], [0, 1, 1]])).sensitivity()
    array([[0.75],
           [0.  ]])
    """
    # Float64 holds these integers exactly, so the order in which the product sums them is no matter.
    counted = weights.astype(np.float64) @ table
    found, positive, decided = np.split(counted, 3, axis=-1)
    total = np.broadcast_to(weights.sum(axis=-1, keepdims=True), positive.shape).astype(np.float64)
    return Confusion(found, positive, decided, total)


def sensitivity(truth: ArrayLike, decisions: ArrayLike) -> Floats:
    """Recall of each class, `(classes,)` in [0, 1], from decisions; NaN without positives.

    >>> sensitivity([[1, 0], [1, 0]], [[True, True], [False, False]])
    array([0.5, nan])
    """
    return confusion(truth, decisions).sensitivity()


def specificity(truth: ArrayLike, decisions: ArrayLike) -> Floats:
    """Recall of each class's absence, `(classes,)` in [0, 1], from decisions; NaN without negatives.

    >>> specificity([[1, 0], [1, 0]], [[True, True], [False, False]])
    array([nan, 0.5])
    """
    return confusion(truth, decisions).specificity()


def f1(truth: ArrayLike, decisions: ArrayLike) -> Floats:
    """F1 of each class, `(classes,)` in [0, 1], from decisions `(images, classes)`.

    0 where positives exist and none is found (scikit-learn's `zero_division=0`). NaN for a class without
    positives, where no decision could score more than 0: it says nothing of the model, so the mean leaves it
    out.

    >>> f1([[1, 1, 0], [0, 1, 0]], [[True, False, True], [True, False, False]]).round(4)
    array([0.6667, 0.    ,    nan])
    """
    return confusion(truth, decisions).f1()


def balanced_accuracy(truth: ArrayLike, score: ArrayLike) -> float:
    """Mean recall of the arg-max over the classes that have images, in [0, 1]; multi-class, truth one-hot.

    >>> balanced_accuracy([[1, 0], [1, 0], [0, 1]], [[0.9, 0.1], [0.2, 0.8], [0.4, 0.6]])
    0.75
    """
    labels, scores = _checked(truth, score)
    _one_hot(labels)
    return float(defined_mean(sensitivity(labels, decide(scores, "argmax"))))


def calibration_error(truth: ArrayLike, score: ArrayLike, bins: int = 15) -> Floats:
    """Expected calibration error of each class as a yes/no question, `(classes,)` in [0, 1].

    The mean over images of |observed share − mean score| in the image's bin. Bins are of equal width, closed
    above (a score on an edge belongs to the lower bin). Scores must be probabilities.

    >>> calibration_error([[1], [0], [0], [0]], [[0.5], [0.5], [0.0], [0.0]])
    array([0.])
    """
    labels, probabilities = _checked(truth, score)
    _probabilities(probabilities)
    columns = range(labels.shape[1])
    return np.array([_calibration_gap(labels[:, c], probabilities[:, c], bins) for c in columns])


def top_label_calibration_error(truth: ArrayLike, score: ArrayLike, bins: int = 15) -> float:
    """Expected calibration error of the arg-max's probability, in [0, 1]; multi-class, truth one-hot.

    Bins as in `calibration_error`.

    >>> round(top_label_calibration_error([[1, 0], [0, 1]], [[0.75, 0.25], [0.75, 0.25]]), 4)
    0.25
    """
    labels, probabilities = _checked(truth, score)
    _probabilities(probabilities)
    _one_hot(labels)
    top = probabilities.argmax(axis=1)
    rows = np.arange(len(top))
    return _calibration_gap(labels[rows, top], probabilities[rows, top], bins)


def class_mean(values: ArrayLike, names: Sequence[str]) -> tuple[float, tuple[str, ...]]:
    """Mean of `values (classes,)` over the classes that are not NaN, and the names of those left out.

    NaN when every class is left out.

    >>> class_mean([0.5, float("nan"), 1.0], ["mass", "hernia", "nodule"])
    (0.75, ('hernia',))
    """
    figures = np.asarray(values, dtype=np.float64)
    if figures.shape != (len(names),):
        raise ValueError(f"values has shape {figures.shape} for {len(names)} names; it must be ({len(names)},)")
    left_out = tuple(name for name, missing in zip(names, np.isnan(figures), strict=True) if missing)
    return float(defined_mean(figures)), left_out


def defined_mean(values: Floats) -> Floats:
    """Mean over the last axis of what is not NaN; NaN where nothing is left.

    >>> float(defined_mean(np.array([0.5, np.nan, 1.0])))
    0.75
    """
    missing = np.isnan(values)
    return _ratio(np.where(missing, 0.0, values).sum(axis=-1), (~missing).sum(axis=-1))


def _rank_one(labels: Bools, scores: Floats) -> Ranking:
    negatives, positives = np.flatnonzero(~labels), np.flatnonzero(labels)
    negatives = negatives[np.argsort(scores[negatives], kind="stable")]
    rising = scores[negatives]
    below = np.searchsorted(rising, scores[positives], side="left")
    up_to = np.searchsorted(rising, scores[positives], side="right")
    return Ranking(negatives, positives, below.astype(np.int64), up_to.astype(np.int64))


def _weighted_auroc_one(ranking: Ranking, weights: Integers) -> Floats:
    lighter = np.zeros((len(weights), len(ranking.negatives) + 1), dtype=weights.dtype)
    np.cumsum(weights[:, ranking.negatives], axis=1, out=lighter[:, 1:])
    mine = weights[:, ranking.positives]
    # A tied negative is in `up_to` and not in `below`: half of both together counts it one half, in integers.
    doubled = lighter[:, ranking.below]
    doubled += lighter[:, ranking.up_to]
    beaten = np.einsum("sp,sp->s", mine, doubled)
    return _ratio(beaten, 2 * mine.sum(axis=1) * lighter[:, -1])


def _average_precision_one(labels: Bools, scores: Floats) -> float:
    if labels.all() or not labels.any():
        return float("nan")
    falling = np.argsort(-scores, kind="stable")
    ordered = scores[falling]
    last_of_tie = np.append(ordered[1:] != ordered[:-1], True)
    found = np.cumsum(labels[falling])[last_of_tie]
    precision = found / (np.flatnonzero(last_of_tie) + 1)
    return float(np.sum(np.diff(found, prepend=0) * precision) / found[-1])


def _calibration_gap(labels: Bools, probabilities: Floats, bins: int) -> float:
    if bins < 1:
        raise ValueError(f"bins is {bins}; it must be at least 1")
    inner_edges = np.linspace(0.0, 1.0, bins + 1)[1:-1]
    bin_of = np.searchsorted(inner_edges, probabilities, side="left")
    gaps = np.bincount(bin_of, weights=labels - probabilities, minlength=bins)
    return float(np.abs(gaps).sum() / len(labels))


def _ratio(above: NDArray[Any], below: NDArray[Any]) -> Floats:
    defined = np.asarray(below) > 0
    return np.where(defined, above / np.where(defined, below, 1), np.nan)


def _checked(truth: ArrayLike, score: ArrayLike) -> tuple[Bools, Floats]:
    labels, scores = _binary(truth, "truth"), _finite_scores(score)
    _same_shape(labels, scores, "score")
    return labels, scores


def _table(values: NDArray[Any], name: str) -> None:
    if values.ndim != 2 or 0 in values.shape:
        raise ValueError(f"{name} has shape {values.shape}; it must be (images, classes), at least one of each")


def _same_shape(truth: Bools, other: NDArray[Any], name: str) -> None:
    if truth.shape != other.shape:
        raise ValueError(f"{name} has shape {other.shape} and truth {truth.shape}; they must be the same")


def _binary(values: ArrayLike, name: str) -> Bools:
    table = np.asarray(values)
    _table(table, name)
    _refuse(table, ~((table == 0) | (table == 1)), name, "not 0 or 1")
    ones: Bools = table == 1
    return ones


def _finite_scores(score: ArrayLike) -> Floats:
    scores = np.asarray(score, dtype=np.float64)
    _table(scores, "score")
    _refuse(scores, ~np.isfinite(scores), "score", "not finite")
    return scores


def _probabilities(scores: Floats) -> None:
    _refuse(scores, (scores < 0) | (scores > 1), "score", "outside [0, 1], where a probability must be")


def _refuse(table: NDArray[Any], bad: Bools, name: str, fault: str) -> None:
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise ValueError(
            f"{name} holds {int(bad.sum())} values that are {fault}; "
            f"the first is {table[row, column]} at row {row}, class {column}"
        )


def _one_hot(labels: Bools) -> None:
    marks = labels.sum(axis=1)
    bad = np.flatnonzero(marks != 1)
    if len(bad):
        raise ValueError(
            f"truth holds {len(bad)} rows that are not one-hot; the first has {marks[bad[0]]} classes, at row {bad[0]}"
        )

"""How good yes-or-no decisions are, class by class: sensitivity, specificity, F1, balanced accuracy.

Everywhere `truth` is `(images, classes)` of 0 and 1, one-hot for multi-class, and decisions are a table of the
same shape. A figure that the data cannot answer (sensitivity without a positive image, say) is NaN.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from acpl.evaluation.checks import Bools, Floats, binary, finite_scores, one_hot, same_shape, truth_and_score
from acpl.evaluation.means import defined_mean, ratio

Integers = NDArray[np.int64]


def decide(score: ArrayLike, rule: Literal["argmax"] | ArrayLike) -> Bools:
    """Decisions `(images, classes)`: the arg-max of each row, or every score that reaches a threshold.

    `rule` is `"argmax"` (equal scores go to the lower index) or the threshold, one number or one per class;
    a score equal to its threshold is a yes.

    >>> decide([[0.2, 0.5, 0.5]], "argmax")
    array([[False,  True, False]])
    >>> decide([[0.2, 0.5, 0.5]], [0.1, 0.5, 0.6])
    array([[ True,  True, False]])
    """
    scores = finite_scores(score)
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
        return ratio(self.true_positive, self.positive)

    def specificity(self) -> Floats:
        """Share of the negatives left alone; NaN without negatives."""
        true_negative = self.total - self.positive - self.decided + self.true_positive
        return ratio(true_negative, self.total - self.positive)

    def f1(self) -> Floats:
        """Harmonic mean of precision and sensitivity; NaN without positives."""
        f1 = ratio(2 * self.true_positive, self.positive + self.decided)
        return np.where(self.positive > 0, f1, np.nan)

    def balanced_accuracy(self) -> Floats:
        """Mean of sensitivity and specificity; NaN without positives or without negatives."""
        return (self.sensitivity() + self.specificity()) / 2


def confusion(truth: ArrayLike, decisions: ArrayLike) -> Confusion:
    """Count right and wrong decisions: arrays `(classes,)`, from decisions `(images, classes)` of 0 and 1.

    >>> confusion([[1], [1], [0]], [[True], [False], [True]]).true_positive
    array([1.])
    """
    rows = decision_rows(truth, decisions)
    once = weighted_confusion(rows, np.ones((1, len(np.asarray(truth))), dtype=np.int64))
    return Confusion(once.true_positive[0], once.positive[0], once.decided[0], once.total[0])


class ClassRows(NamedTuple):
    """One class's images, as rows of `truth`: all that a weighted confusion needs."""

    found: Integers
    positive: Integers
    decided: Integers


def decision_rows(truth: ArrayLike, decisions: ArrayLike) -> tuple[ClassRows, ...]:
    """Look up each class's images once, for any number of calls of `weighted_confusion`."""
    labels, yes = binary(truth, "truth"), binary(decisions, "decisions")
    same_shape(labels, yes, "decisions")
    tables = (labels & yes, labels, yes)
    return tuple(ClassRows(*(np.flatnonzero(table[:, c]) for table in tables)) for c in range(labels.shape[1]))


def weighted_confusion(classes: Sequence[ClassRows], weights: Integers) -> Confusion:
    """Confusion under several sets of image weights `(sets, images)`, integers from 0: arrays `(sets, classes)`.

    >>> rows = decision_rows([[1], [1], [0]], [[True], [False], [True]])
    >>> weighted_confusion(rows, np.array([[3, 1, 0], [0, 1, 1]])).sensitivity()
    array([[0.75],
           [0.  ]])
    """
    # Sums of what is gathered, not one matrix product: on busy cores the threads of a BLAS wait for each other.
    found, positive, decided = (
        np.stack([weights.take(rows[kind], axis=1).sum(axis=1) for rows in classes], axis=1).astype(np.float64)
        for kind in range(3)
    )
    total = np.broadcast_to(weights.sum(axis=1, keepdims=True), positive.shape).astype(np.float64)
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


def binary_balanced_accuracy(truth: ArrayLike, decisions: ArrayLike) -> Floats:
    """Mean of sensitivity and specificity of each class as a yes/no question, `(classes,)` in [0, 1].

    NaN for a class without positives or without negatives.

    >>> binary_balanced_accuracy([[1, 1], [1, 1], [0, 1]], [[1, 1], [0, 1], [0, 1]])
    array([0.75,  nan])
    """
    return confusion(truth, decisions).balanced_accuracy()


def balanced_accuracy(truth: ArrayLike, score: ArrayLike) -> float:
    """Mean recall of the arg-max over the classes that have images, in [0, 1]; multi-class, truth one-hot.

    >>> balanced_accuracy([[1, 0], [1, 0], [0, 1]], [[0.9, 0.1], [0.2, 0.8], [0.4, 0.6]])
    0.75
    """
    labels, scores = truth_and_score(truth, score)
    one_hot(labels)
    return float(defined_mean(sensitivity(labels, decide(scores, "argmax"))))

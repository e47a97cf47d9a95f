"""Whether a probability means what it says: expected calibration error.

Bins are of equal width, closed above (a score on an edge belongs to the lower bin). Scores must be probabilities.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from acpl.evaluation.checks import Bools, Floats, one_hot, probabilities, truth_and_score
from acpl.evaluation.means import ratio

Integers = NDArray[np.int64]
BINS = 15
ERRORS = ("calibration_error", "top_label_calibration_error")
"""The figures of which less is better, and which resampling can only inflate; the second where classes exclude each
other."""


class ClassBins(NamedTuple):
    """One class's images in order of their bin: all that a weighted calibration error needs of the scores."""

    rows: Integers  # (images,) rows of `truth`
    gaps: Floats  # (images,) truth less score, in this order
    starts: Integers  # (filled bins,) where each begins


def calibration_error(truth: ArrayLike, score: ArrayLike, bins: int = BINS) -> Floats:
    """Expected calibration error of each class as a yes/no question, `(classes,)` in [0, 1].

    The mean over images of |observed share − mean score| in the image's bin.

    >>> calibration_error([[1], [0], [0], [0]], [[0.5], [0.5], [0.0], [0.0]])
    array([0.])
    """
    classes = calibration_bins(truth, score, bins)
    return weighted_calibration_error(classes, np.ones((1, len(classes[0].rows)), dtype=np.int64)).reshape(-1)


def top_label_calibration_error(truth: ArrayLike, score: ArrayLike, bins: int = BINS) -> float:
    """Expected calibration error of the arg-max's probability, in [0, 1]; multi-class, truth one-hot.

    >>> round(top_label_calibration_error([[1, 0], [0, 1]], [[0.75, 0.25], [0.75, 0.25]]), 4)
    0.25
    """
    right, confidence = top_label(truth, score)
    return float(calibration_error(right, confidence, bins)[0])


def top_label(truth: ArrayLike, score: ArrayLike) -> tuple[Bools, Floats]:
    """Whether the arg-max is right, and its probability, both `(images, 1)`; multi-class, truth one-hot.

    >>> top_label([[1, 0], [0, 1]], [[0.75, 0.25], [0.6, 0.4]])
    (array([[ True],
           [False]]), array([[0.75],
           [0.6 ]]))
    """
    labels, scores = truth_and_score(truth, score)
    one_hot(labels)
    top = scores.argmax(axis=1)[:, None]
    return np.take_along_axis(labels, top, axis=1), np.take_along_axis(scores, top, axis=1)


def calibration_bins(truth: ArrayLike, score: ArrayLike, bins: int = BINS) -> tuple[ClassBins, ...]:
    """Sort each class's images into bins once, for any number of `weighted_calibration_error`."""
    labels, scores = truth_and_score(truth, score)
    bin_of = bins_of(scores, bins)
    return tuple(_sort_one(bin_of[:, c], labels[:, c] - scores[:, c]) for c in range(labels.shape[1]))


def bins_of(scores: Floats, bins: int) -> Integers:
    """The bin of each probability, from 0, in the shape of `scores`.

    >>> bins_of(np.array([[0.0, 0.5, 0.51, 1.0]]), bins=2)
    array([[0, 0, 1, 1]])
    """
    probabilities(scores)
    if bins < 1:
        raise ValueError(f"bins is {bins}; it must be at least 1")
    found: Integers = np.searchsorted(np.linspace(0.0, 1.0, bins + 1)[1:-1], scores, side="left")
    return found


def weighted_calibration_error(classes: Sequence[ClassBins], weights: Integers) -> Floats:
    """Calibration error `(sets, classes)` under several sets of image weights `(sets, images)`, integers from 0.

    >>> classes = calibration_bins([[1], [0]], [[0.75], [0.75]])
    >>> weighted_calibration_error(classes, np.array([[1, 1], [3, 1], [0, 0]]))
    array([[0.25],
           [0.  ],
           [ nan]])
    """
    distances = np.stack([_weighted_one(one, weights) for one in classes], axis=1)
    return ratio(distances, weights.sum(axis=1, keepdims=True))


def _sort_one(bin_of: Integers, gaps: Floats) -> ClassBins:
    rows = np.argsort(bin_of, kind="stable")
    starts = np.flatnonzero(np.diff(bin_of[rows], prepend=-1))
    return ClassBins(rows, gaps[rows], starts)


def _weighted_one(one: ClassBins, weights: Integers) -> Floats:
    summed = np.add.reduceat(weights.take(one.rows, axis=1) * one.gaps, one.starts, axis=1)
    distance: Floats = np.abs(summed).sum(axis=1)
    return distance

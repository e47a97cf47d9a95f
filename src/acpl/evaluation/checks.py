"""What every figure asks of its input, and refuses by name, count and place."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def truth_and_score(truth: ArrayLike, score: ArrayLike) -> tuple[Bools, Floats]:
    """Both as tables `(images, classes)` of one shape: truth of 0 and 1, scores finite."""
    labels, scores = binary(truth, "truth"), finite_scores(score)
    same_shape(labels, scores, "score")
    return labels, scores


def binary(values: ArrayLike, name: str) -> Bools:
    """A table of 0 and 1."""
    table = np.asarray(values)
    _two_axes(table, name)
    _refuse(table, ~((table == 0) | (table == 1)), name, "not 0 or 1")
    ones: Bools = table == 1
    return ones


def finite_scores(score: ArrayLike) -> Floats:
    """A table of finite numbers."""
    scores = np.asarray(score, dtype=np.float64)
    _two_axes(scores, "score")
    _refuse(scores, ~np.isfinite(scores), "score", "not finite")
    return scores


def same_shape(truth: Bools, other: NDArray[Any], name: str) -> None:
    """Truth and what it is compared with."""
    if truth.shape != other.shape:
        raise ValueError(f"{name} has shape {other.shape} and truth {truth.shape}; they must be the same")


def probabilities(scores: Floats) -> None:
    """Scores in [0, 1]."""
    _refuse(scores, (scores < 0) | (scores > 1), "score", "outside [0, 1], where a probability must be")


def image_weights(weights: NDArray[Any], images: int) -> NDArray[Any]:
    """Weights `(sets, images)` in a type that their sums and the products of these fit into."""
    if weights.ndim != 2 or weights.shape[1] != images:
        raise ValueError(f"weights has shape {weights.shape}; it must be (sets, {images})")
    return weights if weights.dtype.kind == "f" else weights.astype(np.int64, copy=False)


def one_hot(labels: Bools) -> None:
    """Exactly one class an image."""
    marks = labels.sum(axis=1)
    bad = np.flatnonzero(marks != 1)
    if len(bad):
        raise ValueError(
            f"truth holds {len(bad)} rows that are not one-hot; the first has {marks[bad[0]]} classes, at row {bad[0]}"
        )


def _two_axes(values: NDArray[Any], name: str) -> None:
    if values.ndim != 2 or 0 in values.shape:
        raise ValueError(f"{name} has shape {values.shape}; it must be (images, classes), at least one of each")


def _refuse(table: NDArray[Any], bad: Bools, name: str, fault: str) -> None:
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise ValueError(
            f"{name} holds {int(bad.sum())} values that are {fault}; "
            f"the first is {table[row, column]} at row {row}, class {column}"
        )

"""Means over classes that leave out what is undefined."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


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
    return ratio(np.where(missing, 0.0, values).sum(axis=-1), (~missing).sum(axis=-1))


def ratio(above: NDArray[Any], below: NDArray[Any]) -> Floats:
    """`above / below`, NaN where `below` is not positive.

    >>> ratio(np.array([1, 0]), np.array([2, 0]))
    array([0.5, nan])
    """
    defined = np.asarray(below) > 0
    return np.where(defined, above / np.where(defined, below, 1), np.nan)

"""A Gaussian mixture of many sorted numbers, by expectation-maximisation on cells of neighbouring ones.

A step of EM only needs sums over the samples, and neighbours have all but the same shares. So samples are first
gathered in some thousand cells, each with its count, mean and variance: small enough for the processor's cache, so
that a step takes some 50 µs wherever the samples are, a GPU included, which would spend more on starting kernels.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]

# Cells are no wider than this share of the standard deviation and hold no more than 1 / _CELLS of the samples: they
# are narrow where samples are many, hence where a component can be narrow. So few samples are not gathered at all.
_WIDTH = 2.0**-6
_CELLS = 2048
_FEW = 4 * _CELLS
# Most of a component's variance that may lie within cells; beyond that, EM goes over the samples themselves.
_WITHIN = 1e-3


class Mixture(NamedTuple):
    """Weight, mean and variance of every component."""

    weight: Array
    mean: Array
    variance: Array


class _Cells(NamedTuple):
    mean: Array
    samples: Array
    within: Array  # sum of squared distances from the mean


def fit(ascending: Tensor, start: Mixture, tolerance: float, iterations: int, floor: float) -> Mixture:
    """Return the mixture after EM, from the highest mean to the lowest.

    Args:
        ascending: float64 ``(samples,)``, sorted, of variance 1.
        start: the mixture to start from.
        tolerance: stop when the mean log-likelihood of a sample changes by less.
        iterations: stop after so many steps at the latest.
        floor: least variance of a component.
    """
    if len(ascending) > _FEW:
        mixture, within = _maximise(_gather(ascending), start, tolerance, iterations, floor)
        if within <= _WITHIN:
            return mixture
    return _maximise(_each(ascending), start, tolerance, iterations, floor)[0]


def _each(ascending: Tensor) -> _Cells:
    values = ascending.cpu().numpy()
    return _Cells(values, np.ones_like(values), np.zeros_like(values))


def _gather(ascending: Tensor) -> _Cells:
    """Return the samples in cells: computed where the samples are, and then brought to the processor."""
    most = -(-len(ascending) // _CELLS)
    first = torch.arange(len(ascending), device=ascending.device) % most == 0
    first[1:] |= (ascending / _WIDTH).floor_().diff() != 0
    cell = first.cumsum(0) - 1
    count = torch.bincount(cell)
    mean = torch.segment_reduce(ascending, "mean", lengths=count, unsafe=True)
    within = torch.segment_reduce((ascending - mean[cell]).square_(), "sum", lengths=count, unsafe=True)
    return _Cells(*torch.stack((mean, count.double(), within)).cpu().numpy())


def _maximise(
    cells: _Cells, mixture: Mixture, tolerance: float, iterations: int, floor: float
) -> tuple[Mixture, float]:
    """Return the mixture after EM, and the largest share of a component's variance that lies within cells."""
    mean, count, within = cells
    powers = np.stack((np.ones_like(mean), mean, mean**2))
    sums = np.stack((count, count * mean, count * mean**2 + within), axis=1)
    total, likelihood = count.sum(), -math.inf
    for _ in range(iterations):
        share = _coefficients(mixture) @ powers  # log π_ζ n(d | μ_ζ, Σ_ζ), equation 3, as (components, cells)
        highest = share.max(axis=0)
        np.exp(np.subtract(share, highest, out=share), out=share)
        evidence = share.sum(axis=0)
        share /= evidence
        moments = share @ sums
        # A component that lost every sample keeps a finite mean, at no weight.
        size = moments[:, 0] + 10 * np.finfo(np.float64).eps
        centre, square = moments[:, 1] / size, moments[:, 2] / size
        mixture = Mixture(size / total, centre, np.maximum(square - centre**2, floor))
        before, likelihood = likelihood, float((highest + np.log(evidence)) @ count) / total
        if abs(likelihood - before) < tolerance:
            break
    inside = float((share @ within / (size * mixture.variance)).max())
    order = np.argsort(-mixture.mean, kind="stable")
    return Mixture(*(parameter[order] for parameter in mixture)), inside


def _coefficients(mixture: Mixture) -> Array:
    """Return the log densities as polynomials in the value, ``(components, 3)``, constant first."""
    weight, mean, variance = mixture
    constant = np.log(weight) - 0.5 * (np.log(2 * math.pi * variance) + mean**2 / variance)
    return np.stack((constant, mean / variance, -0.5 / variance), axis=1)

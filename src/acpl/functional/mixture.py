"""A Gaussian mixture of many sorted numbers, by expectation-maximisation on cells of neighbouring ones.

A step of EM only needs sums over the samples, and neighbours have all but the same shares. So samples are first
gathered in some thousand cells, each with its count, mean and variance: small enough for the processor's cache, so
that a step takes some 50 µs, and for one kernel on a GPU (``mixture_kernel``), which takes all steps without the host.
"""

import math
from importlib.util import find_spec
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
# Cells that one kernel holds.
_LARGEST = 4096


class Mixture(NamedTuple):
    """Weight, mean and variance of every component."""

    weight: Array
    mean: Array
    variance: Array


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
        cells = _gather(ascending)
        on_device = cells.is_cuda and cells.shape[1] <= _LARGEST and find_spec("triton") is not None
        maximise = _maximise_on_device if on_device else _maximise
        mixture, within = maximise(cells, start, tolerance, iterations, floor)
        if within <= _WITHIN:
            return mixture
    return _maximise(_each(ascending), start, tolerance, iterations, floor)[0]


def _each(ascending: Tensor) -> Tensor:
    """Return every sample as a cell of its own."""
    return torch.stack((ascending, torch.ones_like(ascending), torch.zeros_like(ascending)))


def _gather(ascending: Tensor) -> Tensor:
    """Return the samples in cells ``(3, cells)``: mean, samples, sum of squared distances from the mean."""
    most = -(-len(ascending) // _CELLS)
    first = torch.arange(len(ascending), device=ascending.device) % most == 0
    first[1:] |= (ascending / _WIDTH).floor_().diff() != 0
    cell = first.cumsum(0) - 1
    count = torch.bincount(cell)
    mean = torch.segment_reduce(ascending, "mean", lengths=count, unsafe=True)
    within = torch.segment_reduce((ascending - mean[cell]).square_(), "sum", lengths=count, unsafe=True)
    return torch.stack((mean, count.double(), within))


def _maximise(
    cells: Tensor, mixture: Mixture, tolerance: float, iterations: int, floor: float
) -> tuple[Mixture, float]:
    """Return the mixture after EM, and the largest share of a component's variance that lies within cells."""
    mean, count, within = cells.cpu().numpy()
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
    return _highest_first(mixture), float((share @ within / (size * mixture.variance)).max())


def _maximise_on_device(
    cells: Tensor, mixture: Mixture, tolerance: float, iterations: int, floor: float
) -> tuple[Mixture, float]:
    """Do the same in one kernel; sums are added in another order, which moves them by some 1e-15."""
    from acpl.functional.mixture_kernel import maximise

    components = len(mixture.weight)
    start = torch.from_numpy(np.stack(mixture)).to(cells.device)
    out = cells.new_empty(4, components)
    maximise[(1,)](
        cells.contiguous(),
        cells.shape[1],
        start,
        out,
        torch.stack((cells[1].sum(), cells.new_tensor(tolerance), cells.new_tensor(floor))),
        iterations,
        COMPONENTS=components,
        PADDED=4,
        BLOCK=_LARGEST,
        num_warps=16,
    )
    weight, mean, variance, inside = out.cpu().numpy()
    return _highest_first(Mixture(weight, mean, variance)), float(inside.max())


def _highest_first(mixture: Mixture) -> Mixture:
    order = np.argsort(-mixture.mean, kind="stable")
    return Mixture(*(parameter[order] for parameter in mixture))


def _coefficients(mixture: Mixture) -> Array:
    """Return the log densities as polynomials in the value, ``(components, 3)``, constant first."""
    weight, mean, variance = mixture
    constant = np.log(weight) - 0.5 * (np.log(2 * math.pi * variance) + mean**2 / variance)
    return np.stack((constant, mean / variance, -0.5 / variance), axis=1)

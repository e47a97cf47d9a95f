"""A Gaussian mixture of many numbers, by expectation-maximisation on cells of neighbouring ones.

A step of EM only needs sums over the samples, and neighbours have all but the same shares. So samples are first
gathered in some thousand cells (``histogram``), each with its count, mean and variance: small enough for the
processor's cache, so that a step takes some 50 µs, and for one kernel on a GPU (``mixture_kernel``), which takes all
steps without the host.
"""

import math
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]

# Most of a component's variance that may lie within cells.
_WITHIN = 1e-3
# Cells that one kernel holds.
_LARGEST = 4096


class Mixture(NamedTuple):
    """Weight, mean and variance of every component."""

    weight: Array
    mean: Array
    variance: Array


def fit_each(ascending: Tensor, start: Mixture, tolerance: float, iterations: int, floor: float) -> Mixture:
    """Return the mixture after EM over every sample, from the highest mean to the lowest.

    Args:
        ascending: float64 ``(samples,)``, sorted, of variance 1.
        start: the mixture to start from.
        tolerance: stop when the mean log-likelihood of a sample changes by less.
        iterations: stop after so many steps at the latest.
        floor: least variance of a component.
    """
    each = torch.stack((ascending, torch.ones_like(ascending), torch.zeros_like(ascending)))
    return _maximise(each, start, tolerance, iterations, floor)[0]


def fit_cells(cells: Tensor, start: Mixture, tolerance: float, iterations: int, floor: float) -> Mixture | None:
    """Return the same over cells ``(3, cells)``; None where a component is too narrow for them.

    A cell is its samples' mean, their number, and the sum of their squared distances from the mean.
    """
    on_device = cells.is_cuda and cells.shape[1] <= _LARGEST and find_spec("triton") is not None
    maximise = _maximise_on_device if on_device else _maximise
    mixture, within = maximise(cells, start, tolerance, iterations, floor)
    return mixture if within <= _WITHIN else None


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

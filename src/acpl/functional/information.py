"""How informative an unlabelled sample is: its density among the anchors, and the densities' mixture."""

import math
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from acpl.functional.group import ALONE, Group
from acpl.functional.histogram import CELLS, Scale, distinct_quantiles, histogram
from acpl.functional.mixture import Mixture, fit_cells, fit_each
from acpl.functional.rows import slices

# So few samples are not gathered in cells: EM goes over each.
_FEW = 4 * CELLS
# Samples whose posteriors are computed at a time.
_STEP = 2**20

# How many of them are averaged in float64 at a time: the sums are the same. A GPU makes no copy of them.
_SIMILARITIES, _GPU_SIMILARITIES = 2**20, 2**28


class Information(NamedTuple):
    """The information level of every sample and the posterior it was read from."""

    level: Tensor
    posterior: Tensor


def density(similarity: Tensor) -> Tensor:
    """Return the mean similarity to the nearest anchors: d(f(x), D_A), equation 4.

    Args:
        similarity: cosines ``(samples, k)``, floating point, finite, ``k`` at least 1.

    Returns:
        float32 ``(samples,)``, within the range of the similarities, so in [-1, 1] for cosines.

    Example:
        >>> import torch
        >>> from acpl.functional import density
        >>> density(torch.tensor([[1.0, 0.5], [0.25, 0.25]]))
        tensor([0.7500, 0.2500])
    """
    if similarity.ndim != 2 or similarity.shape[1] == 0:
        raise ValueError(f"similarity must be (samples, k), k at least 1, got shape {tuple(similarity.shape)}")
    if not similarity.is_floating_point():
        raise TypeError(f"similarity must be floating point, got {similarity.dtype}")
    step = max(1, (_GPU_SIMILARITIES if similarity.is_cuda else _SIMILARITIES) // similarity.shape[1])
    parts = torch.split(similarity.detach(), step)  # float64 of all would be twice as large as what was given
    mean = torch.cat([part.mean(dim=1, dtype=torch.float64).float() for part in parts])
    bad = int((~mean.isfinite()).sum())
    if bad:
        raise ValueError(f"similarity must be finite, got NaN or infinity in {bad} of {len(mean)} rows")
    return mean


def information(
    density: Tensor,
    sets: int = 3,
    *,
    tolerance: float = 1e-6,
    iterations: int = 500,
    floor: float = 1e-6,
    group: Group = ALONE,
) -> Information:
    """Return each sample's information level: the component of a Gaussian mixture of the densities.

    This is ζ of equations 2 and 3. The mixture is fitted by expectation-maximisation in float64, from a
    fixed start (means at the ``(i + ½) / sets`` quantiles of the distinct densities, equal weights, one
    variance), and its components are ordered by mean: the *lower* the density, the *more* informative. The
    answer is the same on every call, for every order of the samples and every division among processes, and for
    densities shifted or scaled. Of more than 8,192 samples, neighbouring ones take each step together, which moves a
    posterior by some 1e-5; a component too narrow for that has EM go over each sample, for which a group gathers them.

    Level ``sets - 1`` is taken only where its posterior is *strictly* the largest; on a tie the less
    informative level wins. Hence samples that are all equally dense, a single one among them, have a
    posterior of ``1 / sets`` for each level and are all of level 0: none is more informative than the rest.
    With fewer distinct densities than sets some levels stay empty.

    Args:
        density: ``(samples,)``, floating point, finite; any floating type is taken as float32. May be empty.
        sets: number of levels, at least 2; the paper uses 3: low, medium, high.
        tolerance: stop when the mean log-likelihood of a sample changes by less.
        iterations: stop after so many steps at the latest, at least 1.
        floor: least variance of a component, as a fraction of the variance of all densities; relative because
            densities may spread over no more than 1e-3.
        group: the processes that hold a part of the samples each; what comes back is for this one's.

    Returns:
        ``level``, int64 ``(samples,)``: 0 = least informative … ``sets - 1`` = most informative.
        ``posterior``, float32 ``(samples, sets)`` in that order; rows sum to 1.

    Example:
        >>> import torch
        >>> from acpl.functional import information
        >>> level, posterior = information(torch.tensor([0.9, 0.91, 0.7, 0.71, 0.5, 0.51]))
        >>> level
        tensor([0, 0, 1, 1, 2, 2])
        >>> posterior.shape
        torch.Size([6, 3])
    """
    values = _densities(density)
    if sets < 2:
        raise ValueError(f"sets must be at least 2, got {sets}")
    if iterations < 1:
        raise ValueError(f"iterations must be at least 1, got {iterations}")
    if not tolerance >= 0:
        raise ValueError(f"tolerance must not be negative, got {tolerance}")
    if not floor > 0:
        raise ValueError(f"floor must be above 0, got {floor}")

    posterior = torch.full((len(values), sets), 1 / sets, dtype=torch.float32, device=values.device)
    samples = int(group.sum(torch.tensor([len(values)], device=values.device)))
    low, high = _extremes(values, group)
    if samples > 0 and low < high:
        scale, mixture = _fitted(values, samples, low, high, sets, (tolerance, iterations, floor), group)
        for part in slices(len(values), _STEP):
            posterior[part] = _log_joint(scale(values[part]), mixture).softmax(dim=0).T.float()
    level = torch.empty(len(values), dtype=torch.int64, device=values.device)
    for part in slices(len(values), _STEP):
        level[part] = _first_largest(posterior[part])
    return Information(level, posterior)


def _fitted(
    values: Tensor, samples: int, low: Tensor, high: Tensor, sets: int, limits: tuple[float, int, float], group: Group
) -> tuple[Scale, Mixture]:
    """Return the mixture of all samples, and how they are scaled for it."""
    if samples > _FEW:
        gathered = histogram(values, low, high, group)
        shares = [(2 * i + 1) / (2 * sets) for i in reversed(range(sets))]
        middles = distinct_quantiles(values, gathered.scale, shares, group)
        mixture = fit_cells(torch.from_numpy(gathered.cells()).to(values.device), _start(middles), *limits)
        if mixture is not None:
            return gathered.scale, _agreed(mixture, group)
    # Sorted, so that the order of the samples cannot reach the sums, not even their last bit.
    ascending = group.gather(values).double().sort().values
    mean, deviation = ascending.mean(), ascending.std(correction=0)
    scaled = (ascending - mean) / deviation
    # Of the *distinct* values, since two components that start on one spot never part.
    distinct = scaled[scaled.diff(prepend=scaled[:1] - 1) > 0]
    places = [(2 * i + 1) * len(distinct) // (2 * sets) for i in reversed(range(sets))]
    mixture = fit_each(scaled, _start(distinct[places].cpu().numpy()), *limits)
    return Scale(mean, torch.ones_like(mean), 0.0, float(deviation)), _agreed(mixture, group)


def select(level: Tensor, sets: int, which: Literal["low", "medium", "high"]) -> Tensor:
    """Return which samples have low, medium or high information: h of equation 2, and the ablation's others.

    Args:
        level: int64 ``(samples,)`` from :func:`information`.
        sets: the number of sets it was called with.
        which: ``"high"`` is level ``sets - 1``, ``"low"`` level 0, ``"medium"`` level 1 and only for 3 sets.

    Returns:
        bool ``(samples,)``.

    Example:
        >>> import torch
        >>> from acpl.functional import select
        >>> select(torch.tensor([0, 1, 2, 2]), 3, "high")
        tensor([False, False,  True,  True])
    """
    if sets < 2:
        raise ValueError(f"sets must be at least 2, got {sets}")
    if which == "high":
        return level == sets - 1
    if which == "low":
        return level == 0
    if which != "medium":
        raise ValueError(f"which must be 'low', 'medium' or 'high', got {which!r}")
    if sets != 3:
        raise ValueError(f"which may be 'medium' only with sets=3, got sets={sets}")
    return level == 1


def level_of_minimum(density: Tensor, level: Tensor, *, group: Group = ALONE) -> int:
    """Return the level of the least dense sample: what the published code takes for high information.

    The paper's high level is the component of lowest *mean*; a wide component of a higher mean can capture
    the least dense sample, and then the two differ.

    Args:
        density: ``(samples,)``, floating point, finite, not empty. Equal minima: the first one's level.
        level: int64 ``(samples,)`` from :func:`information`.
        group: the processes that hold a part of the samples each; the answer is the same on all.

    Example:
        >>> import torch
        >>> from acpl.functional import level_of_minimum
        >>> level_of_minimum(torch.tensor([0.8, 0.1, 0.5]), torch.tensor([0, 1, 2]))
        1
    """
    values = _densities(density)
    if level.shape != values.shape:
        raise ValueError(f"level must have the shape of density, got {tuple(level.shape)} and {tuple(values.shape)}")
    low, _ = _extremes(values, group)
    if low == torch.inf:
        raise ValueError("density must have at least one sample, got none")
    # The first process that holds a minimum says its first one's level; the others hold their tongues.
    here = (values == low).nonzero().flatten()[:1]
    silent = level.new_full((), group.size)
    first = group.least(silent if len(here) == 0 else torch.full_like(silent, group.rank))
    return int(group.sum(level[here].sum() if first == group.rank else torch.zeros_like(silent)))


def min_max(density: Tensor, *, group: Group = ALONE) -> Tensor:
    """Return densities rescaled to [0, 1] over the set, as the published code does and the paper does not.

    The levels of :func:`information` stay as they are; the weights of informative mixup do not: the least
    dense sample's model prediction gets weight 0. Where all are equal, all become 1: each is as dense as the
    densest.

    Args:
        density: ``(samples,)``, floating point, finite. May be empty.
        group: the processes that hold a part of the set each; what comes back is for this one's.

    Returns:
        float32 ``(samples,)`` in [0, 1].

    Example:
        >>> import torch
        >>> from acpl.functional import min_max
        >>> min_max(torch.tensor([0.5, 0.75, 1.0]))
        tensor([0.0000, 0.5000, 1.0000])
    """
    values = _densities(density)
    low, high = (end.double() for end in _extremes(values, group))
    if low >= high:
        return torch.ones_like(values)
    return ((values.double() - low) / (high - low)).float()


def _densities(density: Tensor) -> Tensor:
    if density.ndim != 1:
        raise ValueError(f"density must be (samples,), got shape {tuple(density.shape)}")
    if not density.is_floating_point():
        raise TypeError(f"density must be floating point, got {density.dtype}")
    values = density.detach().float()
    bad = int((~values.isfinite()).sum())
    if bad:
        raise ValueError(f"density must be finite, got NaN or infinity in {bad} of {len(values)} rows")
    return values


def _agreed(mixture: Mixture, group: Group) -> Mixture:
    """Return the first process's mixture: another processor, or number of threads, may differ in the last bit."""
    parameters = torch.from_numpy(np.stack(mixture))
    return Mixture(*group.sum(parameters if group.rank == 0 else torch.zeros_like(parameters)).numpy())


def _extremes(values: Tensor, group: Group) -> tuple[Tensor, Tensor]:
    """Return the least and the greatest of all samples; infinities where there are none."""
    ends = values.new_full((2,), torch.inf)
    if len(values):
        low, high = values.aminmax()
        ends = torch.stack((low, -high))
    low, high = group.least(ends)
    return low, -high


def _start(means: NDArray[np.float64]) -> Mixture:
    """Return the mixture that EM starts from, densest component first."""
    sets = len(means)
    # A uniform spread cut into equal parts leaves each with 1 / sets² of its variance, which is 1.
    return Mixture(np.full(sets, 1 / sets), means, np.full(sets, 1 / sets**2))


def _log_joint(values: Tensor, mixture: Mixture) -> Tensor:
    """Return log π_ζ n(d | μ_ζ, Σ_ζ), equation 3, as ``(sets, samples)``."""
    parameters = torch.from_numpy(np.stack(mixture)).to(values.device)
    weight, mean, variance = parameters[:, :, None].unbind()
    return weight.log() - 0.5 * ((2 * math.pi * variance).log() + (values - mean).square() / variance)


def _first_largest(posterior: Tensor) -> Tensor:
    """Return the lowest level of largest posterior; argmax promises no order among ties."""
    sets = posterior.shape[1]
    largest = posterior == posterior.amax(dim=1, keepdim=True)
    return torch.where(largest, torch.arange(sets, device=posterior.device), sets).amin(dim=1)

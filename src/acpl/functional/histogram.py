"""Many numbers gathered in cells of neighbouring ones, the same for every order and every division of the numbers.

Each number's place between the least and the greatest is a whole number below 2³¹, and a bin of the histogram keeps the
count, the sum and the sum of squares of such numbers: sums of integers, in which no order of adding can be seen.
Bins are then joined to cells, wide where numbers are few.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from acpl.functional.group import Group
from acpl.functional.rows import slices

Array = NDArray[np.float64]

_BINS, _PLACES = 2**16, 2**31
_PER_BIN = _PLACES // _BINS
# Numbers placed at a time.
_STEP = 2**20
# Cells are no wider than this share of the standard deviation and hold no more than 1 / CELLS of the numbers: they are
# narrow where numbers are many, hence where a component can be narrow.
_WIDTH = 2.0**-6
CELLS = 2048
# Numbers that are told apart when quantiles are asked for, in so many stretches.
_DISTINCT, _STRETCHES = 2**22, 2**11


class Scale(NamedTuple):
    """How numbers are brought to mean 0 and variance 1: by their place between the least and the greatest."""

    low: Tensor
    span: Tensor
    mean: float
    deviation: float

    def __call__(self, values: Tensor) -> Tensor:
        """Float64, each number by itself."""
        return places(values, self.low, self.span).sub_(self.mean).div_(self.deviation)


class Histogram(NamedTuple):
    """Bins that hold any number, ascending: how many, the scaled mean, the sum of squared scaled distances from it."""

    scale: Scale
    held: Array
    mean: Array
    within: Array
    left: Array
    """The scaled left edge of each bin."""

    def cells(self) -> Array:
        """``(3, cells)``: mean, count, sum of squared distances from the mean."""
        before = self.held.cumsum() - self.held
        most = -(-self.held.sum() // CELLS)
        first = np.ones(len(self.held), dtype=bool)
        first[1:] = (np.diff(before // most) != 0) | (np.diff(np.floor(self.left / _WIDTH)) != 0)
        start, cell = np.flatnonzero(first), first.cumsum() - 1
        count = np.add.reduceat(self.held, start)
        mean = np.add.reduceat(self.held * self.mean, start) / count
        spread = self.within + self.held * (self.mean - mean[cell]) ** 2
        return np.stack((mean, count, np.add.reduceat(spread, start)))


def places(values: Tensor, low: Tensor, span: Tensor) -> Tensor:
    """Where each number lies between the least and the greatest of all, float64 in [0, 1]."""
    return values.double().sub_(low).div_(span)


def histogram(values: Tensor, low: Tensor, high: Tensor, group: Group) -> Histogram:
    """Gather float32 ``values (samples,)``, this process's part of them, between ``low`` and the greater ``high``."""
    low, span = low.double(), high.double() - low.double()
    sums = torch.zeros((3, _BINS), dtype=torch.int64, device=values.device)
    for part in slices(len(values), _STEP):
        place = places(values[part], low, span).mul_(_PLACES).long().clamp_(0, _PLACES - 1)
        number, inside = place // _PER_BIN, place % _PER_BIN
        for row, amount in zip(sums, (torch.ones_like(inside), inside, inside * inside), strict=True):
            row.index_add_(0, number, amount)
    count, inside, squares = group.sum(sums).cpu().numpy().astype(np.float64)
    held = np.flatnonzero(count)
    count, inside, squares = count[held], inside[held], squares[held]
    mean = (held * _PER_BIN + inside / count) / _PLACES
    within = np.maximum(squares - inside**2 / count, 0.0) / _PLACES**2
    total = count.sum()
    # Not as scalar products, whose last bit goes by the number of threads.
    centre = (count * mean).sum() / total
    deviation = float(np.sqrt((within.sum() + (count * (mean - centre) ** 2).sum()) / total))
    scale = Scale(low, span, float(centre), deviation)
    left = (held / _BINS - centre) / deviation
    return Histogram(scale, count, (mean - centre) / deviation, within / deviation**2, left)


def distinct_quantiles(values: Tensor, scale: Scale, shares: list[float], group: Group) -> Array:
    """Return the scaled numbers at these shares of all *distinct* ones; what differs by 2⁻²² of the span is one."""
    missing = torch.ones(_DISTINCT, dtype=torch.int8, device=values.device)
    for part in slices(len(values), _STEP):
        place = places(values[part], scale.low, scale.span).mul_(_DISTINCT).long().clamp_(0, _DISTINCT - 1)
        missing[place] = 0
    there = (group.least(missing) == 0).view(_STRETCHES, -1)
    count = there.sum(dim=1).cumsum(0)
    wanted = [int(share * int(count[-1])) for share in shares]
    found = []
    for number, stretch in zip(wanted, torch.searchsorted(count, count.new_tensor(wanted), right=True), strict=True):
        inside = there[stretch].nonzero().flatten()
        found.append(int(stretch) * there.shape[1] + int(inside[number - int(count[stretch])]))
    return ((np.array(found) + 0.5) / _DISTINCT - scale.mean) / scale.deviation

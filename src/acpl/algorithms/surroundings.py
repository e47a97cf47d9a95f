"""What a stage finds out about the unlabelled pool among its anchors, block by block and in a group of processes."""

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from acpl import functional
from acpl.functional.approximate import ApproximateSurvey, recall
from acpl.functional.group import Group
from acpl.functional.neighbours import Nearest
from acpl.functional.sums import exact_sum
from acpl.functional.survey import Source, Survey

# A block's lists of neighbours and, where they are read for it, its features.
_BLOCK_BYTES = 2**29
# Lists of all samples are kept up to this size; beyond it, those that matter are made again when they are asked for.
_KEPT_BYTES = 2**28
_SHOWN = 3
_SAMPLE = 1000


@dataclass(frozen=True)
class Centred:
    """Rows less one that is taken for the origin, part by part as they are asked for."""

    rows: Source
    origin: Tensor

    @property
    def shape(self) -> torch.Size:
        """``(rows, columns)``."""
        return self.rows.shape

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, part: Any, /) -> Tensor:
        """The rows of a slice, or of an int64 tensor of row numbers."""
        return self.rows[part].to(self.origin.device) - self.origin


def mean_row(rows: Tensor, group: Group) -> Tensor:
    """(columns,): the mean of all processes' rows, to the bit the same however they are shared out."""
    count = int(group.sum(torch.tensor([len(rows)], device=rows.device)))
    return (exact_sum(rows, torch.ones_like(rows), group) / max(count, 1)).float()


class _Surveyor(Protocol):
    def add(self, block: Tensor) -> Nearest: ...
    def nearest(self, queries: Tensor) -> Nearest: ...
    def backward(self) -> Tensor: ...


@dataclass(frozen=True)
class Surroundings:
    """Of every own unlabelled sample; row numbers of anchors and samples count through all processes' parts."""

    density: Tensor
    """(n,)"""
    labels: Tensor
    """(n, classes): the mean label of the nearest anchors."""
    nearest: Tensor
    """(n, up to 3): rows of the nearest anchors."""
    first: int
    """The number of the first own sample."""
    count: int
    """How many samples there are in all."""
    _features: Source
    _survey: _Surveyor
    _forward: Tensor | None
    _backward: Tensor
    _block: int
    _group: Group

    def connections(self, candidates: Tensor) -> Tensor:
        """(candidates,): c of equation 7, of the own samples in rows ``candidates``."""
        numbers = candidates + self.first
        if self._forward is not None:
            listed = self._forward[candidates]
            return functional.connections(listed, self._backward, numbers, group=self._group)
        # Only samples that some anchor lists can be connected; they are few, and looked for again.
        met = torch.unique(self._group.gather(torch.unique(self._backward)))
        rows = torch.isin(numbers, met).nonzero().flatten()
        counts = torch.zeros_like(candidates)
        for part in _blocks(len(rows), self._block, self._group, candidates.device):
            some = rows[part]
            queries = self._features[candidates[some].cpu()].to(candidates.device)
            listed = self._survey.nearest(queries).index
            counts[some] = functional.connections(listed, self._backward, numbers[some], group=self._group)
        return counts

    def sample(self) -> Tensor:
        """Rows of evenly spread own samples, some thousand over all processes."""
        step = max(1, self.count // _SAMPLE)
        return torch.arange(-self.first % step, len(self.density), step, device=self.density.device)

    def against_exact(self, rows: Tensor, anchors: Tensor, k: int) -> tuple[Tensor, float]:
        """Exact densities of own ``rows``, and the share of all sampled rows' exact neighbours that were found."""
        queries = self._features[rows.cpu()].to(anchors.device)
        found = self._survey.nearest(queries).index
        exact = functional.nearest(queries, anchors, k, group=self._group, coarse=True)
        hits = recall(found, exact.index) * found.numel() if len(rows) else 0.0
        counts = self._group.sum(torch.tensor([hits, found.numel()], dtype=torch.float64, device=anchors.device))
        return functional.density(exact.similarity), float(counts[0] / counts[1])


def surroundings(
    features: Source, anchors: Tensor, labels: Tensor, k: int, group: Group, *, approximate: bool = False
) -> Surroundings:
    """Survey own unlabelled ``features`` among own ``anchors``; ``labels`` (anchors, classes) are those of all."""
    device, own = anchors.device, len(features)
    survey: _Surveyor = (ApproximateSurvey if approximate else Survey)(anchors, k, own, group=group)
    width = min(k, len(labels))
    read = 0 if isinstance(features, Tensor) else 4 * features.shape[1]
    block = max(1, _BLOCK_BYTES // (read + 20 * width))
    starts = group.gather(torch.tensor([own], device=device)).tolist()
    keeps = bool(group.least(torch.tensor([own * width * 4 <= _KEPT_BYTES], device=device).int()))
    density = torch.empty(own, device=device)
    means = torch.empty(own, labels.shape[1], device=device)
    shown = torch.empty(own, min(_SHOWN, width), dtype=torch.int32, device=device)
    forward = torch.empty(own if keeps else 0, width, dtype=torch.int32, device=device)
    for part in _blocks(own, block, group, device):
        similarity, index = survey.add(features[part].to(device))
        density[part] = functional.density(similarity)
        means[part] = functional.neighbour_labels(index, labels)
        shown[part] = index[:, :_SHOWN].int()
        if keeps:
            forward[part] = index.int()
    return Surroundings(
        density,
        means,
        shown,
        sum(starts[: group.rank]),
        sum(starts),
        features,
        survey,
        forward if keeps else None,
        survey.backward(),
        block,
        group,
    )


def _blocks(count: int, step: int, group: Group, device: torch.device) -> list[slice]:
    """Parts of ``range(count)``, as many on every process; at least one."""
    needed = max(1, -(-count // step))
    rounds = -int(group.least(torch.tensor([-needed], device=device)))
    return [slice(min(count, number * step), min(count, (number + 1) * step)) for number in range(rounds)]

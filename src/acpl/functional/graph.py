"""Labels that spread over a graph of nearest neighbours (Zhou et al., NeurIPS 2003), in bounded memory."""

import torch
from torch import Tensor

from acpl.functional import ring
from acpl.functional.group import ALONE, Group
from acpl.functional.neighbours import nearest
from acpl.functional.sums import exact_sum


def affinity(features: Tensor, k: int, power: float = 3.0, *, group: Group = ALONE) -> Tensor:
    """Return S = D^(-1/2) W D^(-1/2), the symmetric graph of every sample and its ``k`` nearest, as a sparse matrix.

    Args:
        features: ``(samples, features)``, floating point, finite.
        k: neighbours of a sample, itself not among them; at least 1. All others where there are fewer.
        power: an edge weighs max(cosine, 0) to this power, the mean of both directions.
        group: the processes that hold a part of the samples each.

    Returns:
        sparse float32 ``(samples, samples)``, k to 2 k entries a row. A sample without any similar one has an empty
        row. In a group, the rows of this process's samples: ``(own samples, samples)``.

    Example:
        >>> points = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
        >>> affinity(points, k=1).to_dense()
        tensor([[0., 1., 0., 0.],
                [1., 0., 0., 0.],
                [0., 0., 0., 1.],
                [0., 0., 1., 0.]])
    """
    first = ring.starts(len(features), group, features.device)
    start, end, weight = _edges(features, k, power, first[group.rank], group)
    here = [(start, end, weight)]
    for _ in range(group.size):  # every process's edges come by once, our own last
        start, end, weight = group.pass_on(start), group.pass_on(end), group.pass_on(weight)
        ours = (end >= first[group.rank]) & (end < first[group.rank + 1])
        here.append((end[ours], start[ours], weight[ours]))
    rows, columns, halves = (torch.cat(parts) for parts in zip(*here, strict=True))
    ends = torch.stack([rows - first[group.rank], columns])
    size = (len(features), first[-1])
    # Said aloud, since torch warns of silence.
    with torch.sparse.check_sparse_tensor_invariants(enable=False):  # type: ignore[no-untyped-call]
        graph = torch.sparse_coo_tensor(ends, halves / 2, size).coalesce()
    row, column = graph.indices()
    degree = torch.zeros(len(features), dtype=torch.float64, device=features.device)
    degree.index_add_(0, row, graph.values().double())
    scale = torch.where(degree > 0, degree.clamp_min(1e-30).rsqrt(), torch.zeros_like(degree)).float()
    values = graph.values() * scale[row] * group.gather(scale)[column]
    return torch.sparse_coo_tensor(graph.indices(), values, size, is_coalesced=True, check_invariants=False)


def _edges(features: Tensor, k: int, power: float, first: int, group: Group) -> tuple[Tensor, Tensor, Tensor]:
    """Return start, end and weight of the edges from this process's samples, which are numbered from ``first``."""
    similarity, index = nearest(features, features, k + 1, group=group, coarse=True)
    rows = torch.arange(first, first + len(features), device=features.device)[:, None].expand_as(index)
    other = index != rows
    if index.shape[1] > k:  # among duplicates a sample may miss its own nearest: then the last is one too many
        other[:, -1] &= ~other.all(dim=1)
    weight = similarity[other].clamp_min(0).double().pow(power).float()
    return rows[other], index[other], weight


def spread(
    graph: Tensor,
    seeds: Tensor,
    alpha: float = 0.99,
    *,
    tolerance: float = 1e-5,
    iterations: int = 1000,
    group: Group = ALONE,
) -> Tensor:
    """Return F = (I - alpha S)^(-1) Y by conjugate gradients, every column by itself.

    Args:
        graph: S of :func:`affinity`, ``(samples, samples)``.
        seeds: Y ``(samples, columns)``: what is known, 0 where nothing is.
        alpha: in [0, 1): how far labels spread; 0 leaves them where they are.
        tolerance: a column is done when its residual is below this share of its seeds' norm.
        iterations: at most so many steps.
        group: the processes that hold a part of the samples each: of the graph their rows, and their seeds. At each
            step what labels have reached is gathered, ``(samples, columns)``; the graph never is.

    Returns:
        float32 ``(samples, columns)``, not negative where the seeds are not.

    Example:
        >>> points = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
        >>> seeds = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
        >>> spread(affinity(points, k=1), seeds, alpha=0.5)
        tensor([[1.3333, 0.0000],
                [0.6667, 0.0000],
                [0.0000, 1.3333],
                [0.0000, 0.6667]])
    """
    if not 0 <= alpha < 1:
        raise ValueError(f"alpha must be in [0, 1), not {alpha}")
    seeds = seeds.float()
    found = torch.zeros_like(seeds)
    residual = seeds.clone()
    direction = residual.clone()
    energy = exact_sum(residual, residual, group)
    enough = energy * tolerance**2
    for _ in range(iterations):
        if bool((energy <= enough).all()):
            break
        image = direction - alpha * torch.sparse.mm(graph, group.gather(direction))
        along = exact_sum(direction, image, group)
        step = torch.where(along > 0, energy / along.clamp_min(1e-300), torch.zeros_like(along)).float()
        found += step * direction
        residual -= step * image
        before, energy = energy, exact_sum(residual, residual, group)
        further = torch.where(before > 0, energy / before.clamp_min(1e-300), before).float()
        direction = residual + further * direction
    negative = group.sum((seeds < 0).sum().view(1))
    return found.clamp_min(0) if int(negative) == 0 else found

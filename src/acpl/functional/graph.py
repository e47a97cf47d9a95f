"""Labels that spread over a graph of nearest neighbours (Zhou et al., NeurIPS 2003), in bounded memory."""

import torch
from torch import Tensor

from acpl.functional.neighbours import nearest


def affinity(features: Tensor, k: int, power: float = 3.0) -> Tensor:
    """Return S = D^(-1/2) W D^(-1/2), the symmetric graph of every sample and its ``k`` nearest, as a sparse matrix.

    Args:
        features: ``(samples, features)``, floating point, finite.
        k: neighbours of a sample, itself not among them; at least 1. All others where there are fewer.
        power: an edge weighs max(cosine, 0) to this power, the mean of both directions.

    Returns:
        sparse float32 ``(samples, samples)``, k to 2 k entries a row. A sample without any similar one has an empty
        row.

    Example:
        >>> points = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
        >>> affinity(points, k=1).to_dense()
        tensor([[0., 1., 0., 0.],
                [1., 0., 0., 0.],
                [0., 0., 0., 1.],
                [0., 0., 1., 0.]])
    """
    count = len(features)
    similarity, index = nearest(features, features, k + 1)
    rows = torch.arange(count, device=features.device)[:, None].expand_as(index)
    other = index != rows
    if index.shape[1] > k:  # among duplicates a sample may miss its own nearest: then the last is one too many
        other[:, -1] &= ~other.all(dim=1)
    weight = similarity.clamp_min(0).pow(power)
    ends = torch.stack([rows[other], index[other]])
    both = torch.cat([ends, ends.flip(0)], dim=1)
    halves = torch.cat([weight[other]] * 2) / 2
    # Said aloud, since torch warns of silence.
    with torch.sparse.check_sparse_tensor_invariants(enable=False):  # type: ignore[no-untyped-call]
        graph = torch.sparse_coo_tensor(both, halves, (count, count)).coalesce()
    start, end = graph.indices()
    degree = torch.zeros(count, device=features.device).index_add_(0, start, graph.values())
    scale = torch.where(degree > 0, degree.clamp_min(1e-30).rsqrt(), torch.zeros_like(degree))
    values = graph.values() * scale[start] * scale[end]
    size = (count, count)
    return torch.sparse_coo_tensor(graph.indices(), values, size, is_coalesced=True, check_invariants=False)


def spread(
    graph: Tensor, seeds: Tensor, alpha: float = 0.99, *, tolerance: float = 1e-5, iterations: int = 1000
) -> Tensor:
    """Return F = (I - alpha S)^(-1) Y by conjugate gradients, every column by itself.

    Args:
        graph: S of :func:`affinity`, ``(samples, samples)``.
        seeds: Y ``(samples, columns)``: what is known, 0 where nothing is.
        alpha: in [0, 1): how far labels spread; 0 leaves them where they are.
        tolerance: a column is done when its residual is below this share of its seeds' norm.
        iterations: at most so many steps.

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
    energy = residual.square().sum(dim=0)
    enough = energy * tolerance**2
    for _ in range(iterations):
        if bool((energy <= enough).all()):
            break
        image = direction - alpha * torch.sparse.mm(graph, direction)
        along = (direction * image).sum(dim=0)
        step = torch.where(along > 0, energy / along.clamp_min(1e-30), torch.zeros_like(along))
        found += step * direction
        residual -= step * image
        before, energy = energy, residual.square().sum(dim=0)
        direction = residual + torch.where(before > 0, energy / before.clamp_min(1e-30), before) * direction
    return found.clamp_min(0) if bool((seeds >= 0).all()) else found

"""Similarities on a coarse scale, so that they do not depend on how they were come by.

Low precision finds the right neighbours, but their similarities only to some 10⁻⁷: the last bits would tell of the
block, the number of threads and the number of processes, and a density with them. So where a stage's selections must
not depend on these (``survey``) and low precision may be used at all, similarities are rounded to multiples of 2⁻¹⁵,
and the few of which the estimate leaves open to which multiple they belong are multiplied in float64 first. The result
is that of exact products, to the bit, at a fraction of them.
"""

import torch
from torch import Tensor

from acpl.functional.pairs import products_of_pairs
from acpl.functional.rows import BYTES_PER_FEATURE, Rows, similarity, slices

SCALE = 2.0**15


def is_coarse(features: int, k: int, anchors: int) -> bool:
    """Say whether low precision may be used, by sizes that are the same for one process and for many."""
    return features >= 128 and 4 * k <= anchors


def coarsen(found: Tensor) -> Tensor:
    """Round exact float32 similarities, in place."""
    return found.mul_(SCALE).round_().mul_(1 / SCALE).add_(0.0)  # minus zero is no similarity


def undecided(estimates: Tensor, off_by: Tensor | float) -> Tensor:
    """Say of which estimates, each off by so much at most, it is open to which multiple they will be rounded."""
    scaled = estimates * SCALE
    return scaled.sub_(scaled.floor()).sub_(0.5).abs_() <= off_by * SCALE


def exact_similarities(rows: Rows, columns: Rows, index: Tensor, block_bytes: int) -> Tensor:
    """Return the float32 similarities of every row with the columns ``index (rows, k)`` listed for it."""
    found = torch.empty(index.shape, dtype=torch.float32, device=index.device)
    if found.numel() == 0:
        return found
    grid = _grid(columns, block_bytes)
    for part in slices(len(index), _rows_at_a_time(index, columns, block_bytes)):
        wanted = torch.ones_like(index[part], dtype=torch.bool)
        found[part] = similarities(rows, part, columns, wanted, index[part].flatten(), grid).view_as(wanted)
    return found


def similarities(rows: Rows, part: slice, columns: Rows, wanted: Tensor, index: Tensor, grid: Tensor | None) -> Tensor:
    """Return the exact similarities of the pairs ``wanted (part, k)``, whose columns are ``index``, row by row.

    ``grid`` has all columns ready to be multiplied, where there is room for them; else those that are met are made so.
    """
    start = torch.cat((index.new_zeros(1), wanted.sum(dim=1).cumsum(0)))
    if grid is not None:
        return similarity(products_of_pairs(rows.on_grid(part), grid, start, index))
    met, place = torch.unique(index, return_inverse=True)
    return similarity(products_of_pairs(rows.on_grid(part), columns.on_grid(met), start, place))


def _grid(columns: Rows, block_bytes: int) -> Tensor | None:
    fits = len(columns.length) * columns.features.shape[1] * BYTES_PER_FEATURE <= block_bytes // 2
    return columns.on_grid(slice(None)) if fits else None


def _rows_at_a_time(listed: Tensor, columns: Rows, block_bytes: int) -> int:
    """Return for how many rows to look at all pairs ``listed (rows, k)``, were each to bring a column of its own."""
    bytes_per_pair = columns.features.shape[1] * BYTES_PER_FEATURE // 8 + 64
    return max(1, block_bytes // (bytes_per_pair * listed.shape[1]))

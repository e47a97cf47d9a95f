"""Similarities on a coarse scale, so that they do not depend on how they were come by.

Low precision finds the right neighbours, but their similarities only to some 10⁻⁷: the last bits would tell of the
block, the number of threads and the number of processes, and a density with them. So where low precision may be used
at all, similarities are rounded to multiples of 2⁻¹⁶, and the few of which the estimate leaves open to which multiple
they belong are multiplied in float64 first. The result is that of exact products, to the bit, at a fraction of them.
"""

import torch
from torch import Tensor

from acpl.functional.pairs import products_of_pairs
from acpl.functional.rows import BYTES_PER_FEATURE, Rows, similarity, slices

SCALE = 2.0**16
_SAMPLED_ROWS = 256


def is_coarse(features: int, k: int, anchors: int) -> bool:
    """Say whether similarities are rounded, by sizes that are the same for one process and for many."""
    return features >= 128 and 4 * k <= anchors


def coarsen(found: Tensor) -> Tensor:
    """Round exact float32 similarities, in place."""
    return found.mul_(SCALE).round_().mul_(1 / SCALE).add_(0.0)  # minus zero is no similarity


def coarsen_estimates(found: Tensor, rows: Rows, columns: Rows, index: Tensor, block_bytes: int) -> Tensor:
    """Round estimated similarities ``(rows, k)`` of pairs ``index`` as their exact ones would be, in place."""
    if found.numel() == 0:
        return found
    doubt = SCALE * _doubt(found, rows, columns, index, block_bytes)
    for part in slices(len(found), _rows_at_a_time(found, columns, block_bytes)):
        scaled = found[part] * SCALE
        open_ = (scaled - scaled.floor() - 0.5).abs() <= doubt
        exact = similarities(rows, part, columns, open_, index[part][open_], block_bytes)
        found[part] = coarsen(found[part].masked_scatter(open_, exact))
    return found


def exact_similarities(rows: Rows, columns: Rows, index: Tensor, block_bytes: int) -> Tensor:
    """Return the float32 similarities of every row with the columns ``index (rows, k)`` listed for it."""
    found = torch.empty(index.shape, dtype=torch.float32, device=index.device)
    if found.numel() == 0:
        return found
    for part in slices(len(index), _rows_at_a_time(index, columns, block_bytes)):
        wanted = torch.ones_like(index[part], dtype=torch.bool)
        found[part] = similarities(rows, part, columns, wanted, index[part].flatten(), block_bytes).view_as(wanted)
    return found


def similarities(rows: Rows, part: slice, columns: Rows, wanted: Tensor, index: Tensor, block_bytes: int) -> Tensor:
    """Return the exact similarities of the pairs ``wanted (part, k)``, whose columns are ``index``, row by row."""
    start = torch.cat((index.new_zeros(1), wanted.sum(dim=1).cumsum(0)))
    whole = len(columns.length) * columns.features.shape[1] * BYTES_PER_FEATURE <= block_bytes // 2
    if whole and len(columns.length) <= len(index):
        return similarity(products_of_pairs(rows.on_grid(part), columns.on_grid(slice(None)), start, index))
    met, place = torch.unique(index, return_inverse=True)
    return similarity(products_of_pairs(rows.on_grid(part), columns.on_grid(met), start, place))


def _doubt(found: Tensor, rows: Rows, columns: Rows, index: Tensor, block_bytes: int) -> float:
    """Return what an estimate may be off by: sixteen standard deviations of what some of them are."""
    some = torch.arange(0, len(found), max(1, len(found) // _SAMPLED_ROWS), device=found.device)
    sampled = Rows(rows.features[some], rows.length[some])
    wrong = exact_similarities(sampled, columns, index[some], block_bytes) - found[some]
    return max(2.0**-22, 16 * float(wrong.square().mean().sqrt()))


def _rows_at_a_time(listed: Tensor, columns: Rows, block_bytes: int) -> int:
    """Return for how many rows to look at all pairs ``listed (rows, k)``, were each to bring a column of its own."""
    bytes_per_pair = columns.features.shape[1] * BYTES_PER_FEATURE // 8 + 64
    return max(1, block_bytes // (bytes_per_pair * listed.shape[1]))

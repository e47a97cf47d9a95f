"""Nearest neighbours of chosen rows by ranking every pair: slow, exact on all data, in as little memory as asked."""

import torch
from torch import Tensor

from acpl.functional import ranks as ranking
from acpl.functional.rows import BYTES_PER_FEATURE, Rows, similarity, slices

# Per pair at the peak of a tile: the float64 product, its float32 and int64 forms and the copies made while merging.
_BYTES_PER_PAIR = 40


def exhaustive(queries: Rows, chosen: Tensor, anchors: Rows, k: int, block_bytes: int) -> Tensor:
    """Return the ranks ``(chosen, k)`` of the ``k`` anchors most similar to each chosen query, best first."""
    found = torch.full((len(chosen), k), ranking.WORST, dtype=torch.int64, device=chosen.device)
    row_step, column_step = _tile(len(chosen), len(anchors.length), queries.features.shape[1], block_bytes)
    for rows in slices(len(chosen), row_step):
        query = queries.on_grid(chosen[rows])
        for columns in slices(len(anchors.length), column_step):
            cosines = similarity(query @ anchors.on_grid(columns).T)
            ranks = ranking.pack(cosines, torch.arange(columns.start, columns.stop, device=cosines.device))
            found[rows] = torch.cat((found[rows], ranks), dim=1).topk(k, dim=1, sorted=False).values
        found[rows] = ranking.best_first(found[rows])
    return found


def _tile(queries: int, anchors: int, features: int, block_bytes: int) -> tuple[int, int]:
    """Return how many queries and anchors to take at a time.

    The longer side is halved first: a tile much narrower than k in either direction would spend its time
    merging the same k best again and again.
    """
    rows, columns = max(1, queries), anchors
    while rows * columns > 1:
        if rows * columns * _BYTES_PER_PAIR + (rows + columns) * features * BYTES_PER_FEATURE <= block_bytes:
            break
        if rows >= columns:
            rows = (rows + 1) // 2
        else:
            columns = (columns + 1) // 2
    return rows, columns

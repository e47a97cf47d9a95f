"""Similarity and index in one int64, similarity above, index (reversed) below.

Such ranks are unique and sort as the contract says: by descending similarity, ties to the lower index.
"""

import torch
from torch import Tensor

from acpl.functional.selection import sorted_rows

WORST = torch.iinfo(torch.int64).min

_INDEX_MASK = 2**32 - 1


def pack(similarity: Tensor, index: Tensor) -> Tensor:
    """Return the ranks of float32 similarities, no minus zero among them, and of their indices."""
    return _flip_negative(similarity.view(torch.int32)).long().bitwise_left_shift_(32).add_(_INDEX_MASK - index)


def similarity_of(ranks: Tensor) -> Tensor:
    """Return the float32 similarities that went into the ranks."""
    return _flip_negative((ranks >> 32).int()).view(torch.float32)


def index_of(ranks: Tensor) -> Tensor:
    """Return the indices that went into the ranks."""
    return _INDEX_MASK - (ranks & _INDEX_MASK)


def best_first(ranks: Tensor) -> Tensor:
    """Return each row's ranks sorted, the best first."""
    return sorted_rows(ranks)


def in_order(similarity: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """Return similarities and indices ``(rows, candidates)``, the best of each row first."""
    ranks = best_first(pack(similarity, index))
    return similarity_of(ranks), index_of(ranks)


def _flip_negative(bits: Tensor) -> Tensor:
    """Turn the bits of float32 into int32 that sort as the floats do, or back."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)

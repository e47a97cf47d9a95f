"""Exact cosine nearest neighbours, in one direction or in both, without ever holding the whole product.

Rows are brought to unit length in float64 and rounded to multiples of 2⁻²⁶. Products of two such numbers are
multiples of 2⁻⁵², and every partial sum of a scalar product of unit vectors stays below 2: float64 holds each
of them *exactly*, in whatever order a matrix kernel adds them. So a pair's similarity does not depend on the
block it falls into, on the number of threads or on the device, and duplicated rows tie to the last bit. The
rounding moves a cosine by about 10⁻⁸, and by no more than 1.5 · 10⁻⁸ √features, which float32 sums exceed.

Similarity and index are then packed into one int64, similarity above, index (reversed) below. Such ranks are
unique and sort as the contract says: by descending similarity, ties to the lower index.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

BLOCK_BYTES = 256 * 2**20

_GRID = 2.0**26
_INDEX_MASK = 2**32 - 1
_WORST = torch.iinfo(torch.int64).min
# What a block needs at its peak: per pair the float64 product, its float32 and int64 forms and
# the copies made while merging; per element of a row its float32, float64 and rounded forms.
_BYTES_PER_PAIR = 40
_BYTES_PER_FEATURE = 32


class Nearest(NamedTuple):
    """The nearest anchors of every query, nearest first."""

    similarity: Tensor
    index: Tensor  # type: ignore[assignment]  # hides tuple.index, which nobody asks of two tensors


class MutualNearest(NamedTuple):
    """The nearest anchors of every query and the nearest queries of every anchor, nearest first."""

    similarity: Tensor
    forward: Tensor
    backward: Tensor


def nearest(queries: Tensor, anchors: Tensor, k: int, *, block_bytes: int = BLOCK_BYTES) -> Nearest:
    """Return the ``k`` anchors most similar to each query: the set 𝒩 in equations 4 and 5.

    Args:
        queries: features ``(queries, features)``, floating point, finite; used as float32.
        anchors: features ``(anchors, features)``, at least one row, on the device of the queries.
        k: how many neighbours, at least 1. Where there are fewer anchors, all of them are returned.
        block_bytes: working memory to aim at, beside the input and the output. It does not change the result.

    Returns:
        ``similarity``, float32 ``(queries, min(k, anchors))``: cosines in [-1, 1], descending; 0 for a
            zero vector.
        ``index``, int64 of the same shape: rows of ``anchors``. Equal similarities: the lower index first.

    Raises:
        TypeError: where features are not floating point.
        ValueError: on NaN or infinity, no anchors, shapes or devices that do not fit, ``k`` below 1.

    Example:
        >>> import torch
        >>> from acpl.functional import nearest
        >>> anchors = torch.tensor([[0.0, 1.0], [3.0, 4.0]])
        >>> similarity, index = nearest(torch.tensor([[2.0, 0.0]]), anchors, k=2)
        >>> similarity, index
        (tensor([[0.6000, 0.0000]]), tensor([[1, 0]]))
    """
    queries, anchors = _checked(queries, anchors, k, block_bytes)
    width = min(k, len(anchors))
    similarity = queries.new_empty((len(queries), width), dtype=torch.float32)
    index = queries.new_empty((len(queries), width), dtype=torch.int64)
    row_step, column_step = _tile(len(queries), len(anchors), queries.shape[1], block_bytes)
    for rows in _slices(len(queries), row_step):
        unit = _unit(queries[rows])
        best = _no_ranks(len(unit), width, queries.device)
        for columns in _slices(len(anchors), column_step):
            ranks = _ranks(unit, _unit(anchors[columns]))
            best = _merge(best, ranks + _reversed_index(columns, ranks.device))
        similarity[rows], index[rows] = _unpack(best)
    return Nearest(similarity, index)


def mutual_nearest(queries: Tensor, anchors: Tensor, k: int, *, block_bytes: int = BLOCK_BYTES) -> MutualNearest:
    """Return the ``k`` nearest anchors of each query and the ``k`` nearest queries of each anchor.

    These are 𝒩(f(x), D_A) and 𝒩(f(x_A), D_U) of equations 4, 5 and 7. Each block of the product is computed
    once and serves both directions.

    Args:
        queries: features ``(queries, features)``, floating point, finite; used as float32.
        anchors: features ``(anchors, features)``, at least one row, on the device of the queries.
        k: how many neighbours, at least 1, in either direction. Where there are fewer, all are returned.
        block_bytes: working memory to aim at, beside the input and the output. It does not change the result.

    Returns:
        ``similarity``, float32 ``(queries, min(k, anchors))``: cosines in [-1, 1], descending; 0 for a
            zero vector.
        ``forward``, int64 of the same shape: rows of ``anchors``.
        ``backward``, int64 ``(anchors, min(k, queries))``: rows of ``queries``, most similar first.
        Equal similarities: the lower index first, in both directions.

    Raises:
        TypeError: where features are not floating point.
        ValueError: on NaN or infinity, no anchors, shapes or devices that do not fit, ``k`` below 1.

    Example:
        >>> import torch
        >>> from acpl.functional import mutual_nearest
        >>> queries = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 2.0]])
        >>> found = mutual_nearest(queries, torch.tensor([[1.0, 0.1], [0.1, 1.0]]), k=1)
        >>> found.forward.flatten(), found.backward.flatten()
        (tensor([0, 1, 1]), tensor([0, 1]))
    """
    queries, anchors = _checked(queries, anchors, k, block_bytes)
    width = min(k, len(anchors))
    similarity = queries.new_empty((len(queries), width), dtype=torch.float32)
    forward = queries.new_empty((len(queries), width), dtype=torch.int64)
    best_backward = _no_ranks(len(anchors), min(k, len(queries)), queries.device)
    row_step, column_step = _tile(len(queries), len(anchors), queries.shape[1], block_bytes)
    for rows in _slices(len(queries), row_step):
        unit = _unit(queries[rows])
        best = _no_ranks(len(unit), width, queries.device)
        for columns in _slices(len(anchors), column_step):
            ranks = _ranks(unit, _unit(anchors[columns]))
            best = _merge(best, ranks + _reversed_index(columns, ranks.device))
            ranks += _reversed_index(rows, ranks.device)[:, None]
            best_backward[columns] = _merge(best_backward[columns], ranks.T)
        similarity[rows], forward[rows] = _unpack(best)
    # By blocks: the ranks of all anchors are as large as the output, their sorted copies need not be.
    for columns in _slices(len(anchors), column_step):
        best_backward[columns] = _unpack(best_backward[columns])[1]
    return MutualNearest(similarity, forward, best_backward)


def _checked(queries: Tensor, anchors: Tensor, k: int, block_bytes: int) -> tuple[Tensor, Tensor]:
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    if block_bytes < 1:
        raise ValueError(f"block_bytes must be at least 1, got {block_bytes}")
    for name, rows in (("queries", queries), ("anchors", anchors)):
        if rows.ndim != 2:
            raise ValueError(f"{name} must be (rows, features), got shape {tuple(rows.shape)}")
        if not rows.is_floating_point():
            raise TypeError(f"{name} must be floating point, got {rows.dtype}")
    if queries.shape[1] != anchors.shape[1]:
        raise ValueError(
            f"queries and anchors must have as many features, got {queries.shape[1]} and {anchors.shape[1]}"
        )
    if queries.device != anchors.device:
        raise ValueError(f"queries and anchors must share a device, got {queries.device} and {anchors.device}")
    if len(anchors) == 0:
        raise ValueError("anchors must have at least one row, got none")
    for name, rows in (("queries", queries), ("anchors", anchors)):
        bad = _count_not_finite(rows, block_bytes)
        if bad:
            raise ValueError(f"{name} must be finite, got NaN or infinity in {bad} of {len(rows)} rows")
    return queries.detach(), anchors.detach()


def _count_not_finite(rows: Tensor, block_bytes: int) -> int:
    step = max(1, block_bytes // (_BYTES_PER_FEATURE * max(1, rows.shape[1])))
    # In float32, as it will be used: a float64 beyond its range is an infinity.
    return sum(int((~rows[part].float().isfinite().all(1)).sum()) for part in _slices(len(rows), step))


def _tile(queries: int, anchors: int, features: int, block_bytes: int) -> tuple[int, int]:
    """Return how many queries and anchors to take at a time.

    The longer side is halved first: a tile much narrower than k in either direction would spend its time
    merging the same k best again and again.
    """
    rows, columns = max(1, queries), anchors
    while rows * columns > 1:
        if rows * columns * _BYTES_PER_PAIR + (rows + columns) * features * _BYTES_PER_FEATURE <= block_bytes:
            break
        if rows >= columns:
            rows = (rows + 1) // 2
        else:
            columns = (columns + 1) // 2
    return rows, columns


def _slices(count: int, step: int) -> Iterator[slice]:
    return (slice(start, min(start + step, count)) for start in range(0, count, step))


def _unit(rows: Tensor) -> Tensor:
    """Return rows of unit length on the grid of the module's docstring, float64; a zero row stays zero."""
    values = rows.float().double()
    length = values.square().sum(1, keepdim=True).sqrt_()
    length[length == 0] = 1.0
    return values.div_(length).mul_(_GRID).round_().div_(_GRID)


def _ranks(queries: Tensor, anchors: Tensor) -> Tensor:
    """Return int64 ``(queries, anchors)`` that sort like the similarities, their lower 32 bits free."""
    similarity = (queries @ anchors.T).float().clamp_(-1.0, 1.0)
    similarity += 0.0  # minus zero would rank below zero
    return _flip_negative(similarity.view(torch.int32)).long().bitwise_left_shift_(32)


def _flip_negative(bits: Tensor) -> Tensor:
    """Turn the bits of float32 into int32 that sort as the floats do, or back."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


def _reversed_index(part: slice, device: torch.device) -> Tensor:
    return _INDEX_MASK - torch.arange(part.start, part.stop, device=device)


def _no_ranks(rows: int, width: int, device: torch.device) -> Tensor:
    return torch.full((rows, width), _WORST, dtype=torch.int64, device=device)


def _merge(best: Tensor, ranks: Tensor) -> Tensor:
    return torch.cat((best, ranks), dim=1).topk(best.shape[1], dim=1, sorted=False).values


def _unpack(best: Tensor) -> tuple[Tensor, Tensor]:
    best = best.sort(dim=1, descending=True).values
    similarity = _flip_negative((best >> 32).int()).view(torch.float32)
    return similarity, _INDEX_MASK - (best & _INDEX_MASK)

"""Exact cosine nearest neighbours, in one direction or in both, without ever holding the whole product.

Queries are scored against all anchors block by block (``scores``). Of every block each query keeps its best
scores, a few more than k, and each anchor its own; these candidates are ranked, and where the scores cannot prove
that the k nearest are among them, all pairs of that row are (``exhaustive``). Whatever the way, the indices are those
of the exact similarities (``rows``) rounded to float32, equal ones in ascending order.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from acpl.functional import ranks as ranking
from acpl.functional import ring
from acpl.functional.coarse import coarsen, exact_similarities, is_coarse
from acpl.functional.columns import BestOfColumns
from acpl.functional.exhaustive import exhaustive
from acpl.functional.group import ALONE, Group
from acpl.functional.pairs import float32_is_float32
from acpl.functional.rows import BYTES_PER_FEATURE, Rows, measured, slices
from acpl.functional.scores import ExactScores, RoundedScores, Scores

BLOCK_BYTES = 256 * 2**20
# On a GPU small blocks spend their time on launching kernels.
_GPU_BLOCK_BYTES, _GPU_SHARE = 4 * 2**30, 8

# A listed pair takes as long as so many pairs of a block.
_COST_OF_A_PAIR = 64
# On the CPU larger blocks leave the cache, and their memory is mapped anew each time.
_CPU_PAIRS = 2**21
# Devices that multiply float64 at least half as fast as float32: nothing is gained there by less.
_FULL_RATE_DOUBLES = {(6, 0), (7, 0), (8, 0), (9, 0), (10, 0)}


class Nearest(NamedTuple):
    """The nearest anchors of every query, nearest first."""

    similarity: Tensor
    index: Tensor  # type: ignore[assignment]  # hides tuple.index, which nobody asks of two tensors


class MutualNearest(NamedTuple):
    """The nearest anchors of every query and the nearest queries of every anchor, nearest first."""

    similarity: Tensor
    forward: Tensor
    backward: Tensor


def nearest(
    queries: Tensor,
    anchors: Tensor,
    k: int,
    *,
    block_bytes: int | None = None,
    group: Group = ALONE,
    coarse: bool = False,
) -> Nearest:
    """Return the ``k`` anchors most similar to each query: the set 𝒩 in equations 4 and 5.

    Args:
        queries: features ``(queries, features)``, floating point, finite; used as float32.
        anchors: features ``(anchors, features)``, at least one row, on the device of the queries.
        k: how many neighbours, at least 1. Where there are fewer anchors, all of them are returned.
        block_bytes: working memory to aim at, beside the input and the output; without it 256 MiB, on a GPU an
            eighth of what is free, up to 4 GiB. It does not change the result.
        group: the processes that hold the rows. Of more than one, queries and anchors are this process's parts, and
            so is what comes back; row numbers count through all parts, and are those of one process.
        coarse: round similarities of 128 features or more to 4 k anchors or more to multiples of 2⁻¹⁵: then they are
            the same to the bit, too, for any number of processes and any device.

    Returns:
        ``similarity``, float32 ``(queries, min(k, anchors))``: cosines in [-1, 1], descending, to 1e-6; 0
            for a zero vector.
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
    similarity, index, _ = _found(queries, anchors, k, block_bytes, group, both=False, coarse=coarse)
    return Nearest(similarity, index)


def mutual_nearest(
    queries: Tensor,
    anchors: Tensor,
    k: int,
    *,
    block_bytes: int | None = None,
    group: Group = ALONE,
    coarse: bool = False,
) -> MutualNearest:
    """Return the ``k`` nearest anchors of each query and the ``k`` nearest queries of each anchor.

    These are 𝒩(f(x), D_A) and 𝒩(f(x_A), D_U) of equations 4, 5 and 7. Each block of the product is computed
    once and serves both directions.

    Args:
        queries: features ``(queries, features)``, floating point, finite; used as float32.
        anchors: features ``(anchors, features)``, at least one row, on the device of the queries.
        k: how many neighbours, at least 1, in either direction. Where there are fewer, all are returned.
        block_bytes: working memory to aim at, beside the input and the output; without it 256 MiB, on a GPU an
            eighth of what is free, up to 4 GiB. It does not change the result.
        group: the processes that hold the rows. Of more than one, queries and anchors are this process's parts, and
            so is what comes back; row numbers count through all parts, and are those of one process.
        coarse: round similarities of 128 features or more to 4 k anchors or more to multiples of 2⁻¹⁵: then they are
            the same to the bit, too, for any number of processes and any device.

    Returns:
        ``similarity``, float32 ``(queries, min(k, anchors))``: cosines in [-1, 1], descending, to 1e-6; 0
            for a zero vector.
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
    return MutualNearest(*_found(queries, anchors, k, block_bytes, group, both=True, coarse=coarse))


def _found(
    queries: Tensor, anchors: Tensor, k: int, wanted: int | None, group: Group, *, both: bool, coarse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return similarity and index of the nearest anchors and, where both are asked for, the nearest queries."""
    block_bytes = room(queries.device) if wanted is None else wanted
    if group.size == 1:
        _check(queries, anchors, k, block_bytes)
        rows = measured("queries", queries.detach(), block_bytes)
        columns = measured("anchors", anchors.detach(), block_bytes)
        return search(rows, columns, k, block_bytes, both=both, coarse=coarse)
    first = ring.starts(len(queries), group, queries.device)
    best = ring.no_ranks(len(anchors) if both else 0, k, anchors.device)
    found, best = in_parts(queries, first[group.rank], anchors, best, k, block_bytes, group, both=both, coarse=coarse)
    return *found, ranking.index_of(best[:, : min(k, first[-1])])


def in_parts(
    queries: Tensor,
    first_query: int,
    anchors: Tensor,
    best: Tensor,
    k: int,
    block_bytes: int,
    group: Group,
    *,
    both: bool,
    coarse: bool,
) -> tuple[Nearest, Tensor]:
    """Return the nearest anchors of this process's queries, and the ranks of every own anchor's best with them.

    ``coarse`` similarities are the same to the bit however the queries were divided and computed.
    """
    count = ring.starts(len(anchors), group, anchors.device)[-1]
    _check(queries, anchors, k, block_bytes, count)
    rows = measured("queries", queries.detach(), block_bytes)
    meet = partial(_exact_ranks, block_bytes=block_bytes, both=both)
    forward, best = ring.around(rows, first_query, anchors.detach(), best, k, group, meet)
    forward = forward[:, : min(k, count)]
    similarity = ranking.similarity_of(forward)
    if coarse and is_coarse(queries.shape[1], k, count):
        coarsen(similarity)
    return Nearest(similarity, ranking.index_of(forward)), best


def _exact_ranks(rows: Rows, anchors: Tensor, k: int, *, block_bytes: int, both: bool) -> tuple[Tensor, Tensor]:
    """Return the ranks of the nearest anchors of every query and, where both are asked for, the other way round."""
    columns = measured("anchors", anchors, block_bytes)
    ways = _ways_to_score(rows, columns, k, block_bytes, coarse=False)
    # Of few neighbours the estimates are quickly replaced; of many, exact scores are the cheaper way to them.
    if _COST_OF_A_PAIR * k > len(columns.length):
        ways = ways[-1:]
    similarity, forward, backward, exact = _by_best_way(rows, columns, k, block_bytes, ways, both)
    if not exact:
        similarity = exact_similarities(rows, columns, forward, block_bytes)
    return ranking.pack(similarity, forward), backward_ranks(rows, columns, backward, block_bytes)


def backward_ranks(rows: Rows, columns: Rows, backward: Tensor, block_bytes: int) -> Tensor:
    """Return the exact ranks of every anchor's nearest queries ``backward (anchors, k)``."""
    return ranking.pack(exact_similarities(columns, rows, backward, block_bytes), backward)


def search(
    rows: Rows, columns: Rows, k: int, block_bytes: int, *, both: bool, coarse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what :func:`nearest` or :func:`mutual_nearest` do, of rows that are all here; ``coarse`` as in parts."""
    ways = _ways_to_score(rows, columns, k, block_bytes, coarse)
    similarity, forward, backward, _ = _by_best_way(rows, columns, k, block_bytes, ways, both)
    if coarse and is_coarse(columns.features.shape[1], k, len(columns.length)):
        coarsen(similarity)  # of an estimate, to where the exact one belongs: the scores have seen to that
    return similarity, forward, backward


def _by_best_way(
    rows: Rows, columns: Rows, k: int, block_bytes: int, ways: list[Callable[[Rows, Rows], Scores]], both: bool
) -> tuple[Tensor, Tensor, Tensor, bool]:
    """Return similarity, nearest anchors, nearest queries, and whether the similarity is exact or an estimate."""
    for scored in ways:
        found = _by_scores(scored(rows, columns), rows, columns, k, block_bytes, both)
        if found is not None:
            return *found, scored is ExactScores
    return *_by_all_pairs(rows, columns, k, block_bytes, both), True


def room(device: torch.device) -> int:
    """Return the working memory that is taken where none is asked for."""
    if device.type != "cuda":
        return BLOCK_BYTES
    free, _ = torch.cuda.mem_get_info(device)
    return max(BLOCK_BYTES, min(_GPU_BLOCK_BYTES, free // _GPU_SHARE))


def _ways_to_score(
    rows: Rows, columns: Rows, k: int, block_bytes: int, coarse: bool
) -> list[Callable[[Rows, Rows], Scores]]:
    """Return the ways to score that are worth trying, the best first; none where memory is too short for any."""
    features = columns.features.shape[1]
    # All anchors in float64, and a row of scores and candidates against them.
    least = len(columns.length) * (features * BYTES_PER_FEATURE + 2 * ExactScores.bytes_per_pair)
    if len(rows.length) == 0 or features == 0 or least > block_bytes // 2:
        return []
    dtype = _worthwhile_dtype(rows, columns, k)
    if dtype == torch.float64:
        return [ExactScores]
    return [partial(RoundedScores, dtype=dtype, coarse=coarse), ExactScores]


def _worthwhile_dtype(rows: Rows, columns: Rows, k: int) -> torch.dtype:
    """Return the precision in which to look for candidates, by what was measured to be fastest; any is exact."""
    queries, anchors, features = len(rows.length), len(columns.length), columns.features.shape[1]
    if queries * anchors < 2**20 or not is_coarse(features, k, anchors):
        return torch.float64
    # Where float32 could overflow or lose digits, rows are left to float64.
    lengths = (rows.length, columns.length)
    if not all(float(x.min()) > 2.0**-60 and float(x.max()) < 2.0**60 for x in lengths):
        return torch.float64
    if rows.length.is_cuda:
        capability = torch.cuda.get_device_capability(rows.length.device)
        return torch.bfloat16 if capability >= (8, 0) and capability not in _FULL_RATE_DOUBLES else torch.float64
    if rows.length.device.type != "cpu":
        return torch.float64
    # After bfloat16 the candidates are multiplied again, one by one: of many anchors few may be.
    if 16 * k <= anchors and _cpu_multiplies_bfloat16():
        return torch.bfloat16
    return torch.float32 if float32_is_float32() else torch.float64


def _cpu_multiplies_bfloat16() -> bool:
    # Not among torch's public names, so it may be missing one day; then float32 is used.
    checks = [getattr(torch.cpu, f"_is_{name}_supported", None) for name in ("avx512_bf16", "amx_tile")]
    return any(check is not None and check() for check in checks)


def _by_scores(
    scores: Scores, rows: Rows, columns: Rows, k: int, block_bytes: int, both: bool
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Search among the best scores; None where the first block shows that they prove too little to be worth it."""
    queries, anchors = len(rows.length), len(columns.length)
    device, width, candidates = rows.length.device, min(k, anchors), min(k + scores.spare(k), anchors)
    similarity = torch.empty((queries, width), dtype=torch.float32, device=device)
    index = torch.empty((queries, width), dtype=torch.int64, device=device)
    certain = torch.ones(queries, dtype=torch.bool, device=device)
    best: BestOfColumns | None = None
    for part in slices(queries, _block_rows(scores, anchors, columns.features.shape[1], block_bytes, device)):
        score = scores.block(part)
        kept, place = scores.best(score, candidates)
        ranked = scores.rank_anchors(part, kept, place)
        similarity[part], index[part] = (each[:, :width] for each in ranked)
        kth = similarity[part, -1:]
        if candidates < anchors:
            certain[part] = scores.anchors_below(kth, kept.amin(dim=1, keepdim=True)).flatten()
        if part.start == 0:
            if int(certain[part].sum()) * 2 < len(score):
                return None
            # As many as these queries needed, and one to prove that it was enough.
            needed = int((~scores.anchors_below(kth, kept)).sum(dim=1).max())
            candidates = min(needed + 1, candidates)
        if both:
            best = best or BestOfColumns(anchors, min(k + scores.spare(k), queries), score)
            best.add(score, part.start)
    doubtful = (~certain).nonzero().flatten()
    for part in slices(len(doubtful), _rows_of_ranks(width, block_bytes)):
        some = doubtful[part]
        ranks = exhaustive(rows, some, columns, width, block_bytes)
        similarity[some], index[some] = ranking.similarity_of(ranks), ranking.index_of(ranks)
    if best is None:
        return similarity, index, index.new_empty((anchors, 0))
    return similarity, index, _nearest_queries(scores, best, rows, columns, k, block_bytes)


def _nearest_queries(
    scores: Scores, best: BestOfColumns, rows: Rows, columns: Rows, k: int, block_bytes: int
) -> Tensor:
    """Return the nearest queries of every anchor, from those that scored best for it."""
    queries, anchors = len(rows.length), len(columns.length)
    kept, row = best.best()
    width = min(k, queries)
    backward = row.new_empty((anchors, width))
    certain = torch.ones(anchors, dtype=torch.bool, device=row.device)
    # A candidate may need its query's features in float64.
    step = max(1, block_bytes // (kept.shape[1] * (columns.features.shape[1] * BYTES_PER_FEATURE // 8 + 64)))
    for part in slices(anchors, step):
        close, ranked = scores.rank_queries(part, kept[part], row[part])
        backward[part] = ranked[:, :width]
        if kept.shape[1] < queries:
            kth = close[:, width - 1 : width]
            certain[part] = scores.queries_below(part, kth, kept[part].amin(dim=1, keepdim=True)).flatten()
    doubtful = (~certain).nonzero().flatten()
    for part in slices(len(doubtful), _rows_of_ranks(width, block_bytes)):
        some = doubtful[part]
        backward[some] = ranking.index_of(exhaustive(columns, some, rows, width, block_bytes))
    return backward


def _by_all_pairs(rows: Rows, columns: Rows, k: int, block_bytes: int, both: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Search among all pairs, once for each direction."""
    queries, anchors, device = len(rows.length), len(columns.length), rows.length.device
    similarity = torch.empty((queries, min(k, anchors)), dtype=torch.float32, device=device)
    index = torch.empty((queries, min(k, anchors)), dtype=torch.int64, device=device)
    backward = torch.empty((anchors, min(k, queries) if both else 0), dtype=torch.int64, device=device)
    for part in slices(queries, _rows_of_ranks(index.shape[1], block_bytes)):
        some = torch.arange(part.start, part.stop, device=device)
        ranks = exhaustive(rows, some, columns, index.shape[1], block_bytes)
        similarity[some], index[some] = ranking.similarity_of(ranks), ranking.index_of(ranks)
    if backward.shape[1]:
        for part in slices(anchors, _rows_of_ranks(backward.shape[1], block_bytes)):
            some = torch.arange(part.start, part.stop, device=device)
            backward[some] = ranking.index_of(exhaustive(columns, some, rows, backward.shape[1], block_bytes))
    return similarity, index, backward


def _block_rows(scores: Scores, anchors: int, features: int, block_bytes: int, device: torch.device) -> int:
    """Return how many queries to score at a time, beside what is kept of the anchors."""
    bytes_per_row = anchors * scores.bytes_per_pair + features * BYTES_PER_FEATURE
    rows = (block_bytes - anchors * features * BYTES_PER_FEATURE) // bytes_per_row
    return max(1, min(rows, _CPU_PAIRS // anchors) if device.type == "cpu" else rows)


def _rows_of_ranks(width: int, block_bytes: int) -> int:
    """Return for how many rows to hold ranks, and copies of them, besides the output."""
    return max(1, block_bytes // (width * 64))


def _check(queries: Tensor, anchors: Tensor, k: int, block_bytes: int, count: int | None = None) -> None:
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
    if (len(anchors) if count is None else count) == 0:
        raise ValueError("anchors must have at least one row, got none")

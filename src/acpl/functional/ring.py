"""Queries and anchors that lie in parts on several processes meet, a part of the anchors at a time.

The queries stay where they are. The anchors' parts go round the ring, each with the best queries that its anchors
have met so far; when a part is home again it has met all queries. Ranks are of exact similarities and of numbers
that count through all parts, so the best of the best of parts are the best of all, ties included.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from acpl.functional import ranks as ranking
from acpl.functional.group import Group
from acpl.functional.rows import Rows

Meeting = Callable[[Rows, Tensor, int], tuple[Tensor, Tensor]]
"""From queries, some anchors and k to exact ranks by their own row numbers: the nearest anchors of every query and
the nearest queries of every anchor, at most k each, possibly none where only one direction is asked for."""


def starts(rows: int, group: Group, device: torch.device) -> list[int]:
    """Return the number of each process's first row, and of all rows last."""
    counts = group.gather(torch.tensor([rows], device=device)).tolist()
    return [sum(counts[:rank]) for rank in range(group.size + 1)]


def no_ranks(rows: int, k: int, device: torch.device) -> Tensor:
    """Return ``(rows, k)`` ranks below any other."""
    return torch.full((rows, k), ranking.WORST, dtype=torch.int64, device=device)


def better(kept: Tensor, ranks: Tensor, first: int) -> Tensor:
    """Return the best of each row's ``kept`` ranks and of further ones, whose rows are numbered from ``first``."""
    if ranks.shape[1] == 0:
        return kept
    # A higher number is a lower rank; see ``ranks``. The worst has no number.
    numbered = torch.where(ranks == ranking.WORST, ranks, ranks - first)
    return torch.cat((kept, numbered), dim=1).topk(kept.shape[1], dim=1).values


def around(
    queries: Rows, first_query: int, anchors: Tensor, best: Tensor, k: int, group: Group, meet: Meeting
) -> tuple[Tensor, Tensor]:
    """Return ranks ``(queries, k)`` of all anchors, and ``best (anchors, k)`` with these queries taken in.

    Both are padded with the worst rank. ``best`` is what :func:`no_ranks` or an earlier call gave.
    """
    first = starts(len(anchors), group, anchors.device)
    forward = no_ranks(len(queries.length), k, anchors.device)
    visiting = anchors
    for step in range(group.size):
        owner = (group.rank - step) % group.size
        if len(visiting) and len(queries.length):
            near, far = meet(queries, visiting, k)
            forward = better(forward, near, first[owner])
            best = better(best, far, first_query)
        if step + 1 < group.size:
            visiting = group.pass_on(visiting)
        best = group.pass_on(best)
    return forward, best

"""Neighbours in both directions of queries that come in blocks: of a pool that does not fit in memory, say."""

from typing import Any, Protocol

import torch
from torch import Tensor

from acpl.functional import ranks as ranking
from acpl.functional import ring
from acpl.functional.group import ALONE, Group
from acpl.functional.neighbours import Nearest, backward_ranks, in_parts, nearest, room, search
from acpl.functional.rows import measured


class Source(Protocol):
    """Rows that can be had part by part: a tensor, or something that reads them when asked."""

    @property
    def shape(self) -> torch.Size:
        """``(rows, columns)``."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, part: Any, /) -> Tensor:
        """The rows of a slice, or of an int64 tensor of row numbers."""
        ...


class Survey:
    """What :func:`mutual_nearest` finds, for queries block by block; it keeps nothing of a block but its best.

    In a group every process adds as many blocks as the others, empty ones where it has no more. For every division
    into blocks, and among processes, the answer is the same to the bit; for that, similarities of 128 features or more
    to 4 k anchors or more are rounded to multiples of 2⁻¹⁵ (``coarse``).
    """

    def __init__(
        self, anchors: Tensor, k: int, queries: int, *, group: Group = ALONE, block_bytes: int | None = None
    ) -> None:
        """``queries`` is how many this process will add in all; the rest as :func:`mutual_nearest` has it."""
        self._anchors, self._k, self._group = anchors.detach(), k, group
        self._block_bytes = room(anchors.device) if block_bytes is None else block_bytes
        first = ring.starts(queries, group, anchors.device)
        self._next, self._queries = first[group.rank], first[-1]
        self._best = ring.no_ranks(len(anchors), k, anchors.device)

    def add(self, block: Tensor) -> Nearest:
        """Take in the next queries ``(rows, features)``; their nearest anchors."""
        first, self._next = self._next, self._next + len(block)
        if self._group.size > 1:
            found, self._best = in_parts(
                block, first, self._anchors, self._best, self._k, self._block_bytes, self._group, both=True, coarse=True
            )
            return found
        rows = measured("queries", block.detach(), self._block_bytes)
        columns = measured("anchors", self._anchors, self._block_bytes)
        similarity, forward, backward = search(rows, columns, self._k, self._block_bytes, both=True, coarse=True)
        self._best = ring.better(self._best, backward_ranks(rows, columns, backward, self._block_bytes), first)
        return Nearest(similarity, forward)

    def nearest(self, queries: Tensor) -> Nearest:
        """The nearest anchors of some queries, as ``add`` finds them, but without taking them in."""
        return nearest(queries, self._anchors, self._k, group=self._group, block_bytes=self._block_bytes, coarse=True)

    def backward(self) -> Tensor:
        """The nearest queries of every own anchor, int64 ``(anchors, min(k, queries))``, when all were added."""
        return ranking.index_of(self._best[:, : min(self._k, self._queries)])

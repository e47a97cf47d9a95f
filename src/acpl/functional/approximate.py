"""Neighbours by an inverted file (Faiss IVF): only anchors in the cells nearest to a query are looked at.

Where anchors are so many that every pair is too much, this finds most neighbours at a fraction of the cost. The cells
are made from the anchors alone and are the same for all blocks and processes; what is found in them is ranked by exact
similarities, so the answer depends on neither.
"""

from math import ceil, sqrt
from typing import Any

import numpy as np
import torch
from torch import Tensor

from acpl.functional import ranks as ranking
from acpl.functional import ring
from acpl.functional.coarse import coarsen, exact_similarities, is_coarse
from acpl.functional.group import ALONE, Group
from acpl.functional.neighbours import Nearest, room, search
from acpl.functional.rows import Rows, measured

# Faiss asks for so many points a cell to learn its centre from.
_POINTS_A_CELL = 39
# Of the cells, one in so many is looked into.
_CELLS_PER_PROBE = 8


class ApproximateSurvey:
    """What ``Survey`` finds, nearly. Every process of a group holds all anchors."""

    def __init__(
        self, anchors: Tensor, k: int, queries: int, *, group: Group = ALONE, block_bytes: int | None = None
    ) -> None:
        """As ``Survey`` has it."""
        self._device, self._k, self._group = anchors.device, k, group
        self._block_bytes = room(torch.device("cpu")) if block_bytes is None else block_bytes
        self._own = ring.starts(len(anchors), group, anchors.device)
        self._anchors = measured("anchors", group.gather(anchors.detach()).cpu(), self._block_bytes)
        if len(self._anchors.length) == 0:
            raise ValueError("anchors must have at least one row, got none")
        first = ring.starts(queries, group, anchors.device)
        self._next, self._queries = first[group.rank], first[-1]
        self._best = ring.no_ranks(len(self._anchors.length), k, torch.device("cpu"))
        count = len(self._anchors.length)
        self._lists = max(1, min(round(4 * sqrt(count)), count // _POINTS_A_CELL))
        self._probes = ceil(self._lists / _CELLS_PER_PROBE)
        self._centres = self._trained()
        self._index = self._filled(self._anchors)

    def add(self, block: Tensor) -> Nearest:
        """Take in the next queries; most of their nearest anchors."""
        first, self._next = self._next, self._next + len(block)
        rows = measured("queries", block.detach().cpu(), self._block_bytes)
        if len(block):
            backward = self._searched(self._filled(rows), self._anchors)
            self._best = ring.better(self._best, self._ranks(self._anchors, rows, backward), first)
        return self._nearest(rows)

    def nearest(self, queries: Tensor) -> Nearest:
        """The nearest anchors of some queries, as ``add`` finds them."""
        return self._nearest(measured("queries", queries.detach().cpu(), self._block_bytes))

    def backward(self) -> Tensor:
        """Most of the nearest queries of every own anchor; a number beyond all where fewer were found."""
        best = self._best
        for _ in range(self._group.size - 1):
            best = self._group.pass_on(best.to(self._device)).cpu()
            self._best = ring.better(self._best, best, 0)
        own = self._best[self._own[self._group.rank] : self._own[self._group.rank + 1], : min(self._k, self._queries)]
        return ranking.index_of(own).to(self._device)

    def _nearest(self, rows: Rows) -> Nearest:
        width, anchors = min(self._k, len(self._anchors.length)), self._anchors
        ranks = self._ranks(rows, anchors, self._searched(self._index, rows)) if len(rows.length) else None
        if ranks is None:
            ranks = ring.no_ranks(0, width, torch.device("cpu"))
        short = (ranks[:, -1] == ranking.WORST).nonzero().flatten()
        similarity, index = ranking.similarity_of(ranks), ranking.index_of(ranks)
        if is_coarse(anchors.features.shape[1], self._k, len(anchors.length)):
            coarsen(similarity)
        if len(short):  # their cells hold fewer than k: all anchors are looked at
            some = Rows(rows.features[short], rows.length[short])
            similarity[short], index[short], _ = search(
                some, anchors, self._k, self._block_bytes, both=False, coarse=True
            )
        return Nearest(similarity.to(self._device), index.to(self._device))

    def _trained(self) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Return the cells' centres ``(lists, features)``, those of the first process on all."""
        import faiss

        width = self._anchors.features.shape[1]
        learnt = faiss.Kmeans(width, self._lists, spherical=True, niter=10, seed=0)
        learnt.train(_unit(self._anchors))
        centres = torch.from_numpy(np.asarray(learnt.centroids, dtype=np.float32).reshape(self._lists, width))
        centres = centres if self._group.rank == 0 else torch.zeros_like(centres)
        return self._group.sum(centres.to(self._device)).cpu().numpy()

    def _filled(self, rows: Rows) -> Any:
        """Return an index that holds these rows in the anchors' cells."""
        import faiss

        width = self._centres.shape[1]
        quantiser = faiss.IndexFlatIP(width)
        quantiser.add(self._centres)
        index = faiss.IndexIVFFlat(quantiser, width, self._lists, faiss.METRIC_INNER_PRODUCT)
        index.is_trained = True
        index.nprobe = self._probes
        index.own_fields = False
        index.add(_unit(rows))
        return index, quantiser  # the index does not keep its quantiser alive

    def _searched(self, index: Any, rows: Rows) -> Tensor:
        found = index[0].search(_unit(rows), min(self._k, index[0].ntotal))[1]
        return torch.from_numpy(found)

    def _ranks(self, rows: Rows, columns: Rows, index: Tensor) -> Tensor:
        """Return exact ranks, best first; the worst where nothing was found."""
        there = index >= 0
        exact = exact_similarities(rows, columns, index.clamp_min(0), self._block_bytes)
        ranks = ranking.pack(exact, index.clamp_min(0))
        return ranking.best_first(torch.where(there, ranks, torch.full_like(ranks, ranking.WORST)))


def _unit(rows: Rows) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.ascontiguousarray(rows.unit(slice(None)).numpy())


def recall(found: Tensor, exact: Tensor) -> float:
    """Return the share of the exact neighbours ``(samples, k)`` that are among those found."""
    hits = (found[:, :, None] == exact[:, None, :]).any(dim=1)
    return float(hits.double().mean())

"""Two ways to score queries against all anchors, each with a proof that the best scores hold the nearest.

``ExactScores`` multiplies in float64: a score *is* the similarity. ``RoundedScores`` multiplies in float32 or
bfloat16, at a half or a quarter of the cost, and knows how far a score can be from the similarity; of the best scores
only those too close to tell apart are then multiplied in float64, after bfloat16 all of them in float32 before.
"""

from typing import Protocol

import torch
from torch import Tensor

from acpl.functional import ranks as ranking
from acpl.functional.pairs import product, products_of_pairs
from acpl.functional.rows import Rows, similarity


class Scores(Protocol):
    """Scores in which the nearest are looked for first."""

    bytes_per_pair: int

    def spare(self, k: int) -> int:
        """How many more than the ``k`` best scores to look at first."""

    def block(self, part: slice) -> Tensor:
        """The scores ``(part, anchors)`` of some queries."""

    def rank_anchors(self, part: slice, score: Tensor, index: Tensor) -> Tensor:
        """The ranks, best first, of the anchors ``index (part, candidates)`` of the last block's queries."""

    def rank_queries(self, part: slice, score: Tensor, index: Tensor) -> Tensor:
        """The ranks, best first, of the queries ``index (part, candidates)`` of some anchors."""

    def anchors_below(self, kth: Tensor, score: Tensor) -> Tensor:
        """Which anchors of the last block's queries cannot be as similar as ``kth (part, 1)``, by their score."""

    def queries_below(self, part: slice, kth: Tensor, score: Tensor) -> Tensor:
        """Which queries of some anchors cannot be as similar as ``kth (part, 1)``, by their score."""


class ExactScores:
    """Similarities themselves, by a float64 product."""

    bytes_per_pair = 8 + 4 + 4 + 4  # the product, its float32 form, transposed, and room for the candidates

    def __init__(self, queries: Rows, anchors: Rows) -> None:
        self._queries = queries
        self._anchors = anchors.on_grid(slice(None)).T

    def spare(self, k: int) -> int:
        """One, which shows whether the last place is shared."""
        return 1

    def block(self, part: slice) -> Tensor:
        """Similarities, float32."""
        return similarity(self._queries.on_grid(part) @ self._anchors)

    def rank_anchors(self, part: slice, score: Tensor, index: Tensor) -> Tensor:
        """Pack what is known already."""
        return ranking.best_first(ranking.pack(score, index))

    rank_queries = rank_anchors

    def anchors_below(self, kth: Tensor, score: Tensor) -> Tensor:
        """Those less similar: the score is no estimate."""
        return score < kth

    def queries_below(self, part: slice, kth: Tensor, score: Tensor) -> Tensor:
        """Those less similar: the score is no estimate."""
        return score < kth


class RoundedScores:
    """Approximate similarities less a constant, by a product of centred rows in float32 or bfloat16.

    With c the anchors' mean, x' = x − c and y' = y − c, the similarity is x'·y' + c·y' + x'·c + c·c. The last
    term is the same for all; the two in the middle travel as further features, in bfloat16 in three pieces each; and
    the first is a product of vectors that are shorter than 1, the shorter the more the features have in common, and
    so are the errors of their rounding: with ρ the measured residuals, |x̂·ŷ − x'·y'| ≤ |x̂| |ρ_y| + |ρ_x| |y'|.
    """

    bytes_per_pair = 4 + 4 + 4

    def __init__(self, queries: Rows, anchors: Rows, dtype: torch.dtype) -> None:
        self._queries, self._anchors, self._dtype = queries, anchors, dtype
        self._unit_anchors, self._grid_anchors = anchors.unit(slice(None)), anchors.on_grid(slice(None))
        self._centre = self._unit_anchors.mean(dim=0)
        self._constant = self._centre.double().square().sum().float()
        rounded, self._anchor_length, self._anchor_residual, along = self._round(self._unit_anchors)
        self._columns = self._with_terms(rounded, along, terms_first=True)
        self._anchor_terms = along.abs()
        self._longest = self._centre.new_zeros(3)  # of all queries so far: length, residual, terms
        features = anchors.features.shape[1]
        # At each addition a float32 sum errs by at most 2⁻²⁴ of its terms; tensor cores cut where others round.
        self._additions = (features + 8) * 2.0 ** (-22 if anchors.features.is_cuda else -23)
        # Float32 sums of centred rows differ by some 10⁻⁷, hardly ever by this: what is closer is multiplied again.
        self._close = max(2.0**-21, features**0.5 * 2.0**-25)

    def spare(self, k: int) -> int:
        """Half as many: more than the bound costs where similarities lie as close as those of random features."""
        return k // 2 + 8

    def block(self, part: slice) -> Tensor:
        """Approximate similarities less a constant."""
        self._unit_queries = self._queries.unit(part)
        rounded, self._query_length, self._query_residual, along = self._round(self._unit_queries)
        self._query_terms = along.abs()
        here = torch.stack([part.max() for part in (self._query_length, self._query_residual, self._query_terms)])
        self._longest = torch.maximum(self._longest, here)
        return product(self._with_terms(rounded, along, terms_first=False), self._columns)

    def rank_anchors(self, part: slice, score: Tensor, index: Tensor) -> Tensor:
        """By float32 products of the candidates, and float64 where they are close."""
        if self._dtype == torch.float32:
            cosines = score + self._constant
        else:
            start = torch.arange(0, index.numel() + 1, index.shape[1], device=index.device)
            cosines = products_of_pairs(self._unit_queries, self._unit_anchors, start, index.flatten())
        return self._settle(cosines.view_as(index), index, self._queries, part, self._anchors)

    def rank_queries(self, part: slice, score: Tensor, index: Tensor) -> Tensor:
        """By float32 products of the candidates, and float64 where they are close."""
        if self._dtype == torch.float32:
            return self._settle(score + self._constant, index, self._anchors, part, self._queries)
        start = torch.arange(0, index.numel() + 1, index.shape[1], device=index.device)
        rows, which = self._queries.features, index.flatten()
        length = self._queries.length[which].float()
        if rows.dtype != torch.float32 or not rows.is_contiguous():
            met, which = torch.unique(which, return_inverse=True)
            rows = rows[met].float()
        cosines = products_of_pairs(self._unit_anchors[part], rows, start, which) / length
        return self._settle(cosines.view_as(index), index, self._anchors, part, self._queries)

    def anchors_below(self, kth: Tensor, score: Tensor) -> Tensor:
        """Those that the bound keeps below."""
        length, residual = self._anchor_length.max(), self._anchor_residual.max()
        rounding = self._query_length * residual + self._query_residual * length
        terms = self._query_length * length + self._query_terms + self._anchor_terms.max()
        return self._below(kth, score, rounding, terms)

    def queries_below(self, part: slice, kth: Tensor, score: Tensor) -> Tensor:
        """Those that the bound keeps below."""
        length, residual, query_terms = self._longest
        rounding = length * self._anchor_residual[part] + residual * self._anchor_length[part]
        terms = length * self._anchor_length[part] + query_terms + self._anchor_terms[part]
        return self._below(kth, score, rounding, terms)

    def _below(self, kth: Tensor, score: Tensor, rounding: Tensor, terms: Tensor) -> Tensor:
        # Lengths and residuals are float32 themselves: 1 % covers them, 2⁻²⁰ the terms that were cut to pieces.
        slack = 1.01 * (rounding + self._additions * terms) + 2.0**-20 + self._close
        highest = score.float()
        if score.dtype == torch.bfloat16:  # then it was rounded itself
            highest = highest + 2.0**-8 * highest.abs()
        below: Tensor = highest < kth - self._constant - slack[:, None]
        return below

    def _round(self, unit: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return centred rows in bfloat16, their lengths, the lengths of what was lost, and products with c."""
        centred = unit - self._centre
        rounded = centred.to(self._dtype)
        length, along = torch.linalg.vector_norm(centred, dim=1), centred @ self._centre
        lost = torch.zeros_like(length)
        if rounded is not centred:
            lost = torch.linalg.vector_norm(centred.sub_(rounded), dim=1)
        return rounded, length + lost, lost, along

    def _with_terms(self, rounded: Tensor, along: Tensor, terms_first: bool) -> Tensor:
        terms, rest = [], along
        for _ in range(1 if self._dtype == torch.float32 else 3):
            terms.append(rest.to(self._dtype))
            rest = rest - terms[-1]
        ones = [torch.ones_like(terms[0])] * len(terms)
        padding = [torch.zeros_like(terms[0])] * (-(rounded.shape[1] + 2 * len(terms)) % 8)  # as tensor cores want it
        columns = terms + ones if terms_first else ones + terms
        return torch.cat((rounded, torch.stack(columns + padding, dim=1)), dim=1)

    def _settle(self, cosines: Tensor, index: Tensor, rows: Rows, part: slice, columns: Rows) -> Tensor:
        """Return ranks, best first, after multiplying in float64 where neighbours in rank are close."""
        ranks = ranking.best_first(ranking.pack(cosines.clamp_(-1.0, 1.0).add_(0.0), index))
        ordered = ranking.similarity_of(ranks)
        near = ordered[:, :-1] - ordered[:, 1:] < self._close
        edge = near.new_zeros((len(near), 1))
        close = torch.cat((near, edge), dim=1) | torch.cat((edge, near), dim=1)
        candidates = ranking.index_of(ranks[close])
        count = close.sum(dim=1)
        start = torch.cat((count.new_zeros(1), count.cumsum(0)))
        exact = self._exact(rows, part, columns, start, candidates)
        ranks[close] = ranking.pack(exact, candidates)
        moved = (ranks[:, 1:] > ranks[:, :-1]).any(dim=1).nonzero().flatten()
        ranks[moved] = ranking.best_first(ranks[moved])
        return ranks

    def _exact(self, rows: Rows, part: slice, columns: Rows, start: Tensor, index: Tensor) -> Tensor:
        if columns is self._anchors:
            return similarity(products_of_pairs(rows.on_grid(part), self._grid_anchors, start, index))
        met, place = torch.unique(index, return_inverse=True)
        return similarity(products_of_pairs(self._grid_anchors[part], columns.on_grid(met), start, place))

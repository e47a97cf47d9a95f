"""Two ways to score queries against all anchors, each with a proof that the best scores hold the nearest.

``ExactScores`` multiplies in float64: a score *is* the similarity. ``RoundedScores`` multiplies in float32 or
bfloat16, at a half or a quarter of the cost, and knows how far a score can be from the similarity; of the best scores
only those too close to tell apart are then multiplied in float64, after bfloat16 all of them in float32 before.
"""

import math
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from acpl.functional import ranks as ranking
from acpl.functional.coarse import undecided
from acpl.functional.pairs import prepared, product, products_of_pairs
from acpl.functional.rows import Rows, similarity
from acpl.functional.selection import best_scores, true_places

Ranked = tuple[Tensor, Tensor]
"""Similarities and indices, both ``(rows, candidates)``, nearest first."""


class Scores(Protocol):
    """Scores in which the nearest are looked for first."""

    bytes_per_pair: int

    def spare(self, k: int) -> int:
        """How many more than the ``k`` best scores to look at first."""

    def block(self, part: slice) -> Tensor:
        """The scores ``(part, anchors)`` of some queries."""

    def best(self, score: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """The best scores of each query of a block, in whatever order, and their anchors ``(part, count)``."""

    def rank_anchors(self, part: slice, score: Tensor, index: Tensor) -> Ranked:
        """The anchors of the last block's queries that ``best`` gave, in order of their similarity."""

    def rank_queries(self, part: slice, score: Tensor, index: Tensor) -> Ranked:
        """The queries ``index (part, candidates)`` of some anchors, in order of their similarity."""

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

    def best(self, score: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """The most similar anchors."""
        return best_scores(score, count)

    def rank_anchors(self, part: slice, score: Tensor, index: Tensor) -> Ranked:
        """By what is known already."""
        return ranking.in_order(score, index)

    rank_queries = rank_anchors

    def anchors_below(self, kth: Tensor, score: Tensor) -> Tensor:
        """Those less similar: the score is no estimate."""
        return score < kth

    def queries_below(self, part: slice, kth: Tensor, score: Tensor) -> Tensor:
        """Those less similar: the score is no estimate."""
        return score < kth


class Sizes(NamedTuple):
    """How large the numbers that are added up for a row can be, each ``(rows,)``: what their sum errs by follows."""

    length: Tensor  # of the row times the longest of the others, both centred
    along: Tensor  # of the terms with the centre
    rounding: Tensor  # what rounding the rows can move a score by


class RoundedScores:
    """Approximate similarities less a constant, by a product of centred rows in float32 or bfloat16.

    With c the anchors' mean, x' = x − c and y' = y − c, the similarity is x'·y' + c·y' + x'·c + c·c. The last
    term is the same for all; the two in the middle travel as further features, in bfloat16 in three pieces each; and
    the first is a product of vectors that are shorter than 1, the shorter the more the features have in common, and
    so are the errors of their rounding: with ρ the measured residuals, |x̂·ŷ − x'·y'| ≤ |x̂| |ρ_y| + |ρ_x| |y'|.

    Which anchors can be among the nearest is proven by that bound, and one for the additions. The order of those that
    are is left to float32 where similarities are further apart than its sums err by: 2⁻²⁵ of the partial sums at each
    addition, at random, hence the root of their number. In float32 features are shuffled, so that partial sums grow as
    evenly as those of the shuffled always do, whatever the data: to the sum itself, give or take 1/√features.
    """

    bytes_per_pair = 4 + 4 + 4

    def __init__(self, queries: Rows, anchors: Rows, dtype: torch.dtype, coarse: bool = False) -> None:
        self._queries, self._anchors, self._dtype, self._coarse = queries, anchors, dtype, coarse
        self._features = anchors.features.shape[1]
        shuffle = torch.Generator().manual_seed(0)
        self._order = torch.randperm(self._features, generator=shuffle) if dtype == torch.float32 else None
        self._unit_anchors, self._grid_anchors = anchors.unit(slice(None)), anchors.on_grid(slice(None))
        self._centre = self._shuffled(self._unit_anchors.mean(dim=0, keepdim=True))[0]
        self._constant = self._centre.double().square().sum().float()
        rounded, self._anchor_length, self._anchor_residual, along = self._round(self._unit_anchors)
        self._columns = prepared(self._with_terms(rounded, along, terms_first=True))
        self._anchor_terms = along.abs()
        self._longest = self._centre.new_zeros(3)  # of all queries so far: length, residual, terms
        # At each addition a float32 sum errs by at most 2⁻²⁴ of its terms; tensor cores cut where others round.
        self._additions = (self._features + 8) * 2.0 ** (-22 if anchors.features.is_cuda else -23)

    def spare(self, k: int) -> int:
        """More than the bound costs where similarities lie as close as those of random features."""
        return k // 8 + 16 if self._dtype == torch.float32 else k // 2 + 8

    def block(self, part: slice) -> Tensor:
        """Approximate similarities less a constant."""
        self._unit_queries = self._queries.unit(part)
        rounded, self._query_length, self._query_residual, along = self._round(self._unit_queries)
        self._query_terms = along.abs()
        here = torch.stack([part.max() for part in (self._query_length, self._query_residual, self._query_terms)])
        self._longest = torch.maximum(self._longest, here)
        return product(self._with_terms(rounded, along, terms_first=False), self._columns)

    def best(self, score: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """The best scores; on the CPU in descending order, since those of float32 are not multiplied again there."""
        return best_scores(score, count)

    def rank_anchors(self, part: slice, score: Tensor, index: Tensor) -> Ranked:
        """By float32 products of the candidates, and float64 where they are close."""
        sizes = self._sizes_of_queries()
        if self._dtype == torch.float32:
            return self._settle(_cosines(score + self._constant), index, sizes, self._queries, part, self._anchors)
        start = torch.arange(0, index.numel() + 1, index.shape[1], device=index.device)
        cosines = products_of_pairs(self._unit_queries, self._unit_anchors, start, index.flatten()).view_as(index)
        ordered = ranking.in_order(_cosines(cosines), index)
        return self._settle(*ordered, sizes, self._queries, part, self._anchors)

    def rank_queries(self, part: slice, score: Tensor, index: Tensor) -> Ranked:
        """By float32 products of the candidates, and float64 where they are close."""
        if self._dtype == torch.float32:
            cosines = score + self._constant
        else:
            start = torch.arange(0, index.numel() + 1, index.shape[1], device=index.device)
            rows, which = self._queries.features, index.flatten()
            length = self._queries.length[which].float()
            if rows.dtype != torch.float32 or not rows.is_contiguous():
                met, which = torch.unique(which, return_inverse=True)
                rows = rows[met].float()
            cosines = (products_of_pairs(self._unit_anchors[part], rows, start, which) / length).view_as(index)
        ordered = ranking.in_order(_cosines(cosines), index)
        return self._settle(*ordered, self._sizes_of_anchors(part), self._anchors, part, self._queries)

    def anchors_below(self, kth: Tensor, score: Tensor) -> Tensor:
        """Those that the bound keeps below."""
        return self._below(kth, score, self._sizes_of_queries())

    def queries_below(self, part: slice, kth: Tensor, score: Tensor) -> Tensor:
        """Those that the bound keeps below."""
        return self._below(kth, score, self._sizes_of_anchors(part))

    def _sizes_of_queries(self) -> Sizes:
        length, residual = self._anchor_length.max(), self._anchor_residual.max()
        rounding = self._query_length * residual + self._query_residual * length
        return Sizes(self._query_length * length, self._query_terms + self._anchor_terms.max(), rounding)

    def _sizes_of_anchors(self, part: slice) -> Sizes:
        length, residual, terms = self._longest
        rounding = length * self._anchor_residual[part] + residual * self._anchor_length[part]
        return Sizes(length * self._anchor_length[part], terms + self._anchor_terms[part], rounding)

    def _below(self, kth: Tensor, score: Tensor, sizes: Sizes) -> Tensor:
        # Lengths and residuals are float32 themselves: 1 % covers them, 2⁻²⁰ the terms that were cut to pieces.
        slack = 1.01 * (sizes.rounding + self._additions * (sizes.length + sizes.along)) + 2.0**-20
        highest = score.float()
        if self._dtype == torch.bfloat16 and not score.is_cuda:  # then it was rounded itself
            highest = highest + 2.0**-8 * highest.abs()
        below: Tensor = highest < kth - self._constant - slack[:, None] - self._uncertain(kth, sizes)
        return below

    def _uncertain(self, cosines: Tensor, sizes: Sizes) -> Tensor | float:
        """Return a difference that float32 sums of such size cannot be trusted to have the sign of.

        Some eight standard deviations of the worst that was measured (rows that are all but parallel), and the last
        digits of a float32, which decide what is a tie. The pairs that are multiplied after bfloat16 are neither
        centred nor shuffled: their partial sums may reach 1 anywhere.
        """
        if self._dtype == torch.bfloat16:
            return 2.0**-22 + 6 * math.sqrt(self._features) * 2.0**-25
        sums: Tensor = (cosines - self._constant).abs_().add_(sizes.along[:, None])
        return sums.mul_(math.sqrt(self._features)).add_(3 * sizes.length[:, None]).mul_(5 * 2.0**-25).add_(2.0**-22)

    def _shuffled(self, rows: Tensor) -> Tensor:
        return rows if self._order is None else rows.index_select(1, self._order)

    def _round(self, unit: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return centred rows, rounded, their lengths, the lengths of what was lost, and products with c."""
        centred = self._shuffled(unit) - self._centre
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

    def _settle(self, cosines: Tensor, index: Tensor, sizes: Sizes, rows: Rows, part: slice, columns: Rows) -> Ranked:
        """Return what stands in order already, after multiplying in float64 where neighbours are close.

        For coarse similarities also where it is open to which multiple of their scale one belongs.
        """
        sooner, later = cosines[:, :-1], cosines[:, 1:]
        uncertain = self._uncertain(cosines, sizes)
        near = sooner - later < (uncertain[:, :-1] if isinstance(uncertain, Tensor) else uncertain)
        coarse = self._coarse and columns is self._anchors
        close = undecided(cosines, uncertain) if coarse else torch.zeros_like(index, dtype=torch.bool)
        close[:, :-1] |= near
        close[:, 1:] |= near
        places = true_places(close)
        candidates, count = index.flatten()[places], close.sum(dim=1)
        exact = self._exact(rows, part, columns, count, candidates)
        cosines.view(-1)[places] = exact
        wrong = (later > sooner) | (later == sooner) & (index[:, 1:] < index[:, :-1])
        moved = wrong.any(dim=1).nonzero().flatten()
        cosines[moved], index[moved] = ranking.in_order(cosines[moved], index[moved])
        return cosines, index

    def _exact(self, rows: Rows, part: slice, columns: Rows, count: Tensor, index: Tensor) -> Tensor:
        """Return the similarities of rows and those listed, ``count`` for each row."""
        some = count.nonzero().flatten()
        start = torch.cat((count.new_zeros(1), count[some].cumsum(0)))
        if columns is self._anchors:
            queries = rows.on_grid(part if len(some) == len(count) else part.start + some)
            return similarity(products_of_pairs(queries, self._grid_anchors, start, index))
        met, place = torch.unique(index, return_inverse=True)
        return similarity(products_of_pairs(self._grid_anchors[part][some], columns.on_grid(met), start, place))


def _cosines(sums: Tensor) -> Tensor:
    """Return float32 sums as cosines, no minus zero among them."""
    return sums.clamp_(-1.0, 1.0).add_(0.0)

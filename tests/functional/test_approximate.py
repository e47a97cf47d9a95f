"""Neighbours by an inverted file: nearly all of them, and the same for every division."""

import pytest
import torch
from tests.functional.threads import ThreadGroup, in_group, parts
from torch import Tensor

from acpl.functional import MutualNearest, mutual_nearest
from acpl.functional.approximate import ApproximateSurvey, recall

pytest.importorskip("faiss", reason="faiss is not installed: pip install 'acpl[faiss]'")


def clusters(rows: int, seed: int, width: int = 32) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(20, width, generator=torch.Generator().manual_seed(99))
    return centres[torch.randint(20, (rows,), generator=generator)] + 0.5 * torch.randn(
        rows, width, generator=generator
    )


def surveyed(blocks: list[Tensor], anchors: Tensor, k: int, group: ThreadGroup | None = None) -> MutualNearest:
    survey = ApproximateSurvey(anchors, k, sum(map(len, blocks)), **({} if group is None else {"group": group}))  # type: ignore[arg-type]
    found = [survey.add(block) for block in blocks]
    return MutualNearest(*(torch.cat(pieces) for pieces in zip(*found, strict=True)), survey.backward())


def test_most_neighbours_are_found_and_those_found_are_ranked_exactly() -> None:
    queries, anchors = clusters(3000, 0), clusters(2000, 1)
    found, exact = surveyed([queries], anchors, 10), mutual_nearest(queries, anchors, 10)
    assert 0.9 < recall(found.forward, exact.forward) <= 1
    assert 0.9 < recall(found.backward, exact.backward) <= 1
    whole = (found.forward == exact.forward).all(dim=1)
    assert torch.equal(found.similarity[whole], exact.similarity[whole])
    assert (found.similarity <= exact.similarity).all()


@pytest.mark.parametrize("size", [2, 3])
def test_blocks_and_processes_change_nothing(size: int) -> None:
    queries, anchors = clusters(900, 0), clusters(500, 1)
    cut_queries, cut_anchors = parts(queries, [0, 200][: size - 1]), parts(anchors, [100, 100][: size - 1])

    def one(group: ThreadGroup) -> MutualNearest:
        own = cut_queries[group.rank]
        return surveyed(parts(own, [len(own) // 3]), cut_anchors[group.rank], 7, group)

    together = [torch.cat(pieces) for pieces in zip(*in_group(size, one), strict=True)]
    expected = surveyed([queries], anchors, 7)
    assert all(torch.equal(a, b) for a, b in zip(together, expected, strict=True))


def test_few_anchors_are_all_found() -> None:
    queries, anchors = clusters(50, 0), clusters(5, 1)
    found, exact = surveyed([queries], anchors, 9), mutual_nearest(queries, anchors, 9)
    assert all(torch.equal(a, b) for a, b in zip(found, exact, strict=True))


def test_recall_counts_what_was_found() -> None:
    assert recall(torch.tensor([[1, 2], [3, 4]]), torch.tensor([[2, 1], [3, 9]])) == 0.75

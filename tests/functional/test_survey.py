"""Queries in blocks have the neighbours that they have all at once."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.functional.threads import ThreadGroup, in_group, parts
from torch import Tensor

from acpl.functional import MutualNearest, mutual_nearest, neighbours
from acpl.functional.survey import Survey


def in_blocks(blocks: list[Tensor], anchors: Tensor, k: int, group: ThreadGroup | None = None) -> MutualNearest:
    survey = Survey(anchors, k, sum(map(len, blocks)), **({} if group is None else {"group": group}))  # type: ignore[arg-type]
    found = [survey.add(block) for block in blocks]
    return MutualNearest(*(torch.cat(pieces) for pieces in zip(*found, strict=True)), survey.backward())


def same(found: MutualNearest, expected: MutualNearest) -> bool:
    return all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@settings(deadline=None, max_examples=50)
@given(data=st.data(), blocks=st.integers(1, 5), k=st.integers(1, 9), seed=st.integers(0, 999))
def test_blocks_change_nothing(data: st.DataObject, blocks: int, k: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    q, a = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 10))
    queries = torch.randint(-1, 2, (q, 4), generator=generator).float()
    anchors = torch.randint(-1, 2, (a, 4), generator=generator).float()
    cuts = sorted(data.draw(st.lists(st.integers(0, q), min_size=blocks - 1, max_size=blocks - 1)))
    assert same(in_blocks(parts(queries, cuts), anchors, k), mutual_nearest(queries, anchors, k))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_blocks_in_low_precision_and_on_several_processes_to_the_bit(
    size: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbours, "_worthwhile_dtype", lambda *_: dtype)
    generator = torch.Generator().manual_seed(0)
    queries = torch.randn(9000, 128, generator=generator).add(0.3).relu()
    anchors = torch.randn(240, 128, generator=generator).add(0.3).relu()
    cut_queries, cut_anchors = parts(queries, [500, 500, 7000][: size - 1]), parts(anchors, [40, 200, 200][: size - 1])

    def one(group: ThreadGroup) -> MutualNearest:
        blocks = parts(cut_queries[group.rank], [min(400, len(cut_queries[group.rank]))])
        return in_blocks(blocks, cut_anchors[group.rank], 12, group)

    found = MutualNearest(*(torch.cat(pieces) for pieces in zip(*in_group(size, one), strict=True)))
    assert same(found, in_blocks([queries], anchors, 12))
    exact = mutual_nearest(queries, anchors, 12)
    assert torch.equal(found.forward, exact.forward)
    assert torch.equal(found.backward, exact.backward)


def test_similarities_stay_within_half_a_step_of_the_exact_ones() -> None:
    generator = torch.Generator().manual_seed(0)
    queries, anchors = (torch.rand(count, 256, generator=generator) for count in (2000, 700))
    found = in_blocks([queries], anchors, 20)
    unit = [torch.nn.functional.normalize(rows.double()) for rows in (queries, anchors)]
    exact = (unit[0] @ unit[1].T).gather(1, found.forward)
    assert (found.similarity - exact).abs().max() <= 2.0**-16 + 1e-7
    assert torch.equal(found.similarity * 2**15, (found.similarity * 2**15).round())
    assert (mutual_nearest(queries, anchors, 20).similarity - exact).abs().max() < 1e-6

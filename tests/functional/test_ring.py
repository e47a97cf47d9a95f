"""Neighbours in parts are those of one process, to the bit."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.functional.threads import ThreadGroup, even, in_group, parts
from torch import Tensor

from acpl.functional import MutualNearest, mutual_nearest, nearest
from acpl.functional import neighbours as search


def together(queries: list[Tensor], anchors: list[Tensor], k: int, block_bytes: int | None = None) -> MutualNearest:
    def one(group: ThreadGroup) -> MutualNearest:
        return mutual_nearest(queries[group.rank], anchors[group.rank], k, group=group, block_bytes=block_bytes)

    return MutualNearest(*(torch.cat(pieces) for pieces in zip(*in_group(len(queries), one), strict=True)))


def same(found: MutualNearest, expected: MutualNearest) -> bool:
    return all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@settings(deadline=None, max_examples=60)
@given(data=st.data(), size=st.integers(2, 4), width=st.integers(1, 5), k=st.integers(1, 12), seed=st.integers(0, 999))
def test_ties_zero_vectors_and_empty_parts_change_nothing(
    data: st.DataObject, size: int, width: int, k: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    q, a = data.draw(st.integers(0, 15)), data.draw(st.integers(1, 15))
    # Few distinct small integers: many exact ties, many zero vectors.
    queries = torch.randint(-1, 2, (q, width), generator=generator).float()
    anchors = torch.randint(-1, 2, (a, width), generator=generator).float()
    cut_queries = sorted(data.draw(st.lists(st.integers(0, q), min_size=size - 1, max_size=size - 1)))
    cut_anchors = sorted(data.draw(st.lists(st.integers(0, a), min_size=size - 1, max_size=size - 1)))
    expected = mutual_nearest(queries, anchors, k)
    assert same(together(parts(queries, cut_queries), parts(anchors, cut_anchors), k), expected)


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("block_bytes", [None, 2**21])
def test_low_precision_in_one_process_finds_what_parts_find(
    size: int, dtype: torch.dtype, block_bytes: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(0)
    queries = torch.randn(700, 160, generator=generator).add(0.3).relu()
    anchors = torch.randn(300, 160, generator=generator).add(0.3).relu()
    queries[650:], anchors[290:] = queries[:50].clone(), anchors[:10].clone()
    monkeypatch.setattr(search, "_worthwhile_dtype", lambda *_: dtype)
    found = together(even(queries, size), even(anchors, size), 20, block_bytes)
    assert alike(found, mutual_nearest(queries, anchors, 20))


@pytest.mark.parametrize("k", [2, 40])
def test_both_ways_to_exact_ranks_agree(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_worthwhile_dtype", lambda *_: torch.float32)
    generator = torch.Generator().manual_seed(0)
    queries, anchors = (torch.randn(count, 128, generator=generator) for count in (300, 400))
    expected = mutual_nearest(queries, anchors, k)
    assert alike(together(parts(queries, [5]), parts(anchors, [390]), k), expected)


def alike(one: MutualNearest, other: MutualNearest) -> bool:
    """The same neighbours, and similarities that differ by no more than float32 sums do."""
    close = (one.similarity - other.similarity).abs().max() < 1e-6
    return bool(close) and torch.equal(one.forward, other.forward) and torch.equal(one.backward, other.backward)


def test_one_direction_in_parts() -> None:
    generator = torch.Generator().manual_seed(0)
    queries, anchors = (torch.randn(count, 6, generator=generator) for count in (31, 17))
    cut_queries, cut_anchors = parts(queries, [0, 20]), parts(anchors, [4, 4])
    found = in_group(3, lambda group: nearest(cut_queries[group.rank], cut_anchors[group.rank], 5, group=group))
    expected = nearest(queries, anchors, 5)
    assert torch.equal(torch.cat([part.similarity for part in found]), expected.similarity)
    assert torch.equal(torch.cat([part.index for part in found]), expected.index)


def test_no_anchors_anywhere_is_a_mistake_and_none_here_is_not() -> None:
    rows = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match="anchors must have at least one row"):
        together([rows, rows], [rows[:0], rows[:0]], 1)
    assert together([rows, rows], [rows[:0], rows], 1).forward.shape == (8, 1)


def test_what_a_process_holds_falls_with_their_number() -> None:
    generator = torch.Generator().manual_seed(0)
    queries, anchors = (torch.randn(count, 1024, generator=generator) for count in (1200, 12))
    held = {size: _largest_met(even(queries, size), even(anchors, size)) for size in (1, 2, 4)}
    assert held[2] < 0.6 * held[1]
    assert held[4] < 0.6 * held[2]


def _largest_met(queries: list[Tensor], anchors: list[Tensor]) -> int:
    """The most elements of any tensor that a process makes or is given while it searches."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counting(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.most = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            result = func(*args, **(kwargs or {}))
            for found in result if isinstance(result, tuple | list) else (result,):
                if isinstance(found, Tensor) and found.layout == torch.strided:
                    self.most = max(self.most, found.untyped_storage().nbytes())
            return result

    def one(group: ThreadGroup) -> int:
        with Counting() as counting:
            mutual_nearest(
                queries[group.rank].clone(), anchors[group.rank].clone(), 2, group=group, block_bytes=2**19 * 3 // 2
            )
        return counting.most

    return max(in_group(len(queries), one))

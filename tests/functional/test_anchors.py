import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from acpl.functional import anchors as anchors_module
from acpl.functional import connections, mutual_nearest, purify

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")),
]


def loop(forward: Tensor, backward: Tensor, candidates: Tensor) -> list[int]:
    counts = []
    for row, number in zip(forward.tolist(), candidates.tolist(), strict=True):
        count = 0
        for anchor in row:
            for neighbour in backward[anchor].tolist():
                if neighbour == number:
                    count += 1
        counts.append(count)
    return counts


def neighbourhood(queries: int, anchors: int, k: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    found = mutual_nearest(
        torch.randn(queries, 3, generator=generator), torch.randn(anchors, 3, generator=generator), k
    )
    return found.forward, found.backward


@settings(deadline=None)
@given(
    queries=st.integers(1, 30),
    anchors=st.integers(1, 12),
    k=st.integers(1, 8),
    seed=st.integers(0, 99),
    data=st.data(),
)
def test_connections_agree_with_a_triple_loop(
    queries: int, anchors: int, k: int, seed: int, data: st.DataObject
) -> None:
    forward, backward = neighbourhood(queries, anchors, k, seed)
    chosen = data.draw(st.lists(st.integers(0, queries - 1), unique=True))
    candidates = torch.tensor(chosen, dtype=torch.int64)
    found = connections(forward[candidates], backward, candidates)
    assert found.dtype == torch.int64
    assert found.tolist() == loop(forward[candidates], backward, candidates)


@pytest.mark.parametrize("device", DEVICES)
def test_connections_count_over_several_blocks(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anchors_module, "_ENTRIES", 21)
    forward, backward = neighbourhood(100, 20, 7, seed=0)
    candidates = torch.randperm(100, generator=torch.Generator().manual_seed(1))[:50]
    found = connections(forward[candidates].to(device), backward.to(device), candidates.to(device))
    assert found.tolist() == loop(forward[candidates], backward, candidates)
    assert 0 < sum(found.tolist()) < 350


def test_a_candidate_given_twice_is_counted_twice() -> None:
    forward, backward = neighbourhood(30, 9, 4, seed=0)
    well_known = int(backward.flatten().mode().values)
    candidates = torch.tensor([well_known, 8, well_known, well_known])
    found = connections(forward[candidates], backward, candidates)
    assert found.tolist() == loop(forward[candidates], backward, candidates)
    assert found[0] == found[2] == found[3] > 0


def test_one_candidate_is_counted_and_joins() -> None:
    forward, backward = torch.tensor([[0, 2]]), torch.tensor([[4], [4], [9]])
    found = connections(forward, backward, torch.tensor([4]))
    assert found.tolist() == [1]
    assert purify(found).tolist() == [True]


def test_no_candidates_have_no_connections_and_none_join() -> None:
    empty = torch.empty(0, dtype=torch.int64)
    found = connections(torch.empty(0, 3, dtype=torch.int64), torch.tensor([[0]]), empty)
    assert found.shape == (0,)
    assert found.dtype == torch.int64
    joined = purify(found)
    assert joined.shape == (0,)
    assert joined.dtype == torch.bool


@given(st.lists(st.integers(0, 5), min_size=1))
def test_exactly_the_least_connected_join(counts: list[int]) -> None:
    assert purify(torch.tensor(counts)).tolist() == [count == min(counts) for count in counts]


def test_mistakes_are_named() -> None:
    forward, backward, candidates = torch.tensor([[0, 1]]), torch.tensor([[0], [1]]), torch.tensor([1])
    with pytest.raises(ValueError, match=r"forward must lie in \[0, 2\), got 2"):
        connections(forward + 1, backward, candidates)
    with pytest.raises(ValueError, match="forward must have a row per candidate, got 1 for 2"):
        connections(forward, backward, torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="candidates must not be negative, got -1"):
        connections(forward, backward, torch.tensor([-1]))
    with pytest.raises(ValueError, match="backward must have 2 dimensions"):
        connections(forward, backward[0], candidates)
    with pytest.raises(TypeError, match="candidates must be integer"):
        connections(forward, backward, candidates.float())
    with pytest.raises(TypeError, match="connections must be integer"):
        purify(torch.ones(2))
    with pytest.raises(ValueError, match=r"connections must be \(candidates,\)"):
        purify(forward)

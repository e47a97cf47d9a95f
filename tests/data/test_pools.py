"""Pools hold ids: whatever stages come, each id keeps its label."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from acpl.data.pools import Pools

CLASSES = 3


def label_of(ids: torch.Tensor) -> torch.Tensor:
    """A label that tells whose it is."""
    return torch.stack([(ids % 7) / 7, (ids % 11) / 11, (ids % 13) / 13], dim=1).float()


@st.composite
def pools_and_stages(draw: st.DrawFn) -> tuple[Pools, torch.Tensor, list[list[bool]]]:
    ids = draw(st.lists(st.integers(0, 500), min_size=2, max_size=40, unique=True))
    cut = draw(st.integers(1, len(ids)))
    labelled, unlabelled = torch.tensor(ids[:cut]), torch.tensor(ids[cut:], dtype=torch.int64)
    stages = draw(st.lists(st.lists(st.booleans(), min_size=80, max_size=80), max_size=6))
    return Pools(labelled, label_of(labelled), unlabelled), torch.tensor(ids), stages


@given(pools_and_stages())
def test_every_id_keeps_its_label_through_any_stages(case: tuple[Pools, torch.Tensor, list[list[bool]]]) -> None:
    pools, everyone, stages = case
    for coins in stages:
        chosen = pools.unlabelled[torch.tensor(coins[: len(pools.unlabelled)], dtype=torch.bool)]
        pools.select(chosen, label_of(chosen))
        pools.join_anchors(chosen[torch.tensor(coins[40 : 40 + len(chosen)], dtype=torch.bool)])
        assert torch.isin(pools.selected, pools.unlabelled).all()
        pools.merge()

        assert not torch.isin(pools.labelled, pools.unlabelled).any()
        union = torch.cat([pools.labelled, pools.unlabelled]).sort().values
        assert torch.equal(union, everyone.sort().values)
        assert torch.isin(pools.anchors, pools.labelled).all()
        assert torch.equal(pools.targets(pools.labelled), label_of(pools.labelled))
        assert torch.equal(pools.targets(pools.anchors), label_of(pools.anchors))


def small() -> Pools:
    return Pools(torch.tensor([4, 2]), label_of(torch.tensor([4, 2])), torch.tensor([9, 1, 5]))


def test_an_unlabelled_sample_has_no_target_to_be_read() -> None:
    with pytest.raises(ValueError, match="1 samples have no target, the first is 9"):
        small().targets(torch.tensor([4, 9]))


def test_anchors_start_as_the_labelled_samples() -> None:
    assert small().anchors.tolist() == [2, 4]


def test_what_breaks_the_pools_is_refused() -> None:
    pools = small()
    with pytest.raises(ValueError, match="only unlabelled"):
        pools.select(torch.tensor([4]), torch.zeros(1, CLASSES))
    with pytest.raises(ValueError, match=r"in \[0, 1\]"):
        pools.select(torch.tensor([9]), torch.full((1, CLASSES), 1.5))
    with pytest.raises(ValueError, match=r"in \[0, 1\]"):
        pools.select(torch.tensor([9]), torch.full((1, CLASSES), torch.nan))
    with pytest.raises(ValueError, match="only selected"):
        pools.join_anchors(torch.tensor([1]))
    pools.select(torch.tensor([9]), torch.zeros(1, CLASSES))
    with pytest.raises(ValueError, match="have not been merged"):
        pools.select(torch.tensor([1]), torch.zeros(1, CLASSES))
    with pytest.raises(ValueError, match="share a sample"):
        Pools(torch.tensor([1]), torch.zeros(1, CLASSES), torch.tensor([1]))
    with pytest.raises(ValueError, match="at least one"):
        Pools(torch.tensor([], dtype=torch.int64), torch.zeros(0, CLASSES), torch.tensor([1]))


def test_selecting_nothing_changes_nothing() -> None:
    pools = small()
    before = {name: value.clone() for name, value in pools.state_dict().items()}
    pools.select(torch.tensor([], dtype=torch.int64), torch.zeros(0, CLASSES))
    pools.merge()
    for name, value in pools.state_dict().items():
        assert torch.equal(value.nan_to_num(-1), before[name].nan_to_num(-1))


def test_state_saved_and_restored_goes_on_identically() -> None:
    first, second = small(), small()
    first.select(torch.tensor([5]), label_of(torch.tensor([5])))
    second.load_state_dict(first.state_dict())
    for pools in (first, second):
        pools.join_anchors(torch.tensor([5]))
        pools.merge()
    assert first.labelled.tolist() == second.labelled.tolist() == [2, 4, 5]
    assert torch.equal(second.targets(second.anchors), label_of(second.anchors))

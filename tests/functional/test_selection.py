import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from acpl.functional import selection
from acpl.functional.selection import largest, sorted_rows, true_places


def agrees_with_topk(score: Tensor, count: int) -> None:
    values, index = largest(score, count)
    assert torch.equal(values, score.topk(count, dim=1).values)
    assert torch.equal(values, score.gather(1, index))
    assert all(len(set(row)) == count for row in index.tolist())


@settings(deadline=None, max_examples=60)
@given(
    rows=st.integers(1, 9),
    columns=st.integers(1, 1500),
    share=st.floats(0.001, 1),
    different=st.sampled_from([1, 2, 50, 10**6]),
    seed=st.integers(0, 99),
)
def test_the_largest_come_in_order_with_their_columns(
    rows: int, columns: int, share: float, different: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    score = torch.randint(-different, different + 1, (rows, columns), generator=generator) / 7
    agrees_with_topk(score, max(1, int(share * columns)))


def test_only_a_few_more_than_asked_for_are_sorted() -> None:
    score = torch.rand(300, 1717, generator=torch.Generator().manual_seed(0)).numpy()
    keys = selection._keys_of_largest(score, 200, 512)
    assert keys is not None
    assert keys.base.shape[1] < 280


def test_where_all_are_equal_or_the_best_fall_into_one_group_the_answer_is_the_same() -> None:
    one_group = torch.rand(4, 5 * 512)
    one_group[:, ::512] += 1
    assert selection._keys_of_largest(torch.zeros(4, 2000).numpy(), 3, 512) is None
    for score in (torch.zeros(4, 2000), one_group, torch.full((4, 700), -torch.inf)):
        agrees_with_topk(score, 3)


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_share_the_rows(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(selection, "_ELEMENTS_PER_THREAD", 1)
    generator = torch.Generator().manual_seed(0)
    agrees_with_topk(torch.randn(50, 600, generator=generator), 20)
    agrees_with_topk(torch.randn(2, 600, generator=generator), 20)
    numbers = torch.randint(-(2**62), 2**62, (50, 30), generator=generator)
    assert torch.equal(sorted_rows(numbers), numbers.sort(dim=1, descending=True).values)


def test_a_mask_is_read_in_flattened_order() -> None:
    mask = torch.tensor([[False, True, False], [True, False, True]])
    assert true_places(mask).tolist() == [1, 3, 5]
    assert true_places(mask.T).tolist() == [1, 2, 5]

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from acpl.functional.columns import BestOfColumns


def kept(scores: Tensor, width: int, step: int) -> list[set[int]]:
    best = BestOfColumns(scores.shape[1], width, scores)
    for start in range(0, len(scores), step):
        best.add(scores[start : start + step], start)
    value, row = best.best()
    assert torch.equal(value, scores.gather(0, row.T).T)
    return [set(each) for each in row.tolist()]


@settings(deadline=None, max_examples=60)
@given(
    rows=st.integers(1, 80),
    columns=st.integers(1, 6),
    width=st.integers(1, 12),
    step=st.integers(1, 30),
    seed=st.integers(0, 99),
)
def test_every_column_keeps_its_best_rows(rows: int, columns: int, width: int, step: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randperm(rows * columns, generator=generator).view(rows, columns).float()
    width = min(width, rows)
    assert kept(scores, width, step) == [set(best) for best in scores.T.topk(width).indices.tolist()]


@pytest.mark.parametrize("descending", [False, True])
def test_rows_may_come_in_the_worst_order(descending: bool) -> None:
    scores = torch.arange(500.0)[:, None].expand(500, 3).flip(0) if descending else torch.arange(500.0)[:, None]
    expected = set(range(7)) if descending else set(range(493, 500))
    assert all(best == expected for best in kept(scores, 7, 40))


def test_equal_scores_fill_every_place_with_different_rows() -> None:
    assert [len(best) for best in kept(torch.zeros(100, 4), 9, 8)] == [9] * 4

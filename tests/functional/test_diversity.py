"""Greedy k-centre against a brute-force loop, and its promises."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from acpl.functional import farthest_first


def brute(candidates: torch.Tensor, count: int, centres: torch.Tensor) -> list[int]:
    unit = lambda rows: rows.double() / rows.double().norm(dim=1, keepdim=True)  # noqa: E731
    covered, taken = list(unit(centres)), []
    points = unit(candidates)
    for _ in range(count):
        distances = [min(float(1 - point @ other) for other in covered) for point in points]
        best = max((row for row in range(len(points)) if row not in taken), key=lambda row: (distances[row], -row))
        taken.append(best)
        covered.append(points[best])
    return taken


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), rows=st.integers(3, 12), count=st.integers(1, 3))
def test_each_row_is_the_farthest_from_all_before_it(seed: int, rows: int, count: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    candidates = torch.randn(rows, 4, generator=generator)
    centres = torch.randn(2, 4, generator=generator)
    assert farthest_first(candidates, count, centres).tolist() == brute(candidates, count, centres)


def test_a_row_and_its_duplicate_are_never_both_taken() -> None:
    rows = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0], [0.0, 3.0]])
    assert farthest_first(rows, 4).tolist() == [0, 1]


def test_a_row_like_a_centre_may_still_be_taken_last() -> None:
    rows = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    assert farthest_first(rows, 2, centres=torch.tensor([[1.0, 0.0]])).tolist() == [1, 0]


def test_impossible_input_is_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        farthest_first(torch.tensor([[float("nan"), 0.0]]), 1)
    with pytest.raises(ValueError, match="at least 1"):
        farthest_first(torch.eye(2), 0)

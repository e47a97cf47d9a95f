"""Features less their anchors' mean: of tensors and of files, in one process and in several."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from acpl.algorithms.surroundings import Centred, mean_row, surroundings
from acpl.functional.group import ALONE
from tests.functional.threads import even, in_group


def test_rows_are_moved_when_they_are_asked_for() -> None:
    rows, origin = torch.randn(7, 3), torch.randn(3)
    moved = Centred(rows, origin)
    assert (len(moved), moved.shape) == (7, rows.shape)
    for part in (slice(None), slice(2, 5), slice(0, 0), torch.tensor([6, 0, 0])):
        assert torch.equal(moved[part], rows[part] - origin)


def test_moved_rows_are_surveyed_as_what_they_are() -> None:
    generator = torch.Generator().manual_seed(0)
    rows, anchors = (torch.rand(count, 5, generator=generator) for count in (60, 12))
    labels, origin = torch.rand(12, 2, generator=generator), anchors.mean(dim=0)
    found, wanted = (
        surroundings(samples, anchors - origin, labels, 4, ALONE) for samples in (Centred(rows, origin), rows - origin)
    )
    for name in ("density", "labels", "nearest"):
        assert torch.equal(getattr(found, name), getattr(wanted, name))
    some = torch.arange(0, 60, 2)
    assert torch.equal(found.connections(some), wanted.connections(some))


@settings(max_examples=25, deadline=None)
@given(rows=st.integers(1, 40), processes=st.integers(1, 4), seed=st.integers(0, 99))
def test_the_mean_row_is_the_same_however_rows_are_shared_out(rows: int, processes: int, seed: int) -> None:
    values = torch.randn(rows, 6, generator=torch.Generator().manual_seed(seed)) * 10.0 ** (seed % 7 - 3)
    alone = mean_row(values, ALONE)
    assert alone.dtype == torch.float32
    assert torch.allclose(alone.double(), values.double().mean(dim=0), rtol=1e-6, atol=1e-9)

    cut = even(values, processes)
    for found in in_group(processes, lambda group: mean_row(cut[group.rank], group)):
        assert torch.equal(found, alone)


@pytest.mark.parametrize("value", [0.0, -3.0, 1e-30])
def test_the_mean_of_rows_that_are_alike_is_that_row(value: float) -> None:
    assert mean_row(torch.full((5, 2), value), ALONE).tolist() == torch.full((2,), value).tolist()

"""The quick way to neighbours: bfloat16 scores, a bound, float32 ranks. It must change nothing."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from acpl.functional import MutualNearest, mutual_nearest, nearest
from acpl.functional import neighbours as search
from acpl.functional.exhaustive import exhaustive
from acpl.functional.pairs import _gathered, products_of_pairs
from acpl.functional.rows import measured
from acpl.functional.scores import ExactScores, LowPrecisionScores

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")),
]
LITTLE = 1  # bytes: so short of memory, every pair is ranked


def always_low(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_low_precision_pays", lambda *_: True)


def brute_force(queries: Tensor, anchors: Tensor, k: int) -> MutualNearest:
    product = torch.nn.functional.normalize(queries.double()) @ torch.nn.functional.normalize(anchors.double()).T
    similarity, forward = product.topk(min(k, len(anchors)), dim=1)
    return MutualNearest(similarity.float(), forward, product.T.topk(min(k, len(queries)), dim=1).indices)


def spread_over_cosines(rows: int, features: int, seed: int) -> Tensor:
    """Rows of which no two pairs have cosines that float32 takes for equal, at the sizes used here."""
    generator = torch.Generator().manual_seed(seed)
    shared = torch.randn(features, generator=torch.Generator().manual_seed(99))
    return torch.randn(rows, features, generator=generator) + 2 * torch.rand(rows, 1, generator=generator) * shared


def two_bundles(rows: int, seed: int) -> Tensor:
    """Rows that point in two directions and hardly differ within a bundle: bfloat16 cannot tell them apart."""
    generator = torch.Generator().manual_seed(seed)
    direction = torch.randn(64, generator=torch.Generator().manual_seed(7))
    side = torch.where(torch.arange(rows) % 2 == 0, 1.0, -1.0)[:, None]
    return side * direction + 1e-3 * torch.randn(rows, 64, generator=generator)


def same(found: MutualNearest, expected: MutualNearest) -> bool:
    assert torch.equal(found.forward, expected.forward)
    assert torch.equal(found.backward, expected.backward)
    torch.testing.assert_close(found.similarity, expected.similarity, rtol=0, atol=5e-7)
    return True


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_low_precision_finds_every_index_of_tie_free_data(
    device: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    always_low(monkeypatch)
    queries, anchors = spread_over_cosines(700, 96, 0).to(dtype), spread_over_cosines(150, 96, 1).to(dtype)
    found = mutual_nearest(queries.to(device), anchors.to(device), 20)
    assert same(MutualNearest(*(part.cpu() for part in found)), brute_force(queries.float(), anchors.float(), 20))


def test_where_low_precision_cannot_tell_neighbours_apart_the_answer_is_still_exact(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queries, anchors = two_bundles(300, 0), two_bundles(200, 1)
    scores = LowPrecisionScores(measured("queries", queries, 2**20), measured("anchors", anchors, 2**20))
    best = scores.block(slice(0, 300)).topk(18, dim=1).indices
    expected = brute_force(queries, anchors, 10)
    assert not all(set(e) <= set(b) for e, b in zip(expected.forward.tolist(), best.tolist(), strict=True))
    always_low(monkeypatch)
    assert same(mutual_nearest(queries, anchors, 10), mutual_nearest(queries, anchors, 10, block_bytes=LITTLE))


def test_a_few_doubtful_rows_are_ranked_over_all_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    always_low(monkeypatch)
    chosen: list[int] = []

    def watched(queries: object, some: Tensor, *rest: object) -> Tensor:
        chosen.append(len(some))
        return exhaustive(queries, some, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(search, "exhaustive", watched)
    queries, anchors = spread_over_cosines(400, 64, 0), spread_over_cosines(120, 64, 1)
    queries[[3, 77]] = 0.0  # as similar to any anchor as to any other
    found = mutual_nearest(queries, anchors, 10)
    assert 2 <= chosen[0] < 200
    assert found.forward[[3, 77]].tolist() == [list(range(10))] * 2
    monkeypatch.undo()
    assert same(found, mutual_nearest(queries, anchors, 10, block_bytes=LITTLE))


@settings(deadline=None, max_examples=40)
@given(
    q=st.integers(1, 40), a=st.integers(1, 30), width=st.integers(1, 9), k=st.integers(1, 9), seed=st.integers(0, 99)
)
def test_ties_and_zero_vectors_come_out_as_from_all_pairs(q: int, a: int, width: int, k: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    queries = torch.randint(-1, 2, (q, width), generator=generator).float()
    anchors = torch.randint(-1, 2, (a, width), generator=generator).float()
    expected = mutual_nearest(queries, anchors, k, block_bytes=LITTLE)
    with pytest.MonkeyPatch.context() as monkeypatch:
        always_low(monkeypatch)
        assert same(mutual_nearest(queries, anchors, k), expected)
        assert torch.equal(nearest(queries, anchors, k).index, expected.forward)


@pytest.mark.parametrize("make", [torch.randn, torch.rand, lambda *size: torch.randn(*size).exp().pow(3)])
def test_the_bound_holds_for_every_pair(make: Callable[..., Tensor]) -> None:
    torch.manual_seed(0)
    queries, anchors = (measured("rows", make(count, 200), 2**20) for count in (300, 250))
    scores = LowPrecisionScores(queries, anchors)
    score, true = scores.block(slice(0, 300)), ExactScores(queries, anchors).block(slice(0, 300))
    # Whatever similarity is asked for: what is said to be below it is.
    for share in (0.1, 0.5, 0.9, 0.99):
        kth = true.quantile(share)
        anchors_below = scores.anchors_below(kth.expand(300, 1), score)
        queries_below = scores.queries_below(slice(0, 250), kth.expand(250, 1), score.T).T
        assert (true[anchors_below | queries_below] < kth).all()
    assert anchors_below.float().mean() > 0.9
    assert queries_below.float().mean() > 0.9


def test_low_precision_is_left_alone_where_it_does_not_pay() -> None:
    few, features = measured("rows", torch.rand(50, 300), 2**20), torch.rand(3000, 300)
    many = measured("rows", features, 2**20)
    assert not search._low_precision_pays(few, few, 2)
    assert search._low_precision_pays(many, many, 10) == search._cpu_multiplies_bfloat16()
    assert not search._low_precision_pays(many, many, 2000)
    assert not search._low_precision_pays(measured("rows", features * 1e-30, 2**20), many, 10)


def test_products_of_pairs_are_those_listed() -> None:
    rows, columns = torch.rand(4, 33), torch.rand(6, 33)
    start, index = torch.tensor([0, 2, 2, 5, 6]), torch.tensor([5, 0, 1, 1, 3, 2])
    row = [0, 0, 2, 2, 2, 3]
    expected = (rows[row] * columns[index]).sum(dim=1)
    torch.testing.assert_close(products_of_pairs(rows, columns, start, index), expected)
    torch.testing.assert_close(_gathered(rows, columns, start, index), expected)
    assert products_of_pairs(rows, columns, torch.zeros(5, dtype=torch.int64), index[:0]).shape == (0,)

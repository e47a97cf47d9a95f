"""The quick ways to neighbours: rounded scores, a bound, exact ranks. They must change nothing."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from acpl.functional import MutualNearest, mutual_nearest, nearest, pairs
from acpl.functional import neighbours as search
from acpl.functional.exhaustive import exhaustive
from acpl.functional.pairs import _gathered, products_of_pairs
from acpl.functional.rows import measured
from acpl.functional.scores import ExactScores, RoundedScores

BOTH = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
LITTLE = 1  # bytes: so short of memory, every pair is ranked, one at a time
SHORT = 2**16  # bytes: too few for the anchors, so that every pair is ranked here, too


def always(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_worthwhile_dtype", lambda *_: dtype)


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


def steps(rows: int, features: int, seed: int) -> Tensor:
    """Rows of ones, then zeros: centred, their partial sums go far up and down again, and float32 errs most."""
    ends = torch.randint(1, features, (rows, 1), generator=torch.Generator().manual_seed(seed))
    return (torch.arange(features) < ends).float()


def same(found: MutualNearest, expected: MutualNearest, tolerance: float = 5e-7) -> bool:
    assert torch.equal(found.forward, expected.forward)
    assert torch.equal(found.backward, expected.backward)
    torch.testing.assert_close(found.similarity, expected.similarity, rtol=0, atol=tolerance)
    return True


@pytest.mark.parametrize("given", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("device", "dtype"),
    [
        ("cpu", torch.float32),
        ("cpu", torch.bfloat16),
        pytest.param("cuda", torch.bfloat16, marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")),
    ],
)
def test_low_precision_finds_every_index_of_tie_free_data(
    device: str, dtype: torch.dtype, given: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    always(dtype, monkeypatch)
    queries, anchors = spread_over_cosines(700, 96, 0).to(given), spread_over_cosines(150, 96, 1).to(given)
    found = mutual_nearest(queries.to(device), anchors.to(device), 20)
    assert same(MutualNearest(*(part.cpu() for part in found)), brute_force(queries.float(), anchors.float(), 20))


def test_where_bfloat16_cannot_tell_neighbours_apart_the_answer_is_still_exact(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queries, anchors = two_bundles(300, 0), two_bundles(200, 1)
    scores = RoundedScores(measured("queries", queries, 2**20), measured("anchors", anchors, 2**20), torch.bfloat16)
    best = scores.block(slice(0, 300)).topk(18, dim=1).indices
    expected = brute_force(queries, anchors, 10)
    assert not all(set(e) <= set(b) for e, b in zip(expected.forward.tolist(), best.tolist(), strict=True))
    always(torch.bfloat16, monkeypatch)
    assert same(mutual_nearest(queries, anchors, 10), mutual_nearest(queries, anchors, 10, block_bytes=SHORT))


@BOTH
def test_a_few_doubtful_rows_are_ranked_over_all_pairs(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    always(dtype, monkeypatch)
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
    assert same(found, mutual_nearest(queries, anchors, 10, block_bytes=SHORT))


@BOTH
def test_the_order_is_exact_where_float32_sums_err_most(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    queries, anchors = steps(400, 1024, 1), steps(900, 1024, 2)
    expected = mutual_nearest(queries, anchors, 100, block_bytes=2**8 * SHORT)
    always(dtype, monkeypatch)
    assert same(mutual_nearest(queries, anchors, 100), expected, tolerance=4e-6)


@BOTH
@settings(deadline=None, max_examples=40)
@given(
    q=st.integers(1, 40), a=st.integers(1, 30), width=st.integers(1, 9), k=st.integers(1, 9), seed=st.integers(0, 99)
)
def test_ties_and_zero_vectors_come_out_as_from_all_pairs(
    dtype: torch.dtype, q: int, a: int, width: int, k: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    queries = torch.randint(-1, 2, (q, width), generator=generator).float()
    anchors = torch.randint(-1, 2, (a, width), generator=generator).float()
    expected = mutual_nearest(queries, anchors, k, block_bytes=LITTLE)
    with pytest.MonkeyPatch.context() as monkeypatch:
        always(dtype, monkeypatch)
        assert same(mutual_nearest(queries, anchors, k), expected)
        assert torch.equal(nearest(queries, anchors, k).index, expected.forward)


@BOTH
@pytest.mark.parametrize("make", [torch.randn, torch.rand, lambda *size: torch.randn(*size).exp().pow(3)])
def test_the_bound_holds_for_every_pair(make: Callable[..., Tensor], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    queries, anchors = (measured("rows", make(count, 200), 2**20) for count in (300, 250))
    scores = RoundedScores(queries, anchors, dtype)
    score, true = scores.block(slice(0, 300)), ExactScores(queries, anchors).block(slice(0, 300))
    # Whatever similarity is asked for: what is said to be below it is.
    for share in (0.1, 0.5, 0.9, 0.99):
        kth = true.quantile(share)
        anchors_below = scores.anchors_below(kth.expand(300, 1), score)
        queries_below = scores.queries_below(slice(0, 250), kth.expand(250, 1), score.T).T
        assert (true[anchors_below | queries_below] < kth).all()
    assert anchors_below.float().mean() > 0.9
    assert queries_below.float().mean() > 0.9


def test_precision_is_lowered_only_where_that_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    features = torch.rand(3000, 300)
    few, many = measured("rows", features[:50], 2**20), measured("rows", features, 2**20)
    for capable, lowest in ((True, torch.bfloat16), (False, torch.float32)):
        monkeypatch.setattr(search, "_cpu_multiplies_bfloat16", lambda capable=capable: capable)
        assert search._worthwhile_dtype(many, many, 10) == lowest
        assert search._worthwhile_dtype(many, many, 500) == torch.float32
        assert search._worthwhile_dtype(many, many, 2000) == torch.float64
        assert search._worthwhile_dtype(few, few, 2) == torch.float64
    assert search._worthwhile_dtype(measured("rows", features * 1e-30, 2**20), many, 10) == torch.float64


@pytest.mark.parametrize(("digits", "full"), [(torch.float32, True), (torch.float16, False), (torch.bfloat16, False)])
def test_float32_that_is_silently_lowered_is_found_out(
    digits: torch.dtype, full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs, "prepared", lambda columns: columns)
    monkeypatch.setattr(pairs, "product", lambda rows, columns: rows.to(digits).float() @ columns.to(digits).float().T)
    assert pairs.float32_is_float32() == full
    many = measured("rows", torch.rand(3000, 300), 2**20)
    assert search._worthwhile_dtype(many, many, 500) == (torch.float32 if full else torch.float64)


def test_products_of_pairs_are_those_listed() -> None:
    rows, columns = torch.rand(4, 33), torch.rand(6, 33)
    start, index = torch.tensor([0, 2, 2, 5, 6]), torch.tensor([5, 0, 1, 1, 3, 2])
    row = [0, 0, 2, 2, 2, 3]
    expected = (rows[row] * columns[index]).sum(dim=1)
    torch.testing.assert_close(products_of_pairs(rows, columns, start, index), expected)
    torch.testing.assert_close(_gathered(rows, columns, start, index), expected)
    assert products_of_pairs(rows, columns, torch.zeros(5, dtype=torch.int64), index[:0]).shape == (0,)

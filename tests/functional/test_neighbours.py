import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from acpl.functional import mutual_nearest, nearest

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")),
]


def features(rows: int, width: int = 8, seed: int = 0) -> Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed))


def loop(queries: Tensor, anchors: Tensor, k: int) -> tuple[list[list[float]], list[list[int]]]:
    """Cosine by the definition, in float64; a stable sort sends ties to the lower index."""
    similarity, index = [], []
    for query in queries.double().numpy():
        cosines = []
        for anchor in anchors.double().numpy():
            length = np.linalg.norm(query) * np.linalg.norm(anchor)
            cosines.append(float(np.float32(query @ anchor / length)) if length else 0.0)
        order = sorted(range(len(cosines)), key=lambda i: -cosines[i])[:k]
        similarity.append([cosines[i] for i in order])
        index.append(order)
    return similarity, index


@pytest.mark.parametrize("device", DEVICES)
def test_nearest_agrees_with_a_loop_over_the_definition(device: str) -> None:
    queries, anchors = features(20), features(13, seed=1)
    similarity, index = loop(queries, anchors, 5)
    found = nearest(queries.to(device), anchors.to(device), 5)
    assert found.index.tolist() == index
    torch.testing.assert_close(found.similarity.cpu(), torch.tensor(similarity), rtol=0, atol=1e-7)


def test_nearest_agrees_with_scikit_learn() -> None:
    queries, anchors = features(200, 32), features(90, 32, seed=1)
    distance, index = NearestNeighbors(n_neighbors=7, metric="cosine").fit(anchors).kneighbors(queries)
    found = nearest(queries, anchors, 7)
    np.testing.assert_array_equal(found.index, index)
    np.testing.assert_allclose(found.similarity, 1 - distance, atol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("block_bytes", [1, 1000, 200_000, 2**28])
def test_the_block_size_changes_nothing_not_even_the_last_bit(block_bytes: int, device: str) -> None:
    queries, anchors = features(61, 100).to(device), features(37, 100, seed=1).to(device)
    whole = mutual_nearest(queries, anchors, 6)
    found = mutual_nearest(queries, anchors, 6, block_bytes=block_bytes)
    assert all(torch.equal(part, expected) for part, expected in zip(found, whole, strict=True))
    assert torch.equal(nearest(queries, anchors, 6, block_bytes=block_bytes).similarity, whole.similarity)


small = st.integers(1, 12)


@settings(deadline=None, max_examples=60)
@given(q=small, a=small, width=small, k=small, block=st.integers(1, 20_000), seed=st.integers(0, 99))
def test_the_mutual_pass_is_nearest_in_both_directions(
    q: int, a: int, width: int, k: int, block: int, seed: int
) -> None:
    # Few distinct small integers: many exact ties, many zero vectors.
    generator = torch.Generator().manual_seed(seed)
    queries = torch.randint(-1, 2, (q, width), generator=generator).float()
    anchors = torch.randint(-1, 2, (a, width), generator=generator).float()
    found = mutual_nearest(queries, anchors, k, block_bytes=block)
    similarity, index = nearest(queries, anchors, k)
    assert torch.equal(found.similarity, similarity)
    assert torch.equal(found.forward, index)
    assert torch.equal(found.backward, nearest(anchors, queries, k).index)
    assert index.tolist() == loop(queries, anchors, k)[1]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("block_bytes", [150_000, 2**28])
def test_duplicated_rows_tie_and_the_lower_index_comes_first(block_bytes: int, device: str) -> None:
    # Odd sizes: matrix kernels treat the edge of a block differently from its middle.
    anchors = features(1, 333).repeat(41, 1).to(device)
    queries = features(23, 333, seed=1).to(device)
    similarity, index = nearest(queries, anchors, 40, block_bytes=block_bytes)
    assert (similarity == similarity[:, :1]).all()
    assert (index.cpu() == torch.arange(40)).all()
    backward = mutual_nearest(anchors, queries, 40, block_bytes=block_bytes).backward
    assert (backward.cpu() == torch.arange(40)).all()


def test_minus_zero_ties_with_zero() -> None:
    # One feature: with more, the kernel adds the products to a zero, and the sign is gone.
    index = nearest(torch.ones(2, 1), torch.tensor([[-0.0], [0.0]]), 2).index
    assert index.tolist() == [[0, 1], [0, 1]]


def test_a_zero_vector_is_similar_to_nothing() -> None:
    zero = torch.zeros(1, 8)
    similarity, index = nearest(zero, features(5), 3)
    assert similarity.tolist() == [[0.0, 0.0, 0.0]]
    assert index.tolist() == [[0, 1, 2]]
    assert nearest(features(5), zero, 1).similarity.abs().max() == 0


def test_the_length_of_a_vector_does_not_matter_however_extreme() -> None:
    queries, anchors = features(6).sign(), features(9, seed=1)
    expected = nearest(queries, anchors, 4)
    # Powers of two, which scale without rounding: squared, they leave the range of float32.
    for scale in (2.0**-126, 2.0**120):
        similarity, index = nearest(queries * scale, anchors, 4)
        assert torch.equal(similarity, expected.similarity)
        assert torch.equal(index, expected.index)


@pytest.mark.parametrize("width", range(1000, 1020))
def test_similarity_stays_within_one(width: int) -> None:
    # Equal entries are all rounded in one direction, upwards for some of these widths.
    rows = torch.ones(1, width)
    assert nearest(rows, rows, 1).similarity <= 1
    assert nearest(rows, -rows, 1).similarity >= -1


def test_k_beyond_the_set_returns_all_of_it() -> None:
    found = mutual_nearest(features(4), features(3, seed=1), 10)
    assert found.similarity.shape == found.forward.shape == (4, 3)
    assert found.backward.shape == (3, 4)
    assert found.backward.sort(dim=1).values.tolist() == [[0, 1, 2, 3]] * 3


def test_no_queries_give_empty_results() -> None:
    similarity, forward, backward = mutual_nearest(features(0), features(3), 2)
    assert (similarity.shape, forward.shape, backward.shape) == ((0, 2), (0, 2), (3, 0))
    assert similarity.dtype == torch.float32
    assert forward.dtype == backward.dtype == torch.int64
    assert nearest(features(0), features(3), 2).index.shape == (0, 2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_floating_types_are_taken_as_float32(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    queries = torch.randn(300, 3, dtype=torch.float64, generator=generator).to(dtype)
    anchors = torch.randn(20, 3, dtype=torch.float64, generator=generator).to(dtype)
    expected = nearest(queries.float(), anchors.float(), 2)
    found = nearest(queries, anchors, 2)
    assert found.similarity.dtype == torch.float32
    assert torch.equal(found.similarity, expected.similarity)
    assert torch.equal(found.index, expected.index)


@pytest.mark.parametrize("search", [nearest, mutual_nearest])
def test_mistakes_are_named(search) -> None:  # type: ignore[no-untyped-def]
    good = features(3)
    bad = features(5)
    bad[1, 2], bad[3, 0] = float("nan"), float("inf")
    with pytest.raises(ValueError, match="queries must be finite, got NaN or infinity in 2 of 5 rows"):
        search(bad, good, 1, block_bytes=1)
    with pytest.raises(ValueError, match="anchors must be finite"):
        search(good, bad, 1)
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        search(good, good, 0)
    with pytest.raises(ValueError, match="anchors must have at least one row"):
        search(good, features(0), 1)
    with pytest.raises(ValueError, match="as many features, got 8 and 4"):
        search(good, features(3, 4), 1)
    with pytest.raises(ValueError, match=r"queries must be \(rows, features\)"):
        search(good[0], good, 1)
    with pytest.raises(TypeError, match=r"anchors must be floating point, got torch.int64"):
        search(good, good.long(), 1)
    with pytest.raises(ValueError, match="block_bytes must be at least 1, got 0"):
        search(good, good, 1, block_bytes=0)


# VmHWM and not ru_maxrss, which a child inherits from its parent.
MEASURE = """
import pathlib, re, torch
from acpl.functional import mutual_nearest
torch.set_num_threads(1)
def memory(what):
    return 1024 * int(re.search(what + r":\\s+(\\d+) kB", pathlib.Path("/proc/self/status").read_text())[1])
queries, anchors = torch.empty(200_000, 16).normal_(), torch.empty(2_000, 16).normal_()
mutual_nearest(queries[:2000], anchors[:200], 5)
before = memory("VmRSS")
found = mutual_nearest(queries, anchors, 20, block_bytes=64 * 2**20)
print(memory("VmHWM") - before - sum(part.nbytes for part in found))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
def test_the_product_is_never_held_whole() -> None:
    run = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True)
    # 64 MiB asked for, the allocator keeps some more; the float32 product alone would be 1.6 GB.
    assert 0 < int(run.stdout) < 256 * 2**20

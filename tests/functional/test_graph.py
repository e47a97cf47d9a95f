"""Labels on a graph, against the dense formula."""

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from sklearn.metrics.pairwise import cosine_similarity

from acpl.functional import affinity, spread


def dense_affinity(features: np.ndarray, k: int, power: float) -> np.ndarray:
    """The same by loops over a full matrix."""
    similarity = cosine_similarity(features.astype(np.float64))
    count = len(features)
    weight = np.zeros((count, count))
    for row in range(count):
        others = sorted((j for j in range(count) if j != row), key=lambda j: (-round(similarity[row, j], 7), j))
        for column in others[:k]:
            weight[row, column] = max(similarity[row, column], 0) ** power
    weight = (weight + weight.T) / 2
    degree = weight.sum(axis=1)
    scale = np.where(degree > 0, 1 / np.sqrt(np.where(degree > 0, degree, 1)), 0)
    return scale[:, None] * weight * scale[None]


@settings(max_examples=30, deadline=None)
@given(count=st.integers(2, 30), k=st.integers(1, 8), seed=st.integers(0, 1000))
def test_the_graph_is_the_dense_one(count: int, k: int, seed: int) -> None:
    features = np.random.default_rng(seed).normal(size=(count, 5)).astype(np.float32)
    found = affinity(torch.from_numpy(features), k).to_dense().numpy()
    assert np.allclose(found, dense_affinity(features, k, 3.0), atol=1e-5)
    assert np.allclose(found, found.T)


@settings(max_examples=30, deadline=None)
@given(count=st.integers(2, 40), alpha=st.sampled_from([0.0, 0.5, 0.9, 0.99]), seed=st.integers(0, 1000))
def test_spreading_is_the_solution_of_the_linear_system(count: int, alpha: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = affinity(torch.from_numpy(rng.normal(size=(count, 6)).astype(np.float32)), 4)
    seeds = torch.from_numpy((rng.random((count, 3)) < 0.3).astype(np.float32))
    expected = np.linalg.solve(np.eye(count) - alpha * graph.to_dense().double().numpy(), seeds.double().numpy())
    assert np.allclose(spread(graph, seeds, alpha), expected, atol=2e-3 * max(1, np.abs(expected).max()))


def test_labels_reach_their_own_cluster_only() -> None:
    rng = np.random.default_rng(0)
    centres = np.eye(3)[np.repeat(np.arange(3), 50)] * 10
    features = torch.from_numpy((centres + rng.normal(0, 0.3, centres.shape)).astype(np.float32))
    seeds = torch.zeros(150, 3)
    seeds[[0, 50, 100]] = torch.eye(3)
    assert torch.equal(spread(affinity(features, 5), seeds).argmax(dim=1), torch.arange(150) // 50)


def test_degenerate_graphs() -> None:
    same = affinity(torch.ones(6, 4), 2)
    assert torch.isfinite(same.to_dense()).all()
    assert (same.to_dense().diagonal() == 0).all()
    alone = affinity(torch.zeros(4, 3), 2)
    seeds = torch.tensor([[1.0], [0.0], [0.0], [0.0]])
    assert torch.equal(spread(alone, seeds), seeds)
    assert affinity(torch.randn(1, 3), 5).to_dense().tolist() == [[0.0]]
    assert torch.equal(spread(same, torch.zeros(6, 2)), torch.zeros(6, 2))
    few = affinity(torch.rand(3, 3), 50).to_dense()
    assert (few > 0).sum() == 6


def test_a_wrong_alpha_is_refused() -> None:
    with pytest.raises(ValueError, match="alpha"):
        spread(affinity(torch.rand(3, 3), 1), torch.ones(3, 1), alpha=1.0)

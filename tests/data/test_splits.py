"""Who is labelled."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acpl.data.splits import checksum, draw_labelled


def population(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = (rng.random((rows, 3)) < [0.3, 0.1, 0.02]).astype(np.float32)
    groups = np.array([f"p{n}" for n in rng.integers(0, rows // 2 + 1, rows)], dtype=object)
    return labels, groups


@given(rows=st.integers(20, 300), fraction=st.floats(0.02, 1), seed=st.integers(0, 50))
def test_no_group_is_on_two_sides_and_never_more_than_the_fraction(rows: int, fraction: float, seed: int) -> None:
    labels, groups = population(rows, seed)
    chosen = draw_labelled(labels, groups, fraction, seed=seed)
    rest = np.setdiff1d(np.arange(rows), chosen)
    assert not set(groups[chosen]) & set(groups[rest])
    largest = max(np.unique(groups, return_counts=True)[1])
    assert round(fraction * rows) - largest < len(chosen) <= round(fraction * rows)


@pytest.mark.parametrize("fraction", [0.02, 0.05, 0.2, 1.0])
def test_an_image_level_draw_is_exact(fraction: float) -> None:
    labels, groups = population(1000, 1)
    assert len(draw_labelled(labels, groups, fraction, seed=3, draw="images")) == round(1000 * fraction)


def test_every_class_is_represented_where_it_can_be() -> None:
    labels = np.zeros((500, 3), dtype=np.float32)
    labels[:200, 0] = labels[7, 1] = labels[[8, 9], 2] = 1
    groups = np.arange(500).astype(object)
    for seed in range(20):
        assert (labels[draw_labelled(labels, groups, 0.02, seed=seed)].sum(axis=0) > 0).all()


def test_the_same_seed_draws_the_same_and_another_another() -> None:
    labels, groups = population(200, 0)
    assert draw_labelled(labels, groups, 0.2, seed=5).tolist() == draw_labelled(labels, groups, 0.2, seed=5).tolist()
    assert draw_labelled(labels, groups, 0.2, seed=5).tolist() != draw_labelled(labels, groups, 0.2, seed=6).tolist()


def test_the_published_draw_labels_more_than_it_says() -> None:
    labels, groups = population(2000, 0)
    labels[:, 2] = np.maximum(labels[:, 1], labels[:, 2])
    assert len(draw_labelled(labels, groups, 0.1, seed=0, draw="per-class")) > 200


def test_the_checksum_depends_on_roles_and_not_on_order() -> None:
    ids, roles = np.array([1, 2, 3]), np.array(["labelled", "unlabelled", "validation"], dtype=object)
    assert checksum(ids, roles) == checksum(ids[::-1], roles[::-1])
    assert checksum(ids, roles) != checksum(ids, roles[::-1])

"""Who is labelled, and who is for training, validation and test."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acpl.data.manifest import rows_known
from acpl.data.splits import checksum, draw_labelled, draw_parts
from acpl.errors import UserError


def population(rows: int, seed: int, unknown: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = (rng.random((rows, 3)) < [0.3, 0.1, 0.02]).astype(np.float32)
    labels[rng.random(rows) < unknown, rng.integers(0, 3)] = np.nan
    groups = np.array([f"p{n}" for n in rng.integers(0, rows // 2 + 1, rows)], dtype=object)
    return labels, groups


def smallest_holders(labels: np.ndarray, groups: np.ndarray) -> list[int]:
    """For each class that has a positive, the rows of the smallest group that holds one."""
    _, member, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    return [sizes[member[labels[:, c] > 0]].min() for c in range(labels.shape[1]) if (labels[:, c] > 0).any()]


@given(
    rows=st.integers(20, 300), fraction=st.floats(0.02, 1), seed=st.integers(0, 50), unknown=st.sampled_from([0, 0.5])
)
def test_a_draw_is_of_whole_groups_of_known_rows_and_never_more_than_the_fraction(
    rows: int, fraction: float, seed: int, unknown: float
) -> None:
    labels, groups = population(rows, seed, unknown)
    known = rows_known(labels)
    chosen = draw_labelled(labels, groups, fraction, seed=seed)
    rest = np.setdiff1d(np.flatnonzero(known), chosen)
    assert known[chosen].all()
    assert not set(groups[chosen]) & set(groups[rest])
    largest = max(np.unique(groups[known], return_counts=True)[1], default=0)
    assert round(fraction * known.sum()) - largest <= len(chosen) <= round(fraction * known.sum())


@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=9), share=st.floats(0, 1), seed=st.integers(0, 20))
def test_the_count_is_the_nearest_that_whole_groups_allow(sizes: list[int], share: float, seed: int) -> None:
    groups = np.repeat([f"g{n}" for n in range(len(sizes))], sizes).astype(object)
    count = round(share * len(groups))
    sums = {sum(some) for n in range(len(sizes) + 1) for some in combinations(sizes, n)}
    chosen = draw_labelled(np.zeros((len(groups), 2), dtype=np.float32), groups, count=count, seed=seed)
    assert len(chosen) == max(total for total in sums if total <= count)


def test_the_nearest_count_is_found_among_many_large_groups() -> None:
    groups = np.repeat([f"g{n}" for n in range(3000)], [6, 10, 15] * 1000).astype(object)
    labels = np.zeros((len(groups), 1), dtype=np.float32)
    for count in (31, 1009, 10_001, len(groups) - 31):
        assert len(draw_labelled(labels, groups, count=count, seed=1)) == count


@given(rows=st.integers(5, 120), seed=st.integers(0, 200), spare=st.integers(0, 5))
def test_every_class_is_represented_where_its_smallest_groups_fit(rows: int, seed: int, spare: int) -> None:
    labels, groups = population(rows, seed)
    count = min(rows, sum(smallest_holders(labels, groups)) + spare)
    chosen = draw_labelled(labels, groups, count=count, seed=seed)
    assert ((labels[chosen].sum(axis=0) > 0) == (labels.sum(axis=0) > 0)).all()
    assert len(chosen) <= count


def test_a_rare_class_is_represented_by_its_only_holder() -> None:
    labels = np.zeros((500, 3), dtype=np.float32)
    labels[:200, 0] = labels[7, 1] = labels[[8, 9], 2] = 1
    groups = np.arange(500).astype(object)
    for seed in range(20):
        assert (labels[draw_labelled(labels, groups, 0.02, seed=seed)].sum(axis=0) > 0).all()


@pytest.mark.parametrize("fraction", [0.02, 0.05, 0.2, 1.0])
def test_an_image_level_draw_is_exact(fraction: float) -> None:
    labels, groups = population(1000, 1)
    assert len(draw_labelled(labels, groups, fraction, seed=3, draw="images")) == round(1000 * fraction)


def test_the_fraction_is_of_the_rows_with_known_labels() -> None:
    labels, groups = population(1000, 1)
    labels[400:, 1] = np.nan
    chosen = draw_labelled(labels, groups, 0.1, seed=3, draw="images")
    assert len(chosen) == 40
    assert chosen.max() < 400
    assert draw_labelled(labels, groups, 1.0, seed=0, draw="per-class").tolist() == list(range(400))


def test_a_published_order_takes_the_first_rows_whatever_the_seed() -> None:
    labels, groups = population(6, 0)
    order = np.array([5, 0, 2, np.nan, 1, 3])
    assert draw_labelled(labels, groups, count=3, seed=9, draw="order", order=order).tolist() == [1, 2, 4]
    assert draw_labelled(labels, groups, 0.5, seed=1, draw="order", order=order).tolist() == [1, 2, 4]
    with pytest.raises(UserError, match="has a number for 5 only"):
        draw_labelled(labels, groups, count=6, seed=0, draw="order", order=order)
    with pytest.raises(UserError, match="needs a column 'order'"):
        draw_labelled(labels, groups, count=6, seed=0, draw="order")


def test_more_than_there_is_and_a_count_of_each_class_are_refused() -> None:
    labels, groups = population(10, 0)
    with pytest.raises(UserError, match="count is 11, but only 10 training images have labels"):
        draw_labelled(labels, groups, count=11, seed=0)
    with pytest.raises(UserError, match="takes a fraction of each class"):
        draw_labelled(labels, groups, count=5, seed=0, draw="per-class")
    with pytest.raises(ValueError, match="either fraction or count"):
        draw_labelled(labels, groups, seed=0)


def test_the_same_seed_draws_the_same_and_another_another() -> None:
    labels, groups = population(200, 0)
    assert draw_labelled(labels, groups, 0.2, seed=5).tolist() == draw_labelled(labels, groups, 0.2, seed=5).tolist()
    assert draw_labelled(labels, groups, 0.2, seed=5).tolist() != draw_labelled(labels, groups, 0.2, seed=6).tolist()


def test_the_published_draw_labels_more_than_it_says() -> None:
    labels, groups = population(2000, 0)
    labels[:, 2] = np.maximum(labels[:, 1], labels[:, 2])
    assert len(draw_labelled(labels, groups, 0.1, seed=0, draw="per-class")) > 200


@given(rows=st.integers(1, 200), seed=st.integers(0, 50), unknown=st.sampled_from([0, 0.3]))
def test_parts_keep_groups_whole_and_never_judge_more_than_their_share(rows: int, seed: int, unknown: float) -> None:
    labels, groups = population(rows, seed, unknown)
    known = rows_known(labels)
    parts = draw_parts(labels, groups, (0.7, 0.1, 0.2), seed=seed)
    assert all(len(set(parts[groups == group])) == 1 for group in set(groups))
    assert (parts[known] == "test").sum() <= round(0.2 * known.sum())
    assert (parts[known] == "validation").sum() <= round(0.1 * known.sum())
    without = set(groups) - set(groups[known])
    assert (parts[np.isin(groups, list(without))] == "train").all()
    assert parts.tolist() == draw_parts(labels, groups, (0.7, 0.1, 0.2), seed=seed).tolist()


def test_parts_of_single_images_have_exactly_their_shares() -> None:
    labels, _ = population(10_015, 0)
    parts = draw_parts(labels, np.arange(10_015).astype(object), (0.7, 0.1, 0.2), seed=0)
    assert [int((parts == part).sum()) for part in ("train", "validation", "test")] == [7010, 1002, 2003]


@pytest.mark.parametrize(
    ("holders", "represented"),
    [(1, {"train"}), (2, {"train", "test"}), (3, {"train", "test", "validation"})],
)
def test_a_rare_class_is_for_training_first_then_test_then_validation(holders: int, represented: set[str]) -> None:
    labels = np.zeros((300, 2), dtype=np.float32)
    labels[:holders, 0] = labels[100:, 1] = 1
    groups = np.array([f"{n}" for n in range(300)], dtype=object)
    for seed in range(20):
        assert set(draw_parts(labels, groups, (0.7, 0.1, 0.2), seed=seed)[:holders]) == represented


def test_the_checksum_depends_on_roles_and_not_on_order() -> None:
    ids, roles = np.array([1, 2, 3]), np.array(["labelled", "unlabelled", "validation"], dtype=object)
    assert checksum(ids, roles) == checksum(ids[::-1], roles[::-1])
    assert checksum(ids, roles) != checksum(ids, roles[::-1])

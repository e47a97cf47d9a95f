"""Curves on a grid, against scikit-learn's and by hand."""

import numpy as np
import pytest
from sklearn.metrics import precision_recall_curve, roc_auc_score, roc_curve

from acpl.evaluation.curves import GRID, precision_recall_curves, reliability, roc_curves


def sample(seed: int = 0, images: int = 300) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = (rng.random((images, 2)) < [0.3, 0.1]).astype(float)
    score = np.round(np.clip(0.4 * truth + rng.random((images, 2)) * 0.6, 0, 1), 2)  # with ties
    return truth, score


def test_sensitivity_is_scikit_learns_on_the_grid() -> None:
    truth, score = sample()
    for column, curve in enumerate(roc_curves(truth, score, resamples=20)):
        assert curve is not None
        alarms, found, _ = roc_curve(truth[:, column], score[:, column], drop_intermediate=False)
        assert np.allclose(curve.y, np.interp(GRID, alarms, found))
        assert np.trapezoid(curve.y, GRID) == pytest.approx(roc_auc_score(truth[:, column], score[:, column]), abs=0.01)
        assert ((curve.low <= curve.y + 1e-9) & (curve.y <= curve.high + 1e-9)).mean() > 0.95


def test_precision_is_scikit_learns_at_the_first_threshold_that_finds_enough() -> None:
    truth, score = sample(1)
    for column, curve in enumerate(precision_recall_curves(truth, score, resamples=5)):
        assert curve is not None
        precision, recall, _ = precision_recall_curve(truth[:, column], score[:, column])
        for share in (0.1, 0.5, 0.8, 1.0):
            first = np.flatnonzero(recall >= share - 1e-9)[-1]
            assert curve.y[round(share * 100)] == pytest.approx(precision[first])


def test_a_class_without_positives_has_no_curve() -> None:
    truth, score = sample()
    truth[:, 1] = 0
    assert [curve is None for curve in roc_curves(truth, score, resamples=5)] == [False, True]


def test_a_band_over_patients_is_wider_than_one_over_their_copied_images() -> None:
    truth, score = (np.repeat(table, 8, axis=0) for table in sample(images=40))
    patients = np.repeat(np.arange(40), 8)
    over_patients, over_images = (roc_curves(truth, score, groups, resamples=100)[0] for groups in (patients, None))
    assert over_patients is not None
    assert over_images is not None
    assert (over_patients.high - over_patients.low).mean() > 1.5 * (over_images.high - over_images.low).mean()


def test_reliability_counts_every_answer_once_and_reads_shares_off_the_bins() -> None:
    truth, score = sample()
    found = reliability(truth, score, resamples=20)
    assert found.answers.sum() == truth.size
    inside = (score > 0.3) & (score <= 0.4)
    assert found.share[3] == pytest.approx(truth[inside].mean())
    assert found.score[3] == pytest.approx(score[inside].mean())


def test_a_recall_of_nothing_is_read_where_something_is_found() -> None:
    truth, score = np.array([[0.0], [1.0], [1.0]]), np.array([[0.9], [0.5], [0.1]])
    found = precision_recall_curves(truth, score, resamples=5)[0]
    assert found is not None
    assert found.y[0] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("score", "bins", "message"),
    [
        ([[1.5], [-2.0]], 10, r"score holds 2 values that are outside \[0, 1\]"),
        ([[0.5], [0.2]], 0, "bins is 0; it must be at least 1"),
    ],
)
def test_reliability_takes_probabilities_and_bins_alone(score: list[list[float]], bins: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        reliability([[1], [0]], score, bins=bins)


def test_constant_scores_are_the_diagonal_and_the_share_of_positives() -> None:
    truth, score = np.array([[1], [0], [0], [0]]), np.full((4, 1), 0.3)
    roc, precision = roc_curves(truth, score, resamples=5)[0], precision_recall_curves(truth, score, resamples=5)[0]
    assert roc is not None
    assert precision is not None
    np.testing.assert_allclose(roc.y, GRID)
    assert set(precision.y) == {0.25}

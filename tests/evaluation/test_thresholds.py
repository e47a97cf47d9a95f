import numpy as np
import pytest
from hypothesis import given, settings
from sklearn.metrics import roc_curve

from acpl.evaluation import decide, sensitivity, specificity, youden_thresholds
from tests.evaluation.samples import multi_label, tables


def youden(truth: np.ndarray, score: np.ndarray, thresholds: np.ndarray | float) -> np.ndarray:
    yes = decide(score, thresholds)
    return sensitivity(truth, yes) + specificity(truth, yes) - 1


@pytest.mark.parametrize("levels", [None, 20, 3])
def test_no_threshold_of_scikit_learns_roc_curve_is_better(levels):
    truth, score = multi_label(0, levels=levels)
    found = youden(truth, score, youden_thresholds(truth, score))
    for c in range(truth.shape[1]):
        false_alarms, found_share, _ = roc_curve(truth[:, c], score[:, c])
        assert found[c] == pytest.approx((found_share - false_alarms).max(), abs=1e-12)


@given(tables)
@settings(max_examples=100, deadline=None)
def test_of_equally_good_thresholds_the_one_that_finds_most_is_taken(table):
    truth, score, _ = table
    thresholds = youden_thresholds(truth, score)
    for c, threshold in enumerate(thresholds):
        one, values = truth[:, [c]], score[:, [c]]
        levels = np.unique(values)
        gains = np.array([youden(one, values, level)[0] for level in levels])
        if np.isnan(threshold):
            assert len(set(one[:, 0])) == 1 or gains.max() == pytest.approx(0)
            continue
        lowest = levels[np.isclose(gains, gains.max())][0]
        np.testing.assert_array_equal(decide(values, threshold), values >= lowest)


def test_a_threshold_lies_halfway_between_yes_and_no():
    assert youden_thresholds([[0], [0], [1]], [[0.1], [0.2], [0.6]]) == pytest.approx([0.4])


def test_neighbouring_floats_are_parted():
    low, high = 0.5, np.nextafter(0.5, 1)
    thresholds = youden_thresholds([[0], [1]], [[low], [high]])
    np.testing.assert_array_equal(decide([[low], [high]], thresholds), [[False], [True]])


def test_scores_that_are_no_better_than_chance_set_no_threshold():
    assert np.isnan(youden_thresholds([[0, 0], [1, 1]], [[0.3, 0.9], [0.3, 0.1]])).all()


def test_a_class_with_one_kind_of_image_has_no_threshold():
    assert np.isnan(youden_thresholds([[0, 1], [0, 1]], [[0.3, 0.3], [0.4, 0.4]])).all()


def test_scores_however_far_apart_are_parted():
    largest = np.finfo(np.float64).max
    score = [[-largest], [largest]]
    thresholds = youden_thresholds([[0], [1]], score)
    assert np.isfinite(thresholds).all()
    np.testing.assert_array_equal(decide(score, thresholds), [[False], [True]])

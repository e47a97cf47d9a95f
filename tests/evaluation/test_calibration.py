import numpy as np
import pytest
from hypothesis import given, settings
from sklearn.calibration import calibration_curve

from acpl.evaluation import (
    calibration_bins,
    calibration_error,
    top_label_calibration_error,
    weighted_calibration_error,
)
from tests.evaluation.samples import multi_class, multi_label, tables


def expected_calibration_error(truth: np.ndarray, score: np.ndarray, bins: int) -> float:
    """scikit-learn's curve gives each filled bin's gap; a histogram of mirrored scores its size."""
    share, mean = calibration_curve(truth, score, n_bins=bins)
    sizes = np.histogram(1 - score, bins=bins, range=(0, 1))[0][::-1]
    return float(np.sum(sizes[sizes > 0] * np.abs(share - mean)) / len(truth))


@pytest.mark.parametrize("bins", [1, 4, 15])
def test_calibration_error_is_the_weighted_gap_of_scikit_learns_curve(bins):
    truth, score = multi_label(5)
    expected = [expected_calibration_error(truth[:, c], score[:, c], bins) for c in range(3)]
    np.testing.assert_allclose(calibration_error(truth, score, bins), expected, rtol=1e-12)


def test_top_label_calibration_error_asks_whether_the_arg_max_is_right():
    labels, truth, score = multi_class(6)
    right = score.argmax(axis=1) == labels
    found = top_label_calibration_error(truth, score, bins=10)
    assert found == pytest.approx(expected_calibration_error(right, score.max(axis=1), 10), rel=1e-12)


def test_a_score_on_an_edge_belongs_to_the_lower_bin():
    # Errors of opposite sign cancel within a bin and add up across two.
    assert calibration_error([[1], [0]], [[0.5], [0.5]], bins=2) == [0]
    assert calibration_error([[1], [0]], [[0.5], [0.25]], bins=2) == [0.125]
    assert calibration_error([[1], [0]], [[0.5], [0.75]], bins=2) == [0.625]


@pytest.mark.parametrize(("certain", "error"), [([[1.0], [0.0]], 0), ([[0.0], [1.0]], 1)])
def test_certainty_is_calibrated_when_right_and_wholly_off_when_wrong(certain, error):
    assert calibration_error([[1], [0]], certain) == [error]


@given(tables)
@settings(max_examples=60, deadline=None)
def test_an_integer_weight_is_that_many_copies_of_the_image(table):
    truth, score, weights = table
    score = (score + 3) / 6
    found = weighted_calibration_error(calibration_bins(truth, score), weights[None])[0]
    if weights.sum() == 0:
        assert np.isnan(found).all()
    else:
        copies = np.repeat(np.arange(len(truth)), weights)
        np.testing.assert_allclose(found, calibration_error(truth[copies], score[copies]), atol=1e-14)

"""Input that no figure may be made of is refused by name, count and place."""

import numpy as np
import pytest

from acpl.evaluation import (
    auroc,
    average_precision,
    balanced_accuracy,
    calibration_error,
    class_mean,
    decide,
    f1,
    sensitivity,
    specificity,
    top_label_calibration_error,
    youden_thresholds,
)

GOOD = np.array([[1, 0], [0, 1], [1, 1]])
SCORE = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.7]])


def with_value(table: np.ndarray, value: float) -> np.ndarray:
    changed = table.astype(float)
    changed[1:, 1] = value
    return changed


@pytest.mark.parametrize("metric", [auroc, average_precision, calibration_error, balanced_accuracy])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_score_that_is_not_finite_is_refused_with_count_and_place(metric, value):
    with pytest.raises(ValueError, match=r"score holds 2 values that are not finite.*row 1, class 1"):
        metric(GOOD, with_value(SCORE, value))


@pytest.mark.parametrize("metric", [auroc, average_precision, calibration_error, sensitivity, specificity, f1])
@pytest.mark.parametrize("value", [np.nan, -1, 2, 0.5])
def test_truth_other_than_0_and_1_is_refused_with_count_and_place(metric, value):
    with pytest.raises(ValueError, match=r"truth holds 2 values that are not 0 or 1.*row 1, class 1"):
        metric(with_value(GOOD, value), GOOD)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: auroc(GOOD, SCORE[:2]), r"score has shape \(2, 2\) and truth \(3, 2\)"),
        (lambda: f1(GOOD, GOOD[:, :1]), r"decisions has shape \(3, 1\) and truth \(3, 2\)"),
        (lambda: auroc(GOOD[:, 0], SCORE[:, 0]), r"truth has shape \(3,\)"),
        (lambda: auroc(np.zeros((0, 2)), np.zeros((0, 2))), r"truth has shape \(0, 2\)"),
        (lambda: sensitivity(GOOD, SCORE), "decisions holds 6 values that are not 0 or 1"),
        (lambda: balanced_accuracy(GOOD, SCORE), r"1 rows that are not one-hot.* 2 classes, at row 2"),
        (lambda: top_label_calibration_error(GOOD, SCORE), "not one-hot"),
        (
            lambda: calibration_error(GOOD, SCORE * 1.2),
            r"score holds 1 values that are outside \[0, 1\].*row 0",
        ),
        (lambda: calibration_error(GOOD, SCORE, bins=0), "bins is 0"),
        (lambda: decide(SCORE, "top"), "rule is 'top'"),
        (lambda: decide(SCORE, [0.5, 0.5, 0.5]), r"rule holds thresholds of shape \(3,\)"),
        (lambda: decide(SCORE, [0.5, np.nan]), "rule holds 1 thresholds that are NaN"),
        (lambda: decide([[np.nan]], "argmax"), "score holds 1 values that are not finite"),
        (lambda: youden_thresholds(GOOD, SCORE[:2]), r"score has shape \(2, 2\) and truth \(3, 2\)"),
        (lambda: class_mean([0.5], ["a", "b"]), r"values has shape \(1,\) for 2 names"),
    ],
)
def test_a_mistake_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()

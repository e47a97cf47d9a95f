import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, f1_score, recall_score

from acpl.evaluation import balanced_accuracy, binary_balanced_accuracy, decide, f1, sensitivity, specificity
from tests.evaluation.samples import multi_class, multi_label


@pytest.mark.parametrize("threshold", [0.5, 0.9, [0.2, 0.5, 0.8]])
def test_decision_figures_are_scikit_learns(threshold):
    truth, score = multi_label(2)
    yes = decide(score, threshold)
    np.testing.assert_allclose(sensitivity(truth, yes), recall_score(truth, yes, average=None))
    np.testing.assert_allclose(specificity(truth, yes), recall_score(~truth, ~yes, average=None))
    np.testing.assert_allclose(f1(truth, yes), f1_score(truth, yes, average=None, zero_division=0))


def test_f1_is_zero_when_no_positive_is_found_and_absent_when_there_is_none():
    truth, yes = [[1, 0, 0], [0, 0, 0]], [[0, 1, 0], [1, 0, 0]]
    np.testing.assert_array_equal(f1(truth, yes), [0, np.nan, np.nan])
    np.testing.assert_array_equal(sensitivity(truth, yes), [0, np.nan, np.nan])
    np.testing.assert_array_equal(specificity(truth, yes), [0, 0.5, 1])


def test_specificity_is_absent_without_negatives():
    assert np.isnan(specificity([[1], [1]], [[1], [0]])).all()


def test_argmax_marks_one_class_and_breaks_ties_downwards():
    found = decide([[0.1, 0.7, 0.7], [0.4, 0.4, 0.4], [0, 0, 1]], "argmax")
    np.testing.assert_array_equal(found, [[0, 1, 0], [1, 0, 0], [0, 0, 1]])


def test_a_score_on_its_threshold_is_a_yes():
    np.testing.assert_array_equal(decide([[0.5, 0.5]], [0.5, np.nextafter(0.5, 1)]), [[True, False]])


def test_balanced_accuracy_is_scikit_learns():
    labels, truth, score = multi_class(4)
    expected = balanced_accuracy_score(labels, score.argmax(axis=1))
    assert balanced_accuracy(truth, score) == pytest.approx(expected, rel=1e-13)


def test_balanced_accuracy_leaves_out_a_class_without_images():
    assert balanced_accuracy([[1, 0, 0], [0, 1, 0]], [[0.8, 0.1, 0.1], [0.1, 0.2, 0.7]]) == 0.5


def test_binary_balanced_accuracy_is_scikit_learns_of_each_class():
    truth, score = multi_label(3)
    yes = decide(score, 0.6)
    expected = [balanced_accuracy_score(truth[:, c], yes[:, c]) for c in range(truth.shape[1])]
    np.testing.assert_allclose(binary_balanced_accuracy(truth, yes), expected, rtol=1e-13)


def test_binary_balanced_accuracy_is_absent_where_one_half_of_it_is():
    assert np.isnan(binary_balanced_accuracy([[1, 0], [1, 0]], [[1, 0], [0, 1]])).all()

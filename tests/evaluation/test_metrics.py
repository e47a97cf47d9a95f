import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.stats import mannwhitneyu
from sklearn.calibration import calibration_curve
from sklearn.metrics import (
    average_precision_score,
    balanced_accuracy_score,
    f1_score,
    recall_score,
    roc_auc_score,
)

from acpl.evaluation import (
    auroc,
    average_precision,
    balanced_accuracy,
    calibration_error,
    class_mean,
    decide,
    defined_mean,
    f1,
    rank,
    sensitivity,
    specificity,
    top_label_calibration_error,
    weighted_auroc,
)

SHARES = (0.02, 0.3, 0.9)


def multi_label(seed: int, images: int = 200, levels: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Truth and probabilities (images, 3), both kinds of image in each class; few `levels` make many ties."""
    rng = np.random.default_rng(seed)
    truth = rng.random((images, len(SHARES))) < SHARES
    truth[0], truth[1] = True, False
    score = 1 / (1 + np.exp(-rng.normal(size=truth.shape) - truth))
    return truth, score if levels is None else np.round(score * levels) / levels


def multi_class(seed: int, images: int = 200, classes: int = 5) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(classes), rng.integers(classes, size=images - classes)])
    logits = rng.normal(size=(images, classes)) + np.eye(classes)[labels]
    return labels, np.eye(classes)[labels], np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)


tables = st.integers(2, 25).flatmap(
    lambda n: st.tuples(
        hnp.arrays(np.int64, (n, 2), elements=st.integers(0, 1)),
        hnp.arrays(np.float64, (n, 2), elements=st.integers(-3, 3).map(float)),
        hnp.arrays(np.int64, (n,), elements=st.integers(0, 4)),
    )
)


@pytest.mark.parametrize("levels", [None, 20, 3, 1])
@pytest.mark.parametrize("seed", range(3))
def test_auroc_and_average_precision_are_scikit_learns_with_and_without_ties(seed, levels):
    truth, score = multi_label(seed, levels=levels)
    np.testing.assert_allclose(auroc(truth, score), roc_auc_score(truth, score, average=None), rtol=1e-13)
    expected = average_precision_score(truth, score, average=None)
    np.testing.assert_allclose(average_precision(truth, score), expected, rtol=1e-13)


@pytest.mark.parametrize("levels", [None, 4])
def test_auroc_is_the_mann_whitney_statistic_per_pair(levels):
    truth, score = multi_label(7, levels=levels)
    for c, found in enumerate(auroc(truth, score)):
        positive, negative = score[truth[:, c], c], score[~truth[:, c], c]
        pairs = len(positive) * len(negative)
        assert found == pytest.approx(mannwhitneyu(positive, negative).statistic / pairs, rel=1e-13)


def test_multi_class_auroc_is_one_vs_rest():
    labels, truth, score = multi_class(1)
    expected = roc_auc_score(labels, score, multi_class="ovr", average=None)
    np.testing.assert_allclose(auroc(truth, score), expected, rtol=1e-13)


def test_constant_scores_rank_no_better_than_chance():
    truth = np.array([[1], [0], [0], [0]])
    assert auroc(truth, np.full((4, 1), 0.3)) == [0.5]
    assert average_precision(truth, np.full((4, 1), 0.3)) == [0.25]


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("images", [1, 5])
@pytest.mark.parametrize("metric", [auroc, average_precision])
def test_a_class_with_one_kind_of_image_has_no_ranking_figure_and_raises_no_warning(metric, images, label):
    truth = np.full((images, 1), label)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isnan(metric(truth, np.arange(images)[:, None])).all()


@given(tables)
@settings(max_examples=60, deadline=None)
def test_auroc_sees_only_the_order_of_scores(table):
    truth, score, _ = table
    np.testing.assert_array_equal(auroc(truth, score), auroc(truth, np.exp(score) + 7))


@given(tables)
@settings(max_examples=60, deadline=None)
def test_negated_scores_and_flipped_truth_each_mirror_auroc(table):
    truth, score, _ = table
    np.testing.assert_allclose(auroc(truth, -score), 1 - auroc(truth, score), atol=1e-15)
    np.testing.assert_allclose(auroc(1 - truth, score), 1 - auroc(truth, score), atol=1e-15)


@given(tables)
@settings(max_examples=100, deadline=None)
def test_an_integer_weight_is_that_many_copies_of_the_image(table):
    truth, score, weights = table
    found = weighted_auroc(rank(truth, score), weights[None])[0]
    if weights.sum() == 0:
        assert np.isnan(found).all()
    else:
        copies = np.repeat(np.arange(len(truth)), weights)
        np.testing.assert_array_equal(found, auroc(truth[copies], score[copies]))


def test_weighted_auroc_is_scikit_learns_with_sample_weight():
    truth, score = multi_label(3, levels=10)
    weights = np.random.default_rng(0).integers(5, size=(4, len(truth)))
    weights[:, :2] = 1  # both kinds of image in every class
    expected = [roc_auc_score(truth, score, average=None, sample_weight=row) for row in weights]
    np.testing.assert_allclose(weighted_auroc(rank(truth, score), weights), expected, rtol=1e-12)


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


def test_class_mean_names_what_it_leaves_out():
    assert class_mean([0.25, np.nan, 0.75], ["a", "b", "c"]) == (0.5, ("b",))
    mean, left_out = class_mean([np.nan, np.nan], ["a", "b"])
    assert np.isnan(mean)
    assert left_out == ("a", "b")


@given(hnp.arrays(np.float64, (3, 4), elements=st.sampled_from([0.0, 0.25, 0.5, 1.0, np.nan])))
def test_defined_mean_is_numpys_nanmean(values):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = np.nanmean(values, axis=1)
    np.testing.assert_allclose(defined_mean(values), expected)


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
        (lambda: class_mean([0.5], ["a", "b"]), r"values has shape \(1,\) for 2 names"),
    ],
)
def test_a_mistake_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()

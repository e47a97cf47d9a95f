import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.stats import mannwhitneyu
from sklearn.metrics import average_precision_score, roc_auc_score

from acpl.evaluation import auroc, average_precision, rank, weighted_auroc, weighted_ranking
from tests.evaluation.samples import multi_class, multi_label, tables


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
    found = weighted_ranking(rank(truth, score), weights[None])
    if weights.sum() == 0:
        assert np.isnan(found).all()
    else:
        copies = np.repeat(np.arange(len(truth)), weights)
        np.testing.assert_array_equal(found.auroc[0], auroc(truth[copies], score[copies]))
        expected = average_precision(truth[copies], score[copies])
        np.testing.assert_allclose(found.average_precision[0], expected, rtol=1e-13)


@pytest.mark.parametrize("levels", [None, 10, 3])
def test_weighted_figures_are_scikit_learns_with_sample_weight(levels):
    truth, score = multi_label(3, levels=levels)
    weights = np.random.default_rng(0).integers(5, size=(4, len(truth)))
    weights[:, :2] = 1  # both kinds of image in every class
    found = weighted_ranking(rank(truth, score), weights)
    for metric, values in ((roc_auc_score, found.auroc), (average_precision_score, found.average_precision)):
        expected = [metric(truth, score, average=None, sample_weight=row) for row in weights]
        np.testing.assert_allclose(values, expected, rtol=1e-12)
    np.testing.assert_array_equal(weighted_auroc(rank(truth, score), weights), found.auroc)


@pytest.mark.parametrize("levels", [None, 3])
def test_fractions_are_weights_too(levels):
    truth, score = multi_label(4, levels=levels)
    weights = np.random.default_rng(1).random((3, len(truth))) / 50
    found = weighted_ranking(rank(truth, score), weights)
    for metric, values in ((roc_auc_score, found.auroc), (average_precision_score, found.average_precision)):
        expected = [metric(truth, score, average=None, sample_weight=row) for row in weights]
        np.testing.assert_allclose(values, expected, rtol=1e-9)


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int16, np.int32])
def test_sums_of_weights_in_a_small_type_do_not_overflow(dtype):
    truth, score = multi_label(5, images=500)
    weights = np.full((1, 500), min(np.iinfo(dtype).max, 40_000) if dtype is not bool else True, dtype=dtype)
    found = weighted_ranking(rank(truth, score), weights)
    np.testing.assert_allclose(found.auroc[0], auroc(truth, score), rtol=1e-12)
    np.testing.assert_allclose(found.average_precision[0], average_precision(truth, score), rtol=1e-12)


@pytest.mark.parametrize("shape", [(1, 3), (1, 5), (4,)])
def test_weights_of_other_images_are_refused(shape):
    with pytest.raises(ValueError, match=r"weights has shape .*; it must be \(sets, 4\)"):
        weighted_auroc(rank([[1], [0], [1], [0]], [[0.9], [0.1], [0.4], [0.6]]), np.ones(shape, dtype=np.int64))

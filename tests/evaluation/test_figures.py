"""Every figure of a report, resampled, against scikit-learn on rows that are really repeated."""

import numpy as np
import pytest
from sklearn.metrics import (
    average_precision_score,
    balanced_accuracy_score,
    f1_score,
    recall_score,
    roc_auc_score,
)

from acpl.evaluation import (
    arg_max_figures,
    calibration_error,
    calibration_figures,
    decide,
    decision_figures,
    defined_mean,
    ranking_figures,
    resample,
    together,
    top_label_calibration_error,
)
from tests.evaluation.samples import multi_class
from tests.evaluation.test_bootstrap import assert_summarises, resampled_rows, study


def by_class(metric, truth: np.ndarray, other: np.ndarray, *, negatives_needed: bool) -> list[float]:
    there = truth.any(axis=0) & (~truth.all(axis=0) | (not negatives_needed))
    return [metric(truth[:, c], other[:, c]) if ok else np.nan for c, ok in enumerate(there)]


REFERENCES = {
    "auroc": lambda t, s, y: by_class(roc_auc_score, t, s, negatives_needed=True),
    "average_precision": lambda t, s, y: by_class(average_precision_score, t, s, negatives_needed=True),
    "sensitivity": lambda t, s, y: by_class(recall_score, t, y, negatives_needed=False),
    "specificity": lambda t, s, y: by_class(recall_score, ~t, ~y, negatives_needed=False),
    "f1": lambda t, s, y: by_class(f1_score, t, y, negatives_needed=False),
    "balanced_accuracy": lambda t, s, y: by_class(balanced_accuracy_score, t, y, negatives_needed=True),
}


@pytest.fixture(scope="module")
def resampled():
    truth, score, patients = study(5)
    score = (score - score.min()) / (score.max() - score.min())
    yes = decide(score, [0.4, 0.5, 0.6])
    statistic = together(ranking_figures(truth, score), decision_figures(truth, yes), calibration_figures(truth, score))
    found = resample(statistic, len(truth), patients, resamples=150, seed=6)
    return found, truth, score, yes, resampled_rows(patients, 150, seed=6)


@pytest.mark.parametrize("name", REFERENCES)
def test_a_figures_intervals_are_those_of_scikit_learn_on_repeated_rows(resampled, name):
    found, truth, score, yes, rows = resampled
    figure = REFERENCES[name]
    assert_summarises(found[name].interval(), np.array([figure(truth[r], score[r], yes[r]) for r in rows]))
    np.testing.assert_allclose(found[name].point, figure(truth, score, yes), atol=1e-12)


def test_the_calibration_error_is_that_of_repeated_rows(resampled):
    found, truth, score, _, rows = resampled
    figures = np.array([calibration_error(truth[r], score[r]) for r in rows])
    np.testing.assert_allclose(found["calibration_error"].draws, figures, atol=1e-12)
    np.testing.assert_allclose(found["calibration_error"].point, calibration_error(truth, score), atol=1e-12)


def test_arg_max_figures_are_those_of_repeated_rows():
    labels, truth, score = multi_class(3, images=60)
    groups = np.arange(60) // 4
    found = resample(arg_max_figures(truth, score), 60, groups, resamples=50, seed=1)
    rows = resampled_rows(groups, 50, seed=1)
    recalls = [balanced_accuracy_score(labels[r], score[r].argmax(axis=1)) for r in rows]
    np.testing.assert_allclose(defined_mean(found["balanced_accuracy"].draws), recalls, atol=1e-12)
    errors = [top_label_calibration_error(truth[r], score[r]) for r in rows]
    np.testing.assert_allclose(found["top_label_calibration_error"].draws[:, 0], errors, atol=1e-12)


def test_figures_together_keep_their_names_and_the_later_stands():
    one = together(lambda w: {"a": w * 1.0, "b": w * 2.0}, lambda w: {"b": w * 3.0})(np.ones((1, 1), dtype=np.int64))
    assert {name: float(value[0, 0]) for name, value in one.items()} == {"a": 1, "b": 3}


def test_the_difference_of_two_models_is_that_of_scores_on_the_same_rows():
    truth, a, patients = study(7)
    b = a + np.random.default_rng(8).normal(scale=0.7, size=a.shape)
    one, other = (resample(ranking_figures(truth, s), len(truth), patients, resamples=80, seed=9) for s in (a, b))
    rows = resampled_rows(patients, 80, seed=9)
    figure = REFERENCES["average_precision"]
    figures = np.array([np.subtract(figure(truth[r], b[r], None), figure(truth[r], a[r], None)) for r in rows])
    found = other["average_precision"].minus(one["average_precision"])
    assert_summarises(found, figures)
    assert found.point == pytest.approx(np.mean(np.subtract(figure(truth, b, None), figure(truth, a, None))))

"""p of a method behind the best, where there are few patients or nothing lies between the methods."""

import warnings

import numpy as np
import pytest

from acpl.evaluation import Resampled, least_p, needed_kinds, ranking_figures, resample
from acpl.experiments.standings import simultaneous


def judged(truth: np.ndarray, groups: np.ndarray, *, resamples: int = 400) -> list[Resampled]:
    """Three methods on the same images: one that is right, one that guesses, one that is wrong."""
    guess = np.random.default_rng(0).random(truth.shape)
    how = {"kinds": needed_kinds(truth), "resamples": resamples}
    scores = (truth + 0.0, guess, 1 - truth)
    return [resample(ranking_figures(truth, score), len(truth), groups, **how)["auroc"] for score in scores]


def behind(figures: list[Resampled]) -> dict[str, float]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return simultaneous(figures, {str(i): figures[i].less(figures[0]) for i in range(1, len(figures))})


@pytest.mark.parametrize("patients", [1, 2, 3, 5])
def test_few_patients_put_nobody_behind_for_certain(patients: int) -> None:
    truth = np.tile([1.0, 0.0], 30)[:, None]
    found = behind(judged(truth, np.arange(60) * patients // 60))
    assert found == {"1": least_p(patients), "2": least_p(patients)}
    assert min(behind(judged(truth, np.arange(60))).values()) < 0.01


def test_a_finding_that_one_of_many_patients_has_puts_nobody_behind() -> None:
    truth = np.zeros((60, 1))
    truth[7] = 1
    assert behind(judged(truth, np.arange(60))) == {"1": 1.0, "2": 1.0}


def test_the_mean_over_seeds_knows_its_patients() -> None:
    from acpl.experiments.standings import _mean

    truth = np.tile([1.0, 0.0], 30)[:, None]
    figures = [_mean([figure, figure]) for figure in judged(truth, np.zeros(60))]
    assert behind(figures) == {"1": 1.0, "2": 1.0}


def test_without_a_class_of_both_kinds_nothing_is_tested() -> None:
    found = behind(judged(np.ones((20, 1)), np.arange(20), resamples=9))
    assert np.isnan(list(found.values())).all()


def test_resamples_without_a_figure_are_left_out() -> None:
    rng = np.random.default_rng(3)
    draws = rng.normal(loc=[3.0, 0.0, 0.0], size=(200, 3))
    whole = [Resampled(np.array([float(m)]), draws[:, [i]]) for i, m in enumerate((3, 0, 0))]
    gaps = np.repeat(draws, 2, axis=0)
    gaps[::2] = np.nan
    with_gaps = [Resampled(one.point, gaps[:, [i]]) for i, one in enumerate(whole)]
    assert behind(with_gaps) == behind(whole)


@pytest.mark.parametrize("resamples", [1, 2, 50])
def test_what_rounding_leaves_is_no_difference(resamples: int) -> None:
    one = Resampled(np.array([0.3]), np.full((resamples, 1), 0.3), 40)
    other = Resampled(np.array([0.1 + 0.2]), np.full((resamples, 1), 0.1 + 0.2), 40)
    assert behind([one, other]) == {"1": 1.0}


def test_a_difference_that_is_the_same_in_every_resample_has_the_least_p_there_is() -> None:
    one, other = (Resampled(np.array([x]), np.full((99, 1), x), 40) for x in (0.9, 0.6))
    assert behind([one, other]) == {"1": 1 / 100}


def test_without_any_method_nothing_is_compared() -> None:
    assert simultaneous([], {}) == {}

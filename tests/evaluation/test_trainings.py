"""Intervals for other trainings on other patients: against the analysis of variance, SciPy, and the truth."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from acpl.evaluation import Resampled, mean_over_trainings, over_trainings
from acpl.evaluation.trainings import student_quantile, student_tail

Floats = NDArray[np.float64]
DEGREES = (0.3, 1, 1.5, 2, 2.7, 4, 10.3, 100, 1e4, 1e6, 9.9e6, 2e7, math.inf)


@pytest.mark.parametrize("degrees", DEGREES)
def test_student_s_t_is_scipy_s(degrees: float) -> None:
    close = 1e-4 if 1e7 <= degrees < math.inf else 1e-6  # from ten million on the normal distribution stands in for it
    for t in (-40, -1.7, 0, 1e-6, 0.01, 0.5, 1, 2, 3.3, 8):
        assert student_tail(t, degrees) == pytest.approx(stats.t.sf(t, degrees), rel=close)
    for share in (0.001, 0.025, 0.5, 0.6, 0.9, 0.975, 0.9995):
        assert student_quantile(share, degrees) == pytest.approx(stats.t.ppf(share, degrees), rel=1e-6, abs=1e-9)


def drawn(
    rng: np.random.Generator, patients: int, trainings: int, resamples: int, *, own: float, between: float
) -> Floats:
    """(resamples + 1, trainings): each training's mean over the patients, whose true mean is 0, and over resamples."""
    values = rng.normal(size=(patients, 1)) + own * rng.normal(size=(patients, trainings))
    values = values + between * rng.normal(size=trainings)
    weights = rng.multinomial(patients, np.full(patients, 1 / patients), size=resamples) / patients
    return np.concatenate([values.mean(axis=0, keepdims=True), weights @ values])


def test_it_is_the_analysis_of_two_modalities_by_readers_and_cases() -> None:
    """Obuchowski and Rockette's mean square of modality × reader and covariances, written as they have them."""
    rng = np.random.default_rng(0)
    readers, resamples = 4, 500
    first, second = np.split(drawn(rng, 60, 2 * readers, resamples, own=0.5, between=0.3), 2, axis=1)
    figures = np.stack([first[0], second[0]])  # (modalities, readers)
    residual = figures - figures.mean(axis=0) - figures.mean(axis=1, keepdims=True) + figures.mean()
    square = (residual**2).sum() / (readers - 1)
    covariance = np.cov(np.concatenate([first[1:], second[1:]], axis=1), rowvar=False)
    other_reader = ~np.eye(readers, dtype=bool)
    within = [covariance[:readers, :readers], covariance[readers:, readers:]]
    same_modality = np.mean([block[other_reader].mean() for block in within])
    across = np.mean([covariance[:readers, readers:][other_reader], covariance[readers:, :readers][other_reader]])
    shared = readers * max(same_modality - across, 0)
    error = math.sqrt(2 / readers * (square + shared))
    degrees = (square + shared) ** 2 / (square**2 / (readers - 1))

    found = over_trainings(first[0] - second[0], first[1:] - second[1:])
    assert found.degrees == pytest.approx(degrees)
    assert found.high - found.point == pytest.approx(stats.t.ppf(0.975, degrees) * error)
    assert found.p == pytest.approx(2 * stats.t.sf(abs(found.point) / error, degrees))


@pytest.mark.parametrize(("trainings", "own", "between"), [(3, 0.5, 0.3), (5, 1.0, 0.5), (5, 1.0, 0.0), (2, 0.2, 0.1)])
def test_it_holds_the_truth_about_as_often_as_it_says(trainings: int, own: float, between: float) -> None:
    rng = np.random.default_rng(trainings)
    held, by_patients_alone = [], []
    for _ in range(250):
        figures = drawn(rng, 100, trainings, 200, own=own, between=between)
        found = over_trainings(figures[0], figures[1:])
        held.append(found.low <= 0 <= found.high)
        low, high = np.quantile(figures[1:].mean(axis=1), [0.025, 0.975])
        by_patients_alone.append(low <= 0 <= high)
    assert np.mean(held) > 0.89
    if between > 0.2:  # what training does is beyond a bootstrap over patients
        assert np.mean(by_patients_alone) < 0.75


def test_nothing_is_surer_than_for_the_trainings_at_hand() -> None:
    """Where three trainings happen to agree, what the patients leave open is still there."""
    rng = np.random.default_rng(1)
    figures = drawn(rng, 50, 3, 2000, own=2.0, between=0.0)
    agreeing = over_trainings(np.full(3, 0.5), figures[1:])
    spread = figures[1:].mean(axis=1).std(ddof=1)
    assert agreeing.high - agreeing.low >= 2 * 1.959 * spread


def test_trainings_that_move_against_each_other_make_nothing_surer() -> None:
    noise = np.random.default_rng(5).normal(size=(1000, 1))
    points, draws = np.array([-1.0, 1.0]), np.concatenate([noise, -noise], axis=1)
    found = over_trainings(points, draws)
    assert found.degrees == 1
    assert found.high == pytest.approx(stats.t.ppf(0.975, 1))  # S²/2 = 1, and no common part below 0


def test_figures_of_classes_are_averaged_first_and_know_their_patients() -> None:
    rng = np.random.default_rng(6)
    draws = rng.normal(0.3, 0.01, size=(3, 50, 2))
    draws[1, :10, 1] = np.nan  # that class is undefined there: the mean is the other's
    figures = [Resampled(one.mean(axis=0), one, groups=3) for one in np.nan_to_num(draws, nan=0.3)]
    figures = [Resampled(figure.point, one, groups=3) for figure, one in zip(figures, draws, strict=True)]
    found = mean_over_trainings(figures)
    points = np.array([figure.point.mean() for figure in figures])
    assert found == over_trainings(points, np.nanmean(draws, axis=2).T, patients=3)
    assert found.p == 0.25
    assert math.isnan(mean_over_trainings([]).point)


def test_of_one_training_nothing_is_known_about_another() -> None:
    found = over_trainings(np.array([0.7]), np.array([[0.6], [0.8]]))
    assert found.point == 0.7
    assert all(math.isnan(value) for value in (found.low, found.high, found.p, found.degrees))
    assert found.unclear
    assert math.isnan(over_trainings(np.empty(0), np.empty((5, 0))).point)


def test_a_training_without_a_figure_leaves_nothing_to_say() -> None:
    draws = np.array([[0.1, 0.2], [0.3, 0.2], [0.2, 0.1]])
    assert math.isnan(over_trainings(np.array([0.1, np.nan]), draws).low)
    never = np.where([[True, False]] * 3, np.nan, draws)
    assert math.isnan(over_trainings(np.array([0.1, 0.2]), never).low)


def test_resamples_without_a_figure_are_left_out() -> None:
    rng = np.random.default_rng(2)
    figures = drawn(rng, 30, 3, 50, own=1.0, between=0.1)
    holes = np.concatenate([figures[1:], [[np.nan, 0.0, 0.0]]])
    assert over_trainings(figures[0], holes) == over_trainings(figures[0], figures[1:])


def test_trainings_that_never_differ_leave_the_patients_alone() -> None:
    draws = np.random.default_rng(3).normal(size=(4000, 1)).repeat(3, axis=1)
    found = over_trainings(np.zeros(3), draws)
    assert found.degrees > 1e6
    assert found.high == pytest.approx(1.96, rel=0.05)
    assert found.p == 1


def test_trainings_that_hardly_differ_are_taken_for_the_same() -> None:
    draws = np.random.default_rng(3).normal(size=(4000, 1)).repeat(2, axis=1)
    for apart in (1e-12, 1e-155, 5e-324):
        found = over_trainings(np.array([0.0, apart]), draws)
        assert found.high == pytest.approx(1.96, rel=0.05)


def test_what_never_varies_is_certain_but_for_the_number_of_patients() -> None:
    still = np.full((10, 3), 0.2)
    found = over_trainings(np.full(3, 0.2), still)
    assert (found.low, found.high, found.p) == pytest.approx((0.2, 0.2, 0.0))
    assert over_trainings(np.full(3, 0.2), still, patients=3).p == 0.25
    nothing = over_trainings(np.zeros(3), np.zeros((10, 3)))
    assert (nothing.low, nothing.high, nothing.p) == (0, 0, 1)


@given(shift=st.floats(-5, 5), scale=st.floats(0.1, 10), order=st.permutations(range(4)))
def test_it_moves_and_grows_with_its_figures_whatever_their_order(shift: float, scale: float, order: list[int]) -> None:
    figures = drawn(np.random.default_rng(4), 40, 4, 100, own=0.7, between=0.2)
    plain = over_trainings(figures[0], figures[1:])
    other = scale * figures[:, order] + shift
    found = over_trainings(other[0], other[1:])
    assert found.low == pytest.approx(scale * plain.low + shift, abs=1e-9)
    assert found.high == pytest.approx(scale * plain.high + shift, abs=1e-9)


@pytest.mark.parametrize(
    ("points", "draws", "level", "said"),
    [
        (np.zeros(2), np.zeros((5, 3)), 0.95, r"points has shape \(2,\) and draws \(5, 3\)"),
        (np.zeros((2, 2)), np.zeros((5, 2)), 0.95, "points has shape"),
        (np.zeros(2), np.zeros((5, 2)), 1.0, "level is 1.0"),
    ],
)
def test_what_does_not_fit_is_refused(points: Floats, draws: Floats, level: float, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        over_trainings(points, draws, level=level)

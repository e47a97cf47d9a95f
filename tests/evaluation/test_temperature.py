"""The temperature that probabilities are softened by."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import expit, log_softmax, logit, softmax

from acpl.evaluation import calibration_error, fit_temperature


def drawn(rng: np.random.Generator, said: np.ndarray, *, exclusive: bool) -> np.ndarray:
    """Truth that is as these probabilities have it."""
    if exclusive:
        classes = np.array([rng.choice(said.shape[1], p=row) for row in said])
        return np.eye(said.shape[1], dtype=int)[classes]
    return (rng.random(said.shape) < said).astype(int)


def loss(temperature: float, truth: np.ndarray, score: np.ndarray, *, exclusive: bool) -> float:
    """The cross-entropy with the targets that the docstring names, written out."""
    images, classes = truth.shape
    if exclusive:
        targets = (images * truth + 1 / classes) / (images + 1)
        return float(-(targets * log_softmax(np.log(score) / temperature, axis=1)).sum(axis=1).mean())
    positives = truth.sum(axis=0)
    targets = np.where(truth == 1, (positives + 1) / (positives + 2), 1 / (images - positives + 2))
    said = expit(logit(score) / temperature)
    return float(-(targets * np.log(said) + (1 - targets) * np.log1p(-said)).sum(axis=1).mean())


def by_scipy(truth: np.ndarray, score: np.ndarray, *, exclusive: bool) -> float:
    found = minimize_scalar(
        lambda power: loss(np.exp(power), truth, score, exclusive=exclusive),
        bounds=(np.log(0.02), np.log(50)),
        method="bounded",
        options={"xatol": 1e-10},
    )
    return float(np.exp(found.x))


@pytest.mark.parametrize("exclusive", [True, False])
@pytest.mark.parametrize("sharpened", [0.5, 1.0, 2.5])
def test_it_finds_how_much_too_sure_answers_are(exclusive: bool, sharpened: float) -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 1.5, (4000, 4))
    right, said = (softmax(scale * logits, axis=1) if exclusive else expit(scale * logits) for scale in (1, sharpened))
    truth = drawn(rng, right, exclusive=exclusive)
    found = fit_temperature(truth, said, exclusive=exclusive)
    assert found == pytest.approx(sharpened, rel=0.06)
    softened = softmax(np.log(said) / found, axis=1) if exclusive else expit(logit(said) / found)
    if sharpened != 1:
        assert calibration_error(truth, softened).mean() < 0.5 * calibration_error(truth, said).mean()


@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(2, 5), st.booleans())
@settings(max_examples=60, deadline=None)
def test_it_is_where_the_loss_is_least(seed: int, images: int, classes: int, exclusive: bool) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 3, (images, classes))
    score = softmax(logits, axis=1) if exclusive else expit(logits)
    truth = drawn(rng, np.full((images, classes), 1 / classes), exclusive=exclusive)
    found, expected = (fit(truth, score, exclusive=exclusive) for fit in (fit_temperature, by_scipy))
    assert 0.02 <= found <= 50
    # Where the loss is nearly flat the two may stop at other places, but neither is lower.
    assert loss(found, truth, score, exclusive=exclusive) <= loss(expected, truth, score, exclusive=exclusive) + 1e-9


@pytest.mark.parametrize("exclusive", [True, False])
def test_answers_that_say_nothing_stay_as_they_are(exclusive: bool) -> None:
    truth = np.eye(2, dtype=int)[[0, 1, 1]]
    assert fit_temperature(truth, np.full((3, 2), 0.5), exclusive=exclusive) == 1.0


def test_few_images_that_are_all_right_do_not_make_an_answer_certain() -> None:
    truth = np.eye(2, dtype=int)[[0, 1, 1]]
    said = np.where(truth == 1, 0.8, 0.2)
    found = fit_temperature(truth, said, exclusive=True)
    assert softmax(np.log(said) / found, axis=1)[0, 0] == pytest.approx((3 + 0.5) / 4)  # three right, and one of doubt
    surer = fit_temperature(np.repeat(truth, 100, axis=0), np.repeat(said, 100, axis=0), exclusive=True)
    assert surer < found


def test_always_wrong_is_softened_as_far_as_it_goes() -> None:
    truth = np.eye(2, dtype=int)[[0, 1] * 50]
    assert fit_temperature(truth, np.where(truth == 1, 0.1, 0.9), exclusive=True) == pytest.approx(50)


@pytest.mark.parametrize("exclusive", [True, False])
def test_a_probability_of_0_or_1_is_no_harm(exclusive: bool) -> None:
    truth = np.eye(2, dtype=int)[[0, 1, 1, 0]]
    found = fit_temperature(truth, [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0]], exclusive=exclusive)
    assert 1 < found <= 50


def test_a_finding_that_no_image_has_is_one_more_to_be_unsure_of() -> None:
    rng = np.random.default_rng(3)
    said = expit(rng.normal(-1, 2, (2000, 2)))
    truth = drawn(rng, said, exclusive=False)
    truth[:, 1] = 0
    assert fit_temperature(truth, said, exclusive=False) > fit_temperature(truth[:, :1], said[:, :1], exclusive=False)
    assert fit_temperature(truth[:1], said[:1], exclusive=False) == pytest.approx(
        by_scipy(truth[:1], said[:1], exclusive=False), rel=1e-3
    )


def test_what_is_no_probability_is_refused() -> None:
    with pytest.raises(ValueError, match="outside"):
        fit_temperature([[1, 0]], [[1.5, -0.5]], exclusive=True)
    with pytest.raises(ValueError, match="not finite"):
        fit_temperature([[1, 0]], [[np.nan, 0.5]], exclusive=False)
    with pytest.raises(ValueError, match="not one-hot"):
        fit_temperature([[1, 1]], [[0.5, 0.5]], exclusive=True)

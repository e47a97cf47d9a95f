"""What a patient's data say of each class, against SciPy's minimum of the written objective and scikit-learn."""

import math
from typing import Any

import hypothesis.strategies as st
import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, softmax
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from acpl.functional import add_evidence, clinical, clinical_evidence, fit_clinical, usual_shares

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")),
]
KINDS = pytest.mark.parametrize("exclusive", [True, False], ids=["exclusive", "any number"])
Floats = npt.NDArray[np.float64]


def patients(rows: int, width: int, classes: int, seed: int, *, exclusive: bool) -> tuple[Tensor, Tensor]:
    """Numbers, and labels that partly follow from them."""
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=(rows, width))
    scores = numbers @ rng.normal(size=(width, classes)) + rng.gumbel(size=(rows, classes)) - 0.5
    labels = np.eye(classes)[scores.argmax(axis=1)] if exclusive else (scores > 0)
    return torch.from_numpy(numbers), torch.from_numpy(labels.astype(np.float32))


def shares(labels: Floats, exclusive: bool) -> Floats:
    return (labels.sum(axis=0) + 0.5) / (len(labels) + (labels.shape[1] / 2 if exclusive else 1))


def objective(flat: Floats, numbers: Floats, labels: Floats, penalty: float, exclusive: bool) -> float:
    """The docstring's, written out."""
    weights = flat.reshape(numbers.shape[1] + 1, labels.shape[1])
    usual = shares(labels, exclusive)
    moved = numbers @ weights[:-1] + weights[-1]
    if exclusive:
        unexplained = -(labels * log_softmax(np.log(usual) + moved, axis=1)).sum()
    else:
        scores = np.log(usual / (1 - usual)) + moved
        unexplained = (np.logaddexp(0, scores) - labels * scores).sum()
    return float(unexplained + penalty / 2 * (weights**2).sum())


@KINDS
@pytest.mark.parametrize(
    ("rows", "width", "classes", "penalty"), [(60, 4, 3, 1.0), (8, 6, 4, 1.0), (40, 2, 2, 0.05), (25, 3, 5, 30.0)]
)
def test_the_weights_are_those_of_scipys_minimum(
    rows: int, width: int, classes: int, penalty: float, exclusive: bool
) -> None:
    numbers, labels = patients(rows, width, classes, rows, exclusive=exclusive)
    found = fit_clinical(numbers, labels, exclusive=exclusive, penalty=penalty)
    given_: Any = (numbers.numpy(), labels.double().numpy(), penalty, exclusive)
    start = np.zeros(found.numel())
    least = minimize(objective, start, args=given_, method="BFGS", options={"gtol": 1e-7, "maxiter": 5000})
    assert found.dtype == torch.float64
    assert objective(found.numpy().ravel(), *given_) <= least.fun + 1e-9
    np.testing.assert_allclose(found.numpy().ravel(), least.x, atol=1e-4)


@KINDS
def test_at_the_minimum_nothing_pulls_the_weights_anywhere(exclusive: bool) -> None:
    numbers, labels = patients(300, 12, 6, 1, exclusive=exclusive)
    weights = fit_clinical(numbers, labels, exclusive=exclusive, penalty=0.5).numpy()
    inputs, truth = np.c_[numbers.numpy(), np.ones(300)], labels.double().numpy()
    usual = shares(truth, exclusive)
    scores = inputs @ weights + (np.log(usual) if exclusive else np.log(usual / (1 - usual)))
    said = softmax(scores, axis=1) if exclusive else expit(scores)
    np.testing.assert_allclose(inputs.T @ (said - truth) + 0.5 * weights, 0, atol=1e-9)


@KINDS
def test_scikit_learn_says_the_same_where_its_free_constant_matters_as_little_as_the_penalty(exclusive: bool) -> None:
    numbers, labels = patients(400, 3, 3, 7, exclusive=exclusive)
    penalty = 1e-3
    weights = fit_clinical(numbers, labels, exclusive=exclusive, penalty=penalty)
    scores = numbers.numpy() @ weights[:-1].numpy() + weights[-1].numpy()
    usual = usual_shares(labels, exclusive=exclusive).numpy()
    theirs = LogisticRegression(C=1 / penalty, tol=1e-10, max_iter=10_000)
    if exclusive:
        found = softmax(scores + np.log(usual), axis=1)
        expected = theirs.fit(numbers.numpy(), labels.argmax(dim=1).numpy()).predict_proba(numbers.numpy())
    else:
        found = expit(scores + np.log(usual / (1 - usual)))
        columns = [theirs.fit(numbers.numpy(), one).predict_proba(numbers.numpy())[:, 1] for one in labels.T.numpy()]
        expected = np.stack(columns, axis=1)
    np.testing.assert_allclose(found, expected, atol=1e-4)


@settings(max_examples=25, deadline=None)
@given(rows=st.integers(1, 20), width=st.integers(0, 4), seed=st.integers(0, 10_000), exclusive=st.booleans())
def test_the_order_of_patients_does_not_matter(rows: int, width: int, seed: int, exclusive: bool) -> None:
    numbers, labels = patients(rows, width, 3, seed, exclusive=exclusive)
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(seed))
    weights = fit_clinical(numbers, labels, exclusive=exclusive)
    torch.testing.assert_close(
        fit_clinical(numbers[order], labels[order], exclusive=exclusive), weights, atol=1e-8, rtol=0
    )
    usual = usual_shares(labels, exclusive=exclusive)
    evidence = clinical_evidence(numbers, weights, usual, exclusive=exclusive)
    moved = clinical_evidence(numbers[order], weights, usual, exclusive=exclusive)
    torch.testing.assert_close(moved, evidence[order], atol=1e-12, rtol=0)


@KINDS
def test_evidence_on_the_usual_shares_is_what_the_regression_says(exclusive: bool) -> None:
    numbers, labels = patients(80, 3, 4, 2, exclusive=exclusive)
    weights, usual = fit_clinical(numbers, labels, exclusive=exclusive), usual_shares(labels, exclusive=exclusive)
    evidence = clinical_evidence(numbers, weights, usual, exclusive=exclusive)
    assert evidence.dtype == torch.float64
    found = add_evidence(usual.expand(80, -1), evidence, exclusive=exclusive).numpy()
    scores = numbers.numpy() @ weights[:-1].numpy() + weights[-1].numpy()
    shares_ = usual.numpy()
    whole = scores + (np.log(shares_) if exclusive else np.log(shares_ / (1 - shares_)))
    np.testing.assert_allclose(found, softmax(whole, axis=1) if exclusive else expit(whole), atol=1e-6)
    if exclusive:  # in odds against what is usual, not up to a constant
        np.testing.assert_allclose(np.exp(evidence.numpy()) @ np.diag(shares_), softmax(whole, axis=1), atol=1e-9)


@KINDS
def test_numbers_that_tell_the_classes_apart_are_heard_and_others_are_not(exclusive: bool) -> None:
    first = torch.tensor([1.0, -1.0]).repeat(50)
    numbers = torch.stack([first, torch.ones(100), torch.zeros(100)], dim=1)
    labels = torch.stack([first > 0, first < 0], dim=1).float()
    weights = fit_clinical(numbers, labels, exclusive=exclusive)
    assert weights[0, 0] > 1
    assert weights[0, 1] < -1
    assert weights[1:].abs().max() < 1e-6
    evidence = clinical_evidence(numbers[:2], weights, usual_shares(labels, exclusive=exclusive), exclusive=exclusive)
    assert evidence[0, 0] > 0 > evidence[1, 0]


@KINDS
@pytest.mark.parametrize("scale", [1.0, 100.0])
@pytest.mark.parametrize("penalty", [1.0, 1e-6])
def test_labels_that_are_told_apart_perfectly_have_a_minimum_too(exclusive: bool, scale: float, penalty: float) -> None:
    numbers = torch.linspace(-3, 3, 50, dtype=torch.float64)[:, None] * scale
    labels = torch.cat([numbers > 0, numbers < 0], dim=1).float()
    weights = fit_clinical(numbers, labels, exclusive=exclusive, penalty=penalty)
    given_: Any = (numbers.numpy(), labels.double().numpy(), penalty, exclusive)
    least = objective(weights.numpy().ravel(), *given_)
    assert weights.isfinite().all()
    for place in range(weights.numel()):
        for off in (-1e-3, 1e-3):
            beside = weights.numpy().ravel().copy()
            beside[place] += off
            assert objective(beside, *given_) > least


@KINDS
@pytest.mark.parametrize("seed", [313, 336])
def test_a_full_step_that_would_overshoot_is_shortened(exclusive: bool, seed: int) -> None:
    """On these, Newton's method alone runs away to weights of a hundred thousand."""
    rng = np.random.default_rng(seed)
    numbers = torch.from_numpy(rng.normal(size=(30, 5)) * 10)
    rare = torch.from_numpy((rng.random((30, 1)) < 0.1).astype(np.float32))
    labels = torch.cat([rare, 1 - rare], dim=1) if exclusive else rare
    assert fit_clinical(numbers, labels, exclusive=exclusive, penalty=1e-3).abs().max() < 30


@KINDS
def test_a_fit_ends_when_nothing_but_rounding_is_left(exclusive: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    newton = clinical._Problem.newton
    monkeypatch.setattr(clinical._Problem, "newton", lambda *given_: steps.append(1) or newton(*given_))
    for seed in range(8):
        for rows in (300, 1000):
            steps.clear()
            fit_clinical(*patients(rows, rows // 100 + 2, 3, seed, exclusive=exclusive), exclusive=exclusive)
            assert len(steps) <= 12


@KINDS
def test_a_class_without_a_case_or_without_another_is_moved_a_little_at_most(exclusive: bool) -> None:
    numbers = torch.randn(40, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    one = torch.zeros(40, 3)
    one[:, 0] = 1
    weights = fit_clinical(numbers, one, exclusive=exclusive)
    evidence = clinical_evidence(numbers, weights, usual_shares(one, exclusive=exclusive), exclusive=exclusive)
    assert evidence.abs().max() < 1.5  # the half case that is added is taken back in part, for all patients alike
    assert (evidence.amax(dim=0) - evidence.amin(dim=0)).max() < 1


@KINDS
def test_one_labelled_image_says_little(exclusive: bool) -> None:
    labels = torch.tensor([[1.0, 0.0]])
    weights = fit_clinical(torch.tensor([[1.0, -1.0]]), labels, exclusive=exclusive)
    assert 0 < weights[0, 0] < 0.5
    assert weights[0, 0] == pytest.approx(-float(weights[1, 0]))


@KINDS
def test_patients_who_are_all_alike_say_nothing_of_each_other(exclusive: bool) -> None:
    _, labels = patients(60, 1, 3, 4, exclusive=exclusive)
    numbers = torch.full((60, 2), 0.7)
    weights = fit_clinical(numbers, labels, exclusive=exclusive)
    evidence = clinical_evidence(numbers, weights, usual_shares(labels, exclusive=exclusive), exclusive=exclusive)
    assert torch.equal(evidence, evidence[:1].expand_as(evidence))
    assert evidence.abs().max() < 0.05  # what the half case that is added leaves


@KINDS
def test_without_numbers_the_usual_is_expected(exclusive: bool) -> None:
    _, labels = patients(30, 1, 3, 5, exclusive=exclusive)
    weights = fit_clinical(torch.zeros(30, 0), labels, exclusive=exclusive)
    assert weights.shape == (1, 3)
    usual = usual_shares(labels, exclusive=exclusive)
    assert clinical_evidence(torch.zeros(0, 0), weights, usual, exclusive=exclusive).shape == (0, 3)
    assert clinical_evidence(torch.zeros(2, 0), weights, usual, exclusive=exclusive).abs().max() < 0.1


@pytest.mark.parametrize("device", DEVICES)
@KINDS
def test_numbers_on_a_device_give_weights_here_and_evidence_there(device: str, exclusive: bool) -> None:
    numbers, labels = patients(30, 2, 3, 6, exclusive=exclusive)
    weights = fit_clinical(numbers.to(device), labels.to(device), exclusive=exclusive)
    assert weights.device.type == "cpu"
    assert torch.equal(weights, fit_clinical(numbers, labels, exclusive=exclusive))
    usual = usual_shares(labels, exclusive=exclusive)
    evidence = clinical_evidence(numbers.to(device), weights, usual, exclusive=exclusive)
    assert evidence.device.type == device
    torch.testing.assert_close(evidence.cpu(), clinical_evidence(numbers, weights, usual, exclusive=exclusive))


def test_what_cannot_be_fitted_is_refused_by_name() -> None:
    numbers, labels = torch.zeros(2, 1), torch.eye(2)
    nan = torch.full((2, 1), math.nan)
    for wrong, sentence in (
        ((numbers[:1], labels), r"numbers must have 2 rows, got shape \(1, 1\)"),
        ((numbers[:, 0], labels), "numbers must have 2 rows"),
        ((numbers[:0], labels[:0]), "labels must be .* at least one row"),
        ((numbers, labels[:, 0]), "labels must be"),
        ((nan, labels), "numbers must be finite"),
        ((numbers, nan), "labels must be finite"),
    ):
        with pytest.raises(ValueError, match=sentence):
            fit_clinical(*wrong, exclusive=True)
    for penalty in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="penalty must be above 0"):
            fit_clinical(numbers, labels, exclusive=True, penalty=penalty)
    with pytest.raises(ValueError, match=r"numbers must be \(samples, 1\), got shape \(2, 3\)"):
        clinical_evidence(torch.zeros(2, 3), torch.zeros(2, 2), torch.full((2,), 0.5), exclusive=True)

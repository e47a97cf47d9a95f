"""p of paired differences: against exact tests, and where there is little or nothing to test."""

from itertools import product

import numpy as np
import pytest

from acpl.evaluation import least_p, needed_kinds, paired_bootstrap_auroc, ranking_figures, resample, two_sided_p
from acpl.evaluation.significance import patients_with


@pytest.mark.parametrize("patients", [1, 2, 3, 6])
def test_the_least_p_is_that_of_changing_sides_patient_by_patient(patients: int) -> None:
    alike = np.ones(patients)
    sums = [abs(np.sum(alike * sides)) for sides in product((1, -1), repeat=patients)]
    assert least_p(patients) == np.mean([value >= abs(alike.sum()) for value in sums])


def test_the_least_p_of_very_many_or_unknown_patients_bounds_nothing() -> None:
    assert 0 < least_p(10**6) < 1e-100
    assert least_p(None) == 0


@pytest.mark.parametrize(
    ("draws", "patients", "p"),
    [
        ([0.1] * 99, 50, 2 / 100),  # all alike
        ([0.1] * 99, 3, 0.25),
        ([0.1] * 99, 1, 1.0),
        ([0.0] * 99, 50, 1.0),  # nothing lies between them
        ([-0.1] * 30 + [0.1] * 69, 50, 62 / 100),
        ([np.nan] * 60 + [0.1] * 39, 50, 2 / 40),  # counted over what is defined
    ],
)
def test_p_counts_the_draws_on_the_rarer_side(draws: list[float], patients: int, p: float) -> None:
    assert two_sided_p(np.array(draws), patients) == pytest.approx(p)
    assert two_sided_p(-np.array(draws), patients) == pytest.approx(p)


def test_p_of_what_is_never_defined_is_not_a_number() -> None:
    assert np.isnan(two_sided_p(np.full(9, np.nan), 1))


def test_patients_are_those_of_a_loop_over_classes() -> None:
    rng = np.random.default_rng(0)
    positive, group_of = rng.random((40, 5)) < [0.02, 0.1, 0.5, 0.95, 0.0], rng.integers(8, size=40)
    group_of[:8] = np.arange(8)
    rarer = []
    for c in range(5):
        kinds = [set(group_of[positive[:, c]].tolist()), set(group_of[~positive[:, c]].tolist())]
        rarer.append(min(kinds, key=len))
    bear, each = patients_with((positive, ~positive), group_of)
    assert each.tolist() == [len(one) for one in rarer]
    assert bear == len(set.union(*rarer))


def one_ill(images: int = 200) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A finding that one patient has and one that half have, and two models of which the second sees both better."""
    rng = np.random.default_rng(1)
    truth = np.zeros((images, 2))
    truth[0, 0], truth[::2, 1] = 1, 1
    poor = rng.random((images, 2))
    return truth, poor, poor + 2 * truth


def test_a_finding_of_one_patient_proves_nothing_and_one_of_many_does() -> None:
    truth, poor, good = one_ill()
    found = paired_bootstrap_auroc(truth, poor, good, resamples=199)
    assert found.per_class_p.tolist() == pytest.approx([1, 2 / 200])
    assert found.p == pytest.approx(2 / 200)
    alone = paired_bootstrap_auroc(truth[:, :1], poor[:, :1], good[:, :1], resamples=199)
    assert alone.p == 1
    assert alone.unclear


def test_each_class_has_the_p_that_it_would_have_alone() -> None:
    rng = np.random.default_rng(2)
    truth, a = rng.random((60, 3)) < 0.4, rng.random((60, 3))
    b, patients = a + 0.2 * truth, np.arange(60) // 3
    together = paired_bootstrap_auroc(truth, a, b, patients, resamples=99)
    for c in range(3):
        alone = paired_bootstrap_auroc(*(table[:, [c]] for table in (truth, a, b)), patients, resamples=99)
        assert together.per_class_p[c] == alone.p == alone.per_class_p[0]


def test_the_healthy_bear_on_specificity_and_the_ill_on_sensitivity() -> None:
    truth, _, _ = one_ill(12)
    kinds = needed_kinds(truth)
    counts = {name: patients_with(tables, np.arange(12))[1].tolist() for name, tables in kinds.items()}
    assert counts["sensitivity"] == [1, 6]
    assert counts["specificity"] == [11, 6]
    assert counts["auroc"] == counts["balanced_accuracy"] == [1, 6]
    figure = resample(ranking_figures(truth, truth), 12, kinds=kinds, resamples=5)["auroc"]
    assert figure.groups == 6  # the one with the rare finding is among them
    assert figure.column_groups is not None
    assert figure.column_groups.tolist() == [1, 6]

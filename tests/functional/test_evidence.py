"""What is known beside the image, against loops over plain numbers."""

import math

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from torch import Tensor

from acpl.functional import add_evidence, group_label_evidence, share_answers, share_known_answers, usual_shares

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")),
]
KINDS = pytest.mark.parametrize("exclusive", [True, False], ids=["exclusive", "any number"])
sizes = {"samples": st.integers(0, 12), "classes": st.integers(1, 5), "seed": st.integers(0, 10_000)}


def answers(samples: int, classes: int, seed: int, *, exclusive: bool) -> Tensor:
    scores = torch.randn(samples, classes, generator=torch.Generator().manual_seed(seed)) * 2
    return torch.softmax(scores, dim=1) if exclusive else torch.sigmoid(scores)


def numbers(samples: int, classes: int, seed: int) -> Tensor:
    return torch.randn(samples, classes, generator=torch.Generator().manual_seed(seed + 1)) * 2


def whose(samples: int, groups: int, seed: int) -> Tensor:
    return torch.randint(-2, groups, (samples,), generator=torch.Generator().manual_seed(seed + 2))


def by_odds(probabilities: list[float], evidence: list[float], exclusive: bool) -> list[float]:
    """Bayes' rule for one sample: odds times exp(evidence)."""
    if exclusive:
        weights = [p * math.exp(e) for p, e in zip(probabilities, evidence, strict=True)]
        return [weight / sum(weights) for weight in weights]
    odds = [p / (1 - p) * math.exp(e) for p, e in zip(probabilities, evidence, strict=True)]
    return [one / (1 + one) for one in odds]


# Evidence on an answer.


@pytest.mark.parametrize("device", DEVICES)
@KINDS
def test_evidence_multiplies_the_odds(device: str, exclusive: bool) -> None:
    said, evidence = answers(40, 4, 0, exclusive=exclusive), numbers(40, 4, 0)
    found = add_evidence(said.to(device), evidence.to(device), exclusive=exclusive)
    expected = [by_odds(p, e, exclusive) for p, e in zip(said.tolist(), evidence.tolist(), strict=True)]
    assert found.dtype == torch.float32
    assert found.device.type == device
    np.testing.assert_allclose(found.cpu().numpy(), expected, atol=2e-6)


@settings(max_examples=40, deadline=None)
@given(**sizes, exclusive=st.booleans())
def test_no_evidence_changes_no_bit(samples: int, classes: int, seed: int, exclusive: bool) -> None:
    said = answers(samples, classes, seed, exclusive=exclusive)
    assert torch.equal(add_evidence(said, torch.zeros_like(said), exclusive=exclusive), said)


@settings(max_examples=40, deadline=None)
@given(**sizes, exclusive=st.booleans())
def test_evidence_that_is_taken_back_leaves_the_answer(samples: int, classes: int, seed: int, exclusive: bool) -> None:
    said, evidence = answers(samples, classes, seed, exclusive=exclusive), numbers(samples, classes, seed).clamp(-3, 3)
    said = said.clamp(0.02, 0.98)  # beyond, float32 has too few places near 1 to go there and back
    said = said / said.sum(dim=1, keepdim=True) if exclusive else said
    there = add_evidence(said, evidence, exclusive=exclusive)
    torch.testing.assert_close(add_evidence(there, -evidence, exclusive=exclusive), said, atol=3e-5, rtol=0)


@settings(max_examples=40, deadline=None)
@given(**sizes, exclusive=st.booleans())
def test_evidence_goes_with_its_sample(samples: int, classes: int, seed: int, exclusive: bool) -> None:
    said, evidence = answers(samples, classes, seed, exclusive=exclusive), numbers(samples, classes, seed)
    order = torch.randperm(samples, generator=torch.Generator().manual_seed(seed))
    moved = add_evidence(said[order], evidence[order], exclusive=exclusive)
    torch.testing.assert_close(moved, add_evidence(said, evidence, exclusive=exclusive)[order], atol=1e-6, rtol=1e-6)


@settings(max_examples=40, deadline=None)
@given(**sizes)
def test_classes_that_exclude_each_other_add_up_to_one(samples: int, classes: int, seed: int) -> None:
    found = add_evidence(
        answers(samples, classes, seed, exclusive=True), numbers(samples, classes, seed), exclusive=True
    )
    torch.testing.assert_close(found.sum(dim=1), torch.ones(samples))


def test_the_same_evidence_for_all_exclusive_classes_says_nothing() -> None:
    said = answers(9, 4, 3, exclusive=True)
    torch.testing.assert_close(add_evidence(said, torch.full_like(said, 1.7), exclusive=True), said)


def test_a_class_without_evidence_stays_as_it_is_beside_one_that_has_some() -> None:
    said = torch.tensor([[0.1, 1e-9, 1.0, 0.7]])
    found = add_evidence(said, torch.tensor([[2.0, 0.0, 0.0, 0.0]]), exclusive=False)
    assert torch.equal(found[:, 1:], said[:, 1:])
    assert found[0, 0] > said[0, 0]


@KINDS
def test_answers_that_differ_are_not_made_alike(exclusive: bool) -> None:
    """An image that is surer stays so, however sure both are: what ranks them is not lost."""
    least = torch.tensor([1e-30, 1e-20, 1e-12, 1e-9, 1e-8, 1e-7, 1e-3])
    said = torch.stack([least, 1 - least], dim=1)
    for sign in (1.0, -1.0):
        found = add_evidence(said, torch.tensor([sign, 0.0]).expand_as(said), exclusive=exclusive)[:, 0]
        assert (found[1:] > found[:-1]).all()
        np.testing.assert_allclose(found, least * math.exp(sign), rtol=2e-3)


@KINDS
def test_what_is_certain_can_still_be_moved_and_nothing_becomes_nan(exclusive: bool) -> None:
    said = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    moved = add_evidence(said, torch.tensor([[200.0, -200.0], [0.0, 0.0]]), exclusive=exclusive)
    assert moved[0, 0] > 0.99
    assert moved[0, 1] < 0.01
    assert torch.equal(moved[1], said[1])
    for size in (1e4, 1e30):
        extreme = add_evidence(said, torch.tensor([[size, -size], [-size, size]]), exclusive=exclusive)
        assert torch.equal(extreme, torch.tensor([[1.0, 0.0], [0.0, 1.0]]))


@KINDS
def test_no_samples_get_no_answers(exclusive: bool) -> None:
    none = torch.zeros(0, 3)
    assert add_evidence(none, none, exclusive=exclusive).shape == (0, 3)
    assert share_answers(none, torch.zeros(0, dtype=torch.int64), 0.5, exclusive=exclusive).shape == (0, 3)


def test_evidence_of_another_shape_is_refused() -> None:
    for said, evidence in ((torch.rand(3, 2), torch.rand(3, 1)), (torch.rand(3), torch.rand(3))):
        with pytest.raises(ValueError, match="evidence must be of the probabilities' shape"):
            add_evidence(said, evidence, exclusive=True)


# How common classes are.


@KINDS
def test_usual_shares_are_never_nought_or_one(exclusive: bool) -> None:
    for labels in ([[1.0, 0.0]], [[1.0, 0.0]] * 7, [[0.0, 1.0], [1.0, 0.0]]):
        found = usual_shares(torch.tensor(labels), exclusive=exclusive)
        number = len(labels)
        counts = [sum(row[place] for row in labels) for place in range(2)]
        assert found.dtype == torch.float64
        assert found.tolist() == pytest.approx([(count + 0.5) / (number + 1) for count in counts])
    assert usual_shares(torch.zeros(0, 4), exclusive=exclusive).tolist() == [0.25 if exclusive else 0.5] * 4
    assert float(usual_shares(torch.eye(5), exclusive=True).sum()) == pytest.approx(1)


# A patient's labels.


def by_hand(labels: Tensor, theirs: Tensor, groups: Tensor, strength: float, exclusive: bool) -> list[list[float]]:
    """The formula in the docstring, sample by sample."""
    usual, found = usual_shares(labels, exclusive=exclusive).tolist(), []
    for group in groups.tolist():
        rows = [row for row, whose in zip(labels.tolist(), theirs.tolist(), strict=True) if whose == group]
        line = []
        for place, share in enumerate(usual):
            likely = (sum(row[place] for row in rows) + strength * share) / (len(rows) + strength)
            odds = likely / share if exclusive else likely / (1 - likely) * (1 - share) / share
            line.append(math.log(odds))
        found.append(line)
    return found


@settings(max_examples=60, deadline=None)
@given(
    labelled=st.integers(1, 15),
    samples=st.integers(0, 12),
    classes=st.integers(1, 4),
    strength=st.sampled_from([0.1, 1.0, 2.5, 1000.0]),
    seed=st.integers(0, 10_000),
    exclusive=st.booleans(),
)
def test_a_patients_labels_are_the_formula(
    labelled: int, samples: int, classes: int, strength: float, seed: int, exclusive: bool
) -> None:
    rng = np.random.default_rng(seed)
    rows = np.eye(classes)[rng.integers(0, classes, labelled)] if exclusive else rng.integers(0, 2, (labelled, classes))
    labels = torch.from_numpy(rows).float()
    theirs, groups = whose(labelled, 4, seed), whose(samples, 6, seed + 3)
    found = group_label_evidence(labels, theirs, groups, strength, exclusive=exclusive)
    expected = np.array(by_hand(labels, theirs, groups, strength, exclusive)).reshape(samples, classes)
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found, expected, atol=1e-5)
    strangers = ~torch.isin(groups, theirs)
    assert (found[strangers] == 0).all()


@pytest.mark.parametrize("device", DEVICES)
@KINDS
def test_a_patients_labels_on_the_device(device: str, exclusive: bool) -> None:
    labels, theirs, groups = torch.eye(3).repeat(3, 1), whose(9, 4, 0), whose(7, 6, 5)
    found = group_label_evidence(labels.to(device), theirs.to(device), groups.to(device), 2.0, exclusive=exclusive)
    assert found.device.type == device
    np.testing.assert_allclose(found.cpu(), by_hand(labels, theirs, groups, 2.0, exclusive), atol=1e-5)


@KINDS
def test_a_patient_with_all_labels_alike_leaves_nothing_impossible_or_certain(exclusive: bool) -> None:
    labels = torch.tensor([[1.0, 0.0]] * 6)
    groups = torch.zeros(6, dtype=torch.int64)
    for strength in (1e-30, 1e-9, 1.0, 1e9):
        found = group_label_evidence(labels, groups, groups[:1], strength, exclusive=exclusive)
        assert found.isfinite().all()
        assert found[0, 0] >= 0 >= found[0, 1]


def test_the_more_images_the_more_they_weigh_and_the_more_strength_the_less() -> None:
    labels = torch.tensor([[1.0]] * 4 + [[0.0]] * 8)
    theirs = torch.tensor([1, 2, 2, 2] + [3] * 8)
    groups = torch.tensor([1, 2, 3])
    found = group_label_evidence(labels, theirs, groups, 1.0, exclusive=False)[:, 0]
    assert found[1] > found[0] > 0 > found[2]
    assert (group_label_evidence(labels, theirs, groups, 10.0, exclusive=False)[:, 0].abs() < found.abs()).all()


def test_wrong_labels_groups_and_strength_are_refused_by_name() -> None:
    labels, groups = torch.eye(2), torch.tensor([0, 1])
    for wrong in (torch.zeros(0, 2), torch.zeros(2)):
        with pytest.raises(ValueError, match="labels must be"):
            group_label_evidence(wrong, groups, groups, 1.0, exclusive=True)
    with pytest.raises(ValueError, match="label_groups must have 2 rows, got 1"):
        group_label_evidence(labels, groups[:1], groups, 1.0, exclusive=True)
    for strength in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="strength must be above 0"):
            group_label_evidence(labels, groups, groups, strength, exclusive=True)


# Answers that a patient's images share.


@pytest.mark.parametrize("device", DEVICES)
@KINDS
@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_an_answer_is_mixed_with_its_groups_mean(device: str, exclusive: bool, weight: float) -> None:
    said, groups = answers(30, 3, 1, exclusive=exclusive), whose(30, 9, 1)
    found = share_answers(said.to(device), groups.to(device), weight, exclusive=exclusive)
    odds = said.double().log() if exclusive else torch.logit(said.double())
    for row, group in enumerate(groups.tolist()):
        mean = odds[groups == group].mean(dim=0)
        mixed = (1 - weight) * odds[row] + weight * mean
        expected = torch.softmax(mixed, dim=0) if exclusive else torch.sigmoid(mixed)
        torch.testing.assert_close(found[row].cpu(), expected.float(), atol=2e-6, rtol=0)
    assert found.device.type == device


@settings(max_examples=60, deadline=None)
@given(**sizes | {"samples": st.integers(9, 40)}, exclusive=st.booleans())
def test_with_weight_one_a_group_has_one_answer_to_the_bit(
    samples: int, classes: int, seed: int, exclusive: bool
) -> None:
    groups = whose(samples, 2, seed)
    found = share_answers(answers(samples, classes, seed, exclusive=exclusive), groups, 1.0, exclusive=exclusive)
    for group in groups.unique():
        own = found[groups == group]
        assert torch.equal(own, own[:1].expand_as(own))


@settings(max_examples=40, deadline=None)
@given(**sizes, weight=st.floats(0, 1), exclusive=st.booleans())
def test_images_without_another_of_their_group_keep_their_bits(
    samples: int, classes: int, seed: int, weight: float, exclusive: bool
) -> None:
    said, groups = answers(samples, classes, seed, exclusive=exclusive), whose(samples, 8, seed)
    found = share_answers(said, groups, weight, exclusive=exclusive)
    for row, group in enumerate(groups.tolist()):
        if weight == 0 or int((groups == group).sum()) == 1:
            assert torch.equal(found[row], said[row])


@settings(max_examples=40, deadline=None)
@given(**sizes, weight=st.floats(0, 1), exclusive=st.booleans())
def test_shared_answers_go_with_their_images(
    samples: int, classes: int, seed: int, weight: float, exclusive: bool
) -> None:
    said, groups = answers(samples, classes, seed, exclusive=exclusive), whose(samples, 3, seed)
    order = torch.randperm(samples, generator=torch.Generator().manual_seed(seed))
    whole = share_answers(said, groups, weight, exclusive=exclusive)
    moved = share_answers(said[order], groups[order], weight, exclusive=exclusive)
    torch.testing.assert_close(moved, whole[order], atol=1e-6, rtol=0)
    if exclusive:
        torch.testing.assert_close(whole.sum(dim=1), torch.ones(samples))


@settings(max_examples=60, deadline=None)
@given(**sizes, weight=st.floats(0.01, 1), exclusive=st.booleans(), shown=st.floats(0, 1))
@example(samples=7, classes=1, seed=1, weight=1.0, exclusive=False, shown=0.5)
@example(samples=12, classes=3, seed=1, weight=0.5, exclusive=True, shown=0.5)
def test_answers_that_there_are_not_are_neither_heard_nor_changed(
    samples: int, classes: int, seed: int, weight: float, exclusive: bool, shown: float
) -> None:
    said, groups = answers(samples, classes, seed, exclusive=exclusive), whose(samples, 3, seed)
    known = torch.rand(samples, generator=torch.Generator().manual_seed(seed)) < shown
    said[~known] = 0.0
    numbered = groups.unique(return_inverse=True)[1]
    found = share_known_answers(said, known, numbered, len(groups.unique()), weight, exclusive=exclusive)
    alone = share_answers(said[known], groups[known], weight, exclusive=exclusive)
    torch.testing.assert_close(found[known], alone, atol=1e-6, rtol=0)
    assert torch.equal(found[~known], said[~known])


@KINDS
def test_images_of_one_group_that_say_the_same_keep_their_answer(exclusive: bool) -> None:
    said = torch.tensor([[0.25, 0.75]] * 5)
    found = share_answers(said, torch.zeros(5, dtype=torch.int64), 0.7, exclusive=exclusive)
    torch.testing.assert_close(found, said)


@KINDS
def test_one_certain_image_does_not_speak_for_its_whole_group(exclusive: bool) -> None:
    said = torch.tensor([[1.0, 0.0], [0.001, 0.999], [0.001, 0.999], [0.001, 0.999]])
    found = share_answers(said, torch.zeros(4, dtype=torch.int64), 1.0, exclusive=exclusive)
    assert found.isfinite().all()
    assert (found[:, 1] > 0.7).all()


def test_wrong_groups_weights_and_shapes_are_refused_by_name() -> None:
    said, groups = torch.rand(3, 2), torch.zeros(3, dtype=torch.int64)
    with pytest.raises(ValueError, match="groups must have 3 rows, got 2"):
        share_answers(said, groups[:2], 0.5, exclusive=True)
    for weight in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match=r"weight must be in \[0, 1\]"):
            share_answers(said, groups, weight, exclusive=True)
    with pytest.raises(ValueError, match=r"probabilities must be \(samples, classes\)"):
        share_answers(said[:, 0], groups, 0.5, exclusive=True)

"""The phantoms: the same patient always looks the same, rare is rare, and a finding can be seen."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from acpl.data.phantoms import (
    CHEST_FINDINGS,
    LESION_CLASSES,
    Phantoms,
    chest_labels,
    draw_chest,
    draw_lesions,
    lesion_labels,
    reported_findings,
    reported_lesions,
)
from acpl.data.phantoms.chest import render_chest
from acpl.data.phantoms.chest_patients import chest_scenes
from acpl.data.phantoms.lesions import lesion_scenes, render_lesions
from acpl.data.sources.phantoms import PhantomName, PhantomSource

Draw = Callable[..., Phantoms]
BOTH = pytest.mark.parametrize("draw", [draw_chest, draw_lesions])
BOTH_LABELS = pytest.mark.parametrize(
    ("draw", "labels_of"), [(draw_chest, chest_labels), (draw_lesions, lesion_labels)]
)


def same(first: Phantoms, second: Phantoms) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def of(drawn: Phantoms, patients: list[int]) -> Phantoms:
    rows = np.isin(drawn.patients, patients)
    return Phantoms(drawn.images[rows], drawn.labels[rows], drawn.patients[rows])


@pytest.mark.parametrize(("draw", "channels", "classes"), [(draw_chest, 1, 8), (draw_lesions, 3, 7)])
@pytest.mark.parametrize("size", [32, 50])
def test_shapes_and_types_are_as_promised(draw: Draw, channels: int, classes: int, size: int) -> None:
    drawn = draw(range(5), size=size)
    count = len(drawn.patients)
    assert drawn.images.shape == (count, channels, size, size)
    assert drawn.labels.shape == (count, classes)
    assert (drawn.images.dtype, drawn.labels.dtype, drawn.patients.dtype) == (np.uint8, np.uint8, np.int64)
    assert set(np.unique(drawn.labels)) <= {0, 1}
    assert draw(range(5)).images.shape[-2:] == (64, 64)


@BOTH
def test_nobody_gives_no_images(draw: Draw) -> None:
    drawn = draw([], size=32)
    assert drawn.images.shape[0] == drawn.labels.shape[0] == drawn.patients.shape[0] == 0


@BOTH
def test_the_same_seed_draws_the_same_and_another_does_not(draw: Draw) -> None:
    once = draw(range(6), size=32, seed=3)
    assert same(once, draw(range(6), size=32, seed=3))
    other = draw(range(6), size=32, seed=4)
    assert not np.array_equal(once.images[0], other.images[0])


@BOTH
def test_a_patient_is_the_same_whoever_else_is_drawn(draw: Draw) -> None:
    # 250 patients of 32 pixels are more than one batch
    many = draw(range(250), size=32, seed=1)
    assert same(draw(range(10), size=32, seed=1), of(many, list(range(10))))
    assert same(draw([7], size=32, seed=1), of(many, [7]))
    assert same(draw([3, 199, 240], size=32, seed=1), of(many, [3, 199, 240]))


@settings(max_examples=15, deadline=None)
@given(patients=st.sets(st.integers(0, 10**6), min_size=1, max_size=5), seed=st.integers(0, 2**40))
def test_any_patient_alone_is_as_in_company(patients: set[int], seed: int) -> None:
    together = sorted(patients)
    for draw in (draw_chest, draw_lesions):
        drawn = draw(together, size=33, seed=seed)
        assert same(draw(together[:1], size=33, seed=seed), of(drawn, together[:1]))


@BOTH
def test_global_random_numbers_are_neither_read_nor_changed(draw: Draw) -> None:
    np.random.seed(0)  # noqa: NPY002
    torch.manual_seed(0)
    before, torch_before = np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    first = draw(range(4), size=32)
    after = np.random.get_state()  # noqa: NPY002
    assert np.array_equal(before[1], after[1])
    assert before[2:] == after[2:]
    assert torch.equal(torch_before, torch.get_rng_state())
    np.random.seed(99)  # noqa: NPY002
    assert same(first, draw(range(4), size=32))


@BOTH_LABELS
def test_the_table_without_drawing_is_the_drawn_one(draw: Draw, labels_of: Callable[..., object]) -> None:
    drawn = draw(range(2, 40), size=32, seed=5)
    labels, patients = labels_of(range(2, 40), seed=5)  # type: ignore[misc]
    assert np.array_equal(labels, drawn.labels)
    assert np.array_equal(patients, drawn.patients)


@pytest.mark.parametrize("labels_of", [chest_labels, lesion_labels])
def test_patients_have_one_to_four_images_in_ascending_order(labels_of: Callable[..., object]) -> None:
    _, patients = labels_of(range(2000), seed=0)  # type: ignore[misc]
    numbers, counts = np.unique(patients, return_counts=True)
    assert np.array_equal(numbers, np.arange(2000))
    assert set(counts) == {1, 2, 3, 4}
    assert np.all(np.diff(patients) >= 0)


def test_chest_findings_are_as_rare_as_promised() -> None:
    labels, _ = chest_labels(range(6000), seed=0)
    promised = [0.16, 0.13, 0.09, 0.08, 0.06, 0.05, 0.03, 0.02]
    assert len(CHEST_FINDINGS) == len(promised)
    np.testing.assert_allclose(labels.mean(0), promised, atol=0.015)
    assert np.mean(labels.sum(1) == 0) == pytest.approx(0.55, abs=0.03)


def test_chest_findings_come_together_more_than_by_chance() -> None:
    labels, _ = chest_labels(range(6000), seed=0)
    effusion, large_heart = (labels[:, CHEST_FINDINGS.index(name)] == 1 for name in ("Effusion", "Cardiomegaly"))
    assert effusion[large_heart].mean() > 1.5 * effusion[~large_heart].mean()


def test_chest_findings_mostly_persist_in_a_patient_yet_some_vary() -> None:
    labels, patients = chest_labels(range(3000), seed=0)
    follows = patients[1:] == patients[:-1]
    stayed = labels[1:][follows & (labels[:-1, 0] == 1), 0].mean()
    assert 0.6 < stayed < 0.95


def test_lesions_have_one_class_as_frequent_as_promised_and_it_is_the_patients() -> None:
    labels, patients = lesion_labels(range(6000), seed=0)
    promised = [0.111, 0.669, 0.051, 0.033, 0.110, 0.012, 0.014]
    assert len(LESION_CLASSES) == len(promised)
    assert np.all(labels.sum(1) == 1)
    np.testing.assert_allclose(labels.mean(0), promised, atol=0.02)
    follows = patients[1:] == patients[:-1]
    assert np.array_equal(labels[1:][follows], labels[:-1][follows])


@BOTH
def test_images_of_one_patient_are_alike(draw: Draw) -> None:
    drawn = draw(range(80), size=32)
    pixels = drawn.images.astype(np.float32)
    follows = drawn.patients[1:] == drawn.patients[:-1]
    differences = np.abs(pixels[1:] - pixels[:-1]).mean((1, 2, 3))
    assert differences[follows].mean() < 0.9 * differences[~follows].mean()
    assert differences[follows].min() > 0.5  # alike, not copies


@pytest.mark.parametrize(("scenes_of", "render"), [(chest_scenes, render_chest), (lesion_scenes, render_lesions)])
def test_a_larger_picture_is_a_finer_look_at_the_same_scene(
    scenes_of: Callable[..., Any], render: Callable[..., np.ndarray]
) -> None:
    scenes = scenes_of(range(30), seed=0)
    scenes = dataclasses.replace(scenes, noise=0 * scenes.noise)  # grain alone belongs to the pixels
    small, large = render(scenes, size=64, seed=0), render(scenes, size=128, seed=0)
    halved = large.reshape(*small.shape[:2], 64, 2, 64, 2).mean((3, 5))
    gap = np.abs(halved - small).mean((1, 2, 3))
    others = np.abs(halved[1:] - small[:-1]).mean((1, 2, 3))
    assert gap.max() < 3
    assert gap.mean() < 0.1 * others.mean()


@pytest.mark.parametrize("finding", range(len(CHEST_FINDINGS)), ids=CHEST_FINDINGS)
def test_every_finding_changes_the_picture_where_it_is_and_not_elsewhere(finding: int) -> None:
    scenes = chest_scenes(range(20), seed=2)
    without = dataclasses.replace(scenes, severity=np.zeros_like(scenes.severity))
    severity = without.severity.copy()
    severity[:, finding] = 0.6
    healthy = render_chest(without, size=64, seed=2).astype(int)
    ill = render_chest(dataclasses.replace(scenes, severity=severity), size=64, seed=2).astype(int)
    change = np.abs(ill - healthy)[:, 0]
    assert np.all(change.max((1, 2)) > 15)
    # neck, arms and belly, on the picture's rim, are no finding's place
    rim = np.concatenate([change[:, [0, 1, -2, -1]], change[:, :, [0, 1, -2, -1]].transpose(0, 2, 1)], axis=1)
    assert np.median(rim.mean((1, 2))) < 0.1
    assert np.all((change > 10).mean((1, 2)) < 0.5)


def test_a_more_severe_finding_changes_more() -> None:
    scenes = chest_scenes(range(20), seed=2)
    changes = []
    for amount in (0.0, 0.3, 0.9):
        severity = np.zeros_like(scenes.severity)
        severity[:, CHEST_FINDINGS.index("Effusion")] = amount
        changes.append(render_chest(dataclasses.replace(scenes, severity=severity), size=32, seed=2).astype(int))
    slight, severe = (np.abs(drawn - changes[0]).mean() for drawn in changes[1:])
    assert 0 < slight < severe


@pytest.mark.parametrize(
    "feature",
    [
        "network",
        "globules",
        "veil",
        "nests",
        "vessels",
        "dots",
        "scale",
        "cysts",
        "fissures",
        "scar",
        "lacunae",
    ],
)
def test_every_feature_of_a_lesion_can_be_seen(feature: str) -> None:
    scenes = lesion_scenes(range(20), seed=2)
    absent = dataclasses.replace(scenes, **{feature: np.zeros_like(scenes.radius)})
    present = dataclasses.replace(scenes, **{feature: np.full_like(scenes.radius, 0.7)})
    change = np.abs(
        render_lesions(present, size=64, seed=2).astype(int) - render_lesions(absent, size=64, seed=2).astype(int)
    )
    assert np.median(change.max((1, 2, 3))) > 25


def test_the_hot_classes_have_their_colours() -> None:
    labels, patients = lesion_labels(range(1500), seed=0)

    def middle(name: str) -> np.ndarray:
        who = np.unique(patients[labels[:, LESION_CLASSES.index(name)] == 1])[:12]
        drawn = draw_lesions(who.tolist(), size=32)
        return drawn.images[:, :, 12:20, 12:20].mean((0, 2, 3))

    vascular, nevus = middle("VASC"), middle("NV")
    assert vascular[0] / vascular[1] > 1.3 * nevus[0] / nevus[1]  # red against brown


@BOTH
def test_a_picture_too_small_is_refused(draw: Draw) -> None:
    with pytest.raises(ValueError, match=r"size must be at least 32 pixels, got 31"):
        draw(range(2), size=31)


@pytest.mark.parametrize("function", [draw_chest, draw_lesions, chest_labels, lesion_labels])
def test_impossible_patients_and_seeds_are_refused(function: Callable[..., object]) -> None:
    with pytest.raises(ValueError, match=r"patients must not be negative, got -4"):
        function([0, -4], seed=0)
    with pytest.raises(ValueError, match=r"patients must ascend, got 5 before 5"):
        function([1, 5, 5], seed=0)
    with pytest.raises(ValueError, match=r"seed must not be negative, got -1"):
        function([1], seed=-1)


def test_reports_miss_findings_and_make_as_many_up() -> None:
    truth, patients = chest_labels(range(4000), seed=3)
    said = reported_findings(truth, patients, wrong=0.2, seed=3)
    missed = ((truth == 1) & (said == 0)).sum(axis=0) / truth.sum(axis=0)
    assert missed == pytest.approx(np.full(8, 0.2), abs=0.06)
    assert said.mean(axis=0) == pytest.approx(truth.mean(axis=0), abs=0.012)
    assert said.dtype == truth.dtype


def test_reports_mix_lesions_up_and_leave_them_as_common_as_they_are() -> None:
    truth, patients = lesion_labels(range(6000), seed=3)
    said = reported_lesions(truth, patients, wrong=0.2, seed=3)
    assert (said.sum(axis=1) == 1).all()
    assert said.dtype == truth.dtype
    assert said.mean(axis=0) == pytest.approx(truth.mean(axis=0), abs=0.006)
    kind, called = truth.argmax(axis=1), said.argmax(axis=1)
    for one, share in enumerate(truth.mean(axis=0)):
        assert (called[kind == one] != one).mean() == pytest.approx(0.2 * (1 - share), abs=0.08)
    assert (kind != called).mean() == pytest.approx(0.2 * (1 - (truth.mean(axis=0) ** 2).sum()), abs=0.01)


@pytest.mark.parametrize(
    ("labels_of", "reported"), [(chest_labels, reported_findings), (lesion_labels, reported_lesions)]
)
def test_a_report_does_not_depend_on_who_else_is_there(labels_of: Any, reported: Any) -> None:
    few, many = (
        reported(*labels_of(range(count), seed=1), wrong=0.4, seed=1)[: len(labels_of(range(20), seed=1)[0])]
        for count in (20, 50)
    )
    assert np.array_equal(few, many)
    other = reported(*labels_of(range(20), seed=1), wrong=0.4, seed=2)
    assert not np.array_equal(few, other)
    labels, patients = labels_of(range(20), seed=1)
    assert np.array_equal(reported(labels, patients, wrong=0.0, seed=1), labels)


@pytest.mark.parametrize("name", ["phantom-chest", "phantom-lesions"])
def test_only_the_training_part_has_reports_for_labels(name: PhantomName) -> None:
    right, wrong = (PhantomSource(name, 200, 32, errors=share).manifest() for share in (0.0, 0.3))
    train = (right.table["part"] == "train").to_numpy()
    assert np.array_equal(right.labels[~train], wrong.labels[~train])
    assert not np.array_equal(right.labels[train], wrong.labels[train])
    assert wrong.labels.dtype == right.labels.dtype
    assert right.table.equals(wrong.table)

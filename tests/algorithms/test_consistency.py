"""Methods that train once, on labelled and unlabelled images side by side."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from acpl.algorithms.contract import Samples
from acpl.algorithms.fixmatch import align, masked_loss
from acpl.algorithms.src_mt import relations
from acpl.algorithms.tcse import quarter_turns
from acpl.functional import add_evidence
from acpl.models import classification_loss
from acpl.task import Task
from tests.algorithms.method_tester import LABELLED, MethodTester, World


class TestMeanTeacher(MethodTester):
    name = "mean-teacher"
    learns_within = 100


class TestSRCMT(MethodTester):
    name = "src-mt"
    learns_within = 100
    settings = {"start": 0.0}  # noqa: RUF012


class TestTemporalEnsembling(MethodTester):
    name = "temporal-ensembling"


class TestTCSE(MethodTester):
    name = "tcse"
    settings = {"noise": 0.1}  # noqa: RUF012
    learns_with = {"weight": 1.0}  # noqa: RUF012


class TestNoTeacher(MethodTester):
    name = "noteacher"


class TestPseudoLabel(MethodTester):
    name = "pseudo-label"
    settings = {"confidence": 0.2}  # noqa: RUF012 — an untrained network is sure of little
    learns_with = {"confidence": 0.95}  # noqa: RUF012


class TestFixMatch(MethodTester):
    name = "fixmatch"
    settings = {"confidence": 0.2}  # noqa: RUF012
    learns_with = {"confidence": 0.95}  # noqa: RUF012


class TestMixUp(MethodTester):
    name = "mixup"
    learns_within = 100


def test_the_ramp_is_the_published_curve() -> None:
    method = World("mean-teacher", Task.MULTI_LABEL, steps=100).method
    for step, expected in ((0, math.exp(-5 * (1 - 1 / 40) ** 2)), (19, math.exp(-5 * 0.25)), (39, 1.0), (99, 1.0)):
        method.step.fill_(step)  # type: ignore[attr-defined]
        assert method.ramp_up(0.4).item() == pytest.approx(expected)  # type: ignore[attr-defined]


def test_the_teacher_is_the_averaged_copy_and_sees_the_other_view() -> None:
    world = World("mean-teacher", Task.MULTI_CLASS)
    world.run_stage(0, 3)
    stage = world.method.stage(0)
    assert stage is not None
    batch = world.batch(stage)
    teacher = world.method.networks().predictor
    student = world.method.networks().trained
    with torch.no_grad():
        expected = torch.softmax(teacher(torch.cat([part.more[0] for part in batch.values()])).logits, dim=1)
        said = torch.softmax(student(torch.cat([part.images for part in batch.values()])).logits, dim=1)
    weight = 10 * world.method.ramp_up(0.4).item()  # type: ignore[attr-defined]
    term = world.method.losses(batch)["consistency"]
    assert term.item() == pytest.approx(weight * (said - expected).square().mean().item(), rel=1e-4)


def test_relations_are_rows_of_unit_length() -> None:
    features = torch.randn(5, 7)
    gram = features @ features.T
    rows = relations(features)
    assert torch.allclose(rows, gram / gram.norm(dim=1, keepdim=True), atol=1e-6)
    assert torch.allclose(rows.norm(dim=1), torch.ones(5), atol=1e-6)


def test_src_mt_s_unlabelled_terms_weigh_nothing_before_its_start() -> None:
    world = World("src-mt", Task.MULTI_LABEL, start=0.5, steps=10)
    stage = world.method.stage(0)
    assert stage is not None
    before = world.method.losses(world.batch(stage))
    world.run_stage(0, 5)
    after = world.method.losses(world.batch(stage))
    for name in ("consistency", "relation"):
        assert before[name] == 0
        assert after[name] > 0


def test_temporal_ensembling_remembers_each_sample_s_own_predictions() -> None:
    world = World("temporal-ensembling", Task.MULTI_LABEL)
    stage = world.method.stage(0)
    assert stage is not None
    batch = world.batch(stage)
    ids = torch.cat([part.ids for part in batch.values()])
    said = []
    for _ in range(3):
        world.method.losses(batch)
        said.append(world.method._said)  # type: ignore[attr-defined]
        world.method.after_step(batch)
    expected = torch.zeros_like(said[0])
    for one in said:
        expected = 0.6 * expected + 0.4 * one
    state = world.method.state_dict()
    assert torch.allclose(state["memory"][ids], expected, atol=1e-6)
    assert (state["visits"][ids] == 3).all()
    assert state["visits"].sum() == 3 * len(ids)


def test_temporal_ensembling_remembers_nothing_of_an_image_that_shows_another_besides() -> None:
    world = World("temporal-ensembling", Task.MULTI_LABEL)
    stage = world.method.stage(0)
    assert stage is not None
    batch = dict(world.batch(stage))
    count = len(batch["labelled"].ids)
    own = torch.where(torch.arange(count) % 2 == 0, 0.5, 1.0)
    batch["labelled"] = batch["labelled"]._replace(own=own)
    for _ in range(2):
        world.method.losses(batch)
        world.method.after_step(batch)
    state = world.method.state_dict()
    assert state["visits"][batch["labelled"].ids].tolist() == [0, 2] * (count // 2)
    assert (state["memory"][batch["labelled"].ids[::2]] == 0).all()
    assert (state["visits"][batch["unlabelled"].ids] == 2).all()


def test_temporal_ensembling_compares_no_image_that_shows_another_besides() -> None:
    world = World("temporal-ensembling", Task.MULTI_LABEL)
    stage = world.method.stage(0)
    assert stage is not None
    batch = dict(world.batch(stage))
    world.method.losses(batch)
    world.method.after_step(batch)  # now all are remembered, and otherwise than they will be said to be
    world.method.state_dict()["memory"].mul_(0.5)
    ids = torch.cat([part.ids for part in batch.values()])
    remembered = world.method.state_dict()["memory"][ids] / 0.4
    count = len(batch["labelled"].ids)
    batch["labelled"] = batch["labelled"]._replace(own=torch.full((count,), 0.5))
    loss = world.method.losses(batch)["consistency"]
    said = world.method._said  # type: ignore[attr-defined]
    apart = (said - remembered).square().mean(dim=1)
    weight = 10 * world.method.ramp_up(0.4).item()  # type: ignore[attr-defined]
    assert apart[:count].sum() > 0.1
    assert loss.item() == pytest.approx(weight * apart[count:].sum().item() / len(ids), rel=1e-4)


def test_temporal_ensembling_asks_what_a_patients_images_share_of_all_that_it_remembers() -> None:
    world = World("temporal-ensembling", Task.MULTI_CLASS)
    stage = world.method.stage(0)
    assert stage is not None
    batch = world.batch(stage)
    for _ in range(2):
        world.method.losses(batch)
        world.method.after_step(batch)
    state = world.method.state_dict()
    seen = state["visits"] > 0
    asked: list[torch.Tensor] = []

    def shared(remembered: torch.Tensor, known: torch.Tensor) -> torch.Tensor:
        assert torch.equal(known, seen)
        expected = state["memory"] / (1 - 0.6 ** state["visits"].clamp_min(1))[:, None]
        torch.testing.assert_close(remembered[known], expected[known])
        asked.append(known)
        return torch.full_like(remembered, 1 / 3)

    world.method.context = replace(world.method.context, shared=shared)  # type: ignore[attr-defined]
    logits = world.method.networks().trained(torch.cat([part.images for part in batch.values()])).logits  # type: ignore[operator]
    wanted = (torch.softmax(logits, dim=1) - 1 / 3).square().mean()
    weight = 10 * world.method.ramp_up(0.4).item()  # type: ignore[attr-defined]
    assert world.method.losses(batch)["consistency"].item() == pytest.approx(weight * wanted.item(), rel=1e-4)
    assert len(asked) == 1


def test_quarter_turns_are_numpy_s() -> None:
    images = torch.rand(8, 2, 5, 5)
    turned = quarter_turns(images, torch.arange(8))
    for way in range(8):
        expected = torch.rot90(images[way], way % 4, dims=(1, 2))
        assert torch.equal(turned[way], expected.flip(2) if way >= 4 else expected)


def test_only_what_is_sure_counts() -> None:
    logits = torch.randn(4, 3)
    guess = torch.tensor([[0.97, 0.02, 0.01], [0.5, 0.3, 0.2], [0.1, 0.1, 0.8], [0.0, 0.99, 0.01]])
    expected = (F.cross_entropy(logits[:1], torch.tensor([0])) + F.cross_entropy(logits[3:], torch.tensor([1]))) / 4
    assert torch.allclose(masked_loss(logits, guess, 0.95, Task.MULTI_CLASS), expected)
    each = F.binary_cross_entropy_with_logits(logits, (guess > 0.5).float(), reduction="none")
    sure = torch.tensor([[1, 1, 1], [0, 0, 0], [0, 0, 0], [1, 1, 1]])
    assert torch.allclose(masked_loss(logits, guess, 0.95, Task.MULTI_LABEL), (each * sure).sum() / 12)
    assert masked_loss(logits, torch.full((4, 3), 0.5), 0.95, Task.MULTI_LABEL) == 0


def test_alignment_moves_the_mean_prediction_to_the_frequency() -> None:
    generator = torch.Generator().manual_seed(0)
    guess = torch.rand(1000, 3, generator=generator)
    same = align(guess, torch.full((3,), 0.3), torch.full((3,), 0.3), Task.MULTI_LABEL)
    assert torch.allclose(same, guess, atol=1e-4)
    rarer = align(guess, torch.full((3,), 0.1), guess.mean(dim=0), Task.MULTI_LABEL)
    assert (rarer.mean(dim=0) < 0.25).all()
    assert torch.equal(rarer.argsort(dim=0), guess.argsort(dim=0))
    softmax = torch.softmax(torch.randn(50, 3, generator=generator), dim=1)
    aligned = align(softmax, torch.tensor([0.6, 0.3, 0.1]), softmax.mean(dim=0), Task.MULTI_CLASS)
    assert torch.allclose(aligned.sum(dim=1), torch.ones(50))
    assert aligned.mean(dim=0)[0] > softmax.mean(dim=0)[0]


@pytest.mark.parametrize(
    "name", ["mean-teacher", "src-mt", "temporal-ensembling", "tcse", "fixmatch", "mixup", "pseudo-label"]
)
def test_with_every_image_labelled_it_still_trains(name: str) -> None:
    world = World(name, Task.MULTI_LABEL)
    pools = world.method.context.pools  # type: ignore[attr-defined]
    pools.unlabelled = pools.unlabelled[:0]
    stage = world.method.stage(0)
    assert stage is not None
    assert set(stage.draws) == {"labelled"}
    losses = world.method.losses(world.batch(stage))
    assert all(torch.isfinite(term) for term in losses.values())


def test_a_sample_s_targets_are_poison_where_nobody_knows_them() -> None:
    world = World("fixmatch", Task.MULTI_LABEL)
    stage = world.method.stage(0)
    assert stage is not None
    drawn: Samples = world.batch(stage)["unlabelled"]
    assert torch.isnan(drawn.targets).all()


def test_mixup_teaches_what_the_network_itself_says_from_the_first_step() -> None:
    world = World("mixup", Task.MULTI_LABEL)
    stage = world.method.stage(0)
    assert stage is not None
    for weight in world.method._networks.average.network.parameters():  # type: ignore[attr-defined]
        weight.data.fill_(torch.nan)  # the averaged copy is not asked
    assert world.method.losses(world.batch(stage))["unlabelled"].item() > 0.1  # a weight that rises began at exp(-5)


def test_labels_weigh_as_much_for_noteacher_as_for_every_method() -> None:
    world = World("noteacher", Task.MULTI_LABEL)
    stage = world.method.stage(0)
    assert stage is not None
    batch = world.batch(stage)
    found = world.method.losses(batch)["first"]
    images = torch.cat([part.images for part in batch.values()])
    logits = world.method._networks.trained(images).logits[: len(batch["labelled"].ids)]  # type: ignore[attr-defined]
    assert torch.allclose(found, classification_loss(logits, batch["labelled"].targets, Task.MULTI_LABEL))


TEACH_IN_STEPS: dict[str, dict[str, Any]] = {
    "acpl-plus": {"consistency": 1.0, "consistency_confidence": 0.7, "consistency_in": "all"},
    "fixmatch": {"confidence": 0.7, "alignment": False},
    "mean-teacher": {},
    "mixmatch": {},
    "pseudo-label": {"confidence": 0.7},
    "s2mts2": {},
    "src-mt": {"start": 0.0, "weight": 10.0},
    "tcse": {"noise": 0.0, "weight": 100.0},
    "temporal-ensembling": {},
}


@pytest.mark.parametrize("task", list(Task))
@pytest.mark.parametrize("name", TEACH_IN_STEPS)
def test_what_is_known_beside_the_images_is_taught(name: str, task: Task) -> None:
    """Every unlabelled sample is known to be of the first class; two in three look like another."""
    asked: list[torch.Tensor] = []

    def heard(said: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        assert len(said) == len(ids)
        asked.append(ids)
        evidence = torch.zeros_like(said)
        evidence[ids >= LABELLED, 0] = 10.0
        return add_evidence(said, evidence, exclusive=task is Task.MULTI_CLASS)

    shown = torch.arange(LABELLED, LABELLED + 6)  # what every batch of World's has
    others = shown[shown % 3 != 0]
    first = []
    for listens in (False, True):
        world = World(name, task, **TEACH_IN_STEPS[name], steps=40)
        if listens:
            world.method.context = replace(world.method.context, heard=heard)  # type: ignore[attr-defined]
        for index in range(2 if name == "s2mts2" else 1):
            world.run_stage(index, 40 if index or name != "s2mts2" else 5)
        first.append(world.look(world.method.networks().predictor, others).probabilities[:, 0].mean().item())
    assert first[1] > first[0] + 0.05
    assert torch.isin(shown, torch.cat(asked)).all()


@pytest.mark.parametrize("task", list(Task))
def test_fixmatch_hears_before_it_is_sure(task: Task) -> None:
    world = World("fixmatch", task, confidence=0.6, alignment=False)
    evidence = torch.randn(60, 3, generator=torch.Generator().manual_seed(1)) * 3
    exclusive = task is Task.MULTI_CLASS

    def heard(said: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        return add_evidence(said, evidence[ids], exclusive=exclusive)

    world.method.context = replace(world.method.context, heard=heard)  # type: ignore[attr-defined]
    stage = world.method.stage(0)
    assert stage is not None
    batch = world.batch(stage)
    pool, own = batch["unlabelled"], len(batch["labelled"].ids)
    images = torch.cat([batch["labelled"].images, pool.images, pool.more[0]])
    weak, strong = world.method.networks().trained(images).logits[own:].chunk(2)  # type: ignore[operator]
    if exclusive:
        sure, label = torch.softmax(weak.log_softmax(dim=1) + evidence[pool.ids], dim=1).max(dim=1)
        wanted = (F.cross_entropy(strong, label, reduction="none") * (sure >= 0.6)).mean()
    else:
        said = torch.sigmoid(weak + evidence[pool.ids])
        each = F.binary_cross_entropy_with_logits(strong, (said >= 0.5).float(), reduction="none")
        wanted = (each * ((said >= 0.6) | (said <= 0.4))).mean()
    assert wanted.item() > 0
    assert world.method.losses(batch)["unlabelled"].item() == pytest.approx(wanted.item(), rel=1e-4)

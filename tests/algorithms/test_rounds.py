"""Methods that label the unlabelled images in rounds."""

import pytest
import torch
from torch.nn import functional as F

from acpl.algorithms.contract import mixed_rows
from acpl.algorithms.mixmatch import sharpen
from acpl.algorithms.rounds import confidence, hardened
from acpl.algorithms.ups import UPSSettings, decided, with_dropout
from acpl.data.augment import neighbours
from acpl.task import Task
from tests.algorithms.method_tester import LABELLED, UNLABELLED, MethodTester, World

NAMES = ("self-training", "curriculum-labelling", "ups", "graph-xnet")
OPEN = {"positive": 0.3, "positive_spread": 1.0, "negative": 0.3, "negative_spread": 1.0}


class TestSelfTraining(MethodTester):
    name = "self-training"


class TestCurriculumLabelling(MethodTester):
    name = "curriculum-labelling"


class TestUPS(MethodTester):
    name = "ups"
    settings = OPEN  # an untrained network decides little


class TestGraphXNet(MethodTester):
    name = "graph-xnet"
    settings = {"k": 3}  # noqa: RUF012


class TestMixMatch(MethodTester):
    name = "mixmatch"
    learns_with = {"weight": 1.0}  # noqa: RUF012


def test_self_training_keeps_everything() -> None:
    world = World("self-training", Task.MULTI_CLASS)
    world.run_stage(0, 5)
    record = world.method.before_stage(1, world.look)
    assert record is not None
    assert record.summary == {"selected": UNLABELLED, "unselected": 0}
    state = world.method.state_dict()
    said = world.look(world.method.networks().predictor, world.pools.unlabelled).probabilities
    assert torch.equal(state["targets"].argmax(dim=1), said.argmax(dim=1))
    assert torch.equal(state["targets"].sum(dim=1), torch.ones(UNLABELLED))


def test_a_rare_finding_is_not_taught_to_be_absent() -> None:
    world = World("self-training", Task.MULTI_LABEL)
    world.method.before_stage(1, world.look)
    said = world.look(world.method.networks().predictor, world.pools.unlabelled).probabilities
    assert torch.equal(world.method.state_dict()["targets"], said)


def test_curriculum_labelling_takes_the_surest_first_and_all_in_the_end() -> None:
    world = World("curriculum-labelling", Task.MULTI_CLASS)
    world.run_stage(0, 20)
    said = world.look(world.method.networks().predictor, world.pools.unlabelled).probabilities.max(dim=1).values
    old = world.method.networks().trained.head.weight.clone()
    first = world.method.before_stage(1, world.look)
    assert first is not None
    assert first.summary["selected"] == UNLABELLED / 2
    chosen = torch.isin(world.pools.unlabelled, world.method.state_dict()["ids"])
    assert said[chosen].min() >= said[~chosen].max()
    assert not torch.equal(world.method.networks().trained.head.weight, old)
    second = world.method.before_stage(2, world.look)
    assert second is not None
    assert second.summary["unselected"] == 0
    assert world.method.before_stage(3, world.look) is None
    assert world.method.stage(3) is None


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("budget", [3, 7, 50, 301])
def test_a_budget_is_spent_to_the_step(name: str, budget: int) -> None:
    world = World(name, Task.MULTI_LABEL, steps=budget, **(OPEN if name == "ups" else {}))
    taken = 0
    for index in range(4):
        world.method.before_stage(index, world.look)
        stage = world.method.stage(index)
        taken += 0 if stage is None else stage.steps
    assert taken == budget


@pytest.mark.parametrize("name", NAMES)
def test_without_unlabelled_images_there_is_only_the_warm_up(name: str) -> None:
    world = World(name, Task.MULTI_LABEL, steps=9)
    world.method.context.pools.unlabelled = world.pools.unlabelled[:0]  # type: ignore[attr-defined]
    first = world.method.stage(0)
    assert first is not None
    assert first.steps == 9
    assert world.method.before_stage(1, world.look) is None
    assert world.method.stage(1) is None


@pytest.mark.parametrize("name", ["ups", "curriculum-labelling"])
def test_rounds_from_new_weights_have_as_many_steps_as_the_warm_up_had(name: str) -> None:
    world = World(name, Task.MULTI_LABEL, steps=301, **(OPEN if name == "ups" else {}))
    rounds = world.method.context.schedule.stages  # type: ignore[attr-defined]
    each = []
    for index in range(rounds + 1):
        world.method.before_stage(index, world.look)
        stage = world.method.stage(index)
        assert stage is not None
        each.append(stage.steps)
    assert sum(each) == 301
    assert max(each) - min(each) <= 1


def test_when_nothing_is_decided_a_round_goes_on_with_the_labels() -> None:
    world = World("ups", Task.MULTI_LABEL, positive=0.999, positive_spread=1e-9, negative=1e-9, negative_spread=1e-9)
    record = world.method.before_stage(1, world.look)
    assert record is not None
    assert record.summary["selected"] == 0
    stage = world.method.stage(1)
    assert stage is not None
    assert set(stage.draws) == {"labelled"}
    assert set(world.method.losses(world.batch(stage))) == {"labelled"}
    assert len(stage.draws["labelled"].ids) == LABELLED


def test_the_graph_labels_images_as_their_likes() -> None:
    world = World("graph-xnet", Task.MULTI_CLASS, k=3)
    world.run_stage(0, 40)
    world.method.before_stage(1, world.look)
    state = world.method.state_dict()
    assert torch.equal(state["targets"].argmax(dim=1), state["ids"] % 3)
    assert torch.allclose(state["targets"].sum(dim=1), torch.ones(UNLABELLED))


def test_ups_decides_by_probability_and_spread() -> None:
    mean = torch.tensor([[0.9, 0.02, 0.08], [0.9, 0.02, 0.08], [0.4, 0.3, 0.3], [0.04, 0.03, 0.01]])
    spread = torch.tensor([[0.01, 0.001, 0.001], [0.2, 0.1, 0.001], [0.01, 0.01, 0.01], [0.001, 0.001, 0.001]])
    looks = torch.stack([mean - spread, mean + spread]) + torch.zeros(2, 1, 1)  # a deviation of √2 times as much
    settings = UPSSettings(negative_temperature=1.0)
    many = decided(looks, settings, Task.MULTI_LABEL)
    nan = torch.nan
    expected = torch.tensor([[1, 0, nan], [nan, nan, nan], [nan, nan, nan], [0, 0, 0]])
    assert torch.equal(many.nan_to_num(7), expected.nan_to_num(7))
    sums_to_one = torch.tensor([[[0.9, 0.02, 0.08], [0.98, 0.01, 0.01], [0.4, 0.3, 0.3]]]).repeat(2, 1, 1)
    one = decided(sums_to_one, settings, Task.MULTI_CLASS)
    assert torch.equal(one.nan_to_num(7), torch.tensor([[1, 0, 7], [1, 0, 0], [7.0, 7, 7]]))
    rare = torch.tensor([[[0.03, 0.02, 0.01]]]).repeat(2, 1, 1)
    assert torch.isnan(decided(rare, UPSSettings(negative=0.9), Task.MULTI_CLASS)[0, 0])  # the likeliest is no negative


def test_ups_judges_negatives_at_a_temperature() -> None:
    """As softmax(logits / 2) would have them: 0.02 beside 0.9 is then 0.107, and no longer unlikely."""
    logits = torch.randn(4, 20, 5, generator=torch.Generator().manual_seed(1)) * 0.01 + torch.arange(5) * 2.0
    found = decided(torch.softmax(logits, dim=2), UPSSettings(positive=0.99), Task.MULTI_CLASS)
    cool = torch.softmax(logits / 2, dim=2)
    negative = (cool.mean(dim=0) <= 0.05) & (cool.std(dim=0) < 0.005)
    assert torch.equal(found == 0, negative)
    assert not torch.equal(negative, torch.softmax(logits, dim=2).mean(dim=0) <= 0.05)


def test_ups_loss_is_the_textbook_s() -> None:
    nan = torch.nan
    targets = torch.tensor([[1, 0, nan], [nan, 0, 0], [nan, nan, 0]])
    logits = torch.randn(3, 3, generator=torch.Generator().manual_seed(0))
    many = World("ups", Task.MULTI_LABEL).method.guessed_loss(logits, targets)  # type: ignore[attr-defined]
    each = F.binary_cross_entropy_with_logits(logits, targets.nan_to_num(0), reduction="none")
    assert torch.allclose(many, each[~torch.isnan(targets)].mean())
    one = World("ups", Task.MULTI_CLASS).method.guessed_loss(logits, targets)  # type: ignore[attr-defined]
    p = torch.softmax(logits, dim=1)
    absent = [-(1 - p[1, 1:]).log().mean(), -(1 - p[2, 2]).log()]
    assert torch.allclose(one, -p[0, 0].log() + torch.stack(absent).mean(), atol=1e-6)


def test_looks_with_dropout_differ_though_the_network_evaluates() -> None:
    world = World("ups", Task.MULTI_LABEL)
    predictor = world.method.networks().predictor
    noisy = with_dropout(predictor, 0.3)
    first, second = (world.look(noisy, world.pools.unlabelled).probabilities for _ in range(2))
    assert not torch.equal(first, second)
    plain = [world.look(predictor, world.pools.unlabelled).probabilities for _ in range(2)]
    assert torch.equal(plain[0], plain[1])


def test_confidence_and_hard_labels() -> None:
    said = torch.tensor([[0.9, 0.1, 0.4], [0.5, 0.5, 0.5]])
    assert torch.allclose(confidence(said, Task.MULTI_LABEL), torch.tensor([0.8, 0.5]))
    assert torch.allclose(confidence(said, Task.MULTI_CLASS), torch.tensor([0.9, 0.5]))
    assert hardened(said, Task.MULTI_LABEL).tolist() == [[1, 0, 0], [1, 1, 1]]
    assert hardened(said, Task.MULTI_CLASS).tolist() == [[1, 0, 0], [1, 0, 0]]


def test_sharpening_keeps_probabilities_and_their_order() -> None:
    said = torch.softmax(torch.randn(20, 4, generator=torch.Generator().manual_seed(0)), dim=1)
    sharp = sharpen(said, 0.5, Task.MULTI_CLASS)
    assert torch.allclose(sharp.sum(dim=1), torch.ones(20))
    assert (sharp.max(dim=1).values >= said.max(dim=1).values).all()
    assert torch.allclose(sharp, said**2 / (said**2).sum(dim=1, keepdim=True))
    binary = sharpen(torch.tensor([[0.5, 0.8, 0.1, 0.0, 1.0]]), 0.5, Task.MULTI_LABEL)
    assert torch.allclose(binary, torch.tensor([[0.5, 0.64 / 0.68, 0.01 / 0.82, 0.0, 1.0]]))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "ups"])
def test_a_round_s_pseudo_labels_are_mixed_as_its_images_are(name: str) -> None:
    """Images that are all patch teach what was said of their neighbours."""
    world = World(name, Task.MULTI_CLASS)
    world.run_stage(0, 5)
    world.method.before_stage(1, world.look)
    stage = world.method.stage(1)
    assert stage is not None
    assert stage.draws["guessed"].mixes
    batch = dict(world.batch(stage))
    guessed = batch["guessed"]
    partner = neighbours(len(guessed.ids), guessed.ids.device)
    patched = world.method.losses({**batch, "guessed": guessed._replace(own=torch.zeros(len(guessed.ids)))})
    swapped = world.method.losses({**batch, "guessed": guessed._replace(ids=guessed.ids[partner])})
    whole = world.method.losses(batch)
    assert patched["guessed"].item() == pytest.approx(swapped["guessed"].item(), rel=1e-5)
    assert patched["guessed"].item() != pytest.approx(whole["guessed"].item(), rel=1e-3)


def test_what_a_neighbour_leaves_out_is_left_out_of_mixed_images_alone() -> None:
    rows = torch.tensor([[0.2, 0.8], [torch.nan, 1.0], [1.0, 0.0], [torch.nan, 1.0]])
    found = mixed_rows(rows, torch.tensor([1.0, 1.0, 0.5, 0.5]))
    assert torch.equal(found[:2].nan_to_num(-1), rows[:2].nan_to_num(-1))
    assert found[2:, 0].isnan().all()
    assert found[2:, 1].tolist() == [0.5, 0.5]

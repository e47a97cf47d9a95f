"""What ``acpl-plus`` adds to ``acpl``, setting by setting; with all of them off it adds nothing."""

import copy
import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from acpl import functional
from acpl.algorithms.acpl import ACPLSettings
from acpl.algorithms.acpl_plus import CONSISTENCY, ACPLPlus, ACPLPlusSettings
from acpl.algorithms.drawing import repeat_factors, repeated
from acpl.algorithms.teachers import Teachers
from acpl.data.pools import Pools
from acpl.functional.group import ALONE, Group
from acpl.models.balanced import class_balanced_loss, logit_adjusted_loss
from acpl.task import Task
from tests.algorithms.method_tester import MethodTester, World
from tests.functional.threads import in_group

OFF: dict[str, Any] = {
    **{name: field.default for name, field in ACPLSettings.model_fields.items()},
    "k": 3,
    "teachers": 0,
    "k_share": None,
    "centre": False,
    "sharpen": 1.0,
    "relabel": False,
    "balance": 0.0,
    "consistency": 0.0,
    "labelled_loss": "plain",
}


class TestACPLPlus(MethodTester):
    name = "acpl-plus"
    settings = {"k": 3}  # noqa: RUF012


class TestEverySettingOn(MethodTester):
    name = "acpl-plus"
    settings = {  # noqa: RUF012
        "k_share": 0.3,
        "centre": True,
        "sharpen": 0.5,
        "relabel": True,
        "balance": 0.5,
        "consistency": 1.0,
        "consistency_confidence": 0.2,
        "consistency_in": "all",
        "labelled_loss": "logit-adjusted",
    }
    learns_with = {"consistency_confidence": 0.95}  # noqa: RUF012


class TestTeachers(MethodTester):
    name = "acpl-plus"
    settings = {"k": 3, "teachers": 2, "relabel": True, "balance": 0.5}  # noqa: RUF012


class TestClassBalanced(MethodTester):
    name = "acpl-plus"
    settings = {"k": 3, "labelled_loss": "class-balanced"}  # noqa: RUF012


def after_warmup(task: Task = Task.MULTI_LABEL, **settings: Any) -> World:
    world = World("acpl-plus", task, **{**OFF, **settings})
    world.run_stage(0, 10)
    return world


@pytest.mark.parametrize("task", list(Task))
def test_with_everything_off_it_is_acpl_to_the_bit(task: Task) -> None:
    plain, plus = World("acpl", task, k=3), World("acpl-plus", task, **OFF)
    for world in (plain, plus):
        torch.manual_seed(3)
        world.run_stage(0, 5)
        world.run_stage(1, 3)
    first, second = (world.method.networks().predictor.state_dict() for world in (plain, plus))
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert plain.pools.labelled.tolist() == plus.pools.labelled.tolist()


def taught(task: Task, **settings: Any) -> tuple[World, torch.Tensor]:
    """A world whose two teachers and warm-up are done, and what each of the three says of the unlabelled."""
    world = World("acpl-plus", task, **{**OFF, "teachers": 2, **settings})
    said, pool = [], world.pools.unlabelled.clone()
    for index in range(3):
        world.run_stage(index, 6)
        networks = world.method.networks()
        looks = networks.trained if index == 2 else networks.predictor
        said.append(world.look(looks, pool).probabilities)  # type: ignore[arg-type]
    return world, torch.stack(said)


@pytest.mark.parametrize("task", list(Task))
def test_pseudo_labels_are_made_of_what_teachers_and_network_say_together(task: Task) -> None:
    world, said = taught(task)
    assert min((one - other).abs().max() for one, other in itertools.combinations(said, 2)) > 1e-3
    record = world.method.before_stage(3, world.look)
    assert record is not None
    found = record.candidates
    assert torch.allclose(found["model"], said.mean(dim=0), atol=1e-6)
    chosen = found["selected"]
    mixed = functional.informative_mixup(said.mean(dim=0), found["neighbours"], found["density"])
    assert torch.allclose(found["pseudo_label"][chosen], mixed[chosen], atol=1e-6)


def test_teachers_are_heard_in_later_stages_about_those_who_are_left() -> None:
    world, said = taught(Task.MULTI_CLASS, relabel=True, pseudo_label="model")
    pool = world.pools.unlabelled.clone()
    world.run_stage(3, 6)
    now = world.look(world.method.networks().trained, pool).probabilities  # type: ignore[arg-type]
    wanted = (said[:2].sum(dim=0) + now) / 3
    earlier = torch.isin(pool, world.pools.pseudo_labelled)
    assert 0 < earlier.sum() < len(pool)
    record = world.method.before_stage(4, world.look)
    assert record is not None
    assert record.candidates["id"].tolist() == pool[~earlier].tolist()
    assert torch.allclose(record.candidates["model"], wanted[~earlier], atol=1e-6)
    assert torch.allclose(world.pools.targets(pool[earlier]), wanted[earlier], atol=1e-6)


def test_every_teacher_and_the_network_after_them_start_from_fresh_weights() -> None:
    world = World("acpl-plus", Task.MULTI_LABEL, **{**OFF, "teachers": 2})
    names, starts = [], []
    for index in range(4):
        record = world.method.before_stage(index, world.look)
        assert (record is None) == (index < 3)
        stage = world.method.stage(index)
        assert stage is not None
        names.append((stage.name, stage.snapshot))
        networks = world.method.networks()
        starts.append({key: float(value.float().norm()) for key, value in networks.trained.state_dict().items()})
        world.step(stage, torch.optim.Adam(networks.trained.parameters(), lr=3e-3))  # type: ignore[attr-defined]
        world.method.after_stage(index)
    assert names == [("teacher 1", False), ("teacher 2", False), ("warm-up", True), ("stage 3", False)]
    assert len({start["head.weight"] for start in starts}) == 4
    batches = [{value for key, value in start.items() if key.endswith("num_batches_tracked")} for start in starts]
    assert batches == [{0.0}, {0.0}, {0.0}, {1.0}]


@pytest.mark.parametrize("teachers", [1, 2, 5])
def test_the_teachers_steps_are_part_of_the_budget(teachers: int) -> None:
    world = World("acpl-plus", Task.MULTI_LABEL, **{**OFF, "teachers": teachers, "steps": 50})
    taken, index = [], 0
    while True:
        world.method.before_stage(index, world.look)
        stage = world.method.stage(index)
        if stage is None:
            break
        taken.append(stage.steps)
        world.method.after_stage(index)
        index += 1
    warm_up, all_stages = 8 * 2, 2 * 2 * 5  # steps of the schedule: 12 labelled, 52 in all, 6 a batch
    each = 50 * warm_up // ((teachers + 1) * warm_up + all_stages)
    assert taken[: teachers + 1] == [each] * (teachers + 1)
    assert len(taken) == teachers + 3
    assert sum(taken) == 50


def test_where_nothing_is_left_to_teach_there_are_no_teachers() -> None:
    world = World("acpl-plus", Task.MULTI_LABEL, **{**OFF, "teachers": 3, "steps": 50})
    pools, context = world.pools, world.method.context  # type: ignore[attr-defined]
    all_labelled = Pools(pools.given, pools.targets(pools.given), pools.unlabelled[:0])
    no_stages = replace(context.schedule, stages=0)
    for changed in (replace(context, pools=all_labelled), replace(context, schedule=no_stages)):
        method = ACPLPlus(ACPLPlusSettings.parse({**OFF, "teachers": 3, "steps": 50}), changed)
        first = method.stage(0)
        assert first is not None
        assert (first.name, first.steps) == ("warm-up", 50)
        method.before_stage(1, world.look)
        assert method.stage(1) is None


def test_teachers_that_were_heard_are_remembered_by_a_run_that_goes_on() -> None:
    world, _ = taught(Task.MULTI_LABEL)
    other = World("acpl-plus", Task.MULTI_LABEL, **{**OFF, "teachers": 2})
    other.method.load_state_dict(copy.deepcopy(world.method.state_dict()))
    first, second = (one.method.before_stage(3, one.look) for one in (world, other))
    assert first is not None
    assert second is not None
    assert torch.equal(first.candidates["model"], second.candidates["model"])


@pytest.mark.parametrize("size", [2, 3])
def test_what_teachers_say_is_the_same_on_every_process(size: int) -> None:
    ids, said = torch.arange(7) * 3, torch.rand(2, 7, 4)

    def agreed(group: Group) -> torch.Tensor:
        teachers = Teachers(ids)
        own = torch.arange(7).tensor_split(group.size)[group.rank]
        for one in said:
            teachers.hear(one[own], group)
        return teachers.agreed(torch.full((2, 4), 0.5), torch.tensor([3, 18]))

    for found in [agreed(ALONE), *in_group(size, agreed)]:
        assert torch.equal(found, (said[0, [1, 6]] + said[1, [1, 6]] + 0.5) / 3)


def test_k_follows_the_anchors_where_it_is_a_share_of_them() -> None:
    world = after_warmup(k_share=0.25)
    assert world.method.neighbours() == 3  # type: ignore[attr-defined]
    world.pools.select(world.pools.unlabelled[:8], torch.zeros(8, 3))
    world.pools.join_anchors(world.pools.selected)
    assert world.method.neighbours() == 5  # type: ignore[attr-defined]


@pytest.mark.parametrize("task", list(Task))
def test_cosines_are_taken_about_the_anchors_mean_where_that_is_set(task: Task) -> None:
    world = after_warmup(task, centre=True)
    pools, network = world.pools, world.method.networks().trained
    unlabelled, anchors = (world.look(network, ids) for ids in (pools.unlabelled.clone(), pools.anchors.clone()))
    origin = anchors.features.double().mean(dim=0)
    rows, others = (F.normalize(views.features.double() - origin, dim=1) for views in (unlabelled, anchors))
    near = (rows @ others.T).topk(3)
    density = near.values.mean(dim=1).clamp_min(0).float()
    labels = pools.targets(pools.anchors)[near.indices].mean(dim=1)
    record = world.method.before_stage(1, world.look)
    assert record is not None
    found = record.candidates
    assert torch.allclose(found["density"], near.values.mean(dim=1).float(), atol=1e-4)
    assert torch.allclose(found["neighbours"], labels, atol=1e-6)
    chosen = found["selected"]
    wanted = functional.informative_mixup(unlabelled.probabilities, labels, density)[chosen]
    assert torch.allclose(found["pseudo_label"][chosen], wanted, atol=1e-4)
    plain = after_warmup(task).method.before_stage(1, world.look)
    assert plain is not None
    assert plain.candidates["density"].min() > found["density"].max()  # all lie on one side of 0


def test_anchors_that_are_all_alike_tell_nothing_about_their_mean() -> None:
    world = after_warmup(centre=True)
    world.images[world.pools.anchors] = 0.5
    record = world.method.before_stage(1, world.look)
    assert record is not None
    assert record.candidates["density"].abs().max() < 1e-3
    assert record.candidates["neighbours"].isfinite().all()


@pytest.mark.parametrize("task", list(Task))
def test_sharpened_pseudo_labels_are_nearer_to_0_and_1(task: Task) -> None:
    labels = []
    for temperature in (1.0, 0.5):
        world = after_warmup(task, sharpen=temperature)
        record = world.method.before_stage(1, world.look)
        assert record is not None
        labels.append(record.candidates["pseudo_label"][record.candidates["selected"]])
    plain, sharp = labels
    assert torch.equal(plain.argmax(dim=1), sharp.argmax(dim=1))
    assert (sharp - 0.5).abs().mean() > (plain - 0.5).abs().mean()


@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.parametrize("task", list(Task))
def test_pseudo_labels_of_earlier_stages_are_made_anew_where_that_is_set(task: Task, centre: bool) -> None:
    world = after_warmup(task, relabel=True, centre=centre)
    world.run_stage(1, 3)
    pools = world.pools
    old, given = pools.targets(pools.pseudo_labelled), pools.targets(pools.given)
    assert len(old)
    seen, anchors = (
        world.look(world.method.networks().trained, ids) for ids in (pools.pseudo_labelled.clone(), pools.given)
    )
    origin = anchors.features.mean(dim=0) if centre else 0.0
    near = functional.nearest(seen.features - origin, anchors.features - origin, 3)
    means = functional.neighbour_labels(near.index, given)
    want = functional.informative_mixup(seen.probabilities, means, functional.density(near.similarity))
    world.method.before_stage(2, world.look)
    assert torch.allclose(pools.targets(pools.pseudo_labelled), want, atol=1e-5)
    assert not torch.allclose(want, old, atol=1e-3)
    assert torch.equal(pools.targets(pools.given), given)


def test_only_pseudo_labels_are_made_anew() -> None:
    world = after_warmup()
    with pytest.raises(ValueError, match="only pseudo-labelled samples"):
        world.pools.relabel(world.pools.given[:1], torch.zeros(1, 3))
    with pytest.raises(ValueError, match="only pseudo-labelled samples"):
        world.pools.relabel(world.pools.unlabelled[:1], torch.zeros(1, 3))


def test_rare_classes_are_drawn_oftener_and_nobody_is_left_out() -> None:
    targets = F.one_hot(torch.tensor([0] * 16 + [1] * 4), 2).float()
    ids = torch.arange(20)
    for power, ratio in ((0.0, 0.25), (0.5, 0.5), (1.0, 1.0)):
        factors = repeat_factors(targets, targets.mean(dim=0), power, Task.MULTI_CLASS)
        drawn = repeated(ids, factors, torch.Generator().manual_seed(0))
        assert set(drawn.tolist()) == set(range(20))
        assert int((drawn >= 16).sum()) / int((drawn < 16).sum()) == pytest.approx(ratio)
    either = repeat_factors(torch.tensor([[1.0, 0.0], [1.0, 1.0]]), torch.tensor([0.5, 0.125]), 0.5, Task.MULTI_LABEL)
    assert either.tolist() == [1.0, 2.0]


def test_broken_factors_are_kept_on_average() -> None:
    drawn = repeated(torch.arange(4000), torch.full((4000,), 1.3), torch.Generator().manual_seed(0))
    assert len(drawn) / 4000 == pytest.approx(1.3, abs=0.02)


def test_a_balanced_stage_is_described_twice_alike() -> None:
    world = after_warmup(balance=0.7)
    world.method.before_stage(1, world.look)
    first, second = (world.method.stage(1) for _ in range(2))
    assert first is not None
    assert second is not None
    assert all(torch.equal(first.draws[name].ids, second.draws[name].ids) for name in first.draws)


def test_consistency_is_a_third_term_from_the_first_stage_on() -> None:
    world = after_warmup(consistency=2.0, consistency_confidence=0.51)
    warmup = world.method.stage(0)
    assert warmup is not None
    assert list(warmup.draws) == ["labelled"]
    world.method.before_stage(1, world.look)
    stage = world.method.stage(1)
    assert stage is not None
    assert not stage.draws[CONSISTENCY].known
    assert set(world.method.losses(world.batch(stage))) == {"labelled", "selected", CONSISTENCY}


def test_the_consistency_term_is_what_the_averaged_copy_is_sure_of() -> None:
    world = after_warmup(Task.MULTI_CLASS, consistency=2.0, consistency_confidence=0.51)
    world.method.before_stage(1, world.look)
    stage = world.method.stage(1)
    assert stage is not None
    batch, networks = world.batch(stage), world.method.networks()
    networks.trained.eval()
    pool = batch[CONSISTENCY]
    with torch.no_grad():
        sure, label = networks.predictor.eval()(pool.images).logits.softmax(dim=1).max(dim=1)
    student = F.cross_entropy(networks.trained(pool.more[0]).logits, label, reduction="none")
    wanted = 2.0 * (student * (sure >= 0.51)).mean()
    assert torch.allclose(world.method.losses(batch)[CONSISTENCY], wanted, atol=1e-5)


def test_logit_adjustment_is_the_loss_of_shifted_logits() -> None:
    logits, targets = torch.randn(6, 3), F.one_hot(torch.arange(6) % 3, 3).float()
    frequency = torch.tensor([0.7, 0.2, 0.1])
    found = logit_adjusted_loss(logits, targets, Task.MULTI_CLASS, frequency)
    assert torch.allclose(found, F.cross_entropy(logits + frequency.log(), targets))
    found = logit_adjusted_loss(logits, targets, Task.MULTI_LABEL, frequency, strength=0.0)
    assert torch.allclose(found, F.binary_cross_entropy_with_logits(logits, targets))


def test_a_class_balanced_loss_weighs_the_rare_more_and_the_equal_alike() -> None:
    logits = torch.zeros(2, 2)
    logits[0, 0] = 2.0  # the common one is right, the rare one undecided
    targets = torch.eye(2)
    plain = F.cross_entropy(logits, targets)
    assert class_balanced_loss(logits, targets, Task.MULTI_CLASS, torch.tensor([90.0, 10.0]), 100) > plain
    even = class_balanced_loss(logits, targets, Task.MULTI_CLASS, torch.tensor([50.0, 50.0]), 100)
    assert torch.allclose(even, plain)
    even = class_balanced_loss(logits, targets, Task.MULTI_LABEL, torch.tensor([50.0, 50.0]), 100)
    assert torch.allclose(even, F.binary_cross_entropy_with_logits(logits, targets))


def test_every_further_setting_can_be_switched_off() -> None:
    further = set(ACPLPlusSettings.model_fields) - set(ACPLSettings.model_fields)
    assert further == {
        "teachers", "k_share", "centre", "sharpen", "relabel", "balance", "consistency", "consistency_confidence",
        "consistency_in", "labelled_loss", "adjustment",
    }  # fmt: skip
    assert ACPLPlusSettings.parse(OFF).consistency == 0

"""Algorithm 1 and each of its switches."""

from typing import Any

import pytest
import torch

from acpl import functional
from acpl.algorithms.acpl import ACPLSettings
from acpl.algorithms.budget import usual_steps
from acpl.errors import UserError
from acpl.task import Task
from tests.algorithms.method_tester import CLASSES, LABELLED, UNLABELLED, MethodTester, World


class TestACPL(MethodTester):
    name = "acpl"
    settings = {"k": 3}  # noqa: RUF012


class TestMixUpOfImages(MethodTester):
    name = "acpl"
    settings = {"k": 3, "pseudo_label": "mixup"}  # noqa: RUF012


class TestPublishedCode(MethodTester):
    name = "acpl"
    settings = {  # noqa: RUF012
        "k": 3,
        "density": "min-max",
        "high_component": "minimum",
        "loss": "union",
        "reinitialise": True,
        "features_from": "averaged",
        "mixture_iterations": 20,
        "mixture_tolerance": 0.01,
    }


def after_warmup(**settings: Any) -> World:
    world = World("acpl", Task.MULTI_LABEL, k=4, **settings)
    world.run_stage(0, 10)
    return world


def test_a_stage_follows_the_paper_line_by_line() -> None:
    """Lines 5 and 6 written out with the functions, against what the method did to the pools."""
    world = after_warmup()
    pools, network = world.pools, world.method.networks().trained
    unlabelled, anchors = world.look(network, pools.unlabelled), world.look(network, pools.anchors)
    similarity, forward, backward = functional.mutual_nearest(unlabelled.features, anchors.features, 4)
    density = functional.density(similarity)
    chosen = torch.nonzero(functional.information(density, 3).level == 2).flatten()
    neighbours = functional.neighbour_labels(forward, pools.targets(pools.anchors))
    labels = density[:, None] * unlabelled.probabilities + (1 - density[:, None]) * neighbours
    linked = functional.connections(forward[chosen], backward, chosen)
    expected_anchors = set(range(LABELLED)) | set(pools.unlabelled[chosen[linked == linked.min()]].tolist())

    record = world.method.before_stage(1, world.look)

    assert pools.selected.tolist() == (chosen + LABELLED).tolist()
    assert torch.allclose(pools.targets(pools.selected), labels[chosen], atol=1e-6)
    assert set(pools.anchors.tolist()) == expected_anchors
    assert record is not None
    assert record.summary["left"] == UNLABELLED - len(chosen)
    world.method.after_stage(1)
    assert len(pools.labelled) == LABELLED + len(chosen)


@pytest.mark.parametrize("which", ["high", "medium", "low"])
def test_each_information_set_is_the_one_its_name_says(which: str) -> None:
    world = after_warmup(select=which)
    record = world.method.before_stage(1, world.look)
    assert record is not None
    level = {"low": 0, "medium": 1, "high": 2}[which]
    assert torch.equal(record.candidates["selected"], record.candidates["information"] == level)


def test_information_sets_partition_the_unlabelled_pool_from_dense_to_sparse() -> None:
    world = after_warmup()
    record = world.method.before_stage(1, world.look)
    assert record is not None
    density, level = record.candidates["density"], record.candidates["information"]
    means = [density[level == number].mean() for number in level.unique()]
    assert means == sorted(means, reverse=True)


@pytest.mark.parametrize(("strategy", "column"), [("model", "model"), ("neighbours", "neighbours"), ("mixup", "model")])
def test_a_single_prediction_is_the_pseudo_label(strategy: str, column: str) -> None:
    world = after_warmup(pseudo_label=strategy)
    record = world.method.before_stage(1, world.look)
    assert record is not None
    chosen = record.candidates["selected"]
    assert torch.equal(record.candidates["pseudo_label"][chosen], record.candidates[column][chosen])


def test_a_random_weight_lies_between_both_predictions_and_differs_by_sample() -> None:
    world = after_warmup(pseudo_label="random-weight")
    record = world.method.before_stage(1, world.look)
    assert record is not None
    chosen = record.candidates["selected"]
    label, model, near = (record.candidates[name][chosen] for name in ("pseudo_label", "model", "neighbours"))
    weight = ((label - near) / (model - near)).nanmedian(dim=1).values
    assert ((weight >= -1e-3) & (weight <= 1 + 1e-3)).all()
    assert weight.std() > 0.05


def test_without_purification_all_selected_become_anchors() -> None:
    world = after_warmup(purification=False)
    world.method.before_stage(1, world.look)
    assert set(world.pools.selected.tolist()) <= set(world.pools.anchors.tolist())


def test_the_two_terms_are_means_over_their_own_pools() -> None:
    world = after_warmup()
    world.method.before_stage(1, world.look)
    stage = world.method.stage(1)
    assert stage is not None
    assert torch.equal(stage.draws["labelled"].ids, world.pools.labelled)
    assert torch.equal(stage.draws["selected"].ids, world.pools.selected)
    batch = world.batch(stage)
    network = world.method.networks().trained.eval()
    losses = world.method.losses(batch)
    for name, part in batch.items():
        alone = torch.nn.functional.binary_cross_entropy_with_logits(network(part.images).logits, part.targets)
        assert torch.allclose(losses[name], alone, atol=1e-5)


def test_the_union_is_one_mean_over_one_pool() -> None:
    world = after_warmup(loss="union")
    world.method.before_stage(1, world.look)
    stage = world.method.stage(1)
    assert stage is not None
    assert list(stage.draws) == ["labelled"]
    assert len(stage.draws["labelled"].ids) == LABELLED + len(world.pools.selected)


def test_true_labels_apart_keep_a_term_of_their_own() -> None:
    world = after_warmup(true_labels="apart")
    world.run_stage(1, 1)
    selected_before = world.pools.labelled[LABELLED:]
    world.method.before_stage(2, world.look)
    stage = world.method.stage(2)
    assert stage is not None
    assert stage.draws["labelled"].ids.tolist() == list(range(LABELLED))
    assert set(stage.draws["selected"].ids.tolist()) == set(selected_before.tolist()) | set(
        world.pools.selected.tolist()
    )


def test_reinitialising_forgets_the_weights() -> None:
    world = after_warmup(reinitialise=True)
    trained = world.method.networks().trained
    before = trained.head.weight.clone()
    world.method.before_stage(1, world.look)
    assert world.method.networks().trained is trained
    assert not torch.equal(trained.head.weight, before)
    assert torch.equal(trained.head.weight, world.method.networks().predictor.head.weight)


def test_training_ends_after_its_stages_or_when_nothing_is_left() -> None:
    world = after_warmup()
    assert world.method.before_stage(3, world.look) is None
    assert world.method.stage(3) is None
    world.pools.select(world.pools.unlabelled, torch.zeros(UNLABELLED, CLASSES))
    world.pools.merge()
    assert world.method.before_stage(1, world.look) is None
    assert world.method.stage(1) is None


def test_a_stage_in_which_nothing_was_selected_trains_on_the_labelled_alone() -> None:
    world = after_warmup()
    stage = world.method.stage(1)
    assert stage is not None
    assert list(stage.draws) == ["labelled"]


def test_k_may_depend_on_the_labelled_fraction_as_in_the_paper() -> None:
    settings = ACPLSettings.parse({"k": {0.05: 200, 1.0: 50}})
    assert [settings.neighbours(f) for f in (0.02, 0.05, 0.1, 0.2)] == [200, 200, 50, 50]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"k": 0}, "k should be greater than 0, but it is 0"),
        ({"sets": 5}, "sets should be less than or equal to 4, but it is 5"),
        ({"select": "medium", "sets": 2}, "select 'medium' needs sets to be 3, but it is 2"),
        ({"select": "highest"}, "select should be 'high', 'medium' or 'low', but it is 'highest'"),
        ({"pseudo_label": "mixup", "loss": "union"}, "pseudo_label 'mixup' mixes selected images alone"),
    ],
)
def test_an_impossible_setting_is_refused_in_one_sentence(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        ACPLSettings.parse(wrong)


def test_a_budget_is_spent_to_the_step_while_samples_are_left() -> None:
    world = World("acpl", Task.MULTI_LABEL, steps=50, k=3)
    taken = []
    for index in range(4):
        world.method.before_stage(index, world.look)
        stage = world.method.stage(index)
        if stage is None:
            break
        taken.append(stage.steps)
        world.method.after_stage(index)
    warm_up, all_stages = 8 * 2, 2 * 2 * 5  # steps of the schedule: 12 labelled, 52 in all, 6 a batch
    assert taken[0] == 50 * warm_up // (warm_up + all_stages)
    assert len(taken) == 3
    assert sum(taken) == 50


def test_the_budget_that_its_own_schedule_would_take_leaves_the_warm_up_as_it_is() -> None:
    plain = World("acpl", Task.MULTI_LABEL, k=3)
    own = plain.method.stage(0)
    usual = usual_steps(plain.method.context.schedule, LABELLED, UNLABELLED)  # type: ignore[attr-defined]
    told = World("acpl", Task.MULTI_LABEL, k=3, steps=usual).method.stage(0)
    assert own is not None
    assert told is not None
    assert told.steps == own.steps

"""Methods that learn from images alone besides: by contrast, and by telling real from drawn."""

import torch
from torch.nn import functional as F

from acpl.algorithms.s2mts2 import joint_contrastive
from acpl.algorithms.ss_dcgan import Generator
from acpl.task import Task
from tests.algorithms.method_tester import MethodTester, World


class TestSSDCGAN(MethodTester):
    name = "ss-dcgan"
    settings = {"width": 16}  # noqa: RUF012


class TestS2MTS2(MethodTester):
    name = "s2mts2"
    settings = {"queue": 32, "dimensions": 8, "weight": 1.0}  # noqa: RUF012
    learns_in = 1


def test_the_generator_s_term_moves_the_generator_alone_and_the_others_never_do() -> None:
    for task in Task:
        world = World("ss-dcgan", task, width=16)
        stage = world.method.stage(0)
        assert stage is not None
        trained = world.method.networks().trained
        for name, term in world.method.losses(world.batch(stage)).items():
            trained.zero_grad()
            term.backward(retain_graph=True)
            moved = {part for part in trained if any(p.grad is not None for p in trained[part].parameters())}  # type: ignore[attr-defined,index]
            assert ("generator" in moved) == (name == "generator")
            assert ("network" in moved) == (name != "generator")


def test_drawn_images_do_not_touch_the_classifier_s_statistics() -> None:
    world = World("ss-dcgan", Task.MULTI_LABEL, width=16)
    twin = World("ss-dcgan", Task.MULTI_LABEL, width=16)
    stage = world.method.stage(0)
    assert stage is not None
    batch = world.batch(stage)
    world.method.networks().trained.train()
    twin.method.networks().trained.train()
    world.method.losses(batch)
    network = twin.method.networks().trained["network"]  # type: ignore[index]
    network(torch.cat([part.images for part in batch.values()]))
    ours = dict(world.method.networks().trained["network"].named_buffers())  # type: ignore[index]
    assert all(torch.allclose(ours[name], value) for name, value in network.named_buffers())


def test_real_and_drawn_are_told_apart_by_the_network_as_it_classifies() -> None:
    """With the statistics of a batch, each its own: told apart in another mode, it would predict what nobody taught."""
    world = World("ss-dcgan", Task.MULTI_CLASS, width=16)
    stage = world.method.stage(0)
    assert stage is not None
    world.method.networks().trained.train()
    network = world.method.networks().trained["network"]  # type: ignore[index]
    norm = next(module for module in network.modules() if isinstance(module, torch.nn.BatchNorm2d))
    means = []
    norm.register_forward_hook(
        lambda _, __, out: means.append(((out - norm.bias.view(1, -1, 1, 1)).mean().abs(), len(out)))
    )
    world.method.losses(world.batch(stage))
    assert [count for _, count in means] == [12, 6, 6], "all real images once, drawn ones for either side"
    assert all(mean < 1e-5 for mean, _ in means), "the mean of what it normalises is its own"
    assert all(norm._buffers[name] is not None for name in ("running_mean", "running_var", "num_batches_tracked"))


def test_the_generator_draws_the_size_that_is_asked_for() -> None:
    drawn = Generator(16, 3)(torch.randn(2, 64), torch.zeros(1, 3, 40, 56))
    assert drawn.shape == (2, 3, 40, 56)
    assert drawn.abs().max() <= 3


def test_joint_contrast_is_plain_contrast_when_the_keys_agree() -> None:
    query, key, others = (F.normalize(torch.randn(n, 6), dim=1) for n in (5, 5, 9))
    keys = key[:, None].expand(-1, 4, -1)
    logits = torch.cat([(query * key).sum(dim=1, keepdim=True), query @ others.T], dim=1) / 0.1
    expected = F.cross_entropy(logits, torch.zeros(5, dtype=torch.int64))
    assert torch.allclose(joint_contrastive(query, keys, others, 0.1, spread=2.0), expected, atol=1e-5)


def test_joint_contrast_adds_the_keys_covariance() -> None:
    torch.manual_seed(0)
    query, others = F.normalize(torch.randn(3, 4), dim=1), F.normalize(torch.randn(7, 4), dim=1)
    keys = F.normalize(torch.randn(3, 5, 4), dim=2)
    total = 0.0
    for i in range(3):
        mean = keys[i].mean(dim=0)
        covariance = (keys[i] - mean).T @ (keys[i] - mean) / 5
        positive = query[i] @ mean / 0.5
        bulge = 1.5 * query[i] @ covariance @ query[i] / (2 * 0.5**2)
        below = torch.exp(positive + bulge) + torch.exp(query[i] @ others.T / 0.5).sum()
        total += float(torch.log(below) - positive)
    found = joint_contrastive(query, keys, others, 0.5, spread=1.5)
    assert torch.allclose(found, torch.tensor(total / 3), atol=1e-5)


def test_the_queue_goes_round() -> None:
    world = World("s2mts2", Task.MULTI_CLASS, queue=8, dimensions=4)
    before = world.method.state_dict()["queue"].clone()
    world.run_stage(0, 2)  # two batches of six into a queue of eight
    state = world.method.state_dict()
    assert state["next"] == 12 % 8
    assert not torch.equal(state["queue"], before)
    assert torch.allclose(state["queue"].norm(dim=1), torch.ones(8), atol=1e-5)


def test_pre_training_and_fine_tuning_share_the_budget() -> None:
    world = World("s2mts2", Task.MULTI_LABEL, steps=100)
    first, second, third = (world.method.stage(index) for index in range(3))
    assert first is not None
    assert second is not None
    assert (first.steps, second.steps, third) == (30, 70, None)
    method = world.method
    method.step.fill_(30)  # type: ignore[attr-defined]
    assert float(method.ramp_up(0.4)) < 0.01  # type: ignore[attr-defined]
    method.step.fill_(30 + 27)  # type: ignore[attr-defined]
    assert float(method.ramp_up(0.4)) == 1  # type: ignore[attr-defined]

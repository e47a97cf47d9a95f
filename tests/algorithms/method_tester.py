"""What every method must keep, for one line of declaration: subclass and name it."""

import copy
import math
from typing import Any

import pytest
import torch

from acpl import algorithms
from acpl.algorithms.contract import Averaged, Batch, Context, Method, Samples, Schedule, Share, Stage, Views
from acpl.data.pools import Pools
from acpl.errors import UserError
from acpl.functional.group import ALONE, Group
from acpl.models import Classifier, WeightAverage, build_classifier, classification_loss, probabilities
from acpl.models.norms import NormActivation
from acpl.task import Task

CLASSES, LABELLED, UNLABELLED, SIZE = 3, 12, 40, 32


class Eye:
    """The engine's look at tiny images, in one batch."""

    def __init__(self, images: torch.Tensor, task: Task, group: Group = ALONE) -> None:
        self.images, self.task, self.group = images, task, group

    def __call__(self, network: Classifier, ids: torch.Tensor) -> Views:
        network.eval()
        with torch.no_grad():
            out = network(self.images[ids])
        network.train()
        return Views(out.features, probabilities(out.logits, self.task))

    def share(self, network: Classifier, ids: torch.Tensor) -> Share:
        whole = self(network, ids)  # one batch whatever the group: the same bits
        own = torch.arange(len(ids)).tensor_split(self.group.size)[self.group.rank]
        return Share(ids[own], Views(whole.features[own], whole.probabilities[own]))

    def best(self) -> Classifier | None:
        return None


class World:
    """A method on a tiny set whose unlabelled samples have no label to be read."""

    def __init__(self, name: str, task: Task, device: str = "cpu", *, group: Group = ALONE, **settings: Any) -> None:
        self.device = device
        generator = torch.Generator().manual_seed(0)
        torch.manual_seed(0)
        count = LABELLED + UNLABELLED
        kinds = torch.arange(count) % CLASSES
        self.images = torch.rand(count, 1, SIZE, SIZE, generator=generator) * 0.3
        for kind in range(CLASSES):
            self.images[kinds == kind, :, 8 * kind : 8 * kind + 8] += 1.0
        labels = torch.nn.functional.one_hot(kinds, CLASSES).float()
        self.pools = Pools(torch.arange(LABELLED), labels[:LABELLED], torch.arange(LABELLED, count))
        context = Context(
            task=task,
            classes=CLASSES,
            pools=self.pools,
            schedule=Schedule(batch_size=6, warmup_epochs=8, stages=2, stage_epochs=2),
            fraction=0.2,
            seed=0,
            build=self._build,
            group=group,
        )
        self.look = Eye(self.images, task, group)
        found = algorithms.find(name)
        self.method: Method = found(found.Settings.parse(settings), context)

    def _build(self) -> Averaged:
        network = build_classifier("small", channels=1, classes=CLASSES).to(self.device)
        return Averaged(network, WeightAverage(network, 0.9))

    def batch(self, stage: Stage) -> Batch:
        """One batch of a stage, in a fixed order."""
        drawn = {}
        for name, draw in stage.draws.items():
            ids = draw.ids[torch.arange(draw.batch_size) % len(draw.ids)]
            targets = self.pools.targets(ids) if draw.known else torch.full((len(ids), CLASSES), torch.nan)
            views = [self.images[ids] + 0.05 * torch.randn(len(ids), 1, SIZE, SIZE) for _ in draw.views[1:]]
            drawn[name] = Samples(ids, self.images[ids], targets, tuple(views))
        return drawn

    def step(self, stage: Stage, optimiser: torch.optim.Optimizer) -> float:
        """One gradient step; the sum of its losses."""
        self.method.networks().trained.train()
        batch = self.batch(stage)
        losses = self.method.losses(batch)
        optimiser.zero_grad()
        torch.stack(list(losses.values())).sum().backward()
        optimiser.step()
        self.method.after_step(batch)
        return sum(term.item() for term in losses.values())

    def labelled_loss(self) -> float:
        """What the predictor's loss is on the labelled images."""
        ids = self.pools.given
        with torch.no_grad():
            logits = self.method.networks().predictor.eval()(self.images[ids]).logits
        return classification_loss(logits, self.pools.targets(ids), self.look.task).item()

    def run_stage(self, index: int, steps: int) -> list[float]:
        """A stage cut to so many steps; its losses."""
        self.method.before_stage(index, self.look)
        stage = self.method.stage(index)
        assert stage is not None
        optimiser = torch.optim.Adam(self.method.networks().trained.parameters(), lr=3e-3)
        losses = [self.step(stage, optimiser) for _ in range(steps)]
        self.method.after_stage(index)
        return losses


def assert_same_state(one: Any, other: Any, where: str = "state") -> None:
    """Two methods' states, with all that lies below them, are the same."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            assert_same_state(one[key], other[key], f"{where}.{key}")
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one.nan_to_num(), other.nan_to_num()), where
    else:
        assert one == other, where


class MethodTester:
    """Subclass, set ``name`` (and ``settings``), and get these."""

    name: str
    settings: dict[str, Any] = {}  # noqa: RUF012
    learns_in: int = 0
    """The first stage that sees labels."""
    learns_within: int = 50
    """Steps of it; a slow teacher takes more."""
    learns_with: dict[str, Any] = {}  # noqa: RUF012 — where the settings above are for looking at gradients only

    @pytest.fixture(params=list(Task))
    def world(self, request: pytest.FixtureRequest) -> World:
        return World(self.name, request.param, **self.settings)

    def test_every_loss_term_has_a_gradient_in_every_stage(self, world: World) -> None:
        index = 0
        while True:
            world.method.before_stage(index, world.look)
            stage = world.method.stage(index)
            if stage is None:
                break
            # A memory of earlier predictions, or of keys, is empty before the first step.
            world.step(stage, torch.optim.Adam(world.method.networks().trained.parameters(), lr=1e-4))
            losses = world.method.losses(world.batch(stage))
            assert losses
            for term in losses.values():
                world.method.networks().trained.zero_grad()
                term.backward(retain_graph=True)
                gradients = [p.grad for p in world.method.networks().trained.parameters() if p.grad is not None]
                norm = math.sqrt(sum(float(g.square().sum()) for g in gradients))
                assert math.isfinite(norm)
                assert norm > 1e-6
            world.method.after_stage(index)
            index += 1
        assert index > 0

    def test_no_later_stage_shows_more_images_than_the_first_names(self, world: World) -> None:
        """The batch size that is named when memory does not suffice must fit to the end."""
        images, index = [], 0
        while True:
            world.method.before_stage(index, world.look)
            stage = world.method.stage(index)
            if stage is None:
                break
            images.append(stage.images())
            world.method.after_stage(index)
            index += 1
        assert max(images) == images[0]

    def test_images_that_show_another_besides_can_be_taught(self) -> None:
        world = World(self.name, Task.MULTI_CLASS, **self.settings)
        for index in range(2):
            world.method.before_stage(index, world.look)
            stage = world.method.stage(index)
            if stage is None:
                break
            batch = world.batch(stage)
            mixed = {
                name: part._replace(own=torch.full((len(part.ids),), 0.5)) if stage.draws[name].mixes else part
                for name, part in batch.items()
            }
            losses = world.method.losses(mixed)
            world.method.after_step(mixed)
            assert all(torch.isfinite(loss) for loss in losses.values())
            world.method.after_stage(index)

    def test_a_step_with_norms_by_passes_is_the_same_step(self, monkeypatch: pytest.MonkeyPatch, world: World) -> None:
        """As a GPU takes it, whose kernels those passes are; there nothing else does them."""
        plain, calls = NormActivation.forward, []

        def by_passes(norm: NormActivation, x: torch.Tensor) -> torch.Tensor:
            if not norm.training:
                return plain(norm, x)
            calls.append(norm)
            return norm.by_passes(x)

        twin, found = World(self.name, world.look.task, **self.settings), []
        for one, forward in ((twin, plain), (world, by_passes)):
            monkeypatch.setattr(NormActivation, "forward", forward)
            torch.manual_seed(0)
            one.method.before_stage(0, one.look)
            stage = one.method.stage(0)
            assert stage is not None
            trained = one.method.networks().trained.train()
            terms = one.method.losses(one.batch(stage))
            torch.stack(list(terms.values())).sum().backward()
            gradients = [parameter.grad for parameter in trained.parameters() if parameter.grad is not None]
            found.append([*terms.values(), *gradients, *trained.buffers()])
        assert calls
        assert len(found[0]) == len(found[1])
        assert all(torch.allclose(*pair, rtol=1e-3, atol=1e-4) for pair in zip(*found, strict=True))

    def test_the_averaged_copy_moves_and_gets_no_gradient(self, world: World) -> None:
        before = [p.clone() for p in world.method.networks().predictor.parameters()]
        world.run_stage(0, 2)
        after = list(world.method.networks().predictor.parameters())
        assert all(p.grad is None and not p.requires_grad for p in after)
        assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))

    @pytest.mark.parametrize("task", list(Task))
    def test_the_predictor_learns_the_labels_of_a_tiny_set(self, task: Task) -> None:
        world = World(self.name, task, **{**self.settings, **self.learns_with})
        before = world.labelled_loss()
        for index in range(self.learns_in):
            world.run_stage(index, 5)
        world.run_stage(self.learns_in, self.learns_within)
        assert world.labelled_loss() < 0.5 * before

    def test_state_saved_and_restored_goes_on_identically(self, world: World) -> None:
        world.run_stage(0, 3)
        other = World(self.name, world.look.task, **self.settings)
        other.method.load_state_dict(copy.deepcopy(world.method.state_dict()))
        assert_same_state(world.method.state_dict(), other.method.state_dict())
        for one in (world, other):
            torch.manual_seed(1)
            one.method.before_stage(1, one.look)
            if (stage := one.method.stage(1)) is not None:
                optimiser = torch.optim.Adam(one.method.networks().trained.parameters(), lr=1e-3)
                one.step(stage, optimiser)
        first, second = (one.method.networks().predictor.state_dict() for one in (world, other))
        assert all(torch.equal(first[key], second[key]) for key in first)

    def test_what_a_step_changes_is_where_the_networks_are(self) -> None:
        """A number on the host would stay what it was when a GPU recorded the step."""
        method = World(self.name, Task.MULTI_LABEL, device="meta", **self.settings).method
        parts: list[Any] = [method, *vars(method).values()]
        parts += [value.average for value in vars(method).values() if isinstance(value, Averaged)]
        tensors = [value for value in vars(method).values() if isinstance(value, torch.Tensor)]
        for part in parts:
            if isinstance(part, torch.nn.Module):
                tensors += [*part.parameters(), *part.buffers()]
        assert tensors
        assert {tensor.device.type for tensor in tensors} == {"meta"}

    def test_a_wrong_setting_is_refused_by_name(self) -> None:
        with pytest.raises(UserError, match="unknown setting 'nonsense'"):
            algorithms.find(self.name).Settings.parse({**self.settings, "nonsense": 1})

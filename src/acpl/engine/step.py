"""One gradient step, from sample ids to the averaged copy: the same code run as written, or recorded and replayed."""

import copy
import gc
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from acpl.algorithms.contract import Draw, Method, Samples, Stage, mixed_rows
from acpl.config import Config
from acpl.data.augment import Augmentation, Part, View, augment_as, normalise, patched
from acpl.data.pools import Pools
from acpl.data.store import ImageStore
from acpl.engine.crew import check_batch_size
from acpl.engine.device import Device
from acpl.engine.exchange import Exchange
from acpl.engine.feed import feed_for
from acpl.engine.processes import OneProcess, Processes
from acpl.engine.recording import WARM_RUNS, CudaRecording, Recording, Repeated
from acpl.models.shared_norms import part_ways

TRIED = WARM_RUNS + 2  # steps: the last two from a recording, where there is one


@dataclass(frozen=True)
class Workbench:
    """What every step of a run is made with."""

    config: Config
    device: Device
    store: ImageStore
    pools: Pools
    mean: Tensor
    std: Tensor
    generator: torch.Generator
    """Draws the augmentation; on the device, and for the whole batch on every process."""
    processes: Processes | OneProcess = field(default_factory=OneProcess)

    @property
    def part(self) -> Part:
        """Which part of each batch is this process's."""
        return Part(self.processes.rank, self.processes.size)

    def recording(self) -> Recording | None:
        """Where steps are recorded: on a GPU, unless that is switched off."""
        if self.device.torch.type == "cuda" and self.config.cuda_graphs:
            return CudaRecording([self.generator])
        return None


class TrainingStep:
    """Steps of one kind: the same draws of the same sizes through the same method.

    It is recorded at most once, however many stages run through it: their ids, targets and learning rates are
    copied to where it reads them.
    """

    def __init__(self, bench: Workbench, method: Method, stage: Stage, optimiser: torch.optim.Adam) -> None:
        self._bench = bench
        self._method = method
        self._draws = dict(stage.draws)
        self._optimiser = optimiser
        config = bench.config
        self._how = Augmentation(config.crop, config.ratio, config.flip, config.turns, config.colours, config.crop_size)
        device = bench.device.torch
        self._feed = feed_for(bench.store, bench.device)
        self._targets = bench.pools.table().to(device, copy=True)
        self._classes = bench.pools.classes
        self._totals: dict[str, Tensor] = {}
        self._last: dict[str, Tensor] = {}
        self._count = torch.zeros((), dtype=torch.int64, device=device)
        self._first_bad: dict[str, Tensor] = {}
        self._part = bench.part
        for name, draw in stage.draws.items():
            check_batch_size(draw.batch_size, self._part.parts, f"the draw '{name}' of", even=config.cutmix > 0)
        several = isinstance(bench.processes, Processes)
        # What processes exchange within a step is not recorded: one that was lost would leave the others hanging.
        recordable = getattr(method, "recordable", False) and not several
        self._exchange = Exchange(bench.processes) if isinstance(bench.processes, Processes) else None
        self._work = Repeated(self._step, bench.recording() if recordable else None)

    def begin_stage(self, stage: Stage) -> None:
        """The stage's targets, and only samples that have an image, and a target where the draw says so."""
        for draw in stage.draws.values():
            self._bench.store.require(draw.ids)
            if draw.known:
                self._bench.pools.targets(draw.ids)
        self._targets.copy_(self._bench.pools.table())

    def begin_epoch(
        self, orders: Mapping[str, Tensor], first: int = 0, so_far: Mapping[str, float] | None = None
    ) -> None:
        """An epoch's ids, whole batches; from step ``first`` on, with the sums of losses of the steps before it."""
        own = {name: order[:, self._part.rows(order.shape[1])].contiguous() for name, order in orders.items()}
        self._feed.begin(own, first)
        self._count.fill_(first)
        for bad in self._first_bad.values():
            bad.fill_(-1)
        for name, total in self._totals.items():
            total.fill_((so_far or {}).get(name, 0.0))
        if so_far and not self._totals:
            self._totals = {n: torch.tensor(v, device=self._bench.device.torch) for n, v in so_far.items()}

    def __call__(self, step: int) -> None:
        """Take step ``step`` of the epoch."""
        self._feed.load(step)
        self._work()

    def losses(self) -> dict[str, float]:
        """The last step's, by name; reading waits for the device."""
        return {name: float(value) for name, value in self._last.items()}

    def totals(self) -> dict[str, float]:
        """Sums over the epoch so far, by name."""
        return {name: float(value) for name, value in self._totals.items()}

    def first_bad(self) -> int | None:
        """The first step of the epoch whose loss was not a finite number."""
        steps = [step for step in (int(bad) for bad in self._first_bad.values()) if step >= 0]
        return min(steps, default=None)

    def bad_at(self, step: int) -> list[str]:
        """Which losses stopped being finite numbers at this step."""
        return [name for name, bad in self._first_bad.items() if int(bad) == step]

    def _step(self) -> None:
        batch = {name: self._samples(name, draw) for name, draw in self._draws.items()}
        with self._bench.device.autocast():
            losses = self._method.losses(batch)
        total = torch.stack(list(losses.values())).sum()
        total.backward()  # type: ignore[no-untyped-call]
        told = {name: loss.detach() for name, loss in losses.items()}
        if self._exchange is not None:
            told = self._exchange.mean(self._optimiser.param_groups[0]["params"], told)
        self._optimiser.step()
        self._optimiser.zero_grad(set_to_none=True)
        self._method.after_step(batch)
        self._note(told)

    def _samples(self, name: str, draw: Draw) -> Samples:
        bench, ids = self._bench, self._feed.ids(name)
        images = normalise(self._feed.images(name), bench.mean, bench.std)
        views = [
            augment_as(view, images, self._how, bench.generator, self._part)
            for view in shown_as(draw, distort=bench.config.distort)
        ]
        own = None
        if bench.config.cutmix > 0 and draw.mixes:
            views, own = patched(views, bench.config.cutmix, bench.generator, self._part)
        first, *more = (view.contiguous(memory_format=torch.channels_last) for view in views)
        if draw.known:
            targets = mixed_rows(self._targets[ids], own)
        else:
            targets = self._targets.new_full((len(ids), self._classes), torch.nan)
        return Samples(ids, first, targets, tuple(more), own)

    def _note(self, losses: Mapping[str, Tensor]) -> None:
        for name, loss in losses.items():
            if name not in self._totals:
                self._totals[name] = torch.zeros_like(loss)
            if name not in self._last:
                self._last[name] = torch.zeros_like(loss)
                self._first_bad[name] = torch.full_like(self._count, -1)
            self._totals[name] += loss
            self._last[name].copy_(loss)
            bad = self._first_bad[name]
            bad.copy_(torch.where((bad < 0) & ~torch.isfinite(loss), self._count, bad))
        self._count += 1


def shown_as(draw: Draw, *, distort: bool) -> tuple[View, ...]:
    """How a draw's images are augmented. Distorted are those that are taught: labelled ones, and those that a method
    sees but once; where it compares two views of an image, they are its own affair."""
    if distort and (draw.known or len(draw.views) == 1):
        strong: View = "strong"
        return (strong,) * len(draw.views)
    return draw.views


class Trial:
    """Steps of a stage in smaller batches, to see whether they fit, to the last stage; what they do to the networks is
    of no use."""

    def __init__(self, bench: Workbench, method: Method, stage: Stage) -> None:
        self._bench = bench
        self._method = method
        self._stage = stage
        self._optimiser = fresh_optimiser(method, bench.config, bench.device)

    def __call__(self, size: int) -> None:
        """Steps enough that one is recorded and replayed, with this ``batch_size``; an error where there is no room."""
        self._method.networks().trained.zero_grad(set_to_none=True)
        gc.collect()
        if self._bench.device.torch.type == "cuda":
            torch.cuda.empty_cache()
        share = size / self._bench.config.batch_size * self._stage.images() / self._stage.shown()
        draws = {
            name: replace(draw, batch_size=max(2, math.ceil(draw.batch_size * share)))
            for name, draw in self._stage.draws.items()
        }
        step = TrainingStep(self._bench, self._method, replace(self._stage, draws=draws), self._optimiser)
        step.begin_stage(self._stage)
        source = torch.Generator().manual_seed(0)
        step.begin_epoch({name: epoch_order(draw, TRIED, source) for name, draw in draws.items()})
        for number in range(TRIED):
            step(number)
        step.losses()  # waits for the device


class Passes:
    """Passes of smaller batches through a copy of the predictor, to see whether they fit: for a process among several,
    whose steps would wait for the others."""

    def __init__(self, bench: Workbench, method: Method, stage: Stage) -> None:
        self._bench = bench
        self._images = stage.images() / bench.config.batch_size / bench.processes.size
        self._network = copy.deepcopy(method.networks().predictor).requires_grad_(True).train()
        part_ways(self._network)

    def __call__(self, size: int) -> None:
        """One pass with this ``batch_size``; an error where there is no room."""
        device, side = self._bench.device, self._bench.config.shown_size
        count = math.ceil(size * self._images)
        images = torch.zeros(count, self._bench.store.channels, side, side, device=device.torch)
        with device.autocast():
            self._network(images).logits.float().sum().backward()  # type: ignore[no-untyped-call]


def kind(stage: Stage) -> tuple[object, ...]:
    """What two stages must share to go through one ``TrainingStep``."""
    return tuple((name, draw.batch_size, draw.views, draw.known) for name, draw in stage.draws.items())


def fresh_optimiser(method: Method, config: Config, device: Device) -> torch.optim.Adam:
    """Adam over all that the method trains."""
    on_gpu = device.torch.type == "cuda"
    return torch.optim.Adam(
        method.networks().trained.parameters(),
        # On a GPU the rate is a tensor, so that a recorded step sees it change.
        lr=torch.tensor(config.learning_rate, device=device.torch) if on_gpu else config.learning_rate,
        betas=config.betas,
        eps=config.eps,
        weight_decay=config.weight_decay,
        fused=True,
        capturable=on_gpu,
    )


def restart(optimiser: torch.optim.Adam) -> None:
    """Forget what was learnt about the gradients, in place."""
    for state in optimiser.state.values():
        for value in state.values():
            value.zero_()


def restore(optimiser: torch.optim.Adam, state: Mapping[str, Any]) -> None:
    """Go on from a saved state, perhaps on another device: how it computes here stays as it is."""
    own = [{key: group[key] for key in ("lr", "fused", "foreach", "capturable")} for group in optimiser.param_groups]
    optimiser.load_state_dict(dict(state))
    for group, mine in zip(optimiser.param_groups, own, strict=True):
        group.update(mine)


def set_rate(optimiser: torch.optim.Adam, value: float) -> None:
    """The learning rate of the next step."""
    for group in optimiser.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(value)
        else:
            group["lr"] = value


def rate(schedule: str, progress: float) -> float:
    """What the learning rate is multiplied by at this share of the stage."""
    if schedule == "step":
        return 0.1 if progress >= 0.7 else 1.0
    if schedule == "cosine":
        return 0.5 * (1 + math.cos(math.pi * progress))
    return 1.0


def epoch_order(draw: Draw, steps: int, generator: torch.Generator) -> Tensor:
    """(steps, batch_size) ids: pass after pass over the pool, each in a new order, cut to length.

    Every batch is full: a pool smaller than what an epoch needs is passed again.
    """
    needed = steps * draw.batch_size
    passes = math.ceil(needed / len(draw.ids))
    order = torch.cat([torch.randperm(len(draw.ids), generator=generator) for _ in range(passes)])
    return draw.ids[order[:needed]].view(steps, draw.batch_size)

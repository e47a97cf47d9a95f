"""The loop: drives a method through its contract and never asks which one it is."""

import copy
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from acpl.algorithms.contract import Batch, Draw, Method, Networks, Samples, Stage, Views
from acpl.config import Config
from acpl.data.augment import Augmentation, augment_as, normalise
from acpl.data.pools import Pools
from acpl.data.store import ImageStore
from acpl.engine.clock import Clock
from acpl.engine.device import Device, seed_everything
from acpl.engine.feature_sample import FeatureSample
from acpl.engine.inference import infer
from acpl.engine.monitor import Monitor
from acpl.engine.reporting import keep_features
from acpl.engine.run_folder import RunFolder
from acpl.evaluation import auroc, defined_mean
from acpl.models import Classifier
from acpl.task import Task

Floats = npt.NDArray[np.float64]
LOSSES_EVERY = 10  # steps between two readings of the losses: reading waits for the device


@dataclass
class Trainer:
    """Everything a run needs while it trains."""

    config: Config
    task: Task
    classes: list[str]
    pools: Pools
    images: ImageStore
    validation_ids: Tensor
    validation_truth: Tensor
    device: Device
    mean: Tensor
    std: Tensor
    folder: RunFolder
    monitor: Monitor
    clock: Clock = field(default_factory=Clock)
    steps: int = 0
    images_shown: int = 0
    _best: Classifier | None = None
    _best_score: float = -math.inf
    _seen: FeatureSample = field(default_factory=FeatureSample)
    _started: float = field(default_factory=time.perf_counter)

    def fit(self, method: Method) -> Classifier:
        """Train to the end; the network that is kept: the last predictor, or the best on validation."""
        index = 0
        while True:
            self._seen = FeatureSample()
            with self.clock("selection"):
                record = method.before_stage(index, self)
            if record is not None and record.candidates:
                self.folder.write_stage(index, record.candidates, self.classes)
                keep_features(self.folder, index, self._seen)
            stage = method.stage(index)
            if stage is None:
                break
            summary = dict(record.summary) if record is not None else {}
            planned = {"steps": stage.steps, "epoch_steps": stage.epoch_steps}
            self._tell({"event": "stage", "stage": index, "name": stage.name, **planned, **summary})
            score = self._train(method, stage, index)
            method.after_stage(index)
            if stage.snapshot:
                self.folder.write_weights(stage.name, method.networks().predictor.state_dict())
            self.folder.write_checkpoint(index, {"stage": index, "steps": self.steps, **method.state_dict()})
            self.monitor.say(_stage_line(stage.name, summary, score))
            index += 1
        if self.config.keep == "best" and self._best is not None:
            return self._best
        return method.networks().predictor

    def __call__(self, network: Classifier, ids: Tensor) -> Views:
        """What ``network`` says of these samples: the method's look at the pools."""
        views = infer(
            network,
            self.images,
            ids,
            task=self.task,
            mean=self.mean,
            std=self.std,
            device=self.device,
            progress=self.monitor.progress,
        )
        self._seen.note(ids, views.features)
        return views

    def on_validation(self, network: Classifier) -> tuple[Floats, Floats]:
        """Truth and what ``network`` says of the validation images, both (images, classes)."""
        truth = self.validation_truth.double().numpy()
        views = self(network, self.validation_ids)
        return truth, views.probabilities[:, : truth.shape[1]].double().cpu().numpy()

    def best(self) -> Classifier | None:
        """The predictor that was best on validation so far."""
        return self._best

    def _train(self, method: Method, stage: Stage, index: int) -> float:
        networks = method.networks()
        optimiser = torch.optim.Adam(
            networks.trained.parameters(),
            lr=self.config.learning_rate,
            betas=self.config.betas,
            eps=self.config.eps,
            weight_decay=self.config.weight_decay,
            fused=True,
        )
        self.monitor.begin(stage.name, stage.steps)
        score, done, epoch = math.nan, 0, 0
        while done < stage.steps:
            steps = min(stage.epoch_steps, stage.steps - done)
            networks.trained.train()
            self.monitor.epoch(epoch + 1, steps)
            with self.clock("training"):
                losses = self._epoch(method, stage, optimiser, index, epoch, done, steps)
            done += steps
            epoch += 1
            last = done >= stage.steps
            if last or (self.config.validate_every and epoch % self.config.validate_every == 0):
                with self.clock("validation"):
                    score = self._validate(networks)
            event: dict[str, Any] = {
                "event": "epoch",
                "stage": index,
                "epoch": epoch,
                "step": self.steps,
                "losses": losses,
            }
            event["images"] = self.images_shown
            if last or self.config.validate_every:
                event["validation_auroc"] = score
            event["seconds"] = round(time.perf_counter() - self._started, 3)
            self._tell(event)
        self.monitor.end()
        return score

    def _epoch(
        self,
        method: Method,
        stage: Stage,
        optimiser: torch.optim.Adam,
        index: int,
        epoch: int,
        done: int,
        steps: int,
    ) -> dict[str, float]:
        generator = seed_everything(self.config.seed, index, epoch)
        orders = {name: epoch_order(draw, steps, generator) for name, draw in stage.draws.items()}
        if self.device.torch.type != "cpu":
            generator = torch.Generator(self.device.torch).manual_seed(generator.initial_seed())
        how = Augmentation(self.config.crop, self.config.ratio, self.config.flip)
        totals: dict[str, Tensor] = {}
        for step in range(steps):
            for group in optimiser.param_groups:
                group["lr"] = self.config.learning_rate * rate(self.config.schedule, (done + step) / stage.steps)
            batch = {
                name: self._samples(draw, orders[name][step], how, generator) for name, draw in stage.draws.items()
            }
            losses = self._step(method, batch, optimiser)
            for name, loss in losses.items():
                totals[name] = totals.get(name, torch.zeros_like(loss)) + loss
            self.steps += 1
            self.images_shown += sum(len(part.ids) for part in batch.values())
            shown = {n: float(v) for n, v in losses.items()} if step % LOSSES_EVERY == 0 else {}
            self.monitor.step(shown)
        return {name: float(total) / steps for name, total in totals.items()}

    def _samples(self, draw: Draw, ids: Tensor, how: Augmentation, generator: torch.Generator) -> Samples:
        images = normalise(self.images.gather(ids).to(self.device.torch), self.mean, self.std)
        first, *more = (
            augment_as(view, images, how, generator).contiguous(memory_format=torch.channels_last)
            for view in draw.views
        )
        targets = self.pools.targets(ids) if draw.known else torch.full((len(ids), self.pools.classes), torch.nan)
        return Samples(ids, first, targets.to(self.device.torch), tuple(more))

    def _step(self, method: Method, batch: Batch, optimiser: torch.optim.Adam) -> Mapping[str, Tensor]:
        with self.device.autocast():
            losses = method.losses(batch)
        torch.stack(list(losses.values())).sum().backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        method.after_step(batch)
        return {name: loss.detach() for name, loss in losses.items()}

    def _tell(self, event: dict[str, Any]) -> None:
        """Write an event down, with the time by part so far, and let the monitor know."""
        event["time"] = self.clock.parts()
        self.folder.append_event(event)
        self.monitor.event(event)

    def _validate(self, networks: Networks) -> float:
        if len(self.validation_ids) == 0:
            return math.nan
        value = float(defined_mean(auroc(*self.on_validation(networks.predictor))))
        if value > self._best_score:
            self._best_score, self._best = value, copy.deepcopy(networks.predictor)
        return value


def epoch_order(draw: Draw, steps: int, generator: torch.Generator) -> Tensor:
    """(steps, batch_size) ids: pass after pass over the pool, each in a new order, cut to length.

    Every batch is full: a pool smaller than what an epoch needs is passed again.
    """
    needed = steps * draw.batch_size
    passes = math.ceil(needed / len(draw.ids))
    order = torch.cat([torch.randperm(len(draw.ids), generator=generator) for _ in range(passes)])
    return draw.ids[order[:needed]].view(steps, draw.batch_size)


def rate(schedule: str, progress: float) -> float:
    """What the learning rate is multiplied by at this share of the stage."""
    if schedule == "step":
        return 0.1 if progress >= 0.7 else 1.0
    if schedule == "cosine":
        return 0.5 * (1 + math.cos(math.pi * progress))
    return 1.0


def _stage_line(name: str, summary: Mapping[str, float], score: float) -> str:
    parts = [f"{name:<10}"]
    for key, value in summary.items():
        if key.endswith("_pool"):
            parts[-1] += f" (pool {value:.1%})"
        elif key.endswith("_selected"):
            parts.append(f"{key.removesuffix('_selected')} {value:.1%}")
        else:
            parts.append(f"{key} {int(value):>5}")
    if not np.isnan(score):
        parts.append(f"validation AUROC {score:.4f}")
    return "  ".join(parts)

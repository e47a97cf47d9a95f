"""The loop: drives a method through its contract and never asks which one it is."""

import copy
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from acpl.algorithms.contract import Method, Networks, Record, Share, Stage, Views
from acpl.engine.beside import Beside
from acpl.engine.checkpoints import Checkpoints, Place
from acpl.engine.clock import Clock
from acpl.engine.device import seed_everything
from acpl.engine.feature_sample import SAMPLE, FeatureSample
from acpl.engine.inference import Inference, share_of
from acpl.engine.monitor import Monitor
from acpl.engine.processes import OneProcess, Processes
from acpl.engine.reporting import keep_features
from acpl.engine.run_folder import RunFolder
from acpl.engine.step import (
    Passes,
    TrainingStep,
    Trial,
    Workbench,
    epoch_order,
    fresh_optimiser,
    kind,
    rate,
    restart,
    restore,
    set_rate,
)
from acpl.engine.stopping import Stop, Stopped
from acpl.engine.trouble import (
    Trouble,
    batch_size_that_fits,
    collapsed,
    is_out_of_memory,
    nan_sentence,
    out_of_memory,
    selection_of_none_or_all,
)
from acpl.errors import UserError
from acpl.evaluation import auroc, defined_mean
from acpl.models import Classifier
from acpl.task import Task

Floats = npt.NDArray[np.float64]
_BETWEEN_STAGES = -2  # in the place of an epoch's number
_NETWORKS = 3  # whose recorded looks are kept: the trained one, its average, another
LOSSES_EVERY = 0.25  # seconds between two readings of the losses: reading waits for the device


@dataclass
class Trainer:
    """Everything a run needs while it trains."""

    bench: Workbench
    task: Task
    classes: list[str]
    validation_ids: Tensor
    validation_truth: Tensor
    folder: RunFolder
    checkpoints: Checkpoints
    monitor: Monitor
    stop: Stop
    beside: Beside | None = None
    clock: Clock = field(default_factory=Clock)
    place: Place = field(default_factory=Place)
    _best: Classifier | None = None
    _optimiser: torch.optim.Adam | None = None
    _steps: dict[tuple[object, ...], TrainingStep] = field(default_factory=dict)
    _inferences: list[Inference] = field(default_factory=list)
    looked_at_pools: bool = False
    """Whether the method has asked between two stages what a network says: what pseudo-labels are made from."""
    _seen: FeatureSample | None = None
    """What the method looks at between two stages."""
    _started: float = field(default_factory=time.perf_counter)
    _losses_read: float = 0.0

    def fit(self, method: Method, state: Mapping[str, Any] | None = None) -> Classifier:
        """Train to the end; the network that is kept: the last predictor, or the best on validation.

        ``state`` is a checkpoint's: the run goes on where it was.
        """
        if state is not None:
            self._go_on(method, state)
        elif self.processes.size > 1:  # machines that differ may draw other first weights from the same seed
            method.load_state_dict(self.processes.told(_on_host(method.state_dict())))
        while True:
            index = self.place.stage
            summary: dict[str, float] = {}
            if not self.place.inside:
                seed_everything(self.bench.config.seed, index, _BETWEEN_STAGES)
                self._seen = FeatureSample()
                with self.clock("selection"):
                    record = self._look_over(method, index)
                if record is not None and record.candidates:
                    self.folder.write_stage(index, record.candidates, self.classes)
                    without_map = keep_features(self.folder, index, self._seen) if self._first else None
                    if without_map is not None:
                        self.monitor.say(without_map)
                        self._tell({"event": "left_out", "stage": index, "sentence": without_map})
                self._seen = None
                summary = dict(record.summary) if record is not None else {}
            stage = method.stage(index)
            if stage is None:
                break
            if not self.place.inside:
                planned = {"steps": stage.steps, "epoch_steps": stage.epoch_steps}
                self._tell({"event": "stage", "stage": index, "name": stage.name, **planned, **summary})
                self.place.enter(summary)
                self._mention(selection_of_none_or_all(stage.name, summary))
            score, fits = math.nan, True
            try:
                score = self._train(method, stage)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                fits = False
            if not fits:  # out here, where nothing holds on to the failed step's memory any more
                raise self._too_large(method, stage)
            method.after_stage(index)
            if stage.snapshot:
                self.folder.write_weights(stage.name, method.networks().predictor.state_dict())
            self.monitor.say(_stage_line(stage.name, self.place.summary, score))
            self.place.leave()
            self._save(method)
            self._stop_if(*self.processes.agree(self.stop.asked))
        if self.bench.config.keep == "best" and self._best is not None:
            return self._best
        return method.networks().predictor

    def _look_over(self, method: Method, index: int) -> Record | None:
        try:
            return method.before_stage(index, self)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            where, saved = self.bench.device.torch, self.checkpoints.newest()
            kept = f"; the last checkpoint is {saved}" if saved is not None else ""
            raise UserError(
                f"{where} has too little memory to look at the pools before stage {index}; "
                f"take a smaller size, or a smaller store_share{kept}"
            ) from None

    @property
    def processes(self) -> Processes | OneProcess:
        """Who trains together."""
        return self.bench.processes

    def __call__(self, network: Classifier, ids: Tensor) -> Views:
        """What ``network`` says of these samples: the method's look at the pools, on all processes alike."""
        views = self._own_views(network, ids)
        if self.processes.size > 1:
            views = Views(*(self.processes.gather(part) for part in views))
        if self.beside is not None:
            views = views._replace(probabilities=self.beside.guesses(views.probabilities, ids))
        if self._seen is not None:
            self.looked_at_pools = True
            self._seen.note(ids, views.features)
        return views

    def share(self, network: Classifier, ids: Tensor) -> Share:
        """What ``network`` says of this process's part of these samples."""
        rows = share_of(len(ids), self.processes.rank, self.processes.size)
        with self._random_apart():
            views = self._inference(network).share(ids[rows], self.folder.path, self.monitor.progress)
        if self.beside is not None and self.beside.shared_in_teaching > 0:
            said = self.processes.gather(views.probabilities[:].to(self.bench.device.torch))
            views = views._replace(probabilities=self.beside.guesses(said, ids)[rows])
        if self._seen is not None:
            self.looked_at_pools = True
            kept = torch.linspace(0, len(ids) - 1, min(SAMPLE, len(ids))).long()
            own = kept[(kept >= rows.start) & (kept < rows.stop)] - rows.start
            noted = views.features[own].to(self.bench.device.torch)
            self._seen.note(ids[kept], self.processes.gather(noted))
        return Share(ids[rows], views)

    def _own_views(self, network: Classifier, ids: Tensor) -> Views:
        own = ids[share_of(len(ids), self.processes.rank, self.processes.size)]
        with self._random_apart():
            return self._inference(network)(own, self.monitor.progress)

    def _random_apart(self) -> AbstractContextManager[None]:
        if self.processes.size == 1:
            return nullcontext()
        return _random_apart(self.bench.device.torch, self.processes.rank)

    def _inference(self, network: Classifier) -> Inference:
        known = [inference for inference in self._inferences if inference.network is network]
        if not known:
            bench = self.bench
            known = [
                Inference(
                    network,
                    bench.store,
                    task=self.task,
                    mean=bench.mean,
                    std=bench.std,
                    device=bench.device,
                    looks=bench.config.looks,
                    recording=bench.recording(),
                    beside=None if self.beside is None else self.beside.added,
                )
            ]
            self._inferences = [*known, *self._inferences][:_NETWORKS]
        return known[0]

    def on_validation(self, network: Classifier) -> tuple[Floats, Floats]:
        """Truth and what ``network`` says of the validation images, both (images, classes)."""
        truth = self.validation_truth.double().numpy()
        said = self(network, self.validation_ids).probabilities
        if self.beside is not None:
            said = self.beside.together(said, self.validation_ids)
        return truth, said[:, : truth.shape[1]].double().cpu().numpy()

    def best(self) -> Classifier | None:
        """The predictor that was best on validation so far."""
        return self._best

    def _train(self, method: Method, stage: Stage) -> float:
        networks, place, config = method.networks(), self.place, self.bench.config
        step = self._step_for(method, stage)
        step.begin_stage(stage)
        self.monitor.begin(stage.name, stage.steps, place.done + place.step)
        while place.done < stage.steps:
            steps = min(stage.epoch_steps, stage.steps - place.done)
            networks.trained.train()
            self.monitor.epoch(place.epoch + 1, steps, place.step)
            with self.clock("training"):
                losses = self._epoch(method, stage, step, steps)
            place.next_epoch(steps)
            last = place.done >= stage.steps
            if last or (config.validate_every and place.epoch % config.validate_every == 0):
                with self.clock("validation"):
                    place.score = self._validate(networks)
            event: dict[str, Any] = {"event": "epoch", "stage": place.stage, "epoch": place.epoch, "step": place.steps}
            event |= {"losses": losses, "images": place.images}
            if last or config.validate_every:
                event["validation_auroc"] = place.score
            event["seconds"] = round(self._seconds(), 3)
            self._tell(event)
            if not last:
                asked, due = self.processes.agree(self.stop.asked, self.checkpoints.due() and self._first)
                if asked or due:
                    self._save(method)
                    self._stop_if(asked)
        self.monitor.end()
        return place.score

    def _epoch(self, method: Method, stage: Stage, step: TrainingStep, steps: int) -> dict[str, float]:
        place, config, bench = self.place, self.bench.config, self.bench
        seed = seed_everything(config.seed, place.stage, place.epoch)
        rank = self.processes.rank
        if rank > 0:  # dropout and the like differ from part to part of a batch
            seed_everything(config.seed, place.stage, place.epoch, place.step, rank)
        bench.generator.manual_seed(seed)
        on_cpu = bench.generator.device.type == "cpu"
        source = bench.generator if on_cpu else torch.Generator().manual_seed(seed)
        orders = {name: epoch_order(draw, steps, source) for name, draw in stage.draws.items()}
        if place.random is not None:
            place.set_random(bench.generator, rank, self.processes.size)
        step.begin_epoch(orders, place.step, place.totals)
        images = sum(draw.batch_size for draw in stage.draws.values())
        current, factor = self._optimiser, math.nan
        assert current is not None
        for number in range(place.step, steps):
            wanted = rate(config.schedule, (place.done + number) / stage.steps)
            if wanted != factor:
                factor = wanted
                set_rate(current, config.learning_rate * factor)
            step(number)
            place.step += 1
            place.steps += 1
            place.images += images
            now = time.perf_counter()
            if now - self._losses_read > LOSSES_EVERY:
                self._losses_read = now
                self.monitor.step(step.losses())
                self._refuse_nan(stage, step, orders)
            else:
                self.monitor.step({})
            if self.processes.flag(self.stop.asked) and place.step < steps:
                self._refuse_nan(stage, step, orders)
                place.remember(step.totals(), bench.generator, self.processes)
                self._save(method)
                self._stop_if(True)
        self._refuse_nan(stage, step, orders)
        return {name: total / steps for name, total in step.totals().items()}

    @property
    def _first(self) -> bool:
        """Whether this process writes what the run leaves."""
        return self.processes.rank == 0

    def _stop_if(self, asked: bool) -> None:
        if asked:
            raise Stopped(self.folder.path, f"at step {self.place.steps}, nothing is lost; go on with")

    def _refuse_nan(self, stage: Stage, step: TrainingStep, orders: Mapping[str, Tensor]) -> None:
        bad = step.first_bad()
        if bad is None:
            return
        names = step.bad_at(bad)
        number = self.place.steps - self.place.step + bad + 1
        ids = {name: order[bad] for name, order in orders.items()}
        rate_now, mixed = self.bench.config.learning_rate, self.bench.device.mixed
        raise UserError(nan_sentence(number, stage.name, names, ids, self.checkpoints.newest(), rate_now, mixed=mixed))

    def _mention(self, trouble: Trouble | None) -> None:
        if trouble is not None:
            self.monitor.say(trouble.sentence)
            self._tell(trouble.event())

    def _tell(self, event: dict[str, Any]) -> None:
        """Write an event down, with the time by part so far, and let the monitor know."""
        event["time"] = self.clock.parts()
        self.folder.append_event(event)
        self.monitor.event(event)

    def _too_large(self, method: Method, stage: Stage) -> UserError:
        """What to say of a step that did not fit, and which batch size would: found by taking such steps."""
        device, config = self.bench.device, self.bench.config
        self._steps.clear()
        self._inferences.clear()
        self._optimiser = None
        attempt = (Trial if self.processes.size == 1 else Passes)(self.bench, method, stage)
        fits = batch_size_that_fits(config.batch_size, attempt)
        return out_of_memory(str(device.torch), config.batch_size, config.shown_size, fits, self.checkpoints.newest())

    def _step_for(self, method: Method, stage: Stage) -> TrainingStep:
        """The step for a stage; its optimiser has seen nothing yet, unless the run goes on inside the stage."""
        parameters = list(method.networks().trained.parameters())
        optimiser = self._optimiser
        if optimiser is None or not _same(parameters, optimiser.param_groups[0]["params"]):
            optimiser = self._optimiser = fresh_optimiser(method, self.bench.config, self.bench.device)
            self._steps.clear()
        elif self.place.fresh:
            restart(optimiser)
        found = self._steps.get(kind(stage))
        if found is None:
            self._steps.clear()  # the memory of the last kind's recording goes before the next is made
            found = self._steps[kind(stage)] = TrainingStep(self.bench, method, stage, optimiser)
        return found

    def _validate(self, networks: Networks) -> float:
        if len(self.validation_ids) == 0:
            return math.nan
        truth, said = self.on_validation(networks.predictor)
        self._mention(collapsed(said, truth, self.classes[: truth.shape[1]], self.task))
        value = float(defined_mean(auroc(truth, said)))
        if value > self.place.best_score:
            self.place.best_score = value
            if self._best is None:
                self._best = copy.deepcopy(networks.predictor)
            else:
                self._best.load_state_dict(networks.predictor.state_dict())
        return value

    def _seconds(self) -> float:
        return self.place.seconds + time.perf_counter() - self._started

    def _save(self, method: Method) -> None:
        if not self._first:
            return
        self.folder.sync_events()
        self.checkpoints.write(
            {
                "place": self.place.state_dict(self._seconds()),
                "events": self.folder.events_size(),
                "time": self.clock.parts(),
                "method": method.state_dict(),
                "optimiser": None if self._optimiser is None else self._optimiser.state_dict(),
                "best": None if self._best is None else self._best.state_dict(),
            },
            self.place.steps,
        )

    def _go_on(self, method: Method, state: Mapping[str, Any]) -> None:
        self.place.load_state_dict(state["place"])
        self.looked_at_pools = self.place.stage > 0
        self.folder.cut_events(state["events"])
        self.clock.add(state["time"])
        method.load_state_dict(state["method"])
        if state["optimiser"] is not None:
            self._optimiser = fresh_optimiser(method, self.bench.config, self.bench.device)
            restore(self._optimiser, state["optimiser"])
        if state["best"] is not None:
            self._best = copy.deepcopy(method.networks().predictor)
            self._best.load_state_dict(state["best"])


def _on_host(state: Any) -> Any:
    """A state with every tensor on the host."""
    if isinstance(state, Tensor):
        return state.cpu()
    return {name: _on_host(value) for name, value in state.items()} if isinstance(state, Mapping) else state


@contextmanager
def _random_apart(device: torch.device, rank: int) -> Iterator[None]:
    """Random numbers within are this process's own; afterwards all processes draw the same again."""
    seed = int(torch.randint(2**62, ()))
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        seed_everything(seed, rank)
        yield


def _same(parameters: list[torch.nn.Parameter], others: list[torch.nn.Parameter]) -> bool:
    return len(parameters) == len(others) and all(a is b for a, b in zip(parameters, others, strict=True))


def _stage_line(name: str, summary: Mapping[str, float], score: float) -> str:
    parts = [f"{name:<10}"]
    for key, value in summary.items():
        if key.endswith("_pool"):
            parts[-1] += f" (pool {value:.1%})"
        elif isinstance(value, float):  # a share; what is counted is whole
            parts.append(f"{key.removesuffix('_selected')} {value:.1%}")
        else:
            parts.append(f"{key} {int(value):>5}")
    if not np.isnan(score):
        parts.append(f"validation AUROC {score:.4f}")
    return "  ".join(parts)

"""What the engine asks of a method, and what it gives in return."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from acpl.data.augment import View, neighbours
from acpl.data.pools import Pools
from acpl.functional.group import ALONE, Group
from acpl.functional.survey import Source
from acpl.models import Classifier, WeightAverage
from acpl.settings import Section
from acpl.task import Task


class Samples(NamedTuple):
    """A part of a batch: one draw's augmented images and their targets."""

    ids: Tensor
    """(n,)"""
    images: Tensor
    """(n, channels, height, width): the first view."""
    targets: Tensor
    """(n, classes); NaN where the draw is of samples whose labels nobody knows."""
    more: tuple[Tensor, ...] = ()
    """Each (n, channels, height, width): the further views that the draw asks for, in its order."""
    own: Tensor | None = None
    """(n,): how much of each image is its own, where patches of neighbours are pasted in; ``targets`` are mixed so."""

    def of(self, table: Tensor) -> Tensor:
        """(n, classes): these samples' rows of a ``table`` by id, mixed as the images are."""
        return mixed_rows(table[self.ids], self.own)


def mixed_rows(rows: Tensor, own: Tensor | None) -> Tensor:
    """(n, classes): each row with its neighbour's, in the shares that the images have; that of a whole image as it is,
    whatever its neighbour leaves out (NaN)."""
    if own is None:
        return rows
    mixed = torch.lerp(rows[neighbours(len(rows), rows.device)], rows, own[:, None])
    return torch.where(own[:, None] == 1, rows, mixed)


Batch = Mapping[str, Samples]


@dataclass(frozen=True)
class Draw:
    """A stream of samples: every id once a pass, in a new order each pass, ``batch_size`` a step."""

    ids: Tensor
    batch_size: int
    views: tuple[View, ...] = ("weak",)
    """How each image is augmented, once a view and each time anew."""
    known: bool = True
    """Whether the samples have targets; those of a draw from the unlabelled pool are NaN."""
    guessed: bool = False
    """Whether the method has targets of its own for them, which it asks the samples for by ``of``."""

    @property
    def mixes(self) -> bool:
        """Whether patches of each other may be pasted into these images: where there are targets to mix."""
        return self.known or self.guessed


@dataclass(frozen=True)
class Stage:
    """A stretch of training with one optimiser, drawing from fixed pools."""

    name: str
    draws: Mapping[str, Draw]
    epoch_steps: int
    """Gradient steps an epoch."""
    steps: int
    """Gradient steps in all; the last epoch may be cut short."""
    snapshot: bool = False
    """Keep the predictor as it is at this stage's end, under the stage's name, beside the final one."""
    most_images: int = 0
    """Images that a step of a later stage may show, where those are more: so that the batch size which is named when
    memory does not suffice fits to the end."""

    def shown(self) -> int:
        """How many images a step shows, each view counted."""
        return sum(draw.batch_size * len(draw.views) for draw in self.draws.values())

    def images(self) -> int:
        """The same, of this stage or a later one."""
        return max(self.most_images, self.shown())


@dataclass(frozen=True)
class Record:
    """What happened between two stages, for the run folder and for people."""

    summary: Mapping[str, float] = field(default_factory=dict)
    """A few numbers: shown in the stage's line and written to the events."""
    candidates: Mapping[str, Tensor] = field(default_factory=dict)
    """One row a candidate: columns (n,) or (n, classes), ``id`` among them."""


class Networks(Protocol):
    """What is trained, and which network predicts."""

    @property
    def trained(self) -> nn.Module:
        """Everything that gradients change; the optimiser takes all its parameters."""
        ...

    @property
    def predictor(self) -> Classifier:
        """The network that evaluates."""
        ...


@dataclass(frozen=True)
class Averaged:
    """A network and the averaged copy that follows it and predicts."""

    trained: Classifier
    average: WeightAverage

    @property
    def predictor(self) -> Classifier:
        """The averaged copy: it evaluates and does not train."""
        network: Classifier = self.average.network  # type: ignore[assignment]
        return network

    @property
    def device(self) -> torch.device:
        """Where both are."""
        return self.trained.head.weight.device

    def become(self, other: "Averaged") -> None:
        """Take over another's weights, in place: what was recorded with these networks stays valid."""
        self.trained.load_state_dict(other.trained.state_dict())
        self.average.load_state_dict(other.average.state_dict())


class Views(NamedTuple):
    """What a network says of many samples, without augmentation."""

    features: Tensor
    """(n, features)"""
    probabilities: Tensor
    """(n, classes)"""


class StoredViews(NamedTuple):
    """The same of more samples than memory holds: rows that are read when they are asked for."""

    features: Source
    """(n, features)"""
    probabilities: Source
    """(n, classes)"""


class Share(NamedTuple):
    """This process's part of some samples, as it alone has looked at them."""

    ids: Tensor
    """(m,): consecutive ones of those that were asked for; none where there are more processes than batches."""
    views: Views | StoredViews
    """(m, …), on the device, or stored."""


class Look(Protocol):
    """The engine's eye: runs a network over samples by id."""

    def __call__(self, network: Classifier, ids: Tensor) -> Views:
        """Features and probabilities of ``ids``, in their order, on every process alike."""
        ...

    def share(self, network: Classifier, ids: Tensor) -> Share:
        """The same of this process's part of ``ids``; the parts of all, in the order of their ranks, are the whole.

        They are cut where one process would begin a new batch, so that every image is seen in the same company and its
        features are the same to the bit, however many processes there are.
        """
        ...

    def best(self) -> Classifier | None:
        """The predictor that was best on validation so far, if any was judged."""
        ...


@dataclass(frozen=True)
class Schedule:
    """How long to train, in the paper's words."""

    batch_size: int
    warmup_epochs: int
    stages: int
    stage_epochs: int


def as_said(probabilities: Tensor, ids: Tensor) -> Tensor:
    """(n, outputs): what is said of these samples where nothing is known beside their images."""
    return probabilities


@dataclass(frozen=True)
class Context:
    """All that a method may know of the run."""

    task: Task
    classes: int
    """Outputs that are reported; a network may have one more (``No Finding``)."""
    pools: Pools
    schedule: Schedule
    fraction: float
    seed: int
    build: Callable[[], Averaged]
    """A fresh network and its averaged copy, on the run's device."""
    group: Group = ALONE
    """The processes that train together. ``losses`` and ``after_step`` see this process's part of a batch; everything
    in ``state_dict`` must be the same on all, so what follows from the part alone goes through the group."""
    heard: Callable[[Tensor, Tensor], Tensor] = as_said
    """(n, outputs) from the same and ids (n,): what a step says of samples, before it teaches, with what is known of
    the unlabelled ones beside their images. What a ``look`` says has heard it already."""
    shared: Callable[[Tensor, Tensor], Tensor] | None = None
    """Where a patient's unlabelled images are to share what is said of them: (ids, outputs) from the same, what is
    remembered of every sample by id, and (ids,), whether anything is; ``heard`` is in it."""


def mean_over(group: Group, values: Tensor) -> Tensor:
    """The mean over processes of what each found on its part of a batch; all parts are of one size."""
    return values if group.size == 1 else group.sum(values) / group.size


class Method(Protocol):
    """One way to learn. Every attribute that matters for going on is in ``state_dict``."""

    name: ClassVar[str]
    summary: ClassVar[str]
    Settings: ClassVar[type[Section]]
    recordable: ClassVar[bool] = False
    """Whether a step can be recorded and replayed: ``losses`` and ``after_step`` do the same tensor work every time,
    never look at a value, and keep what changes from step to step in tensors that are changed in place."""
    edition: ClassVar[int] = 1
    """One more whenever its code is changed so that the same settings lead elsewhere: a run of an earlier edition is
    not gone on with, and no table takes it for one of this."""

    def __init__(self, settings: Any, context: Context) -> None: ...

    def networks(self) -> Networks:
        """The networks of the stage that is about to run."""
        ...

    def before_stage(self, index: int, look: Look) -> Record | None:
        """Look at the pools and move samples; called once before each stage, and once after the last."""
        ...

    def stage(self, index: int) -> Stage | None:
        """The stage with this number as the pools stand now; None when training is over."""
        ...

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Weighted scalars by name; the engine sums, differentiates and logs them."""
        ...

    def after_step(self, batch: Batch) -> None:
        """Averaging, memory banks."""
        ...

    def after_stage(self, index: int) -> None:
        """Called when a stage's last step is done."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on exactly here, networks and pools included."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` gave."""
        ...


class _Plain:
    """A class that overrides nothing."""

    nothing: ClassVar[None]


_OF_EVERY_CLASS = {*vars(_Plain), "__orig_bases__", "__parameters__"}


class StepByStep:
    """A base that makes every class which may change the step say anew whether it is ``recordable``: a recorded step
    would repeat a number that its author counts in Python, and nobody would see it.

    Which methods a step goes through cannot be known. So a class that says nothing is recordable only if all that it
    overrides of the class that did say so is ``between_stages``; what it adds besides no inherited step can call.
    """

    recordable: ClassVar[bool] = False
    between_stages: ClassVar[frozenset[str]] = frozenset(
        {"name", "summary", "Settings", "edition", "tuning", "before_stage", "stage", "after_stage", "state_dict"}
    )
    """What describes a method, and what is called only while no step runs and cannot change what the step works on."""

    def __init_subclass__(cls, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        ancestry = cls.__mro__[:-1]
        stated = next(place for place, base in enumerate(ancestry) if "recordable" in vars(base))
        inherited = {name for base in ancestry[stated:] for name in vars(base)}
        own = {name for base in ancestry[:stated] for name in vars(base) if name not in _OF_EVERY_CLASS}
        if own & inherited - cls.between_stages:
            cls.recordable = False


def single_draw(name: str, ids: Tensor, schedule: Schedule, epochs: int, *, snapshot: bool = False) -> Stage:
    """A stage that passes ``epochs`` times over one pool."""
    epoch_steps = ceil(len(ids) / schedule.batch_size)
    return Stage(name, {"labelled": Draw(ids, schedule.batch_size)}, epoch_steps, epoch_steps * epochs, snapshot)

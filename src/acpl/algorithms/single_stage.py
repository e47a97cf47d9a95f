"""What methods share that train once, on labelled and unlabelled images side by side."""

from collections.abc import Mapping
from math import ceil
from typing import Any, ClassVar

import torch
from torch import Tensor

from acpl.algorithms.budget import BudgetSettings, usual_steps
from acpl.algorithms.contract import Averaged, Batch, Context, Draw, Look, Record, Stage, StepByStep
from acpl.data.augment import View
from acpl.models import Outputs, probabilities
from acpl.settings import Section


class SingleStage(StepByStep):
    """One stage; every step shows ``batch_size`` labelled and as many unlabelled images.

    Without ``steps`` it lasts as long as ACPL would if it selected everything: the warm-up's epochs over the labelled
    images and the stages' over all. A subclass says which views it needs and what its losses are.
    """

    Settings: ClassVar[type[Section]] = BudgetSettings
    recordable: ClassVar[bool] = True
    labelled_views: ClassVar[tuple[View, ...]] = ("weak",)
    unlabelled_views: ClassVar[tuple[View, ...]] = ("weak",)
    title: ClassVar[str] = "training"

    def __init__(self, settings: Any, context: Context) -> None:
        self.settings = settings
        self.context = context
        self._networks = context.build()
        self.step = torch.zeros((), dtype=torch.int64, device=self._networks.device)
        """Steps taken: a tensor, so that a recorded step counts."""

    def networks(self) -> Averaged:
        """The network and its averaged copy."""
        return self._networks

    def before_stage(self, index: int, look: Look) -> Record | None:
        """No sample moves."""
        return None

    def stage(self, index: int) -> Stage | None:
        """All of it in one."""
        if index > 0:
            return None
        pools, size = self.context.pools, self.context.schedule.batch_size
        draws = {"labelled": Draw(pools.labelled, size, self.labelled_views)}
        if len(pools.unlabelled):
            draws["unlabelled"] = Draw(pools.unlabelled, size, self.unlabelled_views, known=False)
        return Stage(self.title, draws, ceil(len(pools.labelled) / size), self.steps)

    @property
    def steps(self) -> int:
        """Gradient steps in all."""
        given: int | None = self.settings.steps
        pools = self.context.pools
        return given or usual_steps(self.context.schedule, len(pools.labelled), len(pools.unlabelled))

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Weighted scalars by name."""
        raise NotImplementedError

    def after_step(self, batch: Batch) -> None:
        """The averaged copy follows."""
        images = torch.cat([part.images for part in batch.values()])
        self._networks.average.update(self._networks.trained, images)
        self.step += 1

    def after_stage(self, index: int) -> None:
        """Nothing to do."""

    def state_dict(self) -> dict[str, Any]:
        """Weights, and how far it has come."""
        return {
            "trained": self._networks.trained.state_dict(),
            "average": self._networks.average.state_dict(),
            "step": self.step,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` gave."""
        self._networks.trained.load_state_dict(state["trained"])
        self._networks.average.load_state_dict(state["average"])
        self.step.copy_(state["step"])

    def ramp_up(self, share: float) -> Tensor:
        """From exp(-5) at the start to 1 after this share of the steps, as Laine & Aila and Mean Teacher have it."""
        return torch.exp(-5 * (1 - self.straight_up(share)) ** 2)

    def straight_up(self, share: float) -> Tensor:
        """From 0 to 1 after this share of the steps, in a straight line."""
        return ((self.step + 1) / max(1.0, share * self.steps)).clamp_max(1.0)

    def student(self, images: Tensor) -> Outputs:
        """The network that is trained."""
        return self._networks.trained(images)

    @torch.no_grad()
    def teacher(self, images: Tensor) -> Outputs:
        """The averaged copy, with averaged batch-norm statistics; no gradient reaches it."""
        network: Any = self._networks.average.network
        out: Outputs = network(images)
        return out

    def taught(self, images: Tensor, batch: Batch) -> Tensor:
        """(n, classes): what the averaged copy says of a view of all the batch's samples, as it is taught."""
        return self.context.heard(self.sure(self.teacher(images).logits), ids_of(batch))

    def sure(self, logits: Tensor) -> Tensor:
        """(n, classes) probabilities by which this task decides."""
        return probabilities(logits, self.context.task)


def ids_of(batch: Batch) -> Tensor:
    """(n,): of all its parts, one after the other."""
    return torch.cat([part.ids for part in batch.values()])

"""Supervised training on the labelled pool alone: the floor that every other method must clear."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from torch import Tensor

from acpl.algorithms.budget import BudgetSettings
from acpl.algorithms.contract import Averaged, Batch, Context, Look, Record, Stage, single_draw
from acpl.models import classification_loss
from acpl.settings import Section


class SupervisedSettings(BudgetSettings):
    """Settings of ``supervised``."""


class Supervised:
    """One stage over the labelled pool, as long as warm-up and all stages together."""

    name: ClassVar[str] = "supervised"
    summary: ClassVar[str] = "the labelled images alone"
    Settings: ClassVar[type[Section]] = SupervisedSettings

    def __init__(self, settings: SupervisedSettings, context: Context) -> None:
        self.settings = settings
        self.context = context
        self._networks = context.build()

    def networks(self) -> Averaged:
        """The one network and its averaged copy."""
        return self._networks

    def before_stage(self, index: int, look: Look) -> Record | None:
        """Nothing moves."""
        return None

    def stage(self, index: int) -> Stage | None:
        """All of it in one."""
        if index > 0:
            return None
        schedule = self.context.schedule
        epochs = schedule.warmup_epochs + schedule.stages * schedule.stage_epochs
        stage = single_draw("supervised", self.context.pools.labelled, schedule, epochs)
        return stage if self.settings.steps is None else replace(stage, steps=self.settings.steps)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """The first term of eq. 1."""
        samples = batch["labelled"]
        logits = self._networks.trained(samples.images).logits
        return {"labelled": classification_loss(logits, samples.targets, self.context.task)}

    def after_step(self, batch: Batch) -> None:
        """The averaged copy follows."""
        self._networks.average.update(self._networks.trained, batch["labelled"].images)

    def after_stage(self, index: int) -> None:
        """Nothing to do."""

    def state_dict(self) -> dict[str, Any]:
        """Weights; the pools never change."""
        return {
            "trained": self._networks.trained.state_dict(),
            "average": self._networks.average.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Weights back."""
        self._networks.trained.load_state_dict(state["trained"])
        self._networks.average.load_state_dict(state["average"])

"""Supervised training on the labelled pool alone: the floor that every other method must clear."""

from dataclasses import replace
from typing import ClassVar

from torch import Tensor

from acpl.algorithms.contract import Batch, Stage, single_draw
from acpl.algorithms.single_stage import SingleStage
from acpl.models import classification_loss


class Supervised(SingleStage):
    """One stage over the labelled pool, as long as warm-up and all stages together."""

    name: ClassVar[str] = "supervised"
    summary: ClassVar[str] = "the labelled images alone"
    recordable: ClassVar[bool] = True

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
        logits = self.student(samples.images).logits
        return {"labelled": classification_loss(logits, samples.targets, self.context.task)}

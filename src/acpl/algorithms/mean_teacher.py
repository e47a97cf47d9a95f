"""Mean Teacher: Tarvainen & Valpola, NeurIPS 2017.

The student sees one view of every image, the averaged copy (the teacher) another, and the student's probabilities
are drawn to the teacher's. Published: squared difference averaged over classes (softmax; sigmoid here where the
task is multi-label), weight 100 for CIFAR-10 with the ramp exp(-5 (1 - t)²) over the first epochs, 1 in the
dermatology release of SRC-MT, which sums over classes. Chosen here: weight 10, ramped up over the first 40 % of
training. The published teacher runs in training mode with batch statistics of its own; this one evaluates with
averaged statistics, as it predicts.
"""

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from acpl.algorithms.budget import BudgetSettings
from acpl.algorithms.contract import Batch
from acpl.algorithms.single_stage import SingleStage
from acpl.data.augment import View
from acpl.models import classification_loss
from acpl.settings import Section


class MeanTeacherSettings(BudgetSettings):
    """Settings of ``mean-teacher``."""

    weight: float = Field(default=10.0, gt=0)
    """Of the consistency term at its height; published 100 for CIFAR-10."""
    ramp: float = Field(default=0.4, gt=0, le=1)
    """Share of the steps over which that weight rises."""


class MeanTeacher(SingleStage):
    """Consistency with the averaged copy."""

    name: ClassVar[str] = "mean-teacher"
    summary: ClassVar[str] = "consistency with an averaged copy (Tarvainen & Valpola, NeurIPS 2017)"
    Settings: ClassVar[type[Section]] = MeanTeacherSettings
    recordable: ClassVar[bool] = True
    labelled_views: ClassVar[tuple[View, ...]] = ("weak", "weak")
    unlabelled_views: ClassVar[tuple[View, ...]] = ("weak", "weak")

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Classification of the labelled, consistency of all."""
        out = self.student(torch.cat([part.images for part in batch.values()]))
        target = self.taught(torch.cat([part.more[0] for part in batch.values()]), batch)
        labelled = batch["labelled"]
        weight = self.settings.weight * self.ramp_up(self.settings.ramp)
        return {
            "labelled": classification_loss(out.logits[: len(labelled.ids)], labelled.targets, self.context.task),
            "consistency": weight * (self.sure(out.logits) - target).square().mean(),
        }

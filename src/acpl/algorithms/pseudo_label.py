"""Pseudo-Label: Lee, ICML workshop 2013, as Google's comparison of semi-supervised methods has it.

The network's own sure predictions on a view are labels for that same view. Published (multi-class): arg-max where the
probability is above 0.95, averaged over the whole unlabelled batch, weight 1 after a linear warm-up over 40 % of
training. Multi-label as in ``fixmatch``: each finding by itself, without alignment.
"""

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from acpl.algorithms.budget import BudgetSettings
from acpl.algorithms.contract import Batch
from acpl.algorithms.fixmatch import masked_loss
from acpl.algorithms.single_stage import SingleStage
from acpl.models import classification_loss
from acpl.settings import Section


class PseudoLabelSettings(BudgetSettings):
    """Settings of ``pseudo-label``."""

    confidence: float = Field(default=0.95, gt=0, lt=1)
    """How sure a prediction must be to be a label."""
    weight: float = Field(default=1.0, gt=0)
    """Of the unlabelled term at its height."""
    warm_up: float = Field(default=0.4, gt=0, le=1)
    """Share of the steps over which that weight rises, in a straight line."""


class PseudoLabel(SingleStage):
    """Sure predictions are labels."""

    name: ClassVar[str] = "pseudo-label"
    summary: ClassVar[str] = "its own sure predictions as labels (Lee, 2013)"
    Settings: ClassVar[type[Section]] = PseudoLabelSettings
    recordable: ClassVar[bool] = True

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Classification of the labelled, and of the unlabelled by the network's own sure word."""
        task, labelled = self.context.task, batch["labelled"]
        logits = self.student(torch.cat([part.images for part in batch.values()])).logits
        own, other = logits[: len(labelled.ids)], logits[len(labelled.ids) :]
        terms = {"labelled": classification_loss(own, labelled.targets, task)}
        if len(other):
            weight = self.settings.weight * self.straight_up(self.settings.warm_up)
            guess = self.context.heard(self.sure(other.detach()), batch["unlabelled"].ids)
            terms["unlabelled"] = weight * masked_loss(other, guess, self.settings.confidence, task)
        return terms

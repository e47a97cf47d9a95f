"""MixUp: Zhang et al., ICLR 2018, on labelled and unlabelled images as Google's comparison has it.

Images and targets of a batch are mixed in pairs with a weight λ ~ Beta(c, c). The unlabelled images' targets are what
the network itself says of them as it trains, and λ is the greater of λ and 1 - λ, so that each keeps the better part
of itself. Published c: 1 for CIFAR-10, 0.5 in the semi-supervised form, which is the default here.
"""

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from acpl.algorithms.budget import BudgetSettings
from acpl.algorithms.contract import Batch
from acpl.algorithms.mixing import beta_draws, mixed_pairs
from acpl.algorithms.single_stage import SingleStage
from acpl.models import classification_loss
from acpl.settings import Section


class MixUpSettings(BudgetSettings):
    """Settings of ``mixup``."""

    concentration: float = Field(default=0.5, gt=0)
    """c of Beta(c, c)."""
    weight: float = Field(default=1.0, gt=0)
    """Of the unlabelled term at its height."""
    ramp: float = Field(default=0.0, ge=0, le=1)
    """Share of the steps over which that weight rises; as published it is there from the first."""


class MixUp(SingleStage):
    """Mixed images must get mixed labels."""

    name: ClassVar[str] = "mixup"
    summary: ClassVar[str] = "mixed images get mixed labels (Zhang et al., ICLR 2018)"
    Settings: ClassVar[type[Section]] = MixUpSettings
    recordable: ClassVar[bool] = True

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Classification of mixed labelled images, and of mixed unlabelled ones by what the network says of them."""
        mixed = {}
        for name, part in batch.items():
            targets = part.targets if name == "labelled" else self._said(part.images)
            weight = beta_draws(len(part.ids), self.settings.concentration, part.images.device)
            mixed[name] = mixed_pairs(part.images, targets, torch.maximum(weight, 1 - weight))
        logits = self.student(torch.cat([images for images, _ in mixed.values()])).logits
        split = torch.split(logits, [len(images) for images, _ in mixed.values()])
        heights = {"labelled": 1.0, "unlabelled": self.settings.weight * self.ramp_up(self.settings.ramp)}
        return {
            name: heights[name] * classification_loss(outputs, targets, self.context.task)
            for (name, (_, targets)), outputs in zip(mixed.items(), split, strict=True)
        }

    @torch.no_grad()
    def _said(self, images: Tensor) -> Tensor:
        return self.sure(self.student(images).logits)

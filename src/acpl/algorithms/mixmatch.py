"""MixMatch: Berthelot et al., NeurIPS 2019.

What the network says of two weak views of an unlabelled image is averaged and sharpened; then everything is mixed
with everything: cross-entropy for the labelled part, squared difference for the other. Published: temperature 0.5,
Beta(0.75, 0.75) for CIFAR-10, weight 75 rising in a straight line. Here the weight is 10 on squared differences
averaged over classes, as for ``mean-teacher``. Multi-label: each finding is sharpened by itself. Batches are not
interleaved for batch norm, since one forward pass sees them all.
"""

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from acpl.algorithms.budget import BudgetSettings
from acpl.algorithms.contract import Batch
from acpl.algorithms.mixing import beta_draws, mixed_pairs
from acpl.algorithms.single_stage import SingleStage
from acpl.data.augment import View
from acpl.models import classification_loss
from acpl.settings import Section
from acpl.task import Task


class MixMatchSettings(BudgetSettings):
    """Settings of ``mixmatch``."""

    temperature: float = Field(default=0.5, gt=0)
    """Below 1, guesses are sharpened."""
    concentration: float = Field(default=0.75, gt=0)
    """c of Beta(c, c)."""
    weight: float = Field(default=10.0, gt=0)
    """Of the unlabelled term at its height; published 75 for CIFAR-10."""
    warm_up: float = Field(default=0.4, gt=0, le=1)
    """Share of the steps over which that weight rises, in a straight line."""


class MixMatch(SingleStage):
    """Sharpened guesses, mixed with everything."""

    name: ClassVar[str] = "mixmatch"
    summary: ClassVar[str] = "sharpened guesses, mixed with everything (Berthelot et al., NeurIPS 2019)"
    Settings: ClassVar[type[Section]] = MixMatchSettings
    recordable: ClassVar[bool] = True
    unlabelled_views: ClassVar[tuple[View, ...]] = ("weak", "weak")

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Classification of the mixed labelled images, squared difference for the mixed unlabelled ones."""
        images, targets = [batch["labelled"].images], [batch["labelled"].targets]
        if "unlabelled" in batch:
            views = [batch["unlabelled"].images, *batch["unlabelled"].more]
            with torch.no_grad():
                said = torch.stack([self.sure(self.student(view).logits) for view in views]).mean(dim=0)
            said = self.context.heard(said, batch["unlabelled"].ids)
            guess = sharpen(said, self.settings.temperature, self.context.task)
            images += views
            targets += [guess] * len(views)
        count, everything = len(images[0]), torch.cat(images)
        weight = beta_draws(len(everything), self.settings.concentration, everything.device)
        mixed, wanted = mixed_pairs(everything, torch.cat(targets), torch.maximum(weight, 1 - weight))
        logits = self.student(mixed).logits
        terms = {"labelled": classification_loss(logits[:count], wanted[:count], self.context.task)}
        if len(logits) > count:
            height = self.settings.weight * self.straight_up(self.settings.warm_up)
            terms["unlabelled"] = height * (self.sure(logits[count:]) - wanted[count:]).square().mean()
        return terms


def sharpen(guess: Tensor, temperature: float, task: Task) -> Tensor:
    """Probabilities to the power 1 / temperature, made to add up again: over classes, or each with its opposite."""
    raised = guess ** (1 / temperature)
    if task is Task.MULTI_CLASS:
        return raised / raised.sum(dim=1, keepdim=True)
    return raised / (raised + (1 - guess) ** (1 / temperature))

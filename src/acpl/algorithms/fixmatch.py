"""FixMatch: Sohn et al., NeurIPS 2020; and its multi-label form with distribution alignment.

What the network says of a weak view, where it is sure enough, is what it must say of a strong one. Published
(multi-class): arg-max of the softmax as label where it is at least 0.95, cross-entropy averaged over the whole
unlabelled batch, weight 1, seven unlabelled images for each labelled. Multi-label (after Ihler et al., CVPR
workshops 2024, where distribution alignment is essential): each finding by itself, positive where its probability
is at least the threshold, negative where at most 1 minus it, left out otherwise. Alignment multiplies the odds of
each class by those of its labelled frequency over those of its running mean prediction. Chosen here: as many
unlabelled as labelled images a step, like every method; alignment on for multi-label and off for multi-class unless
asked.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from acpl.algorithms.budget import BudgetSettings
from acpl.algorithms.contract import Batch, Context, mean_over
from acpl.algorithms.single_stage import SingleStage
from acpl.data.augment import View
from acpl.models import classification_loss
from acpl.settings import Section
from acpl.task import Task

_MEMORY = 0.99  # of the running mean of predictions
_LEAST = 1e-6


class FixMatchSettings(BudgetSettings):
    """Settings of ``fixmatch``."""

    confidence: float = Field(default=0.95, gt=0, lt=1)
    """How sure a prediction on the weak view must be to be a label."""
    weight: float = Field(default=1.0, gt=0)
    """Of the unlabelled term."""
    alignment: bool | None = None
    """Draw the mean prediction to the labelled frequencies; without it, for multi-label only."""


class FixMatch(SingleStage):
    """Sure predictions on weak views label strong views."""

    name: ClassVar[str] = "fixmatch"
    summary: ClassVar[str] = "sure predictions on weak views label strong ones (Sohn et al., NeurIPS 2020)"
    Settings: ClassVar[type[Section]] = FixMatchSettings
    recordable: ClassVar[bool] = True
    unlabelled_views: ClassVar[tuple[View, ...]] = ("weak", "strong")

    def __init__(self, settings: FixMatchSettings, context: Context) -> None:
        super().__init__(settings, context)
        asked = settings.alignment
        self._aligns = context.task is Task.MULTI_LABEL if asked is None else asked
        frequency = context.pools.targets(context.pools.given).mean(dim=0).clamp(_LEAST, 1 - _LEAST)
        self._frequency = frequency.to(self._networks.device)
        self._predicted = self._frequency.clone()

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Classification of the labelled, and of the strong views by what is sure of the weak ones."""
        labelled, task = batch["labelled"], self.context.task
        if "unlabelled" not in batch:
            return {"labelled": classification_loss(self.student(labelled.images).logits, labelled.targets, task)}
        unlabelled = batch["unlabelled"]
        logits = self.student(torch.cat([labelled.images, unlabelled.images, unlabelled.more[0]])).logits
        own, weak, strong = torch.split(logits, [len(labelled.ids), len(unlabelled.ids), len(unlabelled.ids)])
        guess = self._aligned(self.context.heard(self.sure(weak.detach()), unlabelled.ids))
        return {
            "labelled": classification_loss(own, labelled.targets, task),
            "unlabelled": self.settings.weight * masked_loss(strong, guess, self.settings.confidence, task),
        }

    def state_dict(self) -> dict[str, Any]:
        """The running mean of predictions besides."""
        return {**super().state_dict(), "predicted": self._predicted}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` gave."""
        super().load_state_dict(state)
        self._predicted.copy_(state["predicted"])

    def _aligned(self, guess: Tensor) -> Tensor:
        if not self._aligns:
            return guess
        self._predicted.lerp_(mean_over(self.context.group, guess.mean(dim=0)), 1 - _MEMORY)
        predicted = self._predicted.clamp(_LEAST, 1 - _LEAST)
        return align(guess, self._frequency, predicted, self.context.task)


def align(guess: Tensor, frequency: Tensor, predicted: Tensor, task: Task) -> Tensor:
    """(n, classes): probabilities as if the mean prediction were the labelled frequency."""
    if task is Task.MULTI_CLASS:
        scaled = guess * (frequency / predicted)
        return scaled / scaled.sum(dim=1, keepdim=True)
    shift = torch.logit(frequency) - torch.logit(predicted)
    return torch.sigmoid(torch.logit(guess, eps=_LEAST) + shift)


def masked_loss(logits: Tensor, guess: Tensor, threshold: float, task: Task) -> Tensor:
    """Loss against hard labels where ``guess`` is sure; what is not counts as 0 in the mean over the batch."""
    logits = logits.float()
    if task is Task.MULTI_CLASS:
        sure, label = guess.max(dim=1)
        return (F.cross_entropy(logits, label, reduction="none") * (sure >= threshold)).mean()
    sure_each = (guess >= threshold) | (guess <= 1 - threshold)
    hard = (guess >= 0.5).float()
    return (F.binary_cross_entropy_with_logits(logits, hard, reduction="none") * sure_each).mean()

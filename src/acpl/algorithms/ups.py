"""UPS: uncertainty-aware pseudo-label selection; Rizve et al., ICLR 2021.

Ten passes with dropout give each class of each unlabelled sample a mean probability and a spread. What is likely (at
least 0.7) with a small spread (below 0.05) becomes a positive pseudo-label, what is unlikely (at most 0.05, spread
below 0.005) a negative one: that it is *not* this class. Published for multi-class: cross-entropy on positives plus
the mean of -log(1 - p) over a sample's negatives, new weights each round, classes balanced in the first rounds,
negatives judged at temperature 2, each kind a mean over the samples that have it. The multi-label form was announced
but never released; as the paper describes it, positives and negatives of each finding go into a masked binary
cross-entropy. Here classes are not balanced, and the averaged copy looks; a network without dropout before its head
gets the rate ``look_dropout`` for these passes.
"""

import copy
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from acpl.algorithms.contract import Look, mean_over
from acpl.algorithms.rounds import Guess, Rounds, RoundSettings
from acpl.models import Classifier
from acpl.settings import Section
from acpl.task import Task


class UPSSettings(RoundSettings):
    """Settings of ``ups``."""

    positive: float = Field(default=0.7, gt=0, lt=1)
    """Least probability of a positive pseudo-label (τ_p)."""
    positive_spread: float = Field(default=0.05, gt=0)
    """Greatest standard deviation of a positive one (κ_p)."""
    negative: float = Field(default=0.05, gt=0, lt=1)
    """Greatest probability of a negative pseudo-label (τ_n)."""
    negative_spread: float = Field(default=0.005, gt=0)
    """Greatest standard deviation of a negative one (κ_n)."""
    negative_temperature: float = Field(default=2.0, gt=0)
    """At which multi-class negatives are judged."""
    passes: int = Field(default=10, ge=2)
    """Looks with dropout."""
    look_dropout: float = Field(default=0.3, gt=0, lt=1)
    """Rate of the looks, where the network itself has none."""
    fresh: bool = True
    """Start every round from new weights."""


class UPS(Rounds):
    """Positive and negative pseudo-labels that survive dropout."""

    name: ClassVar[str] = "ups"
    summary: ClassVar[str] = "positive and negative pseudo-labels that survive dropout (Rizve et al., ICLR 2021)"
    Settings: ClassVar[type[Section]] = UPSSettings
    recordable: ClassVar[bool] = True
    mixes: ClassVar[bool] = False  # that a class is absent says nothing of an image that shows another besides

    def guess(self, index: int, look: Look) -> Guess:
        """Every sample with at least one class decided; NaN for the others of its classes."""
        ids = self.context.pools.unlabelled
        network = with_dropout(self._networks.predictor, self.settings.look_dropout)
        looks = torch.stack([look(network, ids).probabilities for _ in range(self.settings.passes)])
        targets = decided(looks, self.settings, self.context.task)
        chosen = ~torch.isnan(targets).all(dim=1)
        return Guess(ids[chosen.cpu()], targets[chosen].cpu())

    def guessed_loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Binary: what is decided, class by class. Multi-class: the positive class, else that the negatives are not."""
        logits = logits.float()
        known = ~torch.isnan(targets)
        targets = targets.nan_to_num(0.0)
        if self.context.task is Task.MULTI_LABEL:
            return self._mean_of(F.binary_cross_entropy_with_logits(logits, targets, reduction="none"), known)
        positive = targets.amax(dim=1) > 0
        by_class = F.cross_entropy(logits, targets.argmax(dim=1), reduction="none")
        absent = -torch.log1p(-torch.softmax(logits, dim=1).clamp_max(1 - 1e-6))
        negatives = known & ~positive[:, None]
        by_absence = (absent * negatives).sum(dim=1) / negatives.sum(dim=1).clamp_min(1)
        return self._mean_of(by_class, positive) + self._mean_of(by_absence, negatives.any(dim=1))

    def _mean_of(self, each: Tensor, chosen: Tensor) -> Tensor:
        """Over what is chosen of all processes' batches; 0 where nothing is."""
        group = self.context.group
        return (each * chosen).sum() / mean_over(group, chosen.sum().float()).clamp_min(1 / group.size)


def decided(looks: Tensor, settings: UPSSettings, task: Task) -> Tensor:
    """(n, classes) from (passes, n, classes): 1 for a positive, 0 for a negative pseudo-label, NaN for what is open."""
    mean, spread = looks.mean(dim=0), looks.std(dim=0)
    positive = (mean >= settings.positive) & (spread < settings.positive_spread)
    if task is Task.MULTI_CLASS:
        looks = looks.pow(1 / settings.negative_temperature)
        looks = looks / looks.sum(dim=2, keepdim=True)
    negative = (looks.mean(dim=0) <= settings.negative) & (looks.std(dim=0) < settings.negative_spread)
    if task is Task.MULTI_CLASS:
        top = F.one_hot(mean.argmax(dim=1), mean.shape[1]).bool()
        positive, negative = positive & top, negative & ~top
    return torch.where(positive, 1.0, torch.where(negative, 0.0, torch.nan))


class _AlwaysDropout(nn.Module):
    """Dropout that evaluation does not switch off."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, values: Tensor) -> Tensor:
        return F.dropout(values, self.rate, training=True)


def with_dropout(network: Classifier, rate: float) -> Classifier:
    """A copy whose dropout stays on when it looks; at this rate where it had none before the head."""
    changed = copy.deepcopy(network)
    changed.dropout = _AlwaysDropout(network.dropout.p or rate)  # type: ignore[assignment]
    return changed

"""SRC-MT: sample relation consistency on top of Mean Teacher; Liu et al., IEEE TMI 2020.

Besides its predictions, the student's picture of how a batch's samples relate is drawn to the teacher's: the rows
of the Gram matrix of the features, each of unit length. Published (ISIC2018, DenseNet-121): both terms with weight
1, ramped up over 30 of 100 epochs and left out in the first 20, so that they start at exp(-0.45) of their height;
consistency weighted by class in inverse proportion to its frequency and summed over classes. Here the classes'
weights come from the labelled images and average 1, the supervised loss is plain (the release takes the softmax
twice), and the start is a share of the steps.
"""

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from acpl.algorithms.contract import Batch, Context
from acpl.algorithms.mean_teacher import MeanTeacherSettings
from acpl.algorithms.single_stage import SingleStage, ids_of
from acpl.data.augment import View
from acpl.models import classification_loss
from acpl.settings import Section


class SRCMTSettings(MeanTeacherSettings):
    """Settings of ``src-mt``."""

    weight: float = Field(default=1.0, gt=0)
    """Of both unsupervised terms at their height."""
    ramp: float = Field(default=0.3, gt=0, le=1)
    """Share of the steps over which that weight rises."""
    start: float = Field(default=0.2, ge=0, lt=1)
    """Share of the steps before the two terms begin."""
    relation: float = Field(default=1.0, gt=0)
    """Of the relation term beside the consistency term (β)."""
    class_weights: bool = True
    """Weigh a class's consistency in inverse proportion to its frequency among the labelled."""


class SRCMT(SingleStage):
    """Consistency of predictions and of relations."""

    name: ClassVar[str] = "src-mt"
    summary: ClassVar[str] = "mean teacher that also keeps the relations of samples (Liu et al., TMI 2020)"
    Settings: ClassVar[type[Section]] = SRCMTSettings
    recordable: ClassVar[bool] = True
    labelled_views: ClassVar[tuple[View, ...]] = ("weak", "weak")
    unlabelled_views: ClassVar[tuple[View, ...]] = ("weak", "weak")

    def __init__(self, settings: SRCMTSettings, context: Context) -> None:
        super().__init__(settings, context)
        counts = context.pools.targets(context.pools.given).sum(dim=0)
        weights = 1 / counts.clamp_min(1)
        weights = weights / weights.mean() if settings.class_weights else torch.ones_like(weights)
        self._weights = weights.to(self._networks.device)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Classification of the labelled; from ``start`` on, consistency and relation of all."""
        out = self.student(torch.cat([part.images for part in batch.values()]))
        labelled = batch["labelled"]
        terms = {"labelled": classification_loss(out.logits[: len(labelled.ids)], labelled.targets, self.context.task)}
        seen = self.teacher(torch.cat([part.more[0] for part in batch.values()]))
        begun = self.step >= self.settings.start * self.steps
        weight = self.settings.weight * self.ramp_up(self.settings.ramp) * begun
        target = self.context.heard(self.sure(seen.logits), ids_of(batch))
        apart = (self.sure(out.logits) - target).square() * self._weights
        between = (relations(out.features) - relations(seen.features)).square().sum(dim=1).mean()
        return {
            **terms,
            "consistency": weight * apart.sum(dim=1).mean(),
            "relation": weight * self.settings.relation * between,
        }


def relations(features: Tensor) -> Tensor:
    """(n, n): how each sample relates to the others, every row of unit length."""
    features = features.float()
    return F.normalize(features @ features.T, dim=1)

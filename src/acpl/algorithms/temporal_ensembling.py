"""Temporal Ensembling: Laine & Aila, ICLR 2017.

Each sample's predictions of all earlier visits are averaged, and the next is drawn to that average. Published:
momentum 0.6 with start-up correction, squared difference averaged over classes, weight 30 × labelled share on the
ramp exp(-5 (1 - t)²) over 80 of 300 epochs, none in the first epoch. Here a sample has no consistency term at its
first visit, and the weight is a setting of its own: 10, ramped up over the first 40 % of training.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from acpl.algorithms.contract import Batch, Context
from acpl.algorithms.mean_teacher import MeanTeacherSettings
from acpl.algorithms.single_stage import SingleStage, ids_of
from acpl.models import classification_loss
from acpl.settings import Section


class TemporalEnsemblingSettings(MeanTeacherSettings):
    """Settings of ``temporal-ensembling``."""

    momentum: float = Field(default=0.6, ge=0, lt=1)
    """What a sample's average keeps at each visit."""


class TemporalEnsembling(SingleStage):
    """Consistency with one's own earlier predictions."""

    name: ClassVar[str] = "temporal-ensembling"
    summary: ClassVar[str] = "consistency with a sample's earlier predictions (Laine & Aila, ICLR 2017)"
    Settings: ClassVar[type[Section]] = TemporalEnsemblingSettings
    recordable: ClassVar[bool] = True

    def __init__(self, settings: TemporalEnsemblingSettings, context: Context) -> None:
        super().__init__(settings, context)
        self._memory = torch.zeros_like(context.pools.table(), device=self._networks.device)
        self._visits = torch.zeros_like(self._memory[:, 0])
        self._said: Tensor | None = None

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Classification of the labelled; consistency of all with what was said of them before."""
        ids = ids_of(batch)
        logits = self.student(torch.cat([part.images for part in batch.values()])).logits
        said = self.sure(logits)
        self._said = said.detach()
        labelled = batch["labelled"]
        apart = (said - self._remembered(ids)).square().mean(dim=1) * (self._visits[ids] > 0) * self._whole(batch)
        return {
            "labelled": classification_loss(logits[: len(labelled.ids)], labelled.targets, self.context.task),
            "consistency": self.settings.weight * self.ramp_up(self.settings.ramp) * apart.mean(),
        }

    def _remembered(self, ids: Tensor) -> Tensor:
        """(n, classes): the averages of these samples, with what is known of them beside their images."""
        shared = self.context.shared
        if shared is None:
            return self.context.heard(self._corrected(self._memory[ids], self._visits[ids]), ids)
        return shared(self._corrected(self._memory, self._visits), self._visits > 0)[ids]

    @staticmethod
    def _whole(batch: Batch) -> Tensor:
        """(n,): 1 where the image shows its sample alone, 0 where a patch of another is pasted in."""
        each = [torch.ones_like(part.images[:, 0, 0, 0]) if part.own is None else part.own for part in batch.values()]
        return (torch.cat(each) == 1).float()

    def _corrected(self, memory: Tensor, visits: Tensor) -> Tensor:
        """The averages as if they had not begun at 0."""
        corrected: Tensor = memory / (1 - self.settings.momentum**visits).clamp_min(1e-6)[:, None]
        return corrected

    def after_step(self, batch: Batch) -> None:
        """The samples' averages take in what was said of them."""
        super().after_step(batch)
        assert self._said is not None
        group = self.context.group
        ids = group.gather(ids_of(batch))
        whole = group.gather(self._whole(batch))
        kept = torch.where(whole[:, None] == 1, self.settings.momentum, 1.0)
        self._memory[ids] = torch.lerp(group.gather(self._said), self._memory[ids], kept)
        self._visits[ids] += whole

    def state_dict(self) -> dict[str, Any]:
        """The averages besides."""
        return {**super().state_dict(), "memory": self._memory, "visits": self._visits}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` gave."""
        super().load_state_dict(state)
        self._memory.copy_(state["memory"])
        self._visits.copy_(state["visits"])

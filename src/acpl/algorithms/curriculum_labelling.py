"""Curriculum labelling: Cascante-Bonilla et al., AAAI 2021; ACPL's mirror image.

The surest samples first: round t takes the 20 t % of the unlabelled images of which the network is most sure, with
hard labels, and starts from new weights. Published for multi-class alone, with class weights from the pseudo-labels'
histogram, MixUp and weight averaging. Here: the averaged copy labels; no class weights and no MixUp, as for every
method; multi-label images are ranked by how sure their findings are on average, and keep their probabilities as
``self-training`` does.
"""

from typing import ClassVar

import torch
from pydantic import Field

from acpl.algorithms.contract import Look
from acpl.algorithms.rounds import Guess, confidence
from acpl.algorithms.self_training import SelfTraining, SelfTrainingSettings
from acpl.settings import Section


class CurriculumLabellingSettings(SelfTrainingSettings):
    """Settings of ``curriculum-labelling``."""

    share: float | None = Field(default=None, gt=0, le=1)
    """Of the unlabelled images that each round adds; without it, all are in at the last round."""
    fresh: bool = True
    """Start every round from new weights."""


class CurriculumLabelling(SelfTraining):
    """The surest first."""

    name: ClassVar[str] = "curriculum-labelling"
    summary: ClassVar[str] = "the surest samples first, the opposite of ACPL (Cascante-Bonilla et al., AAAI 2021)"
    Settings: ClassVar[type[Section]] = CurriculumLabellingSettings

    def guess(self, index: int, look: Look) -> Guess:
        """The surest share, one step wider each round."""
        ids = self.context.pools.unlabelled
        said = look(self._networks.predictor, ids).probabilities
        share = self.settings.share or 1 / self.context.schedule.stages
        count = min(len(ids), max(1, round(index * share * len(ids))))
        chosen = torch.sort(confidence(said, self.context.task).argsort(descending=True, stable=True)[:count]).values
        return Guess(ids[chosen.cpu()], self.labels(said[chosen]).cpu())

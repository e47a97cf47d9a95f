"""Self-training: Bai et al., MICCAI 2017.

Fix the network and label all unlabelled images with it (here with its averaged copy); then train on both; and again.
The source is about segmentation and refines its labels with a random field; it keeps every sample. How the published
classification figures were made is not documented. Multi-class labels are hard, as in the source; multi-label ones
keep their probabilities, since a rare finding is seldom more likely than not and would be taught to be absent.
"""

from typing import ClassVar

from torch import Tensor

from acpl.algorithms.contract import Look
from acpl.algorithms.rounds import Guess, Rounds, RoundSettings, hardened
from acpl.settings import Section
from acpl.task import Task


class SelfTrainingSettings(RoundSettings):
    """Settings of ``self-training``."""

    hard: bool | None = None
    """Labels of 0 and 1 instead of probabilities; without it, for multi-class only."""


class SelfTraining(Rounds):
    """Label everything, train on everything."""

    name: ClassVar[str] = "self-training"
    summary: ClassVar[str] = "label everything, train on everything, repeat (Bai et al., MICCAI 2017)"
    Settings: ClassVar[type[Section]] = SelfTrainingSettings

    def guess(self, index: int, look: Look) -> Guess:
        """All of them."""
        ids = self.context.pools.unlabelled
        return Guess(ids, self.labels(look(self._networks.predictor, ids).probabilities).cpu())

    def labels(self, said: Tensor) -> Tensor:
        """(n, classes): probabilities as pseudo-labels, hard or as they are."""
        task = self.context.task
        hard = task is Task.MULTI_CLASS if self.settings.hard is None else self.settings.hard
        return hardened(said, task) if hard else said

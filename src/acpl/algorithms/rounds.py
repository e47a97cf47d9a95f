"""What methods share that label the unlabelled images in rounds and train on what they said."""

from collections.abc import Mapping
from dataclasses import replace
from math import ceil
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from acpl.algorithms.budget import BudgetSettings, within_budget
from acpl.algorithms.contract import Averaged, Batch, Context, Draw, Look, Record, Stage, StepByStep, single_draw
from acpl.models import classification_loss
from acpl.settings import Section
from acpl.task import Task


class RoundSettings(BudgetSettings):
    """Settings of methods that work in rounds."""

    fresh: bool = False
    """Start every round from new weights."""


class Guess(NamedTuple):
    """What a round says of some unlabelled samples."""

    ids: Tensor
    """(n,)"""
    targets: Tensor
    """(n, classes) in [0, 1]; NaN where a class of a sample is left out."""


class Rounds(StepByStep):
    """A warm-up on the labelled images, then rounds: label anew what the method chooses, and train on both.

    No sample changes its pool: what was said of it in one round is forgotten in the next.
    """

    Settings: ClassVar[type[Section]] = RoundSettings
    recordable: ClassVar[bool] = True
    between_stages: ClassVar[frozenset[str]] = StepByStep.between_stages | {"guess"}
    mixes: ClassVar[bool] = True
    """Whether a pseudo-label can be mixed with another."""

    def __init__(self, settings: Any, context: Context) -> None:
        self.settings = settings
        self.context = context
        self._networks = context.build()
        self._guess = Guess(context.pools.unlabelled[:0], torch.empty(0, context.pools.classes))
        self._guessed = torch.full_like(context.pools.table(), torch.nan, device=self._networks.device)

    def guess(self, index: int, look: Look) -> Guess:
        """The samples of round ``index`` (1 is the first) and their pseudo-labels."""
        raise NotImplementedError

    def networks(self) -> Averaged:
        """The network and its averaged copy."""
        return self._networks

    def before_stage(self, index: int, look: Look) -> Record | None:
        """A round's pseudo-labels."""
        if index == 0 or not self._goes_on(index):
            return None
        self._take(self.guess(index, look))
        if self.settings.fresh:
            self._networks.become(self.context.build())
        return Record({"selected": len(self._guess.ids), "unselected": self._unlabelled - len(self._guess.ids)})

    def stage(self, index: int) -> Stage | None:
        """The warm-up, or a round; None when all rounds are done or nothing is unlabelled."""
        schedule, labelled = self.context.schedule, self.context.pools.labelled
        if index == 0:
            stage = single_draw("warm-up", labelled, schedule, schedule.warmup_epochs, snapshot=True)
            stage = replace(stage, most_images=2 * schedule.batch_size if self._goes_on(1) else 0)
            return self._within_budget(stage, index)
        if not self._goes_on(index):
            return None
        size = schedule.batch_size
        draws = {"labelled": Draw(labelled, size)}
        if len(self._guess.ids):
            draws["guessed"] = Draw(self._guess.ids, size, known=False, guessed=self.mixes)
        epoch_steps = ceil((len(labelled) + len(self._guess.ids)) / (2 * size))
        stage = Stage(f"round {index}", draws, epoch_steps, epoch_steps * schedule.stage_epochs)
        return self._within_budget(stage, index)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Classification by the labels, and by what was said of the others."""
        logits = self._networks.trained(torch.cat([part.images for part in batch.values()])).logits
        labelled = batch["labelled"]
        own, other = logits[: len(labelled.ids)], logits[len(labelled.ids) :]
        terms = {"labelled": classification_loss(own, labelled.targets, self.context.task)}
        if len(other):
            terms["guessed"] = self.guessed_loss(other, batch["guessed"].of(self._guessed))
        return terms

    def guessed_loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The loss of a batch against a round's pseudo-labels."""
        return classification_loss(logits, targets, self.context.task)

    def after_step(self, batch: Batch) -> None:
        """The averaged copy follows."""
        images = torch.cat([part.images for part in batch.values()])
        self._networks.average.update(self._networks.trained, images)

    def after_stage(self, index: int) -> None:
        """Nothing to do."""

    def state_dict(self) -> dict[str, Any]:
        """Weights and the round's pseudo-labels."""
        return {
            "trained": self._networks.trained.state_dict(),
            "average": self._networks.average.state_dict(),
            "ids": self._guess.ids,
            "targets": self._guess.targets,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` gave."""
        self._networks.trained.load_state_dict(state["trained"])
        self._networks.average.load_state_dict(state["average"])
        self._take(Guess(state["ids"], state["targets"]))

    @property
    def _unlabelled(self) -> int:
        return len(self.context.pools.unlabelled)

    def _goes_on(self, index: int) -> bool:
        return index <= self.context.schedule.stages and self._unlabelled > 0

    def _within_budget(self, stage: Stage, index: int) -> Stage:
        labelled = len(self.context.pools.labelled)
        budget, schedule, fresh = self.settings.steps, self.context.schedule, self.settings.fresh
        return within_budget(stage, index, budget, schedule, labelled, self._unlabelled, fresh=fresh)

    def _take(self, guess: Guess) -> None:
        self._guess = guess
        self._guessed.fill_(torch.nan)
        self._guessed[guess.ids.to(self._guessed.device)] = guess.targets.to(self._guessed.device)


def hardened(probabilities: Tensor, task: Task) -> Tensor:
    """(n, classes) of 0 and 1: the most probable class, or every finding that is more likely than not."""
    if task is Task.MULTI_CLASS:
        return torch.nn.functional.one_hot(probabilities.argmax(dim=1), probabilities.shape[1]).float()
    return (probabilities >= 0.5).float()


def confidence(probabilities: Tensor, task: Task) -> Tensor:
    """(n,): the greatest probability, or how sure the findings are on average."""
    if task is Task.MULTI_CLASS:
        return probabilities.max(dim=1).values
    return torch.maximum(probabilities, 1 - probabilities).mean(dim=1)

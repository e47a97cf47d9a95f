"""How many gradient steps a method takes: what the schedule says, or a number that all methods are given alike."""

from dataclasses import replace
from math import ceil

from pydantic import Field

from acpl.algorithms.contract import Schedule, Stage
from acpl.settings import Section


class BudgetSettings(Section):
    """What every method can be told."""

    steps: int | None = Field(default=None, ge=1)
    """Gradient steps in all, instead of warm-up and stage epochs: gives it another method's budget."""


def usual_steps(schedule: Schedule, labelled: int, unlabelled: int) -> int:
    """As many as ACPL would take if it selected everything: the warm-up over the labelled, the stages over all."""
    first = schedule.warmup_epochs * ceil(labelled / schedule.batch_size)
    return first + schedule.stages * schedule.stage_epochs * ceil((labelled + unlabelled) / (2 * schedule.batch_size))


def within_budget(stage: Stage, index: int, budget: int | None, schedule: Schedule, stages: int) -> Stage:
    """Stage ``index`` (0 is the warm-up) with its part of the budget; as it is where there is none.

    The warm-up gets the share of the epochs that it has in the schedule, and the ``stages`` that follow part the rest
    evenly, to the step.
    """
    if budget is None:
        return stage
    epochs = schedule.warmup_epochs + stages * schedule.stage_epochs
    first = budget if stages == 0 else max(1, budget * schedule.warmup_epochs // epochs)
    if index == 0:
        steps = first
    else:
        done, after = ((budget - first) * number // stages for number in (index - 1, index))
        steps = max(1, after - done)
    return replace(stage, epoch_steps=min(stage.epoch_steps, steps), steps=steps)

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
    epoch = ceil((labelled + unlabelled) / (2 * schedule.batch_size))
    return _warm_up_steps(schedule, labelled) + schedule.stages * schedule.stage_epochs * epoch


def within_budget(
    stage: Stage,
    index: int,
    budget: int | None,
    schedule: Schedule,
    labelled: int,
    unlabelled: int,
    *,
    fresh: bool = False,
    warm_ups: int = 1,
) -> Stage:
    """Stage ``index`` (0 is the warm-up) with its part of the budget; as it is where there is none.

    ``labelled`` and ``unlabelled`` are the pools' sizes at the start. The warm-up gets the share of the steps that it
    has in the schedule, so that a budget of ``usual_steps`` leaves it as it is, and the stages that follow part the
    rest evenly, to the step. A share of the epochs would starve the stages: theirs are many times as long. With
    ``fresh`` weights at every stage, where what the warm-up learnt is thrown away, all get the same. Of several
    ``warm_ups`` each has as many steps as the others, and the stages have so many fewer.
    """
    if budget is None:
        return stage
    stages = schedule.stages if unlabelled else 0
    warm_up = _warm_up_steps(schedule, labelled)
    usual = usual_steps(schedule, labelled, unlabelled) + (warm_ups - 1) * warm_up
    share = budget // (stages + warm_ups) if fresh else budget * warm_up // usual
    first = budget // warm_ups if stages == 0 else max(1, min(share, (budget - stages) // warm_ups))
    if index == 0:
        steps = first
    else:
        done, after = ((budget - warm_ups * first) * number // stages for number in (index - 1, index))
        steps = max(1, after - done)
    return replace(stage, epoch_steps=min(stage.epoch_steps, steps), steps=steps)


def _warm_up_steps(schedule: Schedule, labelled: int) -> int:
    return schedule.warmup_epochs * ceil(labelled / schedule.batch_size)

"""Which samples a draw shows how often."""

import torch
from torch import Tensor

from acpl.task import Task


def repeat_factors(targets: Tensor, frequency: Tensor, power: float, task: Task, *, greatest: float = 20.0) -> Tensor:
    """(samples,): how often each sample is to be drawn, 1 or more: the rarer its class, the oftener.

    A class is drawn (commonest / its frequency) ** power times, at most ``greatest``; after the repeat factors of
    Gupta et al., CVPR 2019. A sample counts by its targets, soft ones too: multi-class by their mean, multi-label by
    the finding that asks for most.

    Args:
        targets: ``(samples, classes)`` in [0, 1].
        frequency: ``(classes,)`` in [0, 1]; a class that is never there asks for nothing.
        power: 0 draws all alike, 1 draws all classes alike.
        task: one class a sample, or any number of findings.
    """
    there = frequency > 0
    each = torch.where(there, (frequency.max() / frequency.clamp_min(1e-12)) ** power, torch.ones_like(frequency))
    each = each.clamp_max(greatest)
    if task is Task.MULTI_CLASS:
        return (targets @ each).clamp_min(1.0)
    return 1.0 + (targets * (each - 1)).amax(dim=1)


def repeated(ids: Tensor, factors: Tensor, generator: torch.Generator) -> Tensor:
    """``ids`` with each listed as often as its factor says; a broken part of a time is a lot drawn."""
    whole = factors.floor()
    extra = torch.rand(len(ids), generator=generator) < factors - whole
    return torch.repeat_interleave(ids, whole.long() + extra.long())

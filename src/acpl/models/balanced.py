"""Losses for classes that are not equally common."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from acpl.models.classifier import classification_loss
from acpl.task import Task

_LEAST = 1e-4  # a frequency of 0 or 1 would shift a logit without end
_GREATEST = 100.0  # how much more a rare class may count than the commonest


def logit_adjusted_loss(
    logits: Tensor, targets: Tensor, task: Task, frequency: Tensor, strength: float = 1.0
) -> Tensor:
    """The classification loss of logits shifted by how common each class is: Menon et al., ICLR 2021.

    Trained so, the logits themselves rank as if all classes (multi-label: presence and absence) were equally common.

    Args:
        logits: ``(batch, classes)``.
        targets: ``(batch, classes)`` in [0, 1].
        task: softmax or a sigmoid each.
        frequency: ``(classes,)`` in [0, 1], each class's share of the labelled samples.
        strength: τ; 0 is the plain loss.
    """
    common = frequency.to(logits.device, torch.float32).clamp(_LEAST, 1 - _LEAST)
    shift = common.log() if task is Task.MULTI_CLASS else torch.logit(common)
    return classification_loss(logits.float() + strength * shift, targets, task)


def class_balanced_loss(
    logits: Tensor,
    targets: Tensor,
    task: Task,
    counts: Tensor,
    samples: int,
    mean: Callable[[Tensor], Tensor] = lambda values: values,
) -> Tensor:
    """The classification loss with each class weighted by its effective number: Cui et al., CVPR 2019.

    With β = 1 − 1 / samples a class of n samples weighs (1 − β) / (1 − βⁿ). Multi-class: weights of mean 1 over the
    batch's targets. Multi-label: each finding's presence against its absence.

    Args:
        logits: ``(batch, classes)``.
        targets: ``(batch, classes)`` in [0, 1].
        task: softmax or a sigmoid each.
        counts: ``(classes,)``, how many labelled samples have each class.
        samples: how many labelled samples there are, at least 1.
        mean: of a value over the processes that hold a part of the batch each, where there are several.
    """
    logits = logits.float()
    present = counts.to(logits.device, torch.float32)
    if task is Task.MULTI_CLASS:
        weight = _effective_weight(present, samples)
        weight = weight / weight.min()
        each = targets @ weight.clamp_max(_GREATEST)
        return (F.cross_entropy(logits, targets, reduction="none") * each).sum() / mean(each.sum())
    ratio = _effective_weight(present, samples) / _effective_weight(samples - present, samples)
    return F.binary_cross_entropy_with_logits(logits, targets, pos_weight=ratio.clamp(1 / _GREATEST, _GREATEST))


def _effective_weight(counts: Tensor, samples: int) -> Tensor:
    beta = 1 - 1 / max(2, samples)
    return (1 - beta) / (1 - beta ** counts.clamp_min(1.0))

"""What is known beside the image: evidence that shifts an answer, and answers that a patient's images share.

Evidence is in log-odds, one number a class: how much likelier than usual a class is made by what is known. It is added
to what the image says, which is right where the two say different things about the same class (naive Bayes).
``exclusive`` tells whether a sample has exactly one class (multi-class) or any number of them (multi-label).
"""

import torch
from torch import Tensor

# A probability of 0 or 1 could not be moved by any evidence; all others keep their order.
_LEAST, _MOST = torch.finfo(torch.float32).tiny, 1 - torch.finfo(torch.float32).eps / 2
_SURE = 1e-7  # how sure at most an image can be that is one of several: else it would speak for all of them


def add_evidence(probabilities: Tensor, evidence: Tensor, *, exclusive: bool) -> Tensor:
    """Return the probabilities with the evidence added to their log-odds.

    Args:
        probabilities: ``(samples, classes)`` in [0, 1], finite.
        evidence: ``(samples, classes)``, finite; a row of zeros leaves its sample as it is, to the bit, and so does a
            zero its class where classes do not exclude each other.
        exclusive: whether the classes exclude each other, so that a sample's add up to 1.

    Returns:
        float32 ``(samples, classes)`` in [0, 1].

    Example:
        >>> import torch
        >>> from acpl.functional import add_evidence
        >>> add_evidence(torch.tensor([[0.5, 0.5]]), torch.tensor([[1.0, 0.0]]).log1p(), exclusive=True)
        tensor([[0.6667, 0.3333]])
    """
    _refuse_unlike(probabilities, evidence)
    said, evidence = probabilities.float(), evidence.float()
    shifted = _answers(_log_odds(said.clamp(_LEAST, _MOST), exclusive) + evidence, exclusive)
    moved = evidence != 0
    return torch.where(moved.any(dim=1, keepdim=True) if exclusive else moved, shifted, said)


def usual_shares(labels: Tensor, *, exclusive: bool) -> Tensor:
    """Return how common each class is among labels ``(labelled, classes)``: float64 ``(classes,)`` in (0, 1).

    Half a case is added to each class (and half a sample without it), so that none is impossible or certain.

    Example:
        >>> import torch
        >>> from acpl.functional import usual_shares
        >>> usual_shares(torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]]), exclusive=False)
        tensor([0.6250, 0.1250], dtype=torch.float64)
    """
    return (labels.double().sum(dim=0) + 0.5) / (len(labels) + (0.5 * labels.shape[1] if exclusive else 1))


def group_label_evidence(
    labels: Tensor, label_groups: Tensor, groups: Tensor, strength: float, *, exclusive: bool
) -> Tensor:
    """Return what the labelled images of a sample's group (a patient) say about it, as log-odds.

    Of ``n`` labelled images in the group ``s`` have the class, which is usual in the share ``p`` of all labelled ones:
    then ``(s + strength × p) / (n + strength)`` is taken for its probability.

    Args:
        labels: ``(labelled, classes)`` in [0, 1], finite, at least one row.
        label_groups: int64 ``(labelled,)``: whose images these are.
        groups: int64 ``(samples,)``: whose the samples are.
        strength: above 0; how many images of the group weigh as much as all that is known of others.
        exclusive: whether the classes exclude each other.

    Returns:
        float32 ``(samples, classes)``: 0 where the group has no labelled image.

    Example:
        >>> import torch
        >>> from acpl.functional import group_label_evidence
        >>> labels, whose = torch.tensor([[1.0], [0.0], [1.0], [0.0]]), torch.tensor([7, 8, 8, 8])
        >>> group_label_evidence(labels, whose, torch.tensor([7, 8, 9]), strength=1, exclusive=False)
        tensor([[ 1.0986],
                [-0.5108],
                [ 0.0000]])
    """
    if labels.ndim != 2 or len(labels) == 0:
        raise ValueError(f"labels must be (labelled, classes) with at least one row, got shape {tuple(labels.shape)}")
    if len(label_groups) != len(labels):
        raise ValueError(f"label_groups must have {len(labels)} rows, got {len(label_groups)}")
    if not strength > 0:
        raise ValueError(f"strength must be above 0, got {strength}")
    known, row, number = torch.unique(label_groups, return_inverse=True, return_counts=True)
    having = torch.zeros(len(known), labels.shape[1], dtype=torch.float64, device=labels.device)
    having.index_add_(0, row, labels.double())
    usual = usual_shares(labels, exclusive=exclusive)
    for_it, against = having + strength * usual, number[:, None] - having + strength * (1 - usual)
    if exclusive:
        evidence = (for_it / (number[:, None] + strength) / usual).log()
    else:
        evidence = for_it.log() - against.log() - torch.logit(usual)
    place = torch.searchsorted(known, groups).clamp(max=len(known) - 1)
    there = (known[place] == groups)[:, None]
    return torch.where(there, evidence[place], torch.zeros_like(evidence[:1])).float()


def share_answers(probabilities: Tensor, groups: Tensor, weight: float, *, exclusive: bool) -> Tensor:
    """Return each answer mixed with the mean of its group's answers, in log-odds.

    Args:
        probabilities: ``(samples, classes)`` in [0, 1], finite.
        groups: int64 ``(samples,)``: whose images these are.
        weight: in [0, 1]; 0 leaves all as they are, 1 gives a group's images one answer.
        exclusive: whether the classes exclude each other.

    Returns:
        float32 ``(samples, classes)`` in [0, 1]; a group of one image keeps its answer to the bit.

    Example:
        >>> import torch
        >>> from acpl.functional import share_answers
        >>> share_answers(torch.tensor([[0.2], [0.8], [0.6]]), torch.tensor([1, 1, 2]), 1.0, exclusive=False)
        tensor([[0.5000],
                [0.5000],
                [0.6000]])
    """
    if probabilities.ndim != 2:
        raise ValueError(f"probabilities must be (samples, classes), got shape {tuple(probabilities.shape)}")
    if len(groups) != len(probabilities):
        raise ValueError(f"groups must have {len(probabilities)} rows, got {len(groups)}")
    if not 0 <= weight <= 1:
        raise ValueError(f"weight must be in [0, 1], got {weight}")
    if weight == 0 or len(probabilities) == 0:
        return probabilities.float()
    names, numbered = torch.unique(groups, return_inverse=True)
    known = torch.ones_like(numbered, dtype=torch.bool)
    return share_known_answers(probabilities, known, numbered, len(names), weight, exclusive=exclusive)


def share_known_answers(
    probabilities: Tensor, known: Tensor, numbered: Tensor, groups: int, weight: float, *, exclusive: bool
) -> Tensor:
    """Return each answer that there is mixed with the mean of those that there are in its group, in log-odds.

    No value is looked at, so that a step with it can be recorded and replayed.

    Args:
        probabilities: ``(samples, classes)`` in [0, 1], finite, also where nothing is known.
        known: bool ``(samples,)``: of which there is an answer; the others stay as they are and are not heard.
        numbered: int64 ``(samples,)`` from 0 to ``groups - 1``: whose images these are.
        groups: how many there are.
        weight: in (0, 1]; 1 gives a group's images one answer.
        exclusive: whether the classes exclude each other.

    Returns:
        float32 ``(samples, classes)`` in [0, 1]; what is alone in its group keeps its answer to the bit.

    Example:
        >>> import torch
        >>> from acpl.functional import share_known_answers
        >>> said, known = torch.tensor([[0.2], [0.8], [0.0]]), torch.tensor([True, True, False])
        >>> share_known_answers(said, known, torch.tensor([0, 0, 0]), 1, 1.0, exclusive=False)
        tensor([[0.5000],
                [0.5000],
                [0.0000]])
    """
    said = probabilities.float()
    own = _log_odds(said.clamp(_SURE, 1 - _SURE), exclusive).double()
    sums = own.new_zeros(groups, said.shape[1]).index_add_(0, numbered, own * known[:, None])
    number = own.new_zeros(groups).index_add_(0, numbered, known.double())
    mean = sums / number.clamp_min(1)[:, None]
    if weight == 1:  # one answer a group, and not one an image: those could differ in their last bit
        mixed = _answers(mean.float(), exclusive)[numbered]
    else:
        mixed = _answers(((1 - weight) * own + weight * mean[numbered]).float(), exclusive)
    return torch.where((known & (number[numbered] > 1))[:, None], mixed, said)


def _log_odds(probabilities: Tensor, exclusive: bool) -> Tensor:
    return probabilities.log() if exclusive else torch.logit(probabilities)


def _answers(log_odds: Tensor, exclusive: bool) -> Tensor:
    return torch.softmax(log_odds, dim=1) if exclusive else torch.sigmoid(log_odds)


def _refuse_unlike(probabilities: Tensor, evidence: Tensor) -> None:
    if probabilities.ndim != 2 or probabilities.shape != evidence.shape:
        raise ValueError(
            f"evidence must be of the probabilities' shape, {tuple(probabilities.shape)}, got {tuple(evidence.shape)}"
        )

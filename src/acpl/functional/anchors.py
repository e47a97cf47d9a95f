"""Anchor set purification: only the least connected of the pseudo-labelled samples join the anchors."""

import torch
from torch import Tensor

from acpl.functional import ring
from acpl.functional.group import ALONE, Group

# Entries of the candidates' lists compared at a time: an int64 and a bool each.
_ENTRIES = 2**21


def connections(forward: Tensor, backward: Tensor, candidates: Tensor, *, group: Group = ALONE) -> Tensor:
    """Return how many of each candidate's nearest anchors have it among their nearest: c in equation 7.

    Args:
        forward: integers ``(candidates, k)``, the nearest anchors of each candidate: rows of ``backward``.
        backward: integers ``(anchors, k)``, the nearest unlabelled samples of each anchor, as query numbers.
            The two ``k`` may differ, where a set is smaller than ``k``.
        candidates: integers ``(candidates,)``, the query number of each row of ``forward``. May be empty.
        group: the processes that hold a part of the candidates and of the anchors each. Numbers count through all
            parts; what comes back is for this process's candidates.

    Returns:
        int64 ``(candidates,)`` in [0, k].

    Example:
        >>> import torch
        >>> from acpl.functional import connections
        >>> forward, backward = torch.tensor([[0, 1], [0, 1]]), torch.tensor([[7, 5], [7, 8]])
        >>> connections(forward, backward, candidates=torch.tensor([7, 5]))
        tensor([2, 1])
    """
    first = ring.starts(len(backward), group, backward.device)
    _check(forward, backward, candidates, first[-1])
    counts = torch.zeros(len(candidates), dtype=torch.int64, device=candidates.device)
    for step in range(group.size):
        counts += _connections(forward, backward, candidates, first[(group.rank - step) % group.size])
        if step + 1 < group.size:
            backward = group.pass_on(backward)
    return counts


def _connections(forward: Tensor, backward: Tensor, candidates: Tensor, first_anchor: int) -> Tensor:
    """Count those with anchors that are numbered from ``first_anchor``."""
    counts = torch.zeros(len(candidates), dtype=torch.int64, device=candidates.device)
    if forward.numel() == 0 or backward.numel() == 0:
        return counts
    # Asked of the anchors' lists, which are the fewer and mostly name other samples: an entry that is a candidate
    # looks for its anchor in that candidate's list. A mask of anchors × queries would not fit.
    number, order = candidates.long().sort()
    first = torch.searchsorted(number, backward.long())
    times = torch.searchsorted(number, backward.long(), right=True).sub_(first)
    step = max(1, _ENTRIES // forward.shape[1])
    for repeat in range(int(times.max())):  # once, unless a candidate is given twice
        anchor, place = (times > repeat).nonzero(as_tuple=True)
        row = order[first[anchor, place] + repeat]
        for start in range(0, len(row), step):
            part = slice(start, start + step)
            counts.index_add_(0, row[part], (forward[row[part]] == anchor[part, None] + first_anchor).sum(dim=1))
    return counts


def purify(connections: Tensor, *, group: Group = ALONE) -> Tensor:
    """Return which candidates join the anchors: the least connected ones, a in equation 7.

    The threshold α is the minimum over the candidates, so at least one joins where there are any.

    Args:
        connections: ``(candidates,)`` from :func:`connections`. May be empty.
        group: the processes that hold a part of the candidates each; what comes back is for this one's.

    Returns:
        bool ``(candidates,)``.

    Example:
        >>> import torch
        >>> from acpl.functional import purify
        >>> purify(torch.tensor([3, 1, 2, 1]))
        tensor([False,  True, False,  True])
    """
    if connections.ndim != 1:
        raise ValueError(f"connections must be (candidates,), got shape {tuple(connections.shape)}")
    if connections.is_floating_point():
        raise TypeError(f"connections must be integer, got {connections.dtype}")
    most = connections.new_full((1,), torch.iinfo(connections.dtype).max)
    return connections <= group.least(torch.cat((connections, most)).amin(dim=0, keepdim=True))


def _check(forward: Tensor, backward: Tensor, candidates: Tensor, anchors: int) -> None:
    for name, index, dimensions in (
        ("forward", forward, 2),
        ("backward", backward, 2),
        ("candidates", candidates, 1),
    ):
        if index.ndim != dimensions:
            raise ValueError(f"{name} must have {dimensions} dimensions, got shape {tuple(index.shape)}")
        if index.is_floating_point() or index.dtype == torch.bool:
            raise TypeError(f"{name} must be integer, got {index.dtype}")
        if index.numel() and (least := int(index.min())) < 0:
            raise ValueError(f"{name} must not be negative, got {least}")
    if len(forward) != len(candidates):
        raise ValueError(f"forward must have a row per candidate, got {len(forward)} for {len(candidates)}")
    if forward.numel() and (most := int(forward.max())) >= anchors:
        raise ValueError(f"forward must lie in [0, {anchors}), got {most}")

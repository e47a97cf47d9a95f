"""Few samples that cover many: greedy k-centre."""

import torch
from torch import Tensor
from torch.nn import functional as F


def farthest_first(candidates: Tensor, count: int, centres: Tensor | None = None, *, apart: float = 1e-6) -> Tensor:
    """Rows of ``candidates``, each the farthest from ``centres`` and from the rows taken before it.

    The distance is 1 − cosine. This is the greedy answer to k-centre, as active learning uses it to label a core set
    (Sener and Savarese, ICLR 2018). A row no farther than ``apart`` from one taken before is its duplicate and is
    never taken, so fewer than ``count`` may come back.

    Args:
        candidates: features ``(candidates, features)``, finite.
        count: how many rows to take at most.
        centres: features ``(centres, features)`` that are covered already; without any, the first row is taken first.
        apart: rows this near to one another count as the same.

    Returns:
        int64 ``(at most count,)``, in the order of taking; equal distances go to the lower row.

    Example:
        >>> import torch
        >>> from acpl.functional import farthest_first
        >>> candidates = torch.tensor([[1.0, 0.1], [1.0, 0.1], [0.0, 1.0], [-1.0, 0.0]])
        >>> farthest_first(candidates, 3, centres=torch.tensor([[1.0, 0.0]]))
        tensor([3, 2, 0])
    """
    if candidates.ndim != 2 or not torch.isfinite(candidates).all():
        raise ValueError(f"candidates must be finite (rows, features), not {tuple(candidates.shape)}")
    if count < 1:
        raise ValueError(f"count must be at least 1, not {count}")
    unit = F.normalize(candidates.double(), dim=1)
    distance = torch.full((len(unit),), torch.inf, dtype=torch.float64, device=unit.device)
    if centres is not None:
        for block in torch.split(F.normalize(centres.double(), dim=1), 1024):
            distance = torch.minimum(distance, 1 - (unit @ block.T).amax(dim=1))
    taken: list[int] = []
    # Duplicates of a centre may still be taken; only what repeats a row of this answer is not.
    alone = torch.full_like(distance, torch.inf)
    while len(taken) < min(count, len(unit)):
        row = int(torch.where(alone > apart, distance, -torch.inf).argmax())
        if alone[row] <= apart:
            break
        taken.append(row)
        away = 1 - unit @ unit[row]
        away[row] = -torch.inf
        distance, alone = torch.minimum(distance, away), torch.minimum(alone, away)
    return torch.tensor(taken, dtype=torch.int64, device=candidates.device)

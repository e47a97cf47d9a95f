"""What several networks said of the unlabelled samples, kept for a network that comes after them."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from acpl.functional.group import Group


class Teachers:
    """The sum of what they said, by sample id; the samples are those that are unlabelled at the start."""

    def __init__(self, ids: Tensor) -> None:
        """``ids`` (n,): ascending."""
        self._ids = ids.clone()
        self._heard = 0
        self._sum = torch.empty(0)

    def hear(self, said: Tensor, group: Group) -> None:
        """One more; ``said`` (m, classes) is its word on this process's part of all the samples."""
        word = group.gather(said.float()).cpu()
        self._sum = word if self._heard == 0 else self._sum + word
        self._heard += 1

    def agreed(self, said: Tensor, ids: Tensor) -> Tensor:
        """(m, classes): the mean of what they and one more network say of ``ids``, whose word is ``said``."""
        if self._heard == 0:
            return said
        theirs = self._sum[torch.searchsorted(self._ids, ids.cpu())].to(said)
        return (theirs + said) / (self._heard + 1)

    def state_dict(self) -> dict[str, Any]:
        """Everything, the same on every process."""
        return {"heard": self._heard, "sum": self._sum}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` gave."""
        self._heard = state["heard"]
        self._sum = state["sum"].cpu()

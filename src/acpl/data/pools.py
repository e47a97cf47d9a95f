"""The four sets of Algorithm 1 as sample ids, and the label each id was given."""

from collections.abc import Mapping

import torch
from torch import Tensor


class Pools:
    """``labelled`` (D_L), ``unlabelled`` (D_U), ``selected`` (D_S) and ``anchors`` (D_A).

    All hold sample ids, ascending, never positions in a list that shrinks. Labelled and unlabelled are disjoint
    and their union never changes; selected is part of unlabelled until ``merge``. A target belongs to an id and,
    once given, stays unless a pseudo-label is given anew; an unlabelled sample that was never selected has none to be
    read. ``given`` are the samples whose label came with the data, whatever joins the labelled pool later.
    """

    def __init__(self, labelled: Tensor, targets: Tensor, unlabelled: Tensor) -> None:
        """``labelled`` (n,) ids with ``targets`` (n, classes); ``unlabelled`` (m,) ids."""
        if len(labelled) == 0:
            raise ValueError("labelled must hold at least one sample")
        if len(targets) != len(labelled):
            raise ValueError(f"targets has {len(targets)} rows for {len(labelled)} labelled samples")
        if torch.isin(labelled, unlabelled).any():
            raise ValueError("labelled and unlabelled share a sample")
        self.labelled = labelled.sort().values
        self.unlabelled = unlabelled.sort().values
        self.given = self.labelled
        self.selected = labelled[:0]
        self.anchors = self.labelled
        count = int(torch.cat([labelled, unlabelled]).max()) + 1
        self._targets = torch.full((count, targets.shape[1]), torch.nan)
        self._targets[labelled] = targets.float()

    @property
    def classes(self) -> int:
        """How many outputs a target has."""
        return int(self._targets.shape[1])

    def targets(self, ids: Tensor) -> Tensor:
        """(n, classes): the label, or pseudo-label, each id was given."""
        targets = self._targets[ids]
        if torch.isnan(targets).any():
            without = ids[torch.isnan(targets).any(dim=1)]
            raise ValueError(f"{len(without)} samples have no target, the first is {int(without[0])}")
        return targets

    def table(self) -> Tensor:
        """(greatest id + 1, classes): every target by id, NaN where an id has none."""
        return self._targets

    def select(self, ids: Tensor, targets: Tensor) -> None:
        """D_S: these unlabelled samples, pseudo-labelled with ``targets`` (n, classes) in [0, 1]."""
        if len(self.selected):
            raise ValueError("the samples selected before have not been merged")
        if not torch.isin(ids, self.unlabelled).all():
            raise ValueError("only unlabelled samples can be selected")
        self._pseudo_label(ids, targets)
        self.selected = ids.sort().values

    @property
    def pseudo_labelled(self) -> Tensor:
        """The labelled samples whose label did not come with the data."""
        return self.labelled[~torch.isin(self.labelled, self.given)]

    def relabel(self, ids: Tensor, targets: Tensor) -> None:
        """Other pseudo-labels (n, classes) for samples that have one; labels that came with the data stay."""
        if not torch.isin(ids, self.pseudo_labelled).all():
            raise ValueError("only pseudo-labelled samples can be labelled anew")
        self._pseudo_label(ids, targets)

    def _pseudo_label(self, ids: Tensor, targets: Tensor) -> None:
        if not ((targets >= 0) & (targets <= 1)).all():
            raise ValueError("pseudo-labels must lie in [0, 1]")
        self._targets[ids] = targets.float()

    def join_anchors(self, ids: Tensor) -> None:
        """D_A ← D_A ∪ ids, which must have been selected."""
        if not torch.isin(ids, self.selected).all():
            raise ValueError("only selected samples can join the anchors")
        self.anchors = torch.unique(torch.cat([self.anchors, ids]))

    def merge(self) -> None:
        """D_L ← D_L ∪ D_S, D_U ← D_U \\ D_S, D_S ← ∅."""
        self.labelled = torch.cat([self.labelled, self.selected]).sort().values
        self.unlabelled = self.unlabelled[~torch.isin(self.unlabelled, self.selected)]
        self.selected = self.selected[:0]

    def state_dict(self) -> dict[str, Tensor]:
        """Everything, as tensors."""
        return {
            "given": self.given,
            "labelled": self.labelled,
            "unlabelled": self.unlabelled,
            "selected": self.selected,
            "anchors": self.anchors,
            "targets": self._targets,
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what ``state_dict`` gave."""
        self.given = state["given"]
        self.labelled = state["labelled"]
        self.unlabelled = state["unlabelled"]
        self.selected = state["selected"]
        self.anchors = state["anchors"]
        self._targets = state["targets"]

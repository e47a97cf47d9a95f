"""GraphXNet: Aviles-Rivero et al., MICCAI 2019; labels spread over a graph of all images.

After a warm-up, all images become a graph of nearest neighbours in the features of the network's averaged copy, the
labels spread over it, and the network is trained on what they have become; and again with the better features. The
published method minimises a normalised graph 1-Laplacian with class priors; neither the functional's details, the
priors nor code are public. Here is the nearest method that is fully specified: F = (I - αS)⁻¹ Y with α 0.99 on k
nearest neighbours, weights cosine³. Each class spreads beside its absence, and a sample's pseudo-label is the share
of the one in both, so that it is a probability for multi-label too; a sample that nothing reaches gets the labelled
frequency.
"""

from typing import ClassVar

import torch
from pydantic import Field, PositiveInt

from acpl import functional
from acpl.algorithms.contract import Look
from acpl.algorithms.rounds import Guess, Rounds, RoundSettings
from acpl.settings import Section
from acpl.task import Task


class GraphXNetSettings(RoundSettings):
    """Settings of ``graph-xnet``."""

    k: PositiveInt = 10
    """Neighbours of an image in the graph."""
    alpha: float = Field(default=0.99, ge=0, lt=1)
    """How far labels spread."""
    power: float = Field(default=3.0, gt=0)
    """An edge weighs the cosine of two images' features to this power."""


class GraphXNet(Rounds):
    """Labels spread over a graph, then training on them."""

    name: ClassVar[str] = "graph-xnet"
    summary: ClassVar[str] = "labels spread over a graph of all images (Aviles-Rivero et al., MICCAI 2019)"
    Settings: ClassVar[type[Section]] = GraphXNetSettings

    def guess(self, index: int, look: Look) -> Guess:
        """All unlabelled images, labelled by the graph."""
        pools, group = self.context.pools, self.context.group
        everyone = torch.cat([pools.labelled, pools.unlabelled])
        share = look.share(self._networks.predictor, everyone)
        features = share.views.features[:].to(self._networks.device)
        labels = pools.targets(pools.labelled).to(features.device)
        known = torch.isin(share.ids, pools.labelled).to(features.device)
        own = pools.targets(share.ids[known.cpu()]).to(features.device)
        seeds = torch.zeros(len(share.ids), 2 * labels.shape[1], device=features.device)
        seeds[known] = torch.cat([own, 1 - own], dim=1)
        graph = functional.affinity(features, self.settings.k, self.settings.power, group=group)
        reached = functional.spread(graph, seeds, self.settings.alpha, group=group)[~known]
        present, absent = reached.chunk(2, dim=1)
        both = present + absent
        targets = torch.where(both > 0, present / both.clamp_min(1e-30), labels.mean(dim=0))
        if self.context.task is Task.MULTI_CLASS:
            targets = targets / targets.sum(dim=1, keepdim=True).clamp_min(1e-30)
        return Guess(pools.unlabelled, group.gather(targets.clamp(0, 1)).cpu())

"""S2MTS2: self-supervised mean teacher; Liu et al., MLMI 2021.

First all images, labelled or not, teach the network without a label: momentum contrast whose positive is the
distribution of several keys of an image (joint contrastive learning, Cai et al., NeurIPS 2020). Then it is fine-
tuned with a mean teacher. Published: five keys, momentum 0.999, a queue of 65,536, 128 dimensions, temperature
0.07, the keys' spread weighing 2 (t + 1) / T; 100 epochs of pre-training. The released fine-tuning has no mean
teacher at all, and its semi-supervised version was deleted; here it is the one of ``mean-teacher``. Chosen for
short runs: momentum 0.99, a queue of 4,096, three keys, 30 % of the steps for pre-training, and this project's
strong views in the place of its crops, jitter, blur and erasing.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, ClassVar

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn import functional as F

from acpl.algorithms.contract import Batch, Context, Draw, Stage
from acpl.algorithms.mean_teacher import MeanTeacher, MeanTeacherSettings
from acpl.models import Classifier
from acpl.settings import Section


class S2MTS2Settings(MeanTeacherSettings):
    """Settings of ``s2mts2``."""

    pretraining: float = Field(default=0.3, gt=0, lt=1)
    """Share of the steps without labels."""
    keys: int = Field(default=3, ge=2)
    """Views of an image that make its positive; published 5."""
    momentum: float = Field(default=0.99, ge=0, lt=1)
    """What the keys' encoder keeps of itself at each step; published 0.999."""
    queue: PositiveInt = 4096
    """Keys of other images that are remembered; published 65,536."""
    dimensions: PositiveInt = 128
    """Of the space in which images are compared."""
    temperature: float = Field(default=0.07, gt=0)
    """Of the comparison."""


@dataclass(frozen=True)
class Learner:
    """The network and its projection; the network's average predicts."""

    trained: nn.ModuleDict
    predictor: Classifier


class S2MTS2(MeanTeacher):
    """Contrast first, then consistency."""

    name: ClassVar[str] = "s2mts2"
    summary: ClassVar[str] = "self-supervised pre-training, then mean teacher (Liu et al., MLMI 2021)"
    Settings: ClassVar[type[Section]] = S2MTS2Settings
    recordable: ClassVar[bool] = True

    def __init__(self, settings: S2MTS2Settings, context: Context) -> None:
        super().__init__(settings, context)
        network = self._networks.trained
        width, device = network.head.in_features, network.head.weight.device
        projection = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, settings.dimensions)).to(device)
        self._learner = nn.ModuleDict({"network": network, "projection": projection})
        self._keys = copy.deepcopy(self._learner).requires_grad_(False)
        self._queue = F.normalize(torch.randn(settings.queue, settings.dimensions), dim=1).to(device)
        self._next = torch.zeros((), dtype=torch.int64, device=device)
        self._seen: Tensor | None = None

    def networks(self) -> Learner:  # type: ignore[override]
        """The network and its projection."""
        return Learner(self._learner, self._networks.predictor)

    def stage(self, index: int) -> Stage | None:
        """Pre-training on all images, then the mean teacher."""
        pools, size = self.context.pools, self.context.schedule.batch_size
        if index == 0:
            everything = torch.cat([pools.labelled, pools.unlabelled])
            views = ("strong",) * (1 + self.settings.keys)
            steps = self._pretraining_steps
            draws = {"all": Draw(everything, size, views, known=False)}
            return Stage("pre-training", draws, min(steps, ceil(len(everything) / size)), steps)
        stage = super().stage(index - 1)
        if stage is None:
            return None
        return Stage("fine-tuning", stage.draws, stage.epoch_steps, max(1, self.steps - self._pretraining_steps))

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """The joint contrastive loss, or the mean teacher's two."""
        if "all" not in batch:
            return super().losses(batch)
        views = [batch["all"].images, *batch["all"].more]
        query = F.normalize(self._project(self._learner, views[0]), dim=1)
        with torch.no_grad():
            keys = torch.stack([F.normalize(self._project(self._keys, view), dim=1) for view in views[1:]], dim=1)
        self._seen = F.normalize(keys.mean(dim=1), dim=1)
        spread = 2 * (self.step + 1) / self._pretraining_steps
        return {"contrast": joint_contrastive(query, keys, self._queue, self.settings.temperature, spread)}

    def straight_up(self, share: float) -> Tensor:
        """Over this share of the fine-tuning's steps, at whose beginning it is 0."""
        first = self._pretraining_steps
        return ((self.step + 1 - first) / max(1.0, share * (self.steps - first))).clamp(0.0, 1.0)

    def after_step(self, batch: Batch) -> None:
        """Pre-training: the keys' encoder and the queue follow; then as for the mean teacher."""
        super().after_step(batch)
        if "all" not in batch:
            return
        assert self._seen is not None
        with torch.no_grad():
            own: list[Tensor] = list(self._keys.parameters())
            followed: list[Tensor] = list(self._learner.parameters())
            torch._foreach_lerp_(own, followed, 1 - self.settings.momentum)
        # A queue shorter than a batch keeps its last keys: two for one place would be written in any order.
        seen = self.context.group.gather(self._seen)[-len(self._queue) :]
        places = (self._next + torch.arange(len(seen), device=seen.device)) % len(self._queue)
        self._queue[places] = seen
        self._next.copy_((self._next + len(seen)) % len(self._queue))

    def state_dict(self) -> dict[str, Any]:
        """Projection, keys' encoder and queue besides."""
        return {
            **super().state_dict(),
            "learner": self._learner.state_dict(),
            "keys": self._keys.state_dict(),
            "queue": self._queue,
            "next": self._next,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` gave."""
        super().load_state_dict(state)
        self._learner.load_state_dict(state["learner"])
        self._keys.load_state_dict(state["keys"])
        self._queue.copy_(state["queue"])
        self._next.copy_(state["next"])

    @property
    def _pretraining_steps(self) -> int:
        share: float = self.settings.pretraining
        return max(1, round(share * self.steps))

    @staticmethod
    def _project(learner: nn.ModuleDict, images: Tensor) -> Tensor:
        projected: Tensor = learner["projection"](learner["network"](images).features)
        return projected.float()


def joint_contrastive(
    query: Tensor, keys: Tensor, others: Tensor, temperature: float, spread: float | Tensor
) -> Tensor:
    """The expected contrastive loss over a Gaussian of positive keys, in closed form (Cai et al., 2020, eq. 8).

    ``query`` (n, d) and ``keys`` (n, m, d) are of unit length, ``others`` (q, d) are keys of other images. Σ is the
    covariance of an image's keys times ``spread``.
    """
    mean = keys.mean(dim=1)
    apart = keys - mean[:, None]
    bulge = spread * (apart @ query[:, :, None]).square().mean(dim=(1, 2)) / (2 * temperature**2)
    positive = (query * mean).sum(dim=1) / temperature
    logits = torch.cat([(positive + bulge)[:, None], query @ others.T / temperature], dim=1)
    return (torch.logsumexp(logits, dim=1) - positive).mean()

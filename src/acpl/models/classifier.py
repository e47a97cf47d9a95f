"""A backbone and a head: features for neighbours, logits for the loss; and several of these as one."""

from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from acpl.task import Task


class Outputs(NamedTuple):
    """What a classifier says of a batch."""

    features: Tensor
    """(batch, features): pooled backbone output, f in the paper."""
    logits: Tensor
    """(batch, classes): before softmax or sigmoid."""


class Network(nn.Module):
    """Images (batch, channels, height, width) in, features and logits out."""

    features: int
    """How many an image has."""
    outputs: int

    def __call__(self, images: Tensor) -> Outputs:
        """The forward pass, typed."""
        return cast(Outputs, super().__call__(images))


class Classifier(Network):
    """A backbone and a head."""

    def __init__(self, backbone: nn.Module, features: int, classes: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.features, self.outputs = features, classes
        self.backbone = backbone
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(features, classes)

    def forward(self, images: Tensor) -> Outputs:
        """Features before dropout, so that neighbours are found among what the head could see."""
        features = self.backbone(images)
        return Outputs(features, self.head(self.dropout(features)))

    @torch.no_grad()
    def soften(self, temperature: float) -> None:
        """Divide the logits by a temperature, for good."""
        self.head.weight.div_(temperature)
        self.head.bias.div_(temperature)


class Joined(Network):
    """Several networks that answer as one: with the mean of their probabilities."""

    def __init__(self, networks: Sequence[Network], task: Task) -> None:
        super().__init__()
        self.features, self.outputs = sum(one.features for one in networks), networks[0].outputs
        self.networks, self.task = nn.ModuleList(networks), task

    def forward(self, images: Tensor) -> Outputs:
        """Features side by side, each network's of length 1: a cosine of them is the mean of the networks' cosines."""
        said: list[Outputs] = [network(images) for network in self.networks]
        features = torch.cat([F.normalize(one.features.float(), dim=1) for one in said], dim=1)
        return Outputs(features, mean_logits(torch.stack([one.logits for one in said]), self.task))


def mean_logits(logits: Tensor, task: Task) -> Tensor:
    """(batch, classes) whose probabilities are the means of those of ``logits`` (networks, batch, classes)."""
    logits = logits.float()
    if task is Task.MULTI_CLASS:
        return torch.logsumexp(F.log_softmax(logits, dim=2), dim=0)
    return torch.logsumexp(F.logsigmoid(logits), dim=0) - torch.logsumexp(F.logsigmoid(-logits), dim=0)


def probabilities(logits: Tensor, task: Task) -> Tensor:
    """(batch, classes) in [0, 1]: softmax over classes, or a sigmoid each; always float32."""
    logits = logits.float()
    return torch.softmax(logits, dim=1) if task is Task.MULTI_CLASS else torch.sigmoid(logits)


def classification_loss(logits: Tensor, targets: Tensor, task: Task) -> Tensor:
    """ℓ of eq. 1, averaged over the batch: cross-entropy or BCE, with soft targets (batch, classes)."""
    logits = logits.float()
    if task is Task.MULTI_CLASS:
        return F.cross_entropy(logits, targets)
    return F.binary_cross_entropy_with_logits(logits, targets)

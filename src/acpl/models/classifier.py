"""A backbone and a head: features for neighbours, logits for the loss."""

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


class Classifier(nn.Module):
    """Images (batch, channels, height, width) in, features and logits out."""

    def __init__(self, backbone: nn.Module, features: int, classes: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.backbone = backbone
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(features, classes)

    def forward(self, images: Tensor) -> Outputs:
        """Features before dropout, so that neighbours are found among what the head could see."""
        features = self.backbone(images)
        return Outputs(features, self.head(self.dropout(features)))

    def __call__(self, images: Tensor) -> Outputs:
        """The forward pass, typed."""
        return cast(Outputs, super().__call__(images))


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

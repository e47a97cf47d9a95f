"""The averaged copy of a network: it evaluates, it never trains."""

import copy
from typing import Literal

import torch
from torch import Tensor, nn

Statistics = Literal["average", "copy", "forward"]


class WeightAverage(nn.Module):
    """An exponential moving average of a network's weights.

    After step n the decay is min(1 - 1/(n + 1), decay): a plain mean until the average is warm, so that
    the random start does not linger in short runs.

    ``statistics`` says where batch-norm's running statistics come from: ``average`` averages them like the
    weights, ``copy`` takes the trained network's, ``forward`` averages them and also lets the copy see every
    batch in training mode (as the published code does).
    """

    def __init__(self, network: nn.Module, decay: float, statistics: Statistics = "average") -> None:
        super().__init__()
        self.network = copy.deepcopy(network).requires_grad_(False).eval()
        self.decay = decay
        self.statistics = statistics
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.steps: Tensor

    @torch.no_grad()
    def update(self, network: nn.Module, images: Tensor | None = None) -> None:
        """Move towards ``network``; ``images`` are shown to the copy when its statistics ask for it."""
        self.steps += 1
        towards = 1.0 - min(1.0 - 1.0 / (int(self.steps) + 1), self.decay)
        torch._foreach_lerp_(list(self.network.parameters()), list(network.parameters()), towards)
        for average, current in zip(self.network.buffers(), network.buffers(), strict=True):
            if average.is_floating_point() and self.statistics != "copy":
                average.lerp_(current, towards)
            else:
                average.copy_(current)
        if self.statistics == "forward" and images is not None:
            self.network.train()
            self.network(images)
            self.network.eval()

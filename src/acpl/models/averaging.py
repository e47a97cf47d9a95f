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
        # Where the weights are: from the host, a recorded update would repeat the number that it saw first.
        device = next(network.parameters()).device
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64, device=device))
        self.steps: Tensor

    @torch.no_grad()
    def update(self, network: nn.Module, images: Tensor | None = None) -> None:
        """Move towards ``network``; ``images`` are shown to the copy when its statistics ask for it."""
        self.steps += 1
        # A tensor, not a number: the step may be recorded once and replayed.
        towards = (1.0 / (self.steps + 1)).clamp_min(1.0 - self.decay)
        averages: list[Tensor] = list(self.network.parameters())
        currents: list[Tensor] = list(network.parameters())
        copies: list[tuple[Tensor, Tensor]] = []
        for average, current in zip(self.network.buffers(), network.buffers(), strict=True):
            if average.is_floating_point() and self.statistics != "copy":
                averages.append(average)
                currents.append(current)
            else:
                copies.append((average, current))
        apart = list(torch._foreach_sub(currents, averages))
        torch._foreach_mul_(apart, towards)
        torch._foreach_add_(averages, apart)
        if copies:
            torch._foreach_copy_([average for average, _ in copies], [current for _, current in copies])
        if self.statistics == "forward" and images is not None:
            self.network.train()
            self.network(images)
            self.network.eval()

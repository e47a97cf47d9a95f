"""The mean over processes of gradients and losses, a few large exchanges a step."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from acpl.engine.processes import Processes

BUCKET = 2**23
"""Numbers that are exchanged at once, at most, where no tensor is larger: 32 MiB."""


class Exchange:
    """What every process has learnt from its part of a batch, made the whole batch's.

    Losses are means over equal parts, so that the mean over processes is the whole batch's loss and its gradient.
    """

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._taught: list[bool] | None = None
        """Which parameters have a gradient: agreed at the first step, the same at every other."""

    @torch.no_grad()
    def mean(self, parameters: Sequence[nn.Parameter], losses: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Put the mean over processes into every parameter's gradient; the mean losses are returned."""
        if self._taught is None:
            have = torch.tensor([parameter.grad is not None for parameter in parameters])
            self._taught = (self._processes.sum(have) > 0).tolist()
        gradients = []
        for parameter, taught in zip(parameters, self._taught, strict=True):
            if taught:
                # A process whose part taught this parameter nothing takes part with a gradient of 0.
                parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                gradients.append(parameter.grad)
            elif parameter.grad is not None:
                raise RuntimeError("a parameter got a gradient that had none at the first step: what is trained varies")
        said = torch.stack([loss.float() for loss in losses.values()])
        for bucket in _buckets([*gradients, said]):
            flat = torch.cat([tensor.flatten() for tensor in bucket])
            self._processes.sum_in_place(flat)
            flat /= self._processes.size
            for tensor, part in zip(bucket, torch.split(flat, [tensor.numel() for tensor in bucket]), strict=True):
                tensor.copy_(part.view_as(tensor))
        return dict(zip(losses, said.unbind(), strict=True))


def _buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Tensors of one kind, together no larger than ``BUCKET`` unless one alone is."""
    kinds: dict[torch.dtype, list[Tensor]] = {}
    for tensor in tensors:
        bucket = kinds.setdefault(tensor.dtype, [])
        if bucket and sum(other.numel() for other in bucket) + tensor.numel() > BUCKET:
            yield bucket
            bucket = kinds[tensor.dtype] = []
        bucket.append(tensor)
    yield from kinds.values()

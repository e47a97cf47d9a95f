"""Batch norm over the whole batch when several processes hold a part of it each.

PyTorch's own ``SyncBatchNorm`` is for GPUs alone; this one is the same mathematics on any device, and processes are
handed in as an object.
"""

from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from acpl.errors import UserError


class Together(Protocol):
    """The processes that hold the parts."""

    @property
    def size(self) -> int:
        """How many there are."""
        ...

    def sum(self, values: Tensor) -> Tensor:
        """Element-wise over processes; the same on all."""
        ...

    def stack(self, values: Tensor) -> Tensor:
        """(processes, …): the values of each, all of one shape; the same on all."""
        ...


def normalise_together(norm: _BatchNorm, x: Tensor, processes: Together) -> Tensor:
    """What ``norm`` makes of ``x`` (n, channels, …) in training: statistics of all processes' parts.

    Its running statistics follow and stay the same on all. Every process must come here equally often, in one order.
    """
    momentum = 0.0
    if norm.running_mean is not None:
        assert norm.num_batches_tracked is not None
        norm.num_batches_tracked.add_(1)
        momentum = norm.momentum if norm.momentum is not None else 1.0 / float(norm.num_batches_tracked)
    y: Tensor = _NormTogether.apply(  # type: ignore[no-untyped-call]
        x, norm.weight, norm.bias, norm.running_mean, norm.running_var, momentum, norm.eps, processes
    )
    return y


def synchronise(network: nn.Module, processes: Together) -> None:
    """Let every batch norm of ``network`` take its statistics over all processes, in place."""
    for module in network.modules():
        if not isinstance(module, _BatchNorm):
            continue
        if type(module) in _SHARED:
            module.__class__ = _SHARED[type(module)]  # the same weights, statistics and names
        elif not hasattr(module, "processes"):
            raise UserError(
                f"this network's batch norm is of a kind of its own ({type(module).__name__}), which cannot take its "
                "statistics over several processes; train it with devices 1"
            )
        setattr(module, "processes", processes)  # noqa: B010 — a module's attributes are typed as tensors


def part_ways(network: nn.Module) -> None:
    """Let every batch norm of ``network`` take the statistics of its own part again."""
    for module in network.modules():
        if hasattr(module, "processes"):
            setattr(module, "processes", None)  # noqa: B010


class _SharedNorm1d(nn.BatchNorm1d):
    processes: Together | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.training and self.processes is not None:
            return normalise_together(self, x, self.processes)
        return super().forward(x)


class _SharedNorm2d(nn.BatchNorm2d):
    processes: Together | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.training and self.processes is not None:
            return normalise_together(self, x, self.processes)
        return super().forward(x)


class _SharedNorm3d(nn.BatchNorm3d):
    processes: Together | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.training and self.processes is not None:
            return normalise_together(self, x, self.processes)
        return super().forward(x)


_SHARED: dict[type[_BatchNorm], type[_BatchNorm]] = {
    nn.BatchNorm1d: _SharedNorm1d,
    nn.BatchNorm2d: _SharedNorm2d,
    nn.BatchNorm3d: _SharedNorm3d,
}


class _NormTogether(torch.autograd.Function):
    """Both directions; one exchange each. Gradients of weight and bias are this process's: the step sums them."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        momentum: float,
        eps: float,
        processes: Together,
    ) -> Tensor:
        dims, shape = _layout(x)
        wide = x.float()
        own_variance, own_mean = torch.var_mean(wide, dim=dims, unbiased=False)
        count = own_mean.new_full((1,), x.numel() / x.shape[1])
        # A process's mean and variance, not its sums of squares: those of a large mean would cancel.
        counts, means, variances = torch.split(
            processes.stack(torch.cat([count, own_mean, own_variance])), [1, len(own_mean), len(own_mean)], dim=1
        )
        total = counts.sum()
        mean = (means * counts).sum(dim=0) / total
        variance = ((variances + (means - mean).square()) * counts).sum(dim=0) / total
        if running_mean is not None and running_var is not None:
            running_mean.lerp_(mean, momentum)
            running_var.lerp_(variance * (total / (total - 1).clamp_min(1)), momentum)
        inverse = torch.rsqrt(variance + eps)
        scale = inverse if weight is None else inverse * weight
        y = (wide - mean.view(shape)) * scale.view(shape)
        if bias is not None:
            y = y + bias.view(shape)
        ctx.save_for_backward(x, weight, mean, inverse, total)
        ctx.processes, ctx.has_bias = processes, bias is not None
        return y.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        x, weight, mean, inverse, total = ctx.saved_tensors
        dims, shape = _layout(x)
        dy = grads[0].float()
        unit = (x.float() - mean.view(shape)) * inverse.view(shape)
        sums = torch.stack([dy.sum(dim=dims), (dy * unit).sum(dim=dims)])
        level, slope = (ctx.processes.sum(sums) / total).unbind()
        scale = inverse if weight is None else inverse * weight
        dx = (dy - level.view(shape) - unit * slope.view(shape)) * scale.view(shape)
        of_weight = sums[1] if weight is not None else None
        of_bias = sums[0] if ctx.has_bias else None
        return dx.to(x.dtype), of_weight, of_bias, None, None, None, None, None


def _layout(x: Tensor) -> tuple[list[int], list[int]]:
    """The dimensions that are averaged over, and the shape of a value a channel beside ``x``."""
    return [0, *range(2, x.ndim)], [1, -1, *([1] * (x.ndim - 2))]

"""Batch norm and the activation after it as one module: one pass over the images less for each, and faster on a GPU."""

from itertools import pairwise
from math import inf
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from acpl.models import norm_passes as passes
from acpl.models.shared_norms import Together, normalise_together


class NormActivation(nn.BatchNorm2d):
    """An ``nn.BatchNorm2d`` (the same weights and statistics by the same names) and its activation.

    Below 0 the activation has ``slope`` (0: ReLU, 1: none), above ``top`` it is flat (6: ReLU6).
    """

    processes: Together | None = None
    """Whose parts make up the batch; None: this process has all of it."""

    def __init__(self, norm: nn.BatchNorm2d, slope: float = 1.0, top: float = inf) -> None:
        super().__init__(norm.num_features, norm.eps, norm.momentum, device=norm.weight.device)
        self.weight, self.bias = norm.weight, norm.bias
        self.load_state_dict(norm.state_dict())
        self.slope, self.top = slope, top

    def forward(self, x: Tensor) -> Tensor:
        """(n, channels, height, width) in and out."""
        if self.training and self.processes is not None:
            return activate(normalise_together(self, x, self.processes), self.slope, self.top)
        if self.training and x.is_cuda and passes.has_triton():
            return self.by_passes(x)
        return activate(super().forward(x), self.slope, self.top)

    def by_passes(self, x: Tensor) -> Tensor:
        """What ``forward`` returns in training, by the passes that are kernels on a GPU."""
        y: Tensor = _NormActivation.apply(x, self.weight, self.bias, self)  # type: ignore[no-untyped-call]
        return y

    def extra_repr(self) -> str:
        """What it is, for people."""
        return f"{self.num_features}, eps={self.eps}, slope={self.slope}, top={self.top}"


def activate(x: Tensor, slope: float, top: float) -> Tensor:
    """x where it is between 0 and ``top``, ``slope`` × x below, ``top`` above."""
    if slope == 1.0:
        return x
    if slope > 0:
        return F.leaky_relu(x, slope, inplace=True)
    return F.relu(x, inplace=True) if top == inf else F.hardtanh(x, 0.0, top, inplace=True)


def fuse_norms(network: nn.Module) -> None:
    """Make one module of each batch norm and the activation after it, wherever the network shows that one follows."""
    for module in list(network.modules()):
        children = list(module.named_children())
        if isinstance(module, nn.Sequential):
            for (name, _), (after, _) in pairwise(children):
                _join(module, [name], after)
        elif hasattr(module, "_swish") and not getattr(module, "has_se", False):  # EfficientNet's blocks and itself
            _join(module, [name for name in ("_bn0", "_bn1") if hasattr(module, name)], "_swish")
        for name, child in module.named_children():
            if type(child) is nn.BatchNorm2d and child.affine and child.track_running_stats and child.momentum:
                setattr(module, name, NormActivation(child))


def _join(module: nn.Module, norms: list[str], activation: str) -> None:
    shape = _shape(getattr(module, activation))
    if shape is None or not norms or any(type(getattr(module, name)) is not nn.BatchNorm2d for name in norms):
        return
    for name in norms:
        setattr(module, name, NormActivation(getattr(module, name), *shape))
    setattr(module, activation, nn.Identity())


def _shape(activation: nn.Module) -> tuple[float, float] | None:
    """Slope and top of an activation that can be joined."""
    if isinstance(activation, nn.ReLU6):
        return 0.0, 6.0
    if isinstance(activation, nn.ReLU):
        return 0.0, inf
    if isinstance(activation, nn.LeakyReLU):
        return activation.negative_slope, inf
    return None


class _NormActivation(torch.autograd.Function):
    """Both directions by passes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, norm: NormActivation) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last)
        saved = passes.statistics(norm, x, passes.sums(x), passes.fresh_moments(x, x.shape[1]))
        ctx.save_for_backward(x, saved)
        ctx.shape = norm.slope, norm.top
        return passes.activated(x, saved, norm.slope, norm.top)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        x, saved = ctx.saved_tensors
        dx, (bias, weight) = passes.gradients(x, grads[0], saved, *ctx.shape)
        return dx, weight, bias, None

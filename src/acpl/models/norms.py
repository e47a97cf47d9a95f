"""Batch norm and the activation after it as one module: one pass over the images less for each, and faster on a GPU."""

from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from math import inf
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from acpl.models.shared_norms import Together, normalise_together

_PROGRAMS = 512  # that share the rows of a reduction
_ROWS, _PARTS = 32, 128


class NormActivation(nn.BatchNorm2d):
    """An ``nn.BatchNorm2d`` (the same weights and statistics by the same names) and its activation.

    Below 0 the activation has ``slope`` (0: ReLU, 1: none), above ``top`` it is flat (6: ReLU6).
    """

    processes: Together | None = None
    """Whose parts make up the batch; None: this process has all of it."""

    def __init__(self, norm: nn.BatchNorm2d, slope: float = 1.0, top: float = inf) -> None:
        super().__init__(norm.num_features, norm.eps, norm.momentum)
        self.weight, self.bias = norm.weight, norm.bias
        self.load_state_dict(norm.state_dict())
        self.slope, self.top = slope, top

    def forward(self, x: Tensor) -> Tensor:
        """(n, channels, height, width) in and out."""
        if self.training and self.processes is not None:
            return activate(normalise_together(self, x, self.processes), self.slope, self.top)
        if self.training and x.is_cuda and _has_triton():
            return self._fused(x)
        return activate(super().forward(x), self.slope, self.top)

    def _fused(self, x: Tensor) -> Tensor:
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        y: Tensor = _NormActivation.apply(  # type: ignore[no-untyped-call]
            x,
            self.weight,
            self.bias,
            self.running_mean,
            self.running_var,
            self.momentum,
            self.eps,
            self.slope,
            self.top,
        )
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


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


class _NormActivation(torch.autograd.Function):
    """The kernels' two directions."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        running_mean: Tensor,
        running_var: Tensor,
        momentum: float,
        eps: float,
        slope: float,
        top: float,
    ) -> Tensor:
        from acpl.models import norm_kernels as kernels

        x = x.contiguous(memory_format=torch.channels_last)
        rows, channels, block, columns, programs, per_program = _layout(x)
        part = torch.empty(programs, 2, channels, device=x.device)
        saved = torch.empty(4, channels, device=x.device)
        y = torch.empty_like(x)
        kernels.sums[(programs, columns)](x, part, rows, channels, per_program, BLOCK_R=_ROWS, BLOCK_C=block)
        kernels.statistics[(columns,)](
            x, part, programs, weight, bias, running_mean, running_var, saved, rows, channels, momentum, eps,
            BLOCK_P=_PARTS, BLOCK_C=block,
        )  # fmt: skip
        kernels.activated[(-(-rows // _ROWS), columns)](
            x, y, saved, rows, channels, SLOPE=slope, TOP=top, BLOCK_R=_ROWS, BLOCK_C=block
        )
        ctx.save_for_backward(x, saved)
        ctx.shape = slope, top
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        from acpl.models import norm_kernels as kernels

        x, saved = ctx.saved_tensors
        slope, top = ctx.shape
        dy = grads[0].contiguous(memory_format=torch.channels_last)
        rows, channels, block, columns, programs, per_program = _layout(x)
        part = torch.empty(programs, 2, channels, device=x.device)
        totals = torch.empty(2, channels, device=x.device)
        dx = torch.empty_like(x)
        kernels.gradient_sums[(programs, columns)](
            x, dy, saved, part, rows, channels, per_program, SLOPE=slope, TOP=top, BLOCK_R=_ROWS, BLOCK_C=block
        )
        kernels.gradient_totals[(columns,)](part, programs, totals, channels, BLOCK_P=_PARTS, BLOCK_C=block)
        kernels.gradients[(-(-rows // _ROWS), columns)](
            x, dy, dx, saved, totals, rows, channels, SLOPE=slope, TOP=top, BLOCK_R=_ROWS, BLOCK_C=block
        )
        return dx, totals[1], totals[0], None, None, None, None, None, None


def _layout(x: Tensor) -> tuple[int, int, int, int, int, int]:
    """Rows, channels, channels a block, blocks of channels, programs that share the rows, rows of each."""
    channels = x.shape[1]
    rows = x.numel() // channels
    block = 64 if channels % 64 == 0 or channels > 96 else 32
    columns = -(-channels // block)
    programs = max(1, min(_PROGRAMS // columns, -(-rows // _ROWS)))
    per_program = -(-rows // (programs * _ROWS)) * _ROWS
    return rows, channels, block, columns, -(-rows // per_program), per_program

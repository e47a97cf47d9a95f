"""The passes over images that batch norm and its activation consist of: in Triton on a GPU, in torch elsewhere.

Images are (n, channels, height, width), channels-last on a GPU; ``x`` may be the first channels of wider ones. What a
pass leaves for the next: ``part`` (programs, 2, channels), sums of distances from the first pixel and of their squares;
``saved`` (4, channels), scale, shift, mean and 1 / deviation.
"""

from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor, nn

_PROGRAMS = 512  # that share the rows of a reduction
_ROWS, _COPIED_ROWS = 32, 128
_FEW: dict[str, int] = {"BLOCK_P": 256, "BLOCK_C": 16, "num_warps": 8}  # for sums of the programs' sums, which are few


@cache
def has_triton() -> bool:
    """Whether the GPU's kernels can be compiled here."""
    return find_spec("triton") is not None


def sums(x: Tensor, copy: Tensor | None = None) -> Tensor:
    """The ``part`` of x; the images are written to ``copy``, too: channels of wider images."""
    if not x.is_cuda:
        if copy is not None:
            copy.copy_(x)
        pixels = _wide(x).movedim(1, -1).flatten(0, -2)
        apart = pixels - pixels[:1]
        return torch.stack([apart.sum(0), apart.square().sum(0)])[None]
    from acpl.models import norm_kernels as kernels

    rows, channels, block, columns, programs, per_program = _layout(x)
    part = torch.empty(programs, 2, channels, device=x.device)
    target = x if copy is None else copy
    kernels.sums[(programs, columns)](
        x, target, part, rows, channels, _row(x), _row(target), per_program,
        COPY=copy is not None, BLOCK_R=_ROWS, BLOCK_C=block,
    )  # fmt: skip
    return part


def copied(x: Tensor, copy: Tensor) -> Tensor:
    """The images written to ``copy``; both may be channels of wider ones, which torch's own copies are slow at."""
    if not x.is_cuda:
        return copy.copy_(x)
    from acpl.models import norm_kernels as kernels

    rows, channels, block, columns, _, _ = _layout(x)
    kernels.copied[(-(-rows // _COPIED_ROWS), columns)](
        x, copy, rows, channels, _row(x), _row(copy), BLOCK_R=_COPIED_ROWS, BLOCK_C=block
    )
    return copy


def statistics(norm: nn.BatchNorm2d, x: Tensor, part: Tensor, moments: Tensor, known: int = 0) -> Tensor:
    """``saved`` for what ``norm`` makes of x in training, whose running statistics follow.

    The last channels' sums come from ``part``; the first ``known`` ones' mean and variance lie in ``moments``
    (2, channels or more) already, where those of the last are written.
    """
    weight, bias, mean, var = norm.weight, norm.bias, norm.running_mean, norm.running_var
    assert mean is not None
    assert var is not None
    assert norm.num_batches_tracked is not None
    assert norm.momentum is not None
    channels = x.shape[1]
    if not x.is_cuda:
        norm.num_batches_tracked.add_(1)
        count = x.numel() // channels
        shifted, squares = part.sum(0) / count
        moments[0, known:channels] = _wide(x)[0, known:, 0, 0] + shifted
        moments[1, known:channels] = (squares - shifted.square()).clamp(min=0)
        here, spread = moments[:, :channels]
        inverse = (spread + norm.eps).rsqrt()
        mean.lerp_(here.to(mean.dtype), norm.momentum)
        var.lerp_((spread * count / max(1, count - 1)).to(var.dtype), norm.momentum)
        return torch.stack([weight * inverse, bias - here * weight * inverse, here, inverse])
    from acpl.models import norm_kernels as kernels

    saved = torch.empty(4, channels, device=x.device)
    kernels.statistics[(-(-channels // _FEW["BLOCK_C"]),)](
        x, part, part.shape[0], moments, moments.stride(0), known, weight, bias, mean, var,
        norm.num_batches_tracked, saved, x.numel() // channels, channels, norm.momentum, norm.eps, **_FEW,
    )  # fmt: skip
    return saved


def activated(x: Tensor, saved: Tensor, slope: float, top: float) -> Tensor:
    """Normalised and activated."""
    if not x.is_cuda:
        scale, shift, _, _ = saved[:, None, :, None, None]
        value = _wide(x) * scale + shift
        return torch.where(value > 0, value.clamp(max=top), slope * value).to(x.dtype)
    from acpl.models import norm_kernels as kernels

    rows, channels, block, columns, _, _ = _layout(x)
    y = dense_like(x)
    kernels.activated[(-(-rows // _ROWS), columns)](
        x, y, saved, rows, channels, _row(x), SLOPE=slope, TOP=top, BLOCK_R=_ROWS, BLOCK_C=block
    )
    return y


def gradients(
    x: Tensor, dy: Tensor, saved: Tensor, slope: float, top: float, add_to: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The gradient of x, added to ``add_to`` (laid out like x) where there is one, and those of bias and weight."""
    if not x.is_cuda:
        scale, shift, mean, inverse = saved[:, None, :, None, None]
        value, gradient = _wide(x), _wide(dy)
        before, normal = value * scale + shift, (value - mean) * inverse
        gradient = torch.where(before > 0, torch.where(before < top, gradient, 0.0), slope * gradient)
        totals = torch.stack([gradient.sum((0, 2, 3)), (gradient * normal).sum((0, 2, 3))])
        level, slant = totals[:, None, :, None, None] * (x.shape[1] / x.numel())
        dx = (scale * (gradient - level - normal * slant)).to(x.dtype)
        return (dx if add_to is None else add_to.add_(dx)), totals
    from acpl.models import norm_kernels as kernels

    dy = dy.contiguous(memory_format=torch.channels_last)
    rows, channels, block, columns, programs, per_program = _layout(x)
    part = torch.empty(programs, 2, channels, device=x.device)
    totals = torch.empty(2, channels, device=x.device)
    kernels.gradient_sums[(programs, columns)](
        x, dy, saved, part, rows, channels, _row(x), per_program,
        SLOPE=slope, TOP=top, BLOCK_R=_ROWS, BLOCK_C=block,
    )  # fmt: skip
    kernels.gradient_totals[(-(-channels // _FEW["BLOCK_C"]),)](part, programs, totals, channels, **_FEW)
    dx = dense_like(x) if add_to is None else add_to
    kernels.gradients[(-(-rows // _ROWS), columns)](
        x, dy, dx, saved, totals, rows, channels, _row(x), _row(dx),
        ADD=add_to is not None, SLOPE=slope, TOP=top, BLOCK_R=_ROWS, BLOCK_C=block,
    )  # fmt: skip
    return dx, totals


def fresh_moments(x: Tensor, channels: int) -> Tensor:
    """Room for the ``moments`` of as many channels."""
    return torch.empty(2, channels, device=x.device, dtype=torch.promote_types(x.dtype, torch.float32))


def _wide(x: Tensor) -> Tensor:
    """In float32 at least: what sums are taken of."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def dense_like(x: Tensor) -> Tensor:
    """Room for as many values, channels-last and nothing between them."""
    return torch.empty(x.shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)


def _row(x: Tensor) -> int:
    """Values from one pixel to the next: of channels-last images, which may be a part of wider ones."""
    n, channels, height, width = x.shape
    return x.stride(3) if width > 1 else x.stride(2) if height > 1 else x.stride(0) if n > 1 else channels


def _layout(x: Tensor) -> tuple[int, int, int, int, int, int]:
    """Rows, channels, channels a block, blocks of channels, programs that share the rows, rows of each."""
    channels = x.shape[1]
    rows = x.numel() // channels
    block = 64 if channels % 64 == 0 or channels > 96 else 32
    columns = -(-channels // block)
    programs = max(1, min(_PROGRAMS // columns, -(-rows // _ROWS)))
    per_program = -(-rows // (programs * _ROWS)) * _ROWS
    return rows, channels, block, columns, -(-rows // per_program), per_program

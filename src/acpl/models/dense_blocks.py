"""DenseNet's blocks with less to move: nothing is concatenated, and no channel's statistics are taken twice.

A block's every layer reads all channels before it and adds some. As written by most, each layer copies what there is
to put its own beside it, forth and back; on a fast GPU that and what follows from it is a fifth of a step. Here a block
has one set of images that each layer writes its channels into, and one of gradients that each adds to.
"""

from itertools import accumulate
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from acpl.models import norm_passes as passes
from acpl.models.norms import NormActivation


def join_blocks(network: nn.Module) -> None:
    """Replace the blocks and transitions' pooling of a DenseNet whose norms are ``NormActivation``; names stay."""
    for module in list(network.modules()):
        for name, child in module.named_children():
            if type(child).__name__ == "_DenseBlock" and all(_is_plain(layer) for layer in child.children()):
                setattr(module, name, DenseBlock(dict(child.named_children())))
            elif type(child) is nn.AvgPool2d and (child.kernel_size, child.stride, child.padding) == (2, 2, 0):
                setattr(module, name, Halved())


def _is_plain(layer: nn.Module) -> bool:
    """Whether a layer is norm, 1 × 1 convolution, norm, 3 × 3 convolution and nothing else."""
    kinds = [type(part) for part in cast("nn.Module", layer.layers).children() if not isinstance(part, nn.Identity)]
    return kinds == [NormActivation, nn.Conv2d, NormActivation, nn.Conv2d]


class DenseBlock(nn.Sequential):
    """Layers that each add channels to those before."""

    def __init__(self, layers: dict[str, nn.Module]) -> None:
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, x: Tensor) -> Tensor:
        """(n, channels, height, width) to more channels."""
        layers = layers_of(self)
        alone = all(norm.processes is None for layer in layers for norm in (layer.norm1, layer.norm2))
        if self.training and alone and x.is_cuda and passes.has_triton():
            return in_one_place(x, layers)
        y: Tensor = super().forward(x)  # type: ignore[no-untyped-call]
        return y


class _Layer(NamedTuple):
    norm1: NormActivation
    conv1: nn.Conv2d
    norm2: NormActivation
    conv2: nn.Conv2d

    @property
    def weights(self) -> tuple[Tensor, ...]:
        norms = self.norm1.weight, self.norm1.bias, self.norm2.weight, self.norm2.bias
        return self.conv1.weight, self.conv2.weight, *norms


def layers_of(block: nn.Module) -> list[_Layer]:
    """What each layer of a block is made of, in their order."""
    return [_Layer(*(getattr(layer.layers, name) for name in _Layer._fields)) for layer in block.children()]


def in_one_place(x: Tensor, layers: list[_Layer]) -> Tensor:
    """What the layers make of x in training, one after the other, with what each adds beside what there was."""
    y: Tensor = _InOnePlace.apply(x, layers, *(weight for layer in layers for weight in layer.weights))  # type: ignore[no-untyped-call]
    return y


class _InOnePlace(torch.autograd.Function):
    """Both directions of a block."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layers: list[_Layer], *weights: Tensor) -> Tensor:
        n, channels, height, width = x.shape
        ends = list(accumulate([channels, *(layer.conv2.out_channels for layer in layers)]))
        images = torch.empty(
            (n, ends[-1], height, width), dtype=x.dtype, device=x.device, memory_format=torch.channels_last
        )
        moments = passes.fresh_moments(x, ends[-1])
        filters = _cast([conv.weight for layer in layers for conv in (layer.conv1, layer.conv2)], x.dtype)
        added, start, kept = x.contiguous(memory_format=torch.channels_last), 0, []
        with torch.autocast(x.device.type, enabled=False):
            for number, ((norm1, conv1, norm2, conv2), end) in enumerate(zip(layers, ends, strict=False)):
                part = passes.sums(added, copy=images[:, start:end])
                saved1 = passes.statistics(norm1, images[:, :end], part, moments, known=start)
                y1 = passes.activated(images[:, :end], saved1, norm1.slope, norm1.top)
                z = F.conv2d(y1, filters[2 * number], None, conv1.stride, conv1.padding)
                saved2 = passes.statistics(norm2, z, passes.sums(z), passes.fresh_moments(z, z.shape[1]))
                y2 = passes.activated(z, saved2, norm2.slope, norm2.top)
                added, start = F.conv2d(y2, filters[2 * number + 1], None, conv2.stride, conv2.padding), end
                kept += [saved1, y1, z, saved2, y2]
        passes.copied(added, images[:, start:])
        ctx.save_for_backward(images, *filters, *kept)
        ctx.layers, ctx.ends = layers, ends
        return images

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        images, *rest = ctx.saved_tensors
        filters, kept = rest[: 2 * len(ctx.layers)], rest[2 * len(ctx.layers) :]
        gradient = passes.copied(grads[0].contiguous(memory_format=torch.channels_last), passes.dense_like(images))
        of_filters, of_norms = [], []
        for number in reversed(range(len(ctx.layers))):
            norm1, conv1, norm2, conv2 = ctx.layers[number]
            saved1, y1, z, saved2, y2 = kept[5 * number : 5 * number + 5]
            end, beyond = ctx.ends[number : number + 2]
            mine = gradient[:, end:beyond]
            dy, weight2 = _convolution_gradients(
                passes.copied(mine, passes.dense_like(mine)), y2, filters[2 * number + 1], conv2
            )
            dz, (bias2, scale2) = passes.gradients(z, dy, saved2, norm2.slope, norm2.top)
            dy, weight1 = _convolution_gradients(dz, y1, filters[2 * number], conv1)
            _, (bias1, scale1) = passes.gradients(
                images[:, :end], dy, saved1, norm1.slope, norm1.top, add_to=gradient[:, :end]
            )
            of_filters += [weight2, weight1]
            of_norms += [bias2, scale2, bias1, scale1]
        of_filters = _cast(of_filters[::-1], ctx.layers[0].conv1.weight.dtype)
        of_norms = of_norms[::-1]
        found = (
            value
            for number in range(len(ctx.layers))
            for value in (*of_filters[2 * number : 2 * number + 2], *of_norms[4 * number : 4 * number + 4])
        )
        first = gradient[:, : ctx.ends[0]]
        return passes.copied(first, passes.dense_like(first)), None, *found


def _cast(tensors: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """All in another precision, at once: one by one a hundred small ones take as long as a large one."""
    if all(tensor.dtype is dtype for tensor in tensors):
        return tensors
    copies = [torch.empty_like(tensor, dtype=dtype) for tensor in tensors]
    torch._foreach_copy_(copies, tensors)
    return copies


def _convolution_gradients(dy: Tensor, x: Tensor, filters: Tensor, conv: nn.Conv2d) -> tuple[Tensor, Tensor]:
    """Of the input and of the weights."""
    dx, weight, _ = torch.ops.aten.convolution_backward(
        dy,
        x,
        filters,
        None,
        list(conv.stride),
        list(cast("tuple[int, ...]", conv.padding)),
        [1, 1],
        False,
        [0, 0],
        1,
        [True, True, False],
    )
    return dx, weight


class Halved(nn.AvgPool2d):
    """Means of two by two pixels; PyTorch's kernel for channels-last images takes twenty times what the bytes need."""

    def __init__(self) -> None:
        super().__init__(2)

    def forward(self, x: Tensor) -> Tensor:
        """(n, channels, height, width) to half the height and width."""
        if x.is_cuda and not x.shape[2] % 2 and not x.shape[3] % 2:
            return two_by_two(x)
        return super().forward(x)


def two_by_two(x: Tensor) -> Tensor:
    """The mean of every two by two pixels, by a reduction over channels-last rows; height and width are even."""
    n, channels, height, width = x.shape
    rows = x.contiguous(memory_format=torch.channels_last).movedim(1, -1)
    return rows.view(n, height // 2, 2, width // 2, 2, channels).mean((2, 4)).movedim(-1, 1)

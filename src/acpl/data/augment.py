"""Augmentation of whole batches on their own device."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

View = Literal["weak", "strong"]
"""weak: the run's crops and flips. strong: those, then two random distortions of each image, and a hole."""

# Greatest size of each distortion, on images of about zero mean and unit variance.
_TURN, _SHEAR, _SHIFT = 0.5, 0.3, 0.2
_BRIGHTER, _CONTRAST, _SHARPER, _COLOURS = 0.8, 0.6, 1.0, 0.8
_DISTORTIONS = 8
_HOLE = 0.5  # greatest side of the hole, as a share of the image's


@dataclass(frozen=True)
class Augmentation:
    """Random crop and resize, random horizontal flip; turns and colours where they are asked for."""

    crop: tuple[float, float] = (0.7, 1.0)
    """Least and greatest share of the image's area that a crop keeps."""
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    """Least and greatest width over height of a crop."""
    flip: bool = True
    """Mirror every second image, left to right."""
    turns: bool = False
    """Turn images by 0, 1, 2 or 3 quarters: with the flip, all eight ways to look at a picture without an up."""
    colours: float = 0.0
    """Greatest change of brightness, contrast and colour, as a share of what they are."""
    size: int | None = None
    """Height and width of what comes out, in pixels; without it those of the image."""


@dataclass(frozen=True)
class Part:
    """Which part of a batch the images are: ``number`` of ``parts``, all of one size.

    What is random is drawn for the whole batch and the part's own taken, so that an image is augmented in the same way
    however many processes share the batch.
    """

    number: int = 0
    parts: int = 1

    def rows(self, whole: int) -> slice:
        """This part's rows of ``whole``."""
        size = whole // self.parts
        return slice(self.number * size, (self.number + 1) * size)

    def rand(self, rows: int, each: int, generator: torch.Generator) -> Tensor:
        """(rows, each) uniform numbers: a row an image of this part."""
        drawn = torch.rand(rows * self.parts, each, generator=generator, device=generator.device)
        return drawn[self.rows(len(drawn))]

    def rand_columns(self, each: int, columns: int, generator: torch.Generator) -> Tensor:
        """(each, columns) uniform numbers: a column an image of this part."""
        drawn = torch.rand(each, columns * self.parts, generator=generator, device=generator.device)
        return drawn[:, self.rows(drawn.shape[1])]


WHOLE = Part()


def normalise(images: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """uint8 (n, c, h, w) to float32 with ``mean`` and ``std`` (c,) of pixels in [0, 1]."""
    scale = (1.0 / (255.0 * std)).view(1, -1, 1, 1)
    shift = (-mean / std).view(1, -1, 1, 1)
    return images.float().mul_(scale).add_(shift)


def augment_as(view: View, images: Tensor, how: Augmentation, generator: torch.Generator, part: Part = WHOLE) -> Tensor:
    """A view of the float images (n, c, h, w), each drawn differently; ``part`` says which of a batch they are."""
    weak = augment(images, how, generator, part)
    return weak if view == "weak" else distort(weak, generator, part=part)


def augment(images: Tensor, how: Augmentation, generator: torch.Generator, part: Part = WHOLE) -> Tensor:
    """Each of the float images (n, c, h, w) cropped, resized and perhaps flipped and turned, all differently.

    One resampling does it all: the crop's corners, the flip and the turn are one affine map an image.
    """
    count, device = len(images), images.device
    draws = part.rand_columns(5, count, generator)
    area = how.crop[0] + (how.crop[1] - how.crop[0]) * draws[0]
    ratio = torch.exp(log(how.ratio[0]) + (log(how.ratio[1]) - log(how.ratio[0])) * draws[1])
    width = torch.sqrt(area * ratio).clamp_max(1.0)
    height = torch.sqrt(area / ratio).clamp_max(1.0)
    matrix = torch.zeros(count, 2, 3, device=device)
    matrix[:, 0, 0] = width
    if how.flip:
        matrix[:, 0, 0] *= torch.where(draws[4] < 0.5, -1.0, 1.0)
    matrix[:, 1, 1] = height
    matrix[:, 0, 2] = (2 * draws[2] - 1) * (1 - width)
    matrix[:, 1, 2] = (2 * draws[3] - 1) * (1 - height)
    if how.turns:
        matrix[:, :, :2] = matrix[:, :, :2] @ _quarters(part.rand_columns(1, count, generator)[0])
    sides = list(images.shape[2:]) if how.size is None else [how.size, how.size]
    grid = F.affine_grid(matrix, [*images.shape[:2], *sides], align_corners=False)
    images = F.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)
    if how.colours == 0:
        return images
    brighter, contrast, colours = how.colours * (2 * part.rand_columns(3, count, generator) - 1)
    return _recoloured(images, brighter, contrast, colours)


def _quarters(draws: Tensor) -> Tensor:
    """(n, 2, 2): a turn by 0, 1, 2 or 3 quarters for each of the draws in [0, 1)."""
    quarter = (4 * draws).floor()
    cos = (quarter == 0).float() - (quarter == 2).float()
    sin = (quarter == 1).float() - (quarter == 3).float()
    return torch.stack([torch.stack([cos, -sin], dim=1), torch.stack([sin, cos], dim=1)], dim=1)


def distort(images: Tensor, generator: torch.Generator, operations: int = 2, part: Part = WHOLE) -> Tensor:
    """Each of the normalised images (n, c, h, w) distorted in ``operations`` random ways, and a random hole cut out.

    After RandAugment and Cutout, for grey and colour: turned, sheared and shifted either way; brighter or darker, more
    or less contrast, sharper or blurred, more or less colour (grey images: contrast again). A distortion that was not
    drawn has size 0 and changes nothing, so the whole batch takes the same few operations.
    """
    count = len(images)
    lots = part.rand(count, _DISTORTIONS, generator)
    drawn = lots.argsort(dim=1) < operations
    sizes = (2 * part.rand(count, _DISTORTIONS, generator) - 1) * drawn
    turn, shear, right, down, brighter, contrast, sharper, colours = sizes.unbind(dim=1)

    angle = turn * _TURN
    matrix = torch.stack(
        [
            torch.stack([angle.cos(), shear * _SHEAR - angle.sin(), right * _SHIFT], dim=1),
            torch.stack([angle.sin(), angle.cos(), down * _SHIFT], dim=1),
        ],
        dim=1,
    )
    grid = F.affine_grid(matrix, list(images.shape), align_corners=False)
    images = F.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)

    blurred = F.avg_pool2d(F.pad(images, (1, 1, 1, 1), mode="replicate"), 3, stride=1)
    images = _further(images, blurred, sharper * _SHARPER)
    images = _recoloured(images, brighter * _BRIGHTER, contrast * _CONTRAST, colours * _COLOURS)
    return _with_hole(images, generator, part)


def _recoloured(images: Tensor, brighter: Tensor, contrast: Tensor, colours: Tensor) -> Tensor:
    """More or less colour (grey images: contrast), then contrast, then brightness, an amount (n,) each."""
    grey = images.mean(dim=1, keepdim=True)
    level = images.mean(dim=(1, 2, 3), keepdim=True)
    images = _further(images, grey if images.shape[1] > 1 else level, colours)
    images = _further(images, level, contrast)
    return images + brighter.view(-1, 1, 1, 1)


def _further(images: Tensor, origin: Tensor, by: Tensor) -> Tensor:
    """Images moved away from ``origin`` by a share each; towards it where the share is negative."""
    return torch.lerp(origin.expand_as(images), images, 1 + by.view(-1, 1, 1, 1))


def patched(
    views: Sequence[Tensor], share: float, generator: torch.Generator, part: Part = WHOLE
) -> tuple[list[Tensor], Tensor]:
    """A patch of its neighbour pasted into each of this ``share`` of the images, and (n,) how much of each is its own.

    After CutMix (Yun et al., ICCV 2019): the patch has the image's shape, any area with equal chance and its middle
    anywhere, and is cut off at the edge. All ``views`` (n, c, h, w) of an image get theirs in the same place.
    """
    count, _, height, width = views[0].shape
    draws = part.rand_columns(4, count, generator)
    side = torch.where(draws[3] < share, draws[0].sqrt() / 2, 0.0)
    patch = _box(side, draws[1], draws[2], height, width)
    others = neighbours(count, patch.device)
    return [torch.where(patch, view[others], view) for view in views], 1 - patch.float().mean(dim=(1, 2, 3))


def neighbours(count: int, device: torch.device) -> Tensor:
    """(count,): the row of each image's partner, who is in the same part of a batch; a last odd one is its own."""
    rows = torch.arange(count, device=device)
    return (rows ^ 1).clamp_max(count - 1)


def _with_hole(images: Tensor, generator: torch.Generator, part: Part) -> Tensor:
    """A square of each image set to its mean: what is left must do."""
    count, _, height, width = images.shape
    draws = part.rand_columns(3, count, generator)
    hole = _box(draws[0] * _HOLE / 2, draws[1], draws[2], height, width).to(images.dtype)
    return torch.lerp(images, images.mean(dim=(2, 3), keepdim=True).expand_as(images), hole)


def _box(side: Tensor, down: Tensor, right: Tensor, height: int, width: int) -> Tensor:
    """bool (n, 1, height, width): within ``side`` of the middle, all as shares of the image's sides (n,)."""
    rows = (torch.arange(height, device=side.device) + 0.5) / height
    columns = (torch.arange(width, device=side.device) + 0.5) / width
    in_rows = (rows[None] - down[:, None]).abs() < side[:, None]
    in_columns = (columns[None] - right[:, None]).abs() < side[:, None]
    return in_rows[:, None, :, None] & in_columns[:, None, None, :]

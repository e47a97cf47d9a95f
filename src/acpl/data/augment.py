"""Augmentation of whole batches on their own device."""

from dataclasses import dataclass
from math import log

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class Augmentation:
    """Random crop and resize, and random horizontal flip."""

    crop: tuple[float, float] = (0.7, 1.0)
    """Least and greatest share of the image's area that a crop keeps."""
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    """Least and greatest width over height of a crop."""
    flip: bool = True
    """Mirror every second image, left to right."""


def normalise(images: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """uint8 (n, c, h, w) to float32 with ``mean`` and ``std`` (c,) of pixels in [0, 1]."""
    scale = (1.0 / (255.0 * std)).view(1, -1, 1, 1)
    shift = (-mean / std).view(1, -1, 1, 1)
    return images.float().mul_(scale).add_(shift)


def augment(images: Tensor, how: Augmentation, generator: torch.Generator) -> Tensor:
    """Each of the float images (n, c, h, w) cropped, resized back and perhaps flipped, all differently.

    One resampling does it all: the crop's corners and the flip are one affine map an image.
    """
    count, device = len(images), images.device
    draws = torch.rand(5, count, generator=generator, device=device)
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
    grid = F.affine_grid(matrix, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)

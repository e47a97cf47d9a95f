"""Mixing a batch's samples in pairs, on their device: what MixUp does in every method that has it."""

import torch
from torch import Tensor


def beta_draws(count: int, concentration: float, device: torch.device) -> Tensor:
    """(count,) draws from Beta(concentration, concentration), from the device's own generator."""
    # torch.distributions.Beta draws by this function too, after checks that look at values.
    return torch._sample_dirichlet(torch.full((count, 2), concentration, device=device))[:, 0]


def mixed_pairs(images: Tensor, targets: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Images (n, c, h, w) and targets (n, classes), each with another's: weight x itself + (1 - weight) x partner.

    The partners are a random permutation. :func:`acpl.functional.mixup_images` is the same with every check.
    """
    partner = torch.rand(len(images), device=images.device).argsort()
    pictures = torch.lerp(images[partner], images, weight.view(-1, 1, 1, 1).to(images.dtype))
    return pictures, torch.lerp(targets[partner], targets, weight[:, None])

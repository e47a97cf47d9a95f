"""Pseudo labels: informative mixup, and the strategies that it is compared with.

Two of the compared strategies need no function: the model's prediction, and :func:`neighbour_labels`, alone.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from acpl.functional import ring
from acpl.functional.group import ALONE, Group


class Mixed(NamedTuple):
    """Mixed images and their targets, mixed by the same weights."""

    images: Tensor
    targets: Tensor


def neighbour_labels(forward: Tensor, anchor_labels: Tensor, *, group: Group = ALONE) -> Tensor:
    """Return the mean label of each sample's nearest anchors: ỹ_KNN of equation 5.

    Args:
        forward: int64 ``(samples, k)``, rows of ``anchor_labels``, ``k`` at least 1.
        anchor_labels: ``(anchors, classes)`` of any numeric type or bool, finite: true or pseudo labels.
        group: the processes that hold a part of the samples and of the labels each; labels are few, and gathered.

    Returns:
        float32 ``(samples, classes)``, within the range of the labels.

    Example:
        >>> import torch
        >>> from acpl.functional import neighbour_labels
        >>> neighbour_labels(torch.tensor([[0, 1], [1, 1]]), torch.tensor([[1, 0], [0, 1]]))
        tensor([[0.5000, 0.5000],
                [0.0000, 1.0000]])
    """
    if forward.ndim != 2 or forward.shape[1] == 0:
        raise ValueError(f"forward must be (samples, k) with k at least 1, got shape {tuple(forward.shape)}")
    labels = group.gather(_matrix("anchor_labels", anchor_labels))
    _check_index("forward", forward, len(labels))
    if len(forward) == 0:
        return labels.new_empty((0, labels.shape[1]))
    # Sums rows as it reads them: gathering first would hold (samples, k, classes).
    return torch.nn.functional.embedding_bag(forward.long(), labels, mode="mean")


def informative_mixup(model: Tensor, neighbours: Tensor, density: Tensor) -> Tensor:
    """Return density × model + (1 − density) × neighbours: the pseudo label g of equation 6.

    Args:
        model: the model's probabilities ``(samples, classes)``, finite.
        neighbours: those of :func:`neighbour_labels`, of the same shape.
        density: ``(samples,)`` in [-1, 1], a mean of cosines. A negative one counts as 0: as a weight it
            would push the label past the neighbours', away from the model's, and out of [0, 1].

    Returns:
        float32 ``(samples, classes)``, each entry between the model's and the neighbours'.

    Example:
        >>> import torch
        >>> from acpl.functional import informative_mixup
        >>> informative_mixup(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]]), torch.tensor([0.75]))
        tensor([[0.7500, 0.2500]])
    """
    weight = _per_sample("density", density, len(model), lowest=-1.0)
    return _mix("model", model, "neighbours", neighbours, weight.clamp_min(0.0))


def random_mixup(
    model: Tensor,
    neighbours: Tensor,
    *,
    concentration: float = 1.0,
    generator: torch.Generator | None = None,
    group: Group = ALONE,
) -> Tensor:
    """Return the pseudo label of equation 6 with the density replaced by a draw from a beta distribution.

    The paper's ablation "random sampled α". It does not state the distribution's parameters; the default 1 is
    the uniform distribution on [0, 1].

    Args:
        model: the model's probabilities ``(samples, classes)``, finite.
        neighbours: those of :func:`neighbour_labels`, of the same shape.
        concentration: both parameters of the beta distribution, above 0.
        generator: source of the draws, one a sample; torch's default one where None.
        group: the processes that hold a part of the samples each, with generators of one state.

    Returns:
        float32 ``(samples, classes)``, each entry between the model's and the neighbours'.

    Example:
        >>> import torch
        >>> from acpl.functional import random_mixup
        >>> generator = torch.Generator().manual_seed(0)
        >>> label = random_mixup(torch.ones(1, 2), torch.zeros(1, 2), generator=generator)
        >>> bool(label[0, 0] == label[0, 1]), bool(0 <= label[0, 0] <= 1)
        (True, True)
    """
    first = ring.starts(len(model), group, model.device)
    weight = beta_weights(first[-1], concentration, generator)[first[group.rank] : first[group.rank + 1]]
    return _mix("model", model, "neighbours", neighbours, weight)


def mixup_images(images: Tensor, targets: Tensor, partner: Tensor, weight: Tensor) -> Mixed:
    """Return weight × sample + (1 − weight) × partner, for images and targets alike: regular MixUp.

    Args:
        images: ``(samples, channels, height, width)``, floating point, finite.
        targets: ``(samples, classes)`` of any numeric type or bool, finite.
        partner: int64 ``(samples,)``, the row that each sample is mixed with, commonly a permutation.
        weight: ``(samples,)`` in [0, 1], commonly :func:`beta_weights`.

    Returns:
        ``images`` and ``targets``, float32, of the shapes they came in.

    Example:
        >>> import torch
        >>> from acpl.functional import mixup_images
        >>> images = torch.tensor([0.0, 1.0]).reshape(2, 1, 1, 1)
        >>> mixed = mixup_images(images, torch.eye(2), torch.tensor([1, 0]), torch.tensor([0.75, 1.0]))
        >>> mixed.images.flatten(), mixed.targets
        (tensor([0.2500, 1.0000]), tensor([[0.7500, 0.2500],
                [0.0000, 1.0000]]))
    """
    if images.ndim != 4:
        raise ValueError(f"images must be (samples, channels, height, width), got {tuple(images.shape)}")
    if not images.is_floating_point():
        raise TypeError(f"images must be floating point, got {images.dtype}")
    if partner.shape != images.shape[:1]:
        raise ValueError(f"partner must be ({len(images)},), got shape {tuple(partner.shape)}")
    _check_index("partner", partner, len(images))
    if targets.ndim != 2 or len(targets) != len(images):
        raise ValueError(f"targets must be ({len(images)}, classes), got shape {tuple(targets.shape)}")
    share = _per_sample("weight", weight, len(images), lowest=0.0)
    other = partner.long()
    pixels = images.flatten(1)
    mixed = _mix("images", pixels, "images", pixels[other], share).view(images.shape)
    return Mixed(mixed, _mix("targets", targets, "targets", targets[other], share))


def beta_weights(count: int, concentration: float, generator: torch.Generator | None = None) -> Tensor:
    """Return ``count`` draws from Beta(concentration, concentration).

    Torch's own beta distribution takes no generator. One seed is drawn from the generator and NumPy draws the
    rest on the CPU; its method also holds for small concentrations, where a ratio of gamma draws is 0 / 0.

    Args:
        count: how many, not negative.
        concentration: both parameters of the distribution, above 0; 1 is uniform, below 1 leans to 0 and 1.
        generator: source of the seed, on any device; torch's default one where None.

    Returns:
        float32 ``(count,)`` in [0, 1], on the CPU.

    Example:
        >>> import torch
        >>> from acpl.functional import beta_weights
        >>> first = beta_weights(4, 0.5, torch.Generator().manual_seed(7))
        >>> torch.equal(first, beta_weights(4, 0.5, torch.Generator().manual_seed(7)))
        True
    """
    if count < 0:
        raise ValueError(f"count must not be negative, got {count}")
    if not 0 < concentration < float("inf"):
        raise ValueError(f"concentration must be above 0 and finite, got {concentration}")
    device = torch.device("cpu") if generator is None else generator.device
    seed = int(torch.randint(2**62, (), generator=generator, device=device))
    draws = np.random.default_rng(seed).beta(concentration, concentration, size=count)
    return torch.from_numpy(draws.astype(np.float32))


def _mix(name: str, first: Tensor, other_name: str, second: Tensor, weight: Tensor) -> Tensor:
    """Return weight × first + (1 − weight) × second, row by row, never past either of them."""
    if first.shape != second.shape:
        raise ValueError(
            f"{name} and {other_name} must have one shape, got {tuple(first.shape)} and {tuple(second.shape)}"
        )
    first, second = _matrix(name, first), _matrix(other_name, second)
    return torch.lerp(second, first, weight.to(first.device)[:, None])


def _matrix(name: str, values: Tensor) -> Tensor:
    if values.ndim != 2:
        raise ValueError(f"{name} must be (rows, columns), got shape {tuple(values.shape)}")
    rows = values.detach().float()
    bad = int((~rows.isfinite().all(dim=1)).sum())
    if bad:
        raise ValueError(f"{name} must be finite, got NaN or infinity in {bad} of {len(rows)} rows")
    return rows


def _per_sample(name: str, values: Tensor, count: int, lowest: float) -> Tensor:
    if values.shape != (count,):
        raise ValueError(f"{name} must be ({count},), got shape {tuple(values.shape)}")
    if not values.is_floating_point():
        raise TypeError(f"{name} must be floating point, got {values.dtype}")
    weight = values.detach().float()
    # So written, NaN is outside too.
    bad = int((~((weight >= lowest) & (weight <= 1.0))).sum())
    if bad:
        raise ValueError(f"{name} must lie in [{lowest:g}, 1], got {bad} of {count} rows outside")
    return weight


def _check_index(name: str, index: Tensor, rows: int) -> None:
    if index.is_floating_point() or index.dtype == torch.bool:
        raise TypeError(f"{name} must be integer, got {index.dtype}")
    if index.numel():
        least, most = torch.stack(torch.aminmax(index)).tolist()  # one pass, one wait for the device
        if least < 0 or most >= rows:
            raise ValueError(f"{name} must lie in [0, {rows}), got values from {least} to {most}")

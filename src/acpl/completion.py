"""What the shell offers when Tab is pressed: names of methods, presets, data sets and choices."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

Words = Callable[[str], list[str]]
FORMATS = ("onnx", "torchscript", "safetensors")
DATA = ("phantom-chest", "phantom-lesions", "chestxray14", "isic2018")
MEDMNIST = "medmnist:"
BACKBONES = ("small", "efficientnet-lite0", "efficientnet-lite2", "densenet121", "densenet169", "timm:")


def methods(incomplete: str) -> list[str]:
    """Methods whose name begins like this."""
    from acpl import algorithms

    return _beginning(algorithms.names(), incomplete)


def several_methods(incomplete: str) -> list[str]:
    """The same for the last of several names with commas between them."""
    before, comma, last = incomplete.rpartition(",")
    return [before + comma + name for name in methods(last)]


def presets(incomplete: str) -> list[str]:
    """Presets whose name begins like this."""
    from acpl.config import preset_names

    return _beginning(preset_names(), incomplete)


def data(incomplete: str) -> list[str]:
    """Named data sets, and tables and folders here."""
    head, slash, _ = incomplete.rpartition("/")
    folder = Path(head + slash) if slash else Path()
    try:
        entries = sorted(folder.expanduser().iterdir())
    except OSError:
        entries = []
    usable = [entry for entry in entries if entry.is_dir() or entry.suffix.lower() in (".csv", ".tsv", ".zip", ".tar")]
    paths = [f"{head}{slash}{entry.name}{'/' if entry.is_dir() else ''}" for entry in usable]
    return _beginning([*DATA, MEDMNIST, *paths], incomplete)


def formats(incomplete: str) -> list[str]:
    """Formats of export."""
    return _beginning(FORMATS, incomplete)


def of_setting(name: str, annotation: Any) -> Words | None:
    """What completes the option of this field of ``Config``; None where nothing does."""
    if name in ("method", "data"):
        return {"method": methods, "data": data}[name]
    choices = {"backbone": BACKBONES, "weights": ("none", "imagenet"), "device": ("auto", "cpu", "cuda")}.get(name)
    if choices is None and get_origin(annotation) is Literal:
        choices = tuple(map(str, get_args(annotation)))
    return None if choices is None else lambda incomplete: _beginning(choices, incomplete)


def _beginning(words: Any, incomplete: str) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]

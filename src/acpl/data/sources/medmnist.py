"""MedMNIST: small images of many kinds, an .npz file each, with a fixed split."""

import importlib
import os
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from acpl.data.files import ImageFiles
from acpl.data.manifest import Labels, Part
from acpl.data.npz import NpzShelf, read_labels
from acpl.data.sources import MEDMNIST, SourceOptions
from acpl.data.sources.downloads import choose_classes
from acpl.data.sources.files import FileSource
from acpl.data.sources.parts import settle_parts
from acpl.data.tables import Reading
from acpl.errors import UserError
from acpl.settings import unknown
from acpl.task import Task

NAMES = (
    *("pathmnist", "chestmnist", "dermamnist", "octmnist", "pneumoniamnist", "retinamnist"),
    *("breastmnist", "bloodmnist", "tissuemnist", "organamnist", "organcmnist", "organsmnist"),
)
RECORD = "https://zenodo.org/records/10519652"
PARTS: dict[str, Part] = {"train": "train", "val": "validation", "test": "test"}


def open_medmnist(name: str, options: SourceOptions) -> FileSource:
    """The images of a local .npz file, or of one that the package ``medmnist`` fetches; no image is read yet."""
    file = _find(name, options)
    try:
        shelf = NpzShelf(file, tuple(PARTS))
        given = {part: read_labels(file, part) for part in PARTS}
    except UserError:
        raise
    except Exception as error:  # a damaged file leads zipfile, zlib and NumPy to errors of many kinds
        raise UserError(f"{file} is not a MedMNIST file: {' '.join(str(error).split())}") from None
    for part in PARTS:
        if given[part].ndim != 2 or len(given[part]) != shelf.shapes[part].images:
            raise UserError(
                f"{file}: {part}_labels should be ({shelf.shapes[part].images}, columns), but is {given[part].shape}"
            )
    names = _class_names(file.stem.partition("_")[0])
    task, classes, labels = _labels(np.concatenate(list(given.values())), names, file)
    if options.task not in (None, task):
        raise UserError(f"{options.data} is {task}, but task is {options.task}")
    image = pd.Series([f"{part}/{row:06d}" for part in PARTS for row in range(shelf.shapes[part].images)], dtype=object)
    parts = np.repeat(np.array(list(PARTS.values()), dtype=object), [len(given[part]) for part in PARTS])
    reading = Reading(task, classes, pd.DataFrame({"image": image, "group": image}), labels, parts, [])
    manifest, said = settle_parts(choose_classes(reading, options.classes), options)
    return FileSource(manifest, ImageFiles(file, shelf), options, [f"{file}: {task}", *said])


def _find(name: str, options: SourceOptions) -> Path:
    if name.endswith(".npz"):
        return Path(name).expanduser()
    if options.images is not None:
        given = Path(options.images).expanduser()
        places = [given if given.suffix == ".npz" else given / f"{name}.npz"]
    else:
        shared = os.environ.get("ACPL_DATA")
        places = [Path(shared) / "medmnist" / f"{name}.npz"] if shared else []
        places.append(_home() / f"{name}.npz")
    for place in places:
        if place.is_file():
            return place
    base = name.partition("_")[0]
    if base not in NAMES:
        raise unknown("MedMNIST data set", name, NAMES)
    reason = "images names another place" if options.images is not None else _fetch(name)
    if reason is None and places[-1].is_file():
        return places[-1]
    raise UserError(
        f"{MEDMNIST}{name} is not here ({reason}): put {name}.npz from {RECORD}/files/{name}.npz to {places[-1]}"
    )


def _home() -> Path:
    return Path.home() / ".medmnist"


def _fetch(name: str) -> str | None:
    """Download through the package ``medmnist`` into ~/.medmnist; a word on why not, where it cannot be done."""
    try:
        package = importlib.import_module("medmnist")
    except ImportError:
        return "the package medmnist, which could fetch it, is not installed"
    base, _, size = name.partition("_")
    try:
        _home().mkdir(exist_ok=True)
        with redirect_stdout(sys.stderr):
            kind = getattr(package, package.INFO[base]["python_class"])
            kind(split="train", download=True, root=str(_home()), **({"size": int(size)} if size else {}))
    except Exception as error:  # whatever the package or the network raises, the answer is the same
        return f"it could not be fetched: {' '.join(str(error).split())}"
    return None


def _class_names(base: str) -> Mapping[str, str]:
    """The names in the package's own table; none where it is not installed."""
    try:
        info: dict[str, Any] = importlib.import_module("medmnist").INFO
    except (ImportError, AttributeError):
        return {}
    names: Mapping[str, str] = info.get(base, {}).get("label", {})
    return names


def _labels(given: npt.NDArray[Any], names: Mapping[str, str], file: Path) -> tuple[Task, tuple[str, ...], Labels]:
    """Several columns of 0/1 are findings; one column holds the number of the class."""
    if not np.issubdtype(given.dtype, np.integer) or given.min() < 0:
        raise UserError(f"{file}: labels should be whole numbers from 0, but are {given.dtype}")
    if given.shape[1] > 1:
        if given.max() > 1:
            raise UserError(f"{file}: labels in several columns should be 0 or 1, but go up to {given.max()}")
        return Task.MULTI_LABEL, _named(given.shape[1], names), given.astype(np.float32)
    count = max(int(given.max()) + 1, len(names), 2)
    return Task.MULTI_CLASS, _named(count, names), np.eye(count, dtype=np.float32)[given[:, 0].astype(np.int64)]


def _named(count: int, names: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(names.get(str(number), f"class {number}") for number in range(count))

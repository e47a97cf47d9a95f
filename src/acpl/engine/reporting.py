"""Gathers what the page shows and a run folder does not hold yet: pictures, curves, versions.

All of it goes into the folder's ``report``, so that the page can be written again without the data: selection.json
when training ends, judged.json when a part is judged. The test part is never opened from here.
"""

import json
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from io import BytesIO
from pathlib import Path
from typing import Any

import torch

from acpl.data.manifest import Manifest
from acpl.data.sources import Dataset
from acpl.data.workers import Progress, nothing
from acpl.engine.clock import Clock
from acpl.engine.feature_sample import FeatureSample, NoMap
from acpl.engine.run_folder import RunFolder
from acpl.engine.selection_figures import selection_figures
from acpl.engine.writing import told, write_whole
from acpl.errors import UserError

FOLDER = "report"
PACKAGES = ("acpl", "torch", "monai", "numpy", "pandas", "pillow", "pydicom")


def keep_features(folder: RunFolder, stage: int, seen: FeatureSample) -> str | None:
    """``report/features-NN.parquet``: a sample of what the method looked at before this stage; or why not."""
    try:
        table = seen.table()
    except NoMap as reason:
        return f"no map of the features before stage {stage}: {reason}"
    if table is not None:
        content = BytesIO()
        table.to_parquet(content, index=False)
        _write(folder, f"features-{stage:02d}.parquet", content.getvalue())
    return None


def gather_training(folder: RunFolder, dataset: Dataset, true: Manifest, *, device: str, clock: Clock) -> list[str]:
    """``report/selection.json`` and ``report/made.json``: what was selected, and how the run was made.

    What had to be left out of it is returned, a sentence each.
    """
    with clock("pictures"):
        left_out = _gather_selection(folder, dataset, true)
    made = {"versions": versions(), "device": device, "machine": machine(device), "seconds": clock.parts()}
    keep(folder, "made.json", made)
    return left_out


def gather_again(path: Path, progress: Progress = nothing) -> str | None:
    """Gather the training's side for a run that has none, from its data; why that failed, if it did.

    Only the training and validation parts are opened.
    """
    from acpl.engine.training import source_of, true_manifest

    folder = RunFolder.open(path)
    if _is_whole(folder, "selection.json") or not (path / "stages").is_dir():
        return None
    config = folder.config()
    colour = "grey" if folder.card().channels == 1 else "rgb"
    try:
        dataset = source_of(config.model_copy(update={"colour": colour}), progress).open(("train", "validation"))
        _gather_selection(folder, dataset, true_manifest(config, dataset.manifest))
    except UserError as reason:
        return str(reason)
    return None


def _gather_selection(folder: RunFolder, dataset: Dataset, true: Manifest) -> list[str]:
    left_out: list[str] = []
    found = selection_figures(folder, dataset, true, folder.config(), left_out.append)
    keep(folder, "selection.json", {"found": found, "left_out": left_out})
    return left_out


def _is_whole(folder: RunFolder, name: str) -> bool:
    """Whether this file of the folder's ``report`` is there and can be read; if it cannot, it is made again."""
    try:
        return folder.read_json(f"{FOLDER}/{name}") is not None
    except UserError:
        return False


def keep(folder: RunFolder, name: str, value: dict[str, Any]) -> None:
    """A file of the folder's ``report``, there whole or not at all."""
    _write(folder, name, json.dumps(value, separators=(",", ":")).encode())


def _write(folder: RunFolder, name: str, content: bytes) -> None:
    target = folder.path / FOLDER / name
    with told(target):
        target.parent.mkdir(exist_ok=True)
    write_whole(target, content)


def machine(device: str) -> str:
    """What computed: the GPU's name, or the kind of processor."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    return f"CPU, {platform.machine()}"


def versions() -> dict[str, str]:
    """What the run was made with."""
    found = {"Python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    found["system"] = f"{platform.system()} {platform.machine()}" if sys.platform else ""
    return found

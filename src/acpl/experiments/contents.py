"""What a run's files hold: a table that was edited makes another run, one that was moved does not."""

import json
import os
from functools import cache
from hashlib import sha256
from pathlib import Path

from acpl.config import Config

_FILES = ("data", "split", "weights")
_DATA = ("data", "images", "split")
_PHANTOMS = ("phantom_patients", "phantom_seed", "phantom_errors")


def contents(config: Config) -> dict[str, str]:
    """A digest of everything on this machine that the configuration names, by the field that names it.

    Images that a table names count by name and size where they lie in a folder, as they do where a folder is all there
    is; a zip, an address and a download count by what they are called.
    """
    found = {}
    for name in _FILES:
        path = Path(str(getattr(config, name)))
        if path.is_file():
            found[name] = _of_file(path, path.stat().st_mtime_ns)
    if Path(config.data).is_absolute() and Path(config.data).is_dir():  # phantom-chest is no folder's name
        found["data"] = _of_folder(Path(config.data))
    if config.init_from is not None and (model := config.init_from / "model.safetensors").is_file():
        found["init_from"] = _of_file(model, model.stat().st_mtime_ns)
    if config.images is not None and Path(config.data).is_file() and Path(config.images).is_dir():
        found["images"] = _of_folder(Path(config.images))
    return found


def data_digest(config: Config) -> str:
    """Eight letters that differ where two configurations are about other images or labels, whatever is done with them.

    A table counts by its content, and so does a file of parts; a zip of images by its name, as in a run's own name.
    """
    values = {name: str(getattr(config, name)) for name in _DATA}
    values["images"] = Path(values["images"]).name if Path(config.data).is_file() else ""
    values |= {name: digest for name, digest in contents(config).items() if name in _DATA}
    if config.data.startswith("phantom"):
        values |= {name: str(getattr(config, name)) for name in _PHANTOMS}
    return sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:8]


@cache
def _of_file(path: Path, changed: int) -> str:
    with path.open("rb") as file:
        hashed = sha256()
        while block := file.read(1 << 20):
            hashed.update(block)
    return hashed.hexdigest()


@cache  # once a process: there may be a hundred thousand images, and as many cells
def _of_folder(path: Path) -> str:
    lines = sorted(
        f"{os.path.relpath(entry.path, path)} {entry.stat().st_size}"
        for folder, _, _ in os.walk(path)
        for entry in os.scandir(folder)
        if entry.is_file()
    )
    return sha256("\n".join(lines).encode()).hexdigest()

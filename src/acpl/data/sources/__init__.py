"""Where data comes from: each source yields a manifest and, for the parts asked for, the images."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from acpl.data.decode import Aspect, Colour
from acpl.data.manifest import Manifest, Part
from acpl.data.store import BadFile, ImageStore
from acpl.data.workers import Progress, nothing
from acpl.errors import UserError
from acpl.settings import unknown
from acpl.task import Task

MEDMNIST = "medmnist:"


@dataclass(frozen=True)
class SourceOptions:
    """Everything that decides what a data set is."""

    data: str
    """phantom-chest, phantom-lesions, chestxray14, isic2018, medmnist:NAME, a .csv file, a folder, or shards."""
    images: Path | str | None = None
    """What the names in a CSV are relative to (default: its own folder): a folder, a zip, shards, or an address; the
    folder of a download."""
    size: int = 64
    colour: Colour = "auto"
    aspect: Aspect = "stretch"
    task: Task | None = None
    classes: tuple[str, ...] = ()
    image_column: str | None = None
    group_column: str | None = None
    split_column: str | None = None
    labels_column: str | None = None
    split: Path | None = None
    """CSV with an image and a part column that decides the parts; a former run's split.csv is one."""
    parts: tuple[float, float, float] = (0.7, 0.1, 0.2)
    """Shares of train, validation and test where nothing else decides the parts."""
    validation: float = 0.1
    """Share of train that becomes validation where a split has none."""
    split_seed: int = 0
    skip_bad: bool = False
    cache: Path | None = None
    patients: int = 8000
    seed: int = 0
    errors: float = 0.0
    progress: Progress = nothing


@dataclass(frozen=True)
class Dataset:
    """Some parts of a data set: what is known of each sample, its image, and the files that were left out."""

    manifest: Manifest
    images: ImageStore
    bad: list[BadFile] = field(default_factory=list)


class Source(Protocol):
    """A data set that can be opened part by part."""

    @property
    def said(self) -> list[str]:
        """What was inferred, in sentences."""
        ...

    def manifest(self) -> Manifest:
        """The whole table, every part; no image is decoded."""
        ...

    def open(self, parts: tuple[Part, ...]) -> Dataset:
        """These parts alone; nothing of any other part is read."""
        ...


def find_source(options: SourceOptions) -> Source:
    """The source behind ``options.data``: a name, a table, a folder, or shards."""
    from acpl.data.addresses import is_address, names_shards, shown
    from acpl.data.sources import chestxray14, folders, isic2018, medmnist, phantoms, shards, table_files

    data = options.data
    for phantom in phantoms.PHANTOMS:
        if data == phantom:
            if options.split is not None:
                raise UserError(f"split {options.split}: {phantom} has parts of its own")
            return phantoms.PhantomSource(phantom, options.patients, options.size, options.seed, options.errors)
    downloads = {"chestxray14": chestxray14.open_chestxray14, "isic2018": isic2018.open_isic2018}
    if data in downloads:
        return downloads[data](options)
    if data.startswith(MEDMNIST):
        return medmnist.open_medmnist(data.removeprefix(MEDMNIST), options)
    if names_shards(data):
        return shards.open_shards(options)
    if is_address(data):
        raise UserError(
            f"data {shown(data)} should be shards, like scans-{{000..127}}.tar; a table is read from this machine, and "
            "its images from an address: --data labels.csv --images ADDRESS"
        )
    path = Path(data).expanduser()
    if path.suffix.lower() in table_files.SUFFIXES:
        return table_files.open_table(path, options)
    if path.is_dir() or path.suffix.lower() == ".zip":
        return folders.open_folder(path, options)
    if path.exists():
        raise UserError(f"data {path} is neither a .csv table, a folder with one subfolder a class, nor a .tar")
    if os.sep in data or path.suffix:
        raise UserError(f"data {path} does not exist")
    raise unknown(
        "data", data, [*phantoms.PHANTOMS, *downloads, f"{MEDMNIST}NAME", "a .csv file", "a folder", "a .tar"]
    )

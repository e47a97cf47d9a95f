"""A folder (or a zip) with one subfolder a class, perhaps below train, val and test."""

from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
import pandas as pd

from acpl.data.files import ImageFiles
from acpl.data.label_cells import check_classes
from acpl.data.manifest import Part, part_of
from acpl.data.sources import SourceOptions, chestxray14, isic2018
from acpl.data.sources.downloads import find_below
from acpl.data.sources.files import FileSource
from acpl.data.sources.parts import settle_parts
from acpl.data.tables import Reading
from acpl.errors import UserError
from acpl.settings import unknown
from acpl.task import Task

UNLABELLED = frozenset({"unlabelled", "unlabeled"})


class _Place(NamedTuple):
    part: Part | None
    folder: str
    """The class; blank for unlabelled images."""


def open_folder(path: Path, options: SourceOptions) -> FileSource:
    """Multi-class: a subfolder is a class, one called ``unlabelled`` holds unlabelled images."""
    _refuse_download(path)
    files = ImageFiles.open(path)
    names = files.names()
    parted = _has_parts(names, path)
    places = {name: _place(name, parted) for name in names}
    outside = [name for name, place in places.items() if place is None]
    inside = {name: place for name, place in places.items() if place is not None}
    found = sorted({place.folder for place in inside.values() if place.folder})
    if len(found) < 2:
        raise _no_classes(path, found)
    for name in options.classes:
        if name not in found:
            raise unknown(f"class folder in {path}:", name, found)
    if options.task is Task.MULTI_LABEL:
        raise UserError(f"{path} has one subfolder a class, which is multi-class; multi-label needs a CSV table")
    classes = options.classes or tuple(found)
    check_classes(classes, path)
    kept = {name: place for name, place in inside.items() if place.folder in {"", *classes}}

    labels = np.zeros((len(kept), len(classes)), dtype=np.float32)
    for row, place in enumerate(kept.values()):
        if place.folder:
            labels[row, classes.index(place.folder)] = 1
        else:
            labels[row] = np.nan
    image = pd.Series(list(kept), dtype=object)
    parts = np.array([place.part for place in kept.values()], dtype=object) if parted else None
    reading = Reading(Task.MULTI_CLASS, classes, pd.DataFrame({"image": image, "group": image}), labels, parts, [])
    manifest, more = settle_parts(reading, options)
    said = [f"{len(classes)} class folders: {', '.join(classes)}; each image is its own group"]
    if outside:
        said.append(f"{len(outside)} images outside of the class folders are left out, the first is {outside[0]}")
    if len(kept) < len(inside):
        said.append(f"folders left out: {', '.join(name for name in found if name not in classes)}")
    if np.isnan(labels).any():
        said.append(f"{int(np.isnan(labels[:, 0]).sum())} unlabelled images")
    return FileSource(manifest, files, options, [*said, *more])


def _has_parts(names: list[str], path: Path) -> bool:
    """Whether the top folders are parts; a mixture of parts and classes is refused."""
    tops = {PurePosixPath(name).parts[0] for name in names if "/" in name}
    parts = {top for top in tops if part_of(top) is not None}
    others = {top for top in tops - parts if top.lower() not in UNLABELLED}
    if parts and others:
        raise UserError(f"{path} mixes parts ({', '.join(sorted(parts))}) with other folders, like {min(others)}")
    return bool(parts)


def _place(name: str, parted: bool) -> _Place | None:
    """Where an image belongs by its folders; None for one outside of them."""
    folders = PurePosixPath(name).parts[:-1]
    if not folders:
        return None
    if not parted:
        return _Place(None, _class(folders[0]))
    if folders[0].lower() in UNLABELLED:
        return _Place("train", "")
    return _Place(part_of(folders[0]), _class(folders[1])) if len(folders) > 1 else None


def _class(folder: str) -> str:
    return "" if folder.lower() in UNLABELLED else folder


def _refuse_download(path: Path) -> None:
    """The folders of a download hold images too, but are no classes."""
    for name, table in (("chestxray14", chestxray14.TABLE), ("isic2018", isic2018.TABLE)):
        if path.is_dir() and find_below(path, table) is not None:
            raise UserError(f"{path} looks like a download: data should be {name}, and images {path}")


def _no_classes(path: Path, found: list[str]) -> UserError:
    tables = sorted(path.glob("*.csv")) if path.is_dir() else []
    if len(tables) == 1:
        return UserError(f"{path} has no subfolders that are classes; did you mean its table, {tables[0]}?")
    there = f"only one, {found[0]}" if found else "none"
    return UserError(
        f"data {path} should have one subfolder of images a class, at least two, but it has {there}; "
        "labels in a table need a .csv file"
    )

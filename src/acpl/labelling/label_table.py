"""A table of labels that ``acpl train`` takes: the original's, with what people decided filled in."""

import csv
import re
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from acpl.data.files import BadImage, ImageFiles
from acpl.data.label_cells import holds_labels
from acpl.data.manifest import Manifest
from acpl.data.tables import DESCRIPTIONS, GROUP_NAMES, IMAGE_NAMES, LABELS_NAMES, SPLIT_NAMES
from acpl.data.workers import Progress, nothing
from acpl.engine.writing import told, write_whole
from acpl.errors import UserError
from acpl.labelling.contact_sheet import picture_of
from acpl.labelling.pool import Pool

OWN = ("image", "group", "split")
_ROLE = {"role", "order"}
_READ_BY_NAME = {*IMAGE_NAMES, *GROUP_NAMES, *SPLIT_NAMES, *LABELS_NAMES}


class LabelTable:
    """One row an image of every part; only rows of the training part that had no label can be given one.

    Rows are kept as text, so that a decision among a hundred thousand images is saved in a moment.
    """

    def __init__(self, path: Path, pool: Pool) -> None:
        self.path = path
        self.classes = tuple(pool.card.classes)
        taken = [name for name in self.classes if name in OWN]
        if taken:
            raise UserError(f"a class is called '{taken[0]}', as a column of the table of labels is; rename it first")
        whole = pool.source.manifest()
        extra = _other_columns(whole, self.classes)
        self._header = _line([*OWN, *extra, *self.classes])
        self._image = {int(key): str(name) for key, name in zip(whole.ids, whole.table["image"], strict=True)}
        self._place = {key: place for place, key in enumerate(self._image)}
        own = whole.table[["image", "group", "part", *extra]].astype(object)
        self._front = own.where(own.notna(), "").astype(str).to_numpy().tolist()
        unlabelled = {int(key) for key in pool.manifest.ids[pool.unlabelled]}
        labels = whole.labels.copy()
        if pool.config.fraction < 1 or pool.config.labelled is not None or "role" in whole.table:
            hidden = whole.known & np.array([key in unlabelled for key in self._image])
            labels[hidden] = np.nan  # known to the data set, but kept from the run
        self._blank = [_cells(row) for row in labels]
        self._lines = [_line([*front, *cells]) for front, cells in zip(self._front, self._blank, strict=True)]

    def image(self, sample: int) -> str:
        """The name of an image; KeyError where the data set has none of this id."""
        return self._image[sample]

    def set(self, sample: int, labels: Sequence[str] | None) -> None:
        """An image's labels as a person decided; None takes them back."""
        place = self._place[sample]
        cells = self._blank[place] if labels is None else ["1" if name in labels else "0" for name in self.classes]
        self._lines[place] = _line([*self._front[place], *cells])

    def write(self) -> None:
        """The whole table, there whole or not at all."""
        write_whole(self.path, self.text().encode())

    def text(self) -> str:
        """The whole table."""
        return self._header + "".join(self._lines)

    @property
    def needs_classes(self) -> bool:
        """Whether a class has a name that ``train`` would not take for one unless it is told."""
        return any(_plain(name) in DESCRIPTIONS | _READ_BY_NAME for name in self.classes)


def images_of(pool: Pool, beside: Path, progress: Progress = nothing) -> Path | str:
    """The folder, zip or address that the table's names are relative to.

    It is the data set's own where it has files. Drawn images, and those in arrays, are written to ``beside``, at the
    run's size, once.
    """
    files = getattr(pool.source, "files", None)
    place = files.path if isinstance(files, ImageFiles) else None
    if isinstance(place, str):
        return place
    if place is not None:
        first = str(pool.manifest.table["image"].iloc[0])
        try:
            ImageFiles.open(place).find(first)
        except (BadImage, UserError):
            pass
        else:
            return place.absolute()
    if not beside.exists():
        part = beside.with_name(beside.name + ".part")
        _write_images(pool, part, progress)
        part.replace(beside)
    return beside.absolute()


def _write_images(pool: Pool, folder: Path, progress: Progress) -> None:
    dataset = pool.source.open(("train", "validation", "test"))
    images = dataset.images
    for number, (name, key) in enumerate(zip(dataset.manifest.table["image"], dataset.manifest.ids, strict=True), 1):
        pixels = images.gather(torch.tensor([int(key)]))[0]
        file = folder / f"{name}.png"
        with told(file):
            file.parent.mkdir(parents=True, exist_ok=True)
            picture_of(pixels.numpy()).save(file, compress_level=1)
        progress("writing", number, len(images.ids))


def _other_columns(whole: Manifest, classes: Sequence[str]) -> list[str]:
    """What else the data set knows of its images, without what could be mistaken for a label or a name."""
    kept = []
    for name in whole.table.columns:
        plain = _plain(str(name))
        if plain in {*OWN, "part"} | _ROLE | _READ_BY_NAME or name in classes:
            continue
        cells = whole.table[name].map(lambda value: "" if pd.isna(value) else str(value))
        if plain in DESCRIPTIONS or not holds_labels(cells):
            kept.append(str(name))
    return kept


def _plain(name: str) -> str:
    """As columns are told apart when a table is read."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def _cells(labels: "np.ndarray[Any, np.dtype[np.float32]]") -> list[str]:
    return ["" if np.isnan(value) else str(int(value)) for value in labels]


def _line(cells: Sequence[str]) -> str:
    stream = StringIO()
    csv.writer(stream, lineterminator="\n").writerow(cells)
    return stream.getvalue()

"""Images in many tars (WebDataset's layout), with their labels beside them in the tars or in a CSV table."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch

from acpl.data.addresses import Shard, find_shards, shown
from acpl.data.cache import BadFile
from acpl.data.decode import Decoding
from acpl.data.files import BadImage, Fingerprint, ImageFiles, without_suffix
from acpl.data.manifest import Manifest, Part
from acpl.data.shard_store import ShardContent, ShardImage, first_are_grey, read_shards
from acpl.data.sources import Dataset, SourceOptions
from acpl.data.sources.files import cache_folder, find_files, refuse_bad
from acpl.data.sources.parts import settle_parts
from acpl.data.sources.table_files import columns_of
from acpl.data.store import ImageStore
from acpl.data.tables import (
    GROUP_NAMES,
    MAX_COLUMNS,
    Columns,
    Reading,
    find_column,
    read_table,
    reading_of,
    split_names,
)
from acpl.data.workers import Progress
from acpl.errors import UserError

IMAGE = "image"


class Sample(NamedTuple):
    """An image that a row is about, or why it has none."""

    name: str
    """As the manifest has it."""
    shown: str
    image: ShardImage | None
    reason: str | None


def open_shards(options: SourceOptions) -> "ShardSource":
    """Tars that hold images and, beside each, a .json or .cls."""
    if options.images is not None:
        raise UserError("data names shards, which hold their images; images is for tables")
    if options.image_column not in (None, IMAGE):
        raise UserError("image_column is for tables; in shards an image is called as it is in its tar")
    return ShardSource(find_shards(options.data), options, None)


def open_table_of_shards(file: Path, shards: str, options: SourceOptions) -> "ShardSource":
    """A table whose images are in tars."""
    reading = read_table(file, columns_of(options))
    return ShardSource(find_shards(shards), options, reading)


class ShardSource:
    """Shards are read when they are first needed, as a whole: what is in a tar is known when it has been read.

    Images of all parts are decoded on the way, for a shard is read once; ``open`` gives out those it is asked for.
    """

    def __init__(self, shards: Sequence[Shard], options: SourceOptions, reading: Reading | None) -> None:
        self.shards = shards
        self.options = options
        self.table = reading
        self._content: ShardContent | None = None

    @property
    def said(self) -> list[str]:
        """What was inferred, in sentences."""
        return [self._shards_said, *self._settled[1]]

    def manifest(self) -> Manifest:
        """The whole table, every part."""
        return self._settled[0]

    def open(self, parts: tuple[Part, ...]) -> Dataset:
        """These parts alone. Bad images are all named in one UserError, or with ``skip_bad`` left out."""
        content = self._decoded
        manifest = self.manifest().only(parts)
        samples = self.samples(content, [str(name) for name in manifest.table[IMAGE]])
        bad = [BadFile(sample.shown, sample.reason) for sample in samples if sample.reason is not None]
        refuse_bad(
            [*content.faults, *bad], len(samples), skip_bad=self.options.skip_bad, none_left=len(bad) == len(samples)
        )
        good = np.array([sample.reason is None for sample in samples], dtype=bool)
        rows = [sample.image.row for sample in samples if sample.reason is None and sample.image is not None]
        kept = manifest.keep(good)
        store = ImageStore(
            torch.from_numpy(kept.ids), torch.from_numpy(content.pixels), torch.tensor(rows, dtype=torch.int64)
        )
        return Dataset(kept, store, [*content.faults, *bad])

    def look(self, progress: Progress) -> ShardContent:
        """Every image looked at and none decoded for training; the manifest is then made of this, too."""
        if self._content is None:
            self._content = read_shards(self.shards, None, cache=cache_folder(self.options), progress=progress)
        return self._content

    def samples(self, content: ShardContent, names: Sequence[str]) -> list[Sample]:
        """The image of each of these names in the manifest."""
        found, again = _by_name(content)
        stored: dict[int, str] = dict(enumerate(names))
        missing: dict[int, str] = {}
        if self.table is not None:
            stored, missing = find_files(ImageFiles(self._place, _Names(found)), names)
        samples = []
        for row, name in enumerate(names):
            image = found.get(stored.get(row, ""))
            if image is None:
                samples.append(Sample(name, name, None, missing.get(row, "the file is missing")))
                continue
            shown_as = image.shown
            reason = again.get(image.name) or image.reason
            if self.table is None and reason is None:
                for beside in content.beside.get((image.shard, without_suffix(image.name)), []):
                    if beside.reason is not None:
                        shown_as, reason = f"{image.shard}/{beside.name}", beside.reason
            samples.append(Sample(name, shown_as, image, reason))
        return samples

    @property
    def _place(self) -> str:
        return shown(str(self.options.images) if self.table is not None else self.options.data)

    @property
    def _shards_said(self) -> str:
        return f"{len(self.shards)} shards, from {self.shards[0].name} to {self.shards[-1].name}"

    @cached_property
    def _settled(self) -> tuple[Manifest, list[str]]:
        reading = self.table if self.table is not None else _reading(self._known, self.options, self._place)
        manifest, said = settle_parts(reading, self.options)
        return manifest, [*reading.said, *said]

    @property
    def _known(self) -> ShardContent:
        return self._content if self._content is not None else self._decoded

    @cached_property
    def _decoded(self) -> ShardContent:
        options = self.options
        if options.colour == "auto":
            channels = 1 if first_are_grey(self.shards) else 3
        else:
            channels = 1 if options.colour == "grey" else 3
        return read_shards(
            self.shards,
            Decoding(options.size, channels, options.aspect),
            cache=cache_folder(options),
            wanted=None if self.table is None else [str(name) for name in self.table.table[IMAGE]],
            progress=options.progress,
        )


def _by_name(content: ShardContent) -> tuple[dict[str, ShardImage], dict[str, str]]:
    """The first image of each name, and why some names are bad: a key stands for one image."""
    by_key: dict[str, ShardImage] = {}
    found: dict[str, ShardImage] = {}
    again: dict[str, str] = {}
    for image in content.images:
        key = without_suffix(image.name)
        if key in by_key:
            first = by_key[key]
            again.setdefault(first.name, f"its key is there twice: {first.shown} and {image.shown}")
        else:
            by_key[key] = found[image.name] = image
    for key, image in by_key.items():
        # WebDataset's way to give a sample a second picture, such as a mask, is KEY.MORE.png.
        first_of = by_key.get(_first_dot(key))
        if first_of is not None and first_of is not image and first_of.shard == image.shard:
            again.setdefault(image.name, f"it is a second image of {first_of.name}, and a sample has one")
    return found, again


def _first_dot(key: str) -> str:
    folder, slash, base = key.rpartition("/")
    return folder + slash + base.partition(".")[0]


def _reading(content: ShardContent, options: SourceOptions, place: str) -> Reading:
    """The table that the .json and .cls files make, a row an image in the order of the shards."""
    found, _ = _by_name(content)
    if not found:
        first = f"; the first fault is {content.faults[0].name}: {content.faults[0].reason}" if content.faults else ""
        raise UserError(f"{place} holds no images{first}")
    rows: list[dict[str, str]] = []
    index: list[str] = []
    for image in found.values():
        beside = content.beside.get((image.shard, without_suffix(image.name)), [])
        cells = {name: cell for sidecar in beside for name, cell in sidecar.cells.items()}
        if IMAGE in cells:
            cells[f"{IMAGE} (json)"] = cells.pop(IMAGE)
        rows.append(cells)
        index.append(f"{image.shard}/{beside[0].name}" if beside else image.shown)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    if not columns:
        raise UserError(f"{place} holds {len(found)} images and no labels: neither KEY.json nor KEY.cls beside any")
    if len(columns) > MAX_COLUMNS:
        raise UserError(f"{place} has {len(columns)} names in its .json files; at most {MAX_COLUMNS:,} are read")
    cells_of = {name: [row.get(name, "") for row in rows] for name in columns}
    table = pd.DataFrame({IMAGE: list(found), **cells_of}, index=index, dtype=str)
    alone = np.array([not row for row in rows])
    said = _filled(table, alone, options, place)
    reading = reading_of(table, _columns(options), place)
    if content.others:
        kinds = ", ".join(suffix or "none" for suffix in content.others[:10])
        said.append(f"members of other kinds are left out; their suffixes: {kinds}")
    return reading._replace(said=[*reading.said, *said])


def _filled(
    table: pd.DataFrame, alone: "np.ndarray[tuple[int], np.dtype[np.bool_]]", options: SourceOptions, place: str
) -> list[str]:
    """Images with nothing beside them are unlabelled, for training, and groups of their own."""
    if not alone.any():
        return []
    group = find_column(table, options.group_column, GROUP_NAMES, place, "group_column")
    split = find_column(table, options.split_column, split_names(table[~alone]), place, "split_column")
    if group is not None:
        table.loc[alone, group] = table.loc[alone, IMAGE]
    if split is not None:
        table.loc[alone, split] = "train"
    return [f"{int(alone.sum())} images have neither .json nor .cls: unlabelled, for training, each its own group"]


def _columns(options: SourceOptions) -> Columns:
    named = columns_of(options)
    return Columns(IMAGE, named.group, named.split, named.labels, named.classes, named.task)


class _Names:
    """Names alone, to be found as those of files are."""

    origin = ""

    def __init__(self, found: dict[str, ShardImage]) -> None:
        self._found = found

    def names(self) -> list[str]:
        return list(self._found)

    def holds(self, name: str) -> bool:
        return name in self._found

    def check(self, name: str) -> None:
        if name not in self._found:
            raise BadImage("the file is missing")

    def ask(self, names: Sequence[str]) -> None:
        """Nothing is asked of names."""

    def fingerprint(self, name: str) -> Fingerprint:
        raise NotImplementedError

    def head(self, name: str, count: int) -> bytes:
        return (bytes(128) + b"DICM")[:count]  # whatever it is called, it is known to be an image

    def read(self, name: str) -> bytes:
        raise NotImplementedError

"""Images in many tars (WebDataset's layout), with their labels beside them in the tars or in a CSV table."""

from collections.abc import Collection, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from acpl.data.addresses import Shard, find_shards, shown
from acpl.data.cache import BadFile
from acpl.data.decode import Decoding
from acpl.data.files import BadImage, Fingerprint, ImageFiles, printable, without_suffix
from acpl.data.manifest import Manifest, Part
from acpl.data.shard_store import ShardContent, first_are_grey, read_shards
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


class Found(NamedTuple):
    """The images of a manifest's rows."""

    places: npt.NDArray[np.int64]
    """(rows,): where each is among all that the shards hold; -1 for one that they do not."""
    bad: dict[int, BadFile]
    """Rows whose image cannot be used."""


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
        found = self.find(content, manifest)
        bad = [*content.faults, *found.bad.values()]
        total = len(found.places)
        refuse_bad(bad, total, skip_bad=self.options.skip_bad, none_left=len(found.bad) == total)
        good = np.ones(total, dtype=bool)
        good[list(found.bad)] = False
        kept = manifest.keep(good)
        rows = torch.from_numpy(content.rows[found.places[good]])
        return Dataset(kept, ImageStore(torch.from_numpy(kept.ids), torch.from_numpy(content.pixels), rows), bad)

    def look(self, progress: Progress) -> ShardContent:
        """Every image looked at and none decoded for training; the manifest is then made of this, too."""
        if self._content is None:
            self._content = read_shards(self.shards, None, cache=cache_folder(self.options), progress=progress)
        return self._content

    def find(self, content: ShardContent, manifest: Manifest) -> Found:
        """The image of each row of the manifest, or of a part of it."""
        first, again = _once(content)
        reasons = {**content.reasons, **again}
        if self.table is None:
            places = first[manifest.ids]
            missing: dict[int, BadFile] = {}
            beside = content.bad_beside
        else:
            places, missing = self._named(content, [str(name) for name in manifest.table[IMAGE]], first)
            beside = {}
        bad = np.flatnonzero(np.isin(places, [-1, *reasons, *beside])).tolist()
        return Found(places, {row: missing.get(row) or _bad(content, int(places[row]), reasons, beside) for row in bad})

    def _named(
        self, content: ShardContent, names: Sequence[str], first: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], dict[int, BadFile]]:
        by_name = {content.names[place]: place for place in first.tolist()}
        stored, missing = find_files(ImageFiles(self._place, _Names(by_name)), names)
        places = [by_name[stored[row]] if row in stored else -1 for row in range(len(names))]
        return np.array(places, dtype=np.int64), {
            row: BadFile(printable(names[row]), reason) for row, reason in missing.items()
        }

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


def _bad(content: ShardContent, place: int, reasons: dict[int, str], beside: dict[int, BadFile]) -> BadFile:
    return BadFile(content.shown(place), reasons[place]) if place in reasons else beside[place]


def _once(content: ShardContent) -> tuple[npt.NDArray[np.int64], dict[int, str]]:
    """Places of the first image of each key, and why some of them are bad: a key stands for one image."""
    keys = pd.Series([without_suffix(name) for name in content.names], dtype=object)
    repeated = keys.duplicated().to_numpy(dtype=bool)
    first = np.flatnonzero(~repeated)
    again: dict[int, str] = {}
    if repeated.any():
        place_of = {keys[place]: place for place in reversed(np.flatnonzero(keys.duplicated(keep=False)).tolist())}
        for place in np.flatnonzero(repeated).tolist():
            before = place_of[keys[place]]
            again.setdefault(before, f"its key is there twice: {content.shown(before)} and {content.shown(place)}")
    # WebDataset's way to give a sample a second picture, such as a mask, is KEY.MORE.png.
    dotted = [place for place in first.tolist() if "." in keys[place].rpartition("/")[2]]
    if dotted:
        places = {keys[place]: place for place in first.tolist()}
        for place in dotted:
            owner = places.get(_first_dot(keys[place]))
            if owner is not None and content.shard[owner] == content.shard[place]:
                again.setdefault(place, f"it is a second image of {content.names[owner]}, and a sample has one")
    return first, again


def _first_dot(key: str) -> str:
    folder, slash, base = key.rpartition("/")
    return folder + slash + base.partition(".")[0]


def _reading(content: ShardContent, options: SourceOptions, place: str) -> Reading:
    """The table that the .json and .cls files make, a row an image in the order of the shards."""
    first, _ = _once(content)
    if not len(first):
        fault = f"; the first fault is {content.faults[0].name}: {content.faults[0].reason}" if content.faults else ""
        raise UserError(f"{place} holds no images{fault}")
    if not content.cells:
        raise UserError(f"{place} holds {len(first)} images and no labels: neither KEY.json nor KEY.cls beside any")
    if len(content.cells) > MAX_COLUMNS:
        raise UserError(f"{place} has {len(content.cells)} names in its .json files; at most {MAX_COLUMNS:,} are read")
    columns = {IMAGE: content.names}
    columns |= {f"{name} (json)" if name == IMAGE else name: cells for name, cells in content.cells.items()}
    index = pd.Index([content.shown(row) for row in range(len(content.names))], dtype=object)
    table = pd.DataFrame(columns, index=index, dtype=str).iloc[first]
    alone = content.alone[first]
    said = _filled(table, alone, options, place)
    reading = reading_of(table, _columns(options), place)
    if content.others:
        kinds = ", ".join(suffix or "none" for suffix in content.others[:10])
        said.append(f"members of other kinds are left out; their suffixes: {kinds}")
    return reading._replace(said=[*reading.said, *said])


def _filled(table: pd.DataFrame, alone: npt.NDArray[np.bool_], options: SourceOptions, place: str) -> list[str]:
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

    def __init__(self, found: Collection[str]) -> None:
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

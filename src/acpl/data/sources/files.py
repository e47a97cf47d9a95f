"""A manifest whose images are files in a folder, a zip or a store; every source but phantoms and shards is one."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from acpl.data.decode import Decoding
from acpl.data.decode_job import GreyJob
from acpl.data.files import BadImage, ImageFiles, printable
from acpl.data.manifest import Manifest, Part
from acpl.data.sources import Dataset, SourceOptions
from acpl.data.store import BadFile, ImageStore, build_store
from acpl.data.workers import do_all
from acpl.errors import UserError

COLOUR_SAMPLE = 64


@dataclass(frozen=True)
class FileSource:
    """A whole manifest, the files its images are in, and how they are to be read."""

    whole: Manifest
    files: ImageFiles
    options: SourceOptions
    said: list[str] = field(default_factory=list)

    def manifest(self) -> Manifest:
        """The whole table, every part; no image is decoded."""
        return self.whole

    def open(self, parts: tuple[Part, ...]) -> Dataset:
        """These parts alone; no file of another part is touched.

        Bad files are all named in one UserError, or with ``skip_bad`` left out.
        """
        manifest = self.whole.only(parts)
        names = [str(name) for name in manifest.table["image"]]
        stored, bad = find_files(self.files, names)
        if names and not stored:
            raise self._nothing_found(names, bad)
        rows = list(stored)
        decoding = Decoding(self.options.size, self._channels(list(stored.values())), self.options.aspect)
        built = build_store(
            self.files,
            list(stored.values()),
            decoding,
            cache=cache_folder(self.options),
            progress=self.options.progress,
        )
        unreadable = {file.name: file.reason for file in built.bad}
        bad |= {row: unreadable[name] for row, name in stored.items() if name in unreadable}
        listed = [BadFile(printable(names[row]), bad[row]) for row in sorted(bad)]
        refuse_bad(listed, len(names), skip_bad=self.options.skip_bad, none_left=len(bad) == len(names))
        good = np.zeros(len(names), dtype=bool)
        good[[rows[position] for position in built.rows]] = True
        ids = torch.from_numpy(manifest.ids)
        return Dataset(manifest.keep(good), ImageStore.of(built, ids[rows]), listed)

    def _channels(self, stored: Sequence[str]) -> int:
        if self.options.colour != "auto":
            return 1 if self.options.colour == "grey" else 3
        return 1 if all_grey(self.files, stored) else 3

    def _nothing_found(self, names: Sequence[str], bad: dict[int, str]) -> UserError:
        return UserError(
            f"none of the {len(names)} images that {self.options.data} names is in {self.files.place}; the first is "
            f"'{printable(names[0])}' ({bad[0]}); 'images' says which folder or zip the names are relative to"
        )


def find_files(files: ImageFiles, names: Sequence[str]) -> tuple[dict[int, str], dict[int, str]]:
    """By row: the stored name of each image that is there, and why the others are bad; no file is read."""
    stored: dict[int, str] = {}
    bad: dict[int, str] = {}
    first: dict[str, int] = {}
    for row, name in enumerate(names):
        try:
            found = files.find(name)
        except BadImage as reason:
            bad[row] = str(reason)
            continue
        if found in first:
            bad[row] = f"it is the same file as '{names[first[found]]}'"
        else:
            first[found] = row
            stored[row] = found
    return stored, bad


def all_grey(files: ImageFiles, stored: Sequence[str]) -> bool:
    """Whether a spread-out sample of at most 64 of these images is grey; bad ones do not count."""
    chosen = np.unique(np.linspace(0, len(stored) - 1, min(COLOUR_SAMPLE, len(stored))).astype(int))
    seen = do_all(GreyJob(files, [stored[position] for position in chosen]), "looking for colour")
    known = [grey for grey in seen if grey is not None]
    return bool(known) and all(known)


def cache_folder(options: SourceOptions) -> Path:
    """Where decoded images are kept: as asked, else $ACPL_CACHE, else ~/.cache/acpl."""
    if options.cache is not None:
        return options.cache
    given = os.environ.get("ACPL_CACHE")
    return Path(given).expanduser() if given else Path.home() / ".cache" / "acpl"


def refuse_bad(bad: Sequence[BadFile], total: int, *, skip_bad: bool, none_left: bool) -> None:
    """One UserError that names all bad files, unless they may be left out and something is left."""
    if bad and not skip_bad:
        lines = "\n".join(f"  {_line(file)}" for file in bad)
        raise UserError(
            f"{len(bad)} of {total} images cannot be used:\n{lines}\nmend them, or leave them out: --skip-bad"
        )
    if bad and none_left:
        raise UserError(f"none of the {total} images could be read; the first is {_line(bad[0])}")


def _line(file: BadFile) -> str:
    return f"{file.name}: {file.reason}"

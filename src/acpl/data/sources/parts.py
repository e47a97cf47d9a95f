"""Which part each row belongs to: named by the data, by a split file, or drawn by group."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from acpl.data.files import without_suffix
from acpl.data.manifest import PART_WORDS_HINT, Manifest, part_of
from acpl.data.sources import SourceOptions
from acpl.data.splits import draw_parts
from acpl.data.tables import (
    IMAGE_NAMES,
    SPLIT_NAMES,
    Reading,
    find_column,
    read_cells,
    refuse_blank,
    refuse_duplicates,
)
from acpl.errors import UserError

Parts = npt.NDArray[np.object_]
# A former run's split.csv names roles; whether a training row was labelled is not a matter of parts.
_ROLES = {"labelled": "train", "labeled": "train", "unlabelled": "train", "unlabeled": "train"}
_KEPT = ("order", "role")


class SplitFile(NamedTuple):
    """A part for each image asked about (None where the file does not name it), and further columns to keep."""

    parts: Parts
    columns: pd.DataFrame
    strangers: int
    """Images that the file names and nobody asked about."""


def settle_parts(reading: Reading, options: SourceOptions) -> tuple[Manifest, list[str]]:
    """The manifest with every row's part, and what is to be said of it.

    A split file decides over a split that the data has, and that over a seeded draw by group. Rows that a split file
    leaves out are left out of the data set, save those that would be test without it where the file names no test
    images at all, as a run's split.csv does. Groups that a given split puts on two sides stay there.
    """
    _check_shares(options)
    table, parts = reading.table, reading.parts
    said: list[str] = []
    if options.split is not None:
        split = read_split_file(options.split, table["image"])
        parts, table, said = _follow(split, reading, options)
    elif parts is None:
        parts = _drawn(reading, options)
        said.append(f"parts drawn by group with seed {options.split_seed}: {_counts(parts)}")
        return _manifest(reading, table, parts), said
    train = parts == "train"
    if options.validation > 0 and train.any() and not (parts == "validation").any():
        shares = (1 - options.validation, options.validation, 0)
        groups = table["group"].to_numpy(dtype=object)
        parts = parts.copy()
        parts[train] = draw_parts(reading.labels[train], groups[train], shares, seed=options.split_seed)
        said.append(
            f"no validation part: {int((parts == 'validation').sum())} of {int(train.sum())} training images "
            f"become one, by group with seed {options.split_seed}"
        )
    said.append(f"parts: {_counts(parts)}")
    manifest = _manifest(reading, table, parts)
    return manifest, said + _on_two_sides(manifest)


def _on_two_sides(manifest: Manifest) -> list[str]:
    """What a given split does to groups."""
    sides = manifest.table.groupby("group", sort=False)["part"].nunique()
    torn = sides[sides > 1].index
    if len(torn) == 0:
        return []
    return [
        f"care: {len(torn)} of {len(sides)} groups have images in more than one part, '{torn[0]}' among them; "
        "figures on such parts are too good (`acpl data check` lists them)"
    ]


def read_split_file(file: Path, images: "pd.Series[str]") -> SplitFile:
    """Parts by image name, with or without an image suffix on either side."""
    cells = read_cells(file)
    image = find_column(cells, None, IMAGE_NAMES, file, "image_column")
    part = find_column(cells, None, (*SPLIT_NAMES, "role"), file, "split_column")
    if image is None or part is None:
        raise UserError(f"split {file} should have the columns 'image' and 'split', but has {', '.join(cells.columns)}")
    refuse_blank(cells, image, file)
    refuse_duplicates(cells[image], file)
    words = [_ROLES.get(word.lower(), part_of(word)) for word in cells[part]]
    if None in words:
        row = words.index(None)
        raise UserError(
            f"split {file}, row {cells.index[row]}, column '{part}': '{cells[part].iloc[row]}' is no part; "
            f"{PART_WORDS_HINT} are, and the roles labelled and unlabelled"
        )
    rows = _match(list(cells[image]), list(images), file)
    there = rows >= 0
    if not there.any():
        raise UserError(f"split {file} names none of the data set's images; its first is '{cells[image].iloc[0]}'")
    parts = np.full(len(images), None, dtype=object)
    parts[there] = np.array(words, dtype=object)[rows[there]]
    kept = cells[[name for name in _KEPT if name in cells.columns]].iloc[rows].set_axis(images.index)
    kept = kept.where(pd.Series(there, index=images.index))
    if "order" in kept:
        kept["order"] = pd.to_numeric(kept["order"], errors="coerce")
    return SplitFile(parts, kept, len(cells) - len(set(rows[there])))


def _match(named: list[str], images: list[str], file: Path) -> npt.NDArray[np.int64]:
    """For each image its row in the file: the very name, else the one name that differs in the suffix only; -1 none."""
    exact = {name: row for row, name in enumerate(named)}
    stems: dict[str, list[int]] = {}
    for row, name in enumerate(named):
        stems.setdefault(without_suffix(name), []).append(row)
    rows = np.full(len(images), -1, dtype=np.int64)
    taken: dict[int, str] = {}
    for position, image in enumerate(images):
        found = [exact[image]] if image in exact else stems.get(without_suffix(image), [])
        if not found:
            continue
        if len(found) > 1 or found[0] in taken:
            other = named[found[1]] if len(found) > 1 else taken[found[0]]
            raise UserError(f"split {file} is not plain about '{image}': '{other}' differs in its suffix only")
        rows[position] = found[0]
        taken[found[0]] = image
    return rows


def _follow(split: SplitFile, reading: Reading, options: SourceOptions) -> tuple[Parts, pd.DataFrame, list[str]]:
    said = [f"parts from {options.split}"]
    parts = split.parts
    unnamed = parts == None  # noqa: E711 — element by element
    if unnamed.any() and not (parts == "test").any():
        otherwise = reading.parts if reading.parts is not None else _drawn(reading, options)
        parts = np.where(unnamed & (otherwise == "test"), "test", parts)
        said.append(f"it names no test images: {int((parts == 'test').sum())} that it does not name are the test part")
    left_out = int((parts == None).sum())  # noqa: E711
    if left_out:
        said.append(f"{left_out} images that it does not name are left out")
    if split.strangers:
        said.append(f"{split.strangers} images that it names are not in the data set")
    table = reading.table.drop(columns=[name for name in split.columns if name in reading.table])
    return parts, pd.concat([table, split.columns], axis=1), said


def _drawn(reading: Reading, options: SourceOptions) -> Parts:
    groups = reading.table["group"].to_numpy(dtype=object)
    return draw_parts(reading.labels, groups, options.parts, seed=options.split_seed)


def _manifest(reading: Reading, table: pd.DataFrame, parts: Parts) -> Manifest:
    """Rows without a part are left out; a row's id is its place in the whole table all the same."""
    there = parts != None  # noqa: E711 — element by element
    whole = table.copy()
    whole.insert(2, "part", parts)
    return Manifest(reading.task, reading.classes, whole[there], reading.labels[there])


def _check_shares(options: SourceOptions) -> None:
    if min(options.parts) < 0 or options.parts[0] <= 0 or abs(sum(options.parts) - 1) > 1e-6:
        raise UserError(f"parts should be three shares that add up to 1, train above 0, but they are {options.parts}")
    if not 0 <= options.validation < 1:
        raise UserError(f"validation should be a share from 0 to below 1, but it is {options.validation}")


def _counts(parts: Parts) -> str:
    return ", ".join(f"{int((parts == part).sum())} {part}" for part in ("train", "validation", "test"))

"""Whether a data set's parts are still those that a run was trained with, and whose images training has seen."""

from typing import NamedTuple

import pandas as pd

from acpl.data.manifest import Manifest
from acpl.engine.run_folder import RunFolder
from acpl.errors import UserError

_PART = {"labelled": "train", "unlabelled": "train", "validation": "validation"}


class SeenGroups(NamedTuple):
    """How many of the judged groups training had images of, and how many of the judged images are theirs."""

    groups: int
    images: int


def refuse_other_parts(folder: RunFolder, manifest: Manifest) -> None:
    """Refuse to go on from a table from which other parts are drawn now: they would hold what was trained on.

    ``manifest`` is of all parts. Parts that nobody has named are drawn by what is labelled, so that labels or rows
    that were added since may move every image. They are drawn by patient, so that a patient who was trained on and is
    tested now has an image that says so.
    """
    before = _parts_in_training(folder, manifest)
    moved = manifest.table["image"][before.notna() & (before != manifest.table["part"])]
    if len(moved):
        raise UserError(
            f"{folder.config().data} has changed since {folder.path} was trained: {len(moved)} images are in another "
            f"part now, {moved.iloc[0]} among them; undo the change, or name the parts in a column 'split'"
        )


def seen_groups(folder: RunFolder, manifest: Manifest, judged: pd.DataFrame, part: str) -> dict[str, SeenGroups]:
    """Groups of the judged images of which the run had others, by part: train, and validation where test is judged.

    ``manifest`` is of all parts and ``judged`` has rows of its ``part``. A given split may put a patient on two sides;
    a drawn one never does.
    """
    before = _parts_in_training(folder, manifest)
    found = {}
    for other in ("train", "validation"):
        if other != part:
            seen = judged["group"][judged["group"].isin(set(manifest.table["group"][before == other]))]
            found[other] = SeenGroups(int(seen.nunique()), len(seen))
    return found


def _parts_in_training(folder: RunFolder, manifest: Manifest) -> "pd.Series[str]":
    """The part that each row's image had when the run was trained; missing where the run did not open it."""
    split = folder.split()
    part = dict(zip(split["image"], split["role"].map(_PART), strict=True))
    return manifest.table["image"].astype(str).map(part)

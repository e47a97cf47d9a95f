"""Whether a data set's parts are still those that a run was trained with."""

import pandas as pd

from acpl.data.manifest import Manifest
from acpl.engine.run_folder import RunFolder
from acpl.errors import UserError

_PART = {"labelled": "train", "unlabelled": "train", "validation": "validation"}


def refuse_other_parts(folder: RunFolder, manifest: Manifest) -> None:
    """Refuse to judge or review by a table from which other parts are drawn now: they would hold what was trained on.

    ``manifest`` is of all parts. Parts that nobody has named are drawn by what is labelled, so that labels or rows
    that were added since may move every image. They are drawn by patient, so that a patient who was trained on and is
    tested now has an image that says so.
    """
    split = pd.read_csv(folder.path / "split.csv", dtype={"image": str, "role": str}, keep_default_na=False)
    role = dict(zip(split["image"], split["role"], strict=True))
    names = manifest.table["image"].astype(str)
    before = names.map(role)
    moved = names[before.notna() & (before.map(_PART) != manifest.table["part"])]
    if len(moved):
        raise UserError(
            f"{folder.config().data} has changed since {folder.path} was trained: {len(moved)} images are in another "
            f"part now, {moved.iloc[0]} among them; undo the change, or name the parts in a column 'split'"
        )

"""Whether a data set's parts are still those that a run was trained with."""

import pandas as pd

from acpl.data.manifest import Manifest
from acpl.engine.run_folder import RunFolder
from acpl.errors import UserError

_PART = {"labelled": "train", "unlabelled": "train", "validation": "validation"}


def refuse_other_parts(folder: RunFolder, manifest: Manifest) -> None:
    """Refuse to judge or review by a table from which other parts are drawn now: they would hold what was trained on.

    ``manifest`` is of all parts. Parts that nobody has named are drawn by what is labelled, so that labels or rows
    that were added since may move every image. New images are no trouble, unless their patient was trained on.
    """
    split = pd.read_csv(folder.path / "split.csv", dtype={"image": str, "role": str}, keep_default_na=False)
    role = dict(zip(split["image"], split["role"], strict=True))
    names, parts = manifest.table["image"].astype(str), manifest.table["part"]
    before = names.map(role)
    moved = names[before.notna() & (before.map(_PART) != parts)]
    groups = manifest.table["group"]
    shared = names[(parts == "test") & groups.isin(groups[before.notna()])]
    for found, what in ((moved, "in another part"), (shared, "of patients that it was trained on")):
        if len(found):
            raise UserError(
                f"{folder.config().data} has changed since {folder.path} was trained: {len(found)} images are {what} "
                f"now, {found.iloc[0]} among them; undo the change, or name the parts in a column 'split'"
            )

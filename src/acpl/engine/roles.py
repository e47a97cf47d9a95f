"""Who is labelled, unlabelled or in the validation part: drawn, or as a split file has decided."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from acpl.config import Config
from acpl.data.manifest import Manifest
from acpl.data.splits import draw_labelled
from acpl.errors import UserError

Rows = npt.NDArray[np.int64]


def draw_split(manifest: Manifest, config: Config) -> pd.DataFrame:
    """A row a sample in the manifest's order: id, image, role (labelled, unlabelled, validation).

    A split file that names roles, as a former run's split.csv does, has decided who is labelled; else it is drawn.
    """
    train = np.flatnonzero((manifest.table["part"] == "train").to_numpy())
    rows = _named_labelled(manifest, train) if "role" in manifest.table else _drawn_labelled(manifest, train, config)
    roles = np.full(len(manifest.table), "validation", dtype=object)
    roles[train] = "unlabelled"
    roles[rows] = "labelled"
    if len(rows) == 0:
        raise UserError(f"fraction {config.fraction} of {len(train)} training images leaves none labelled")
    return pd.DataFrame({"id": manifest.ids, "image": manifest.table["image"].to_numpy(), "role": roles})


def _drawn_labelled(manifest: Manifest, train: Rows, config: Config) -> Rows:
    order = _order(manifest) if config.draw == "order" else None
    chosen = draw_labelled(
        manifest.labels[train],
        manifest.groups[train],
        config.fraction if config.labelled is None else None,
        count=config.labelled,
        seed=config.seed,
        draw=config.draw,
        order=None if order is None else order[train],
    )
    return train[chosen]


def _order(manifest: Manifest) -> npt.NDArray[np.float64]:
    if "order" not in manifest.table:
        raise UserError("draw 'order' needs a column 'order' in the table or the split file")
    numbers = pd.to_numeric(manifest.table["order"], errors="coerce")
    wrong = manifest.table["order"][numbers.isna() & (manifest.table["part"] == "train") & manifest.known]
    if len(wrong):
        raise UserError(f"column 'order' should hold a number for every training image, but it holds '{wrong.iloc[0]}'")
    return numbers.to_numpy(dtype=np.float64)


def _named_labelled(manifest: Manifest, train: Rows) -> Rows:
    labelled = train[(manifest.table["role"] == "labelled").to_numpy()[train]]
    unknown = labelled[~manifest.known[labelled]]
    if len(unknown):
        name = manifest.table["image"].iloc[unknown[0]]
        raise UserError(f"the split calls '{name}' labelled, but its labels are blank ({len(unknown)} such images)")
    return labelled

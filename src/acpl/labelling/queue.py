"""What a person is asked to look at, in which order, and what is proposed for each image."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from acpl.engine.run_folder import ModelCard, RunFolder
from acpl.errors import UserError
from acpl.evaluation import decide
from acpl.labelling.pool import Pool, Sight
from acpl.task import Task

Order = Literal["suggested", "disagreement"]
SUGGESTIONS = "suggestions.csv"
SHOWN_NEIGHBOURS = 3
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Item:
    """One unlabelled image with what is proposed for it, and why; classes are places in the card's list."""

    id: int
    image: str
    group: str
    proposal: list[int]
    origin: str
    """Where the proposal comes from: a stage's pseudo-label, or the final model."""
    model: list[float]
    neighbours: list[float]
    density: float
    suggested: bool
    nearest: list[dict[str, Any]]
    """The nearest labelled images: id, image, labels."""

    def as_dict(self) -> dict[str, Any]:
        """For the page."""
        return dict(vars(self))


def build_queue(sight: Sight, *, order: Order = "suggested", limit: int = 1000) -> list[Item]:
    """At most ``limit`` images.

    ``suggested`` begins with what ``acpl suggest`` chose, where it was asked. The others follow, pseudo-labelled ones
    first, those first where the model and the labelled neighbours disagree most.
    """
    if order not in ("suggested", "disagreement"):
        raise UserError(f"order should be suggested or disagreement, but it is '{order}'")
    if limit < 1:
        raise UserError(f"limit should be at least 1, but it is {limit}")
    pool = sight.pool
    ids = pool.manifest.ids[pool.unlabelled]
    pseudo, stage = pseudo_labels(pool.folder, pool.card, ids)
    given = stage > 0
    proposed = propose(np.where(given[:, None], pseudo, sight.probabilities), pool.card)
    disagreement = np.abs(sight.probabilities - sight.neighbours).max(axis=1)

    row_of = {int(name): row for row, name in enumerate(ids)}
    suggested = (
        [row_of[name] for name in _suggested(pool.folder.path) if name in row_of] if order == "suggested" else []
    )
    rest = np.lexsort((-disagreement, ~given))
    front = set(suggested)
    rows = [*suggested, *(int(row) for row in rest if int(row) not in front)][:limit]
    return [
        _item(sight, row, proposed[row], f"stage {stage[row]}" if given[row] else "model", row in front) for row in rows
    ]


def pseudo_labels(
    folder: RunFolder, card: ModelCard, ids: npt.NDArray[np.int64]
) -> tuple[Floats, npt.NDArray[np.int64]]:
    """(ids, classes) the last pseudo-label that training gave, NaN where it gave none; and in which stage."""
    labels = np.full((len(ids), len(card.classes)), np.nan)
    stage = np.zeros(len(ids), dtype=np.int64)
    columns = [f"pseudo_label.{name}" for name in card.classes]
    for number in folder.stage_numbers():
        table = folder.read_stage(number)
        if "id" not in table or not set(columns) <= set(table.columns):
            continue
        values = table.set_index("id")[columns].reindex(ids).to_numpy(dtype=np.float64)
        given = ~np.isnan(values).any(axis=1)
        labels[given], stage[given] = values[given], number
    return labels, stage


def propose(scores: Floats, card: ModelCard) -> list[list[int]]:
    """The classes that are called: exactly one where the task is multi-class."""
    rule = "argmax" if card.task == Task.MULTI_CLASS else card.decision_rule()
    return [[int(place) for place in np.flatnonzero(row)] for row in decide(scores, rule)]


def _item(sight: Sight, row: int, proposal: list[int], origin: str, suggested: bool) -> Item:
    pool = sight.pool
    place = pool.unlabelled[row]
    return Item(
        id=int(pool.manifest.ids[place]),
        image=str(pool.manifest.table["image"].iloc[place]),
        group=str(pool.manifest.table["group"].iloc[place]),
        proposal=proposal,
        origin=origin,
        model=[round(float(value), 4) for value in sight.probabilities[row]],
        neighbours=[round(float(value), 4) for value in sight.neighbours[row]],
        density=round(float(sight.density[row]), 4),
        suggested=suggested,
        nearest=[_labelled(pool, int(other)) for other in sight.nearest[row][:SHOWN_NEIGHBOURS]],
    )


def _labelled(pool: Pool, place: int) -> dict[str, Any]:
    positive = np.flatnonzero(pool.manifest.labels[place] > 0)
    return {
        "id": int(pool.manifest.ids[place]),
        "image": str(pool.manifest.table["image"].iloc[place]),
        "labels": [int(column) for column in positive],
    }


def _suggested(run: Path) -> list[int]:
    file = run / SUGGESTIONS
    return [int(name) for name in pd.read_csv(file)["id"]] if file.is_file() else []

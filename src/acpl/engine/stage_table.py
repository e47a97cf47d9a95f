"""A stage's table of candidates beside what is known of the images."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from acpl.data.manifest import Manifest
from acpl.engine.run_folder import RunFolder
from acpl.errors import UserError
from acpl.task import Task

Floats = npt.NDArray[np.float64]
SAID = 0.5
"""A soft label of this much is shown as saying yes."""


@dataclass(frozen=True)
class Known:
    """What is known of every image of the training part, by id."""

    task: Task
    classes: list[str]
    names: dict[int, str]
    truth: dict[int, Floats]
    """Complete labels only."""
    given: set[int]
    """Whose labels training was given."""

    @classmethod
    def of(cls, folder: RunFolder, manifest: Manifest, true: Manifest) -> "Known":
        """From the run's split, the data set's own table, and that table without mistakes.

        What training was given is known as it was given, right or wrong.
        """
        split = pd.read_csv(folder.path / "split.csv", usecols=["id", "role"])
        given = split.loc[split["role"] == "labelled", "id"].to_numpy()
        ids = [int(number) for number in manifest.ids]
        labels = np.where(np.isin(manifest.ids, given)[:, None], manifest.labels, true.labels)
        rows = zip(ids, labels.astype(np.float64), manifest.known, strict=True)
        return cls(
            task=Task(manifest.task),
            classes=list(manifest.classes),
            names=dict(zip(ids, map(str, manifest.table["image"]), strict=True)),
            truth={number: label for number, label, complete in rows if complete},
            given={int(number) for number in given},
        )

    def said(self, label: Floats) -> list[int]:
        """The classes that a label names: the most probable one, or every finding of at least one half."""
        if self.task is Task.MULTI_CLASS:
            return [] if np.isnan(label).any() else [int(label.argmax())]
        return [int(place) for place in np.flatnonzero(label >= SAID)]

    def right(self, label: Floats, truth: Floats) -> bool:
        """Whether a label names exactly the classes that are there."""
        return self.said(label) == self.said(truth)


class StageTable:
    """One stage's candidates, as ``stages/NN.parquet`` has them."""

    def __init__(self, number: int, table: pd.DataFrame, known: Known) -> None:
        self.number = number
        self.known = known
        self.table = table
        self.ids = table["id"].to_numpy(dtype=np.int64)
        self.selected = table["selected"].to_numpy(dtype=bool)
        self.model, self.neighbours, self.pseudo_label = (
            self._values(kind) for kind in ("model", "neighbours", "pseudo_label")
        )
        self.density = self._column("density")
        joined = table["joined_anchors"] if "joined_anchors" in table else np.zeros(len(table))
        self.joined = np.asarray(joined, dtype=bool)
        gaps = np.abs(self.model - self.neighbours)
        self.disagreement: Floats = gaps.sum(axis=1) / 2 if known.task is Task.MULTI_CLASS else gaps.max(axis=1)
        """(candidates,) in [0, 1]: how far model and neighbours are apart; NaN where there are no neighbours."""

    @classmethod
    def read(cls, folder: RunFolder, known: Known, left_out: Callable[[str], object]) -> list["StageTable"]:
        """Every stage that kept a table of selected samples; ``left_out`` is told of each that is damaged."""
        found = []
        for number in folder.stage_numbers():
            try:
                table = folder.read_stage(number)
            except UserError as reason:
                left_out(str(reason))
                continue
            if {"id", "selected"} <= set(table):
                found.append(cls(number, table, known))
        return found

    def nearest(self, row: int) -> list[int]:
        """The ids of the nearest anchors that were written down, nearest first."""
        names = [name for name in ("nearest_1", "nearest_2", "nearest_3") if name in self.table]
        found: list[Any] = [self.table[name].iloc[row] for name in names]
        return [int(number) for number in found if number >= 0]

    def _values(self, kind: str) -> Floats:
        """(candidates, classes), NaN where the method wrote none."""
        names = [f"{kind}.{name}" for name in self.known.classes]
        if not set(names) <= set(self.table.columns):
            return np.full((len(self.table), len(names)), np.nan)
        return self.table[names].to_numpy(dtype=np.float64)

    def _column(self, name: str) -> Floats | None:
        return self.table[name].to_numpy(dtype=np.float64) if name in self.table else None

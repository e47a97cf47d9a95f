"""The table of samples: who they are, what is known of them, and which part they belong to."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from acpl.task import Task

Part = Literal["train", "validation", "test"]
Ids = npt.NDArray[np.int64]
Labels = npt.NDArray[np.float32]

_PART_WORDS: dict[str, Part] = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}
PART_WORDS_HINT = "train, val (or valid, validation, dev) and test"


def part_of(word: str) -> Part | None:
    """The part that a table or a folder means by this word, in any case; None where it means none."""
    return _PART_WORDS.get(word.strip().lower())


def rows_known(labels: Labels) -> npt.NDArray[np.bool_]:
    """(samples,): whether all labels of a sample are there; one with any label missing counts as unlabelled."""
    return np.asarray(~np.isnan(labels).any(axis=1), dtype=np.bool_)


@dataclass(frozen=True)
class Manifest:
    """One row a sample; its id is its row in the whole data set and never changes.

    ``table`` is indexed by id with the columns ``image`` (a name for people), ``group`` (patient or lesion)
    and ``part``, and whatever else is known of a sample; ``labels`` is (samples, classes) in the same order, NaN
    where a label is unknown.
    """

    task: Task
    classes: tuple[str, ...]
    table: pd.DataFrame
    labels: Labels

    @property
    def ids(self) -> Ids:
        """Every sample's id, in the table's order; a copy, for pandas' own is not to be written to."""
        return self.table.index.to_numpy(dtype=np.int64, copy=True)

    @property
    def groups(self) -> npt.NDArray[np.object_]:
        """Every sample's patient or lesion, in the table's order."""
        return self.table["group"].to_numpy(dtype=object)

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        """Whether all labels of a sample are there, in the table's order."""
        return rows_known(self.labels)

    def only(self, parts: Collection[Part]) -> "Manifest":
        """The rows of these parts; ids stay what they are."""
        return self.keep(self.table["part"].isin(list(parts)).to_numpy(dtype=bool))

    def keep(self, rows: npt.NDArray[np.bool_]) -> "Manifest":
        """The rows where ``rows`` is true; ids stay what they are."""
        return Manifest(self.task, self.classes, self.table[rows], self.labels[rows])

    def with_no_finding(self) -> "Manifest":
        """A further class, ``No Finding``, that is positive where all others are negative (multi-label)."""
        nothing = (self.labels.max(axis=1, keepdims=True) == 0).astype(np.float32)
        nothing[np.isnan(self.labels).any(axis=1)] = np.nan
        labels = np.concatenate([self.labels, nothing], axis=1)
        return Manifest(self.task, (*self.classes, "No Finding"), self.table, labels)

"""A table's columns of what is known of the patient, such as age, sex and site, as numbers."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from acpl.data.label_cells import is_blank
from acpl.errors import UserError
from acpl.settings import unknown

MOST_WORDS = 100
"""Different words that a column may hold; one with more is a name or a text."""
FARTHEST = 3.0
"""Standard deviations from the mean beyond which a number counts as if it were there: an age of 999 is a slip."""
_OWN = ("image", "group", "part", "role")


@dataclass(frozen=True)
class ClinicalColumn:
    """How a column becomes numbers: a number and its square, or a place for each word; and a place for blanks."""

    name: str
    mean: float = 0.0
    spread: float = 1.0
    words: tuple[str, ...] | None = None
    """None: it holds numbers."""

    def numbers(self, cells: "pd.Series[Any]") -> npt.NDArray[np.float64]:
        """(rows, places); a word that was never seen, or no number where one should be, counts as blank."""
        if self.words is None:
            values = pd.to_numeric(cells, errors="coerce").to_numpy(dtype=np.float64)
            blank = ~np.isfinite(values)
            scaled = np.clip((np.where(blank, self.mean, values) - self.mean) / self.spread, -FARTHEST, FARTHEST)
            square = np.where(blank, 0.0, scaled**2 - 1)
            return np.stack([scaled, square, blank.astype(np.float64)], axis=1)
        said = _words(cells)
        places = [(said == word).astype(np.float64) for word in self.words]
        return np.stack([*places, 1 - np.sum(places, axis=0)], axis=1)

    def as_json(self) -> dict[str, Any]:
        """For a model's card."""
        return asdict(self)

    @classmethod
    def of_json(cls, value: dict[str, Any]) -> "ClinicalColumn":
        """As :meth:`as_json` wrote it."""
        return cls(**{**value, "words": None if value["words"] is None else tuple(value["words"])})


def find_clinical(table: pd.DataFrame, names: Sequence[str]) -> list[ClinicalColumn]:
    """How each of these columns becomes numbers, by what it holds in this table; a UserError says what cannot."""
    found = []
    for name in names:
        if name not in table.columns or name in _OWN:
            raise unknown("clinical column", name, [str(other) for other in table.columns if other not in _OWN])
        cells = table[name]
        if pd.api.types.is_numeric_dtype(cells):
            values = cells.to_numpy(dtype=np.float64)
            known = values[np.isfinite(values)]
            spread = float(known.std()) if len(known) else 0.0
            found.append(ClinicalColumn(name, float(known.mean()) if len(known) else 0.0, spread or 1.0))
            continue
        said = _words(cells)
        words = sorted(set(said) - {""})
        if len(words) > MOST_WORDS:
            raise UserError(
                f"clinical column '{name}' holds {len(words):,} different words, as names or texts do; "
                f"it may hold numbers, or at most {MOST_WORDS} words"
            )
        found.append(ClinicalColumn(name, words=tuple(words)))
    return found


def clinical_numbers(table: pd.DataFrame, columns: Sequence[ClinicalColumn]) -> npt.NDArray[np.float64]:
    """(rows, numbers) of a table that has these columns; a UserError names one that it lacks."""
    for column in columns:
        if column.name not in table.columns:
            raise UserError(f"the model needs the column '{column.name}' beside the images, and the table has none")
    if not columns:
        return np.zeros((len(table), 0))
    return np.concatenate([column.numbers(table[column.name]) for column in columns], axis=1)


def _words(cells: "pd.Series[Any]") -> npt.NDArray[np.object_]:
    """Words as they are compared: in lower case, without the space around them; a blank is ''."""
    text = cells.astype(object).where(cells.notna(), "").astype(str).str.strip()
    return np.where(is_blank(text), "", text.str.lower()).astype(object)

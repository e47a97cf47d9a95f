"""A table's columns of what is known of the patient, such as age, sex and site, as numbers."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from acpl.data.label_cells import UNSURE, is_blank
from acpl.data.tables import OWN_COLUMNS
from acpl.errors import UserError
from acpl.settings import unknown

MOST_WORDS = 100
"""Different words that a column may hold; one with more is a name or a text."""
FARTHEST = 3.0
"""Standard deviations from the mean beyond which a number counts as if it were there: an age of 999 is a slip."""
_LARGEST = 1e100  # beyond it, squares and their sums are no numbers any more
_FAR_OUT = 3.0  # times the distance of the quartiles, from the nearer one
_CONSTANT = 1e-9  # a spread that is less than this share of the numbers is what rounding leaves

Numbers = npt.NDArray[np.float64]
Words = npt.NDArray[np.object_]


@dataclass(frozen=True)
class ClinicalColumn:
    """How a column becomes numbers: a number and its square, or a place for each word; and a place for blanks."""

    name: str
    mean: float = 0.0
    spread: float = 1.0
    words: tuple[str, ...] | None = None
    """None: it holds numbers."""

    def read(self, cells: "pd.Series[Any]") -> Numbers | Words:
        """(rows,): what each cell says, however it is written; NaN or '' where nothing."""
        return _words(cells) if self.words is not None else _numbers(cells)

    def numbers(self, cells: "pd.Series[Any]") -> Numbers:
        """(rows, places); a word that was never seen, or no number where one should be, counts as blank."""
        said = self.read(cells)
        if self.words is None:
            blank = np.isnan(said.astype(np.float64))
            scaled = np.clip((np.where(blank, self.mean, said) - self.mean) / self.spread, -FARTHEST, FARTHEST)
            square = np.where(blank, 0.0, scaled**2 - 1)
            return np.stack([scaled, square, blank], axis=1).astype(np.float64)
        places = said[:, None] == np.array(self.words, dtype=object)[None]
        return np.concatenate([places, ~places.any(axis=1, keepdims=True)], axis=1).astype(np.float64)

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
        if name not in table.columns or name in OWN_COLUMNS:
            raise unknown("clinical column", name, [str(other) for other in table.columns if other not in OWN_COLUMNS])
        cells = table[name]
        if _holds_numbers(cells):
            found.append(ClinicalColumn(name, *_mean_and_spread(_numbers(cells))))
            continue
        words = _different(cells)
        if len(words) > MOST_WORDS:
            raise UserError(
                f"clinical column '{name}' holds {len(words):,} different words, as names or texts do; "
                f"it may hold numbers, or at most {MOST_WORDS} words"
            )
        found.append(ClinicalColumn(name, words=tuple(words)))
    return found


def clinical_numbers(table: pd.DataFrame, columns: Sequence[ClinicalColumn]) -> Numbers:
    """(rows, numbers) of a table that has these columns; a UserError names one that it lacks."""
    for column in columns:
        if column.name not in table.columns:
            raise UserError(f"the model needs the column '{column.name}' beside the images, and the table has none")
    if not columns:
        return np.zeros((len(table), 0))
    return np.concatenate([column.numbers(table[column.name]) for column in columns], axis=1)


def _holds_numbers(cells: "pd.Series[Any]") -> bool:
    """Whether it is numbers, as numbers or as text; a word for not knowing among them makes it no column of words."""
    if pd.api.types.is_numeric_dtype(cells):
        return not pd.api.types.is_bool_dtype(cells)
    words = _different(cells)
    strange = {
        word for word, value in zip(words, _numbers(pd.Series(words, dtype=str)), strict=True) if np.isnan(value)
    }
    return not words or (len(strange) < len(words) and strange <= UNSURE)


def _mean_and_spread(values: Numbers) -> tuple[float, float]:
    """Of the numbers that are there, without those far out, which may be slips and would make all others alike."""
    known = values[~np.isnan(values)]
    if len(known) == 0:
        return 0.0, 1.0
    low, high = np.quantile(known, (0.25, 0.75))
    reach = _FAR_OUT * (high - low)
    if reach > 0:
        known = known[(known >= low - reach) & (known <= high + reach)]
    spread = float(known.std())
    return float(known.mean()), spread if spread > _CONSTANT * float(np.abs(known).max()) else 1.0


def _numbers(cells: "pd.Series[Any]") -> Numbers:
    """NaN where there is none."""
    values = pd.to_numeric(cells, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    return np.where(np.abs(values) < _LARGEST, values, np.nan)


def _words(cells: "pd.Series[Any]") -> Words:
    """Words as they are compared: in lower case, without the space around them; a blank is ''.

    A number is written in one way, so that site 3 is the same in a table whose other sites are no numbers.
    """
    codes, different = pd.factorize(cells.astype(object).where(cells.notna(), "").astype(str))
    text = pd.Series(different, dtype=str).str.strip().str.lower()
    values = _numbers(text)
    plain = [word if np.isnan(value) else f"{value:.15g}" for word, value in zip(text, values, strict=True)]
    return np.where(is_blank(text), "", np.array(plain, dtype=object))[codes].astype(object)


def _different(cells: "pd.Series[Any]") -> list[str]:
    return sorted(set(_words(cells)) - {""})

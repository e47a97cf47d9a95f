"""A table of what is known beside images that are to be predicted: which row belongs to which file."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from acpl.config import Config
from acpl.data.files import exact, folded, without_suffix
from acpl.data.tables import GROUP_NAMES, IMAGE_NAMES, find_column, read_cells, refuse_blank, refuse_duplicates
from acpl.engine.beside import Beside, Clinical, knows_more
from acpl.engine.run_folder import ModelCard
from acpl.errors import UserError

Floats = npt.NDArray[np.float64]


class PatientRows:
    """The rows of a table by their images' names."""

    def __init__(self, file: Path, config: Config, card: ModelCard) -> None:
        """Read it; a UserError says what the model needs and the table lacks."""
        if not knows_more(card):
            raise UserError(f"the model knows nothing beside the image, so that {file} could tell it nothing")
        cells = read_cells(file)
        given = config.image_column if config.image_column in cells.columns else None
        image = find_column(cells, given, IMAGE_NAMES, file, "image_column")
        if image is None:
            raise UserError(f"{file} has no column that names the images, like 'image'")
        refuse_blank(cells, image, file)
        refuse_duplicates(cells[image], file)
        named = config.group_column if config.group_column in cells.columns else None
        group = find_column(cells, named, GROUP_NAMES, file, "group_column")
        if group is None and card.group_answers:
            raise UserError(f"{file} has no column that says whose images they are, like 'patient' or 'lesion'")
        self.card = card
        self.cells = cells.reset_index(drop=True)
        self.owner = cells[image if group is None else group].tolist()
        self.names = cells[image].tolist()
        self._row = {form: _only_ones(map(form, map(_plain, self.names))) for form in (exact, folded)}
        if card.clinical is not None:  # what is missing is said before any image is read
            Clinical.of_json(card.clinical).numbers(self.cells[:0])

    def of(self, files: Sequence[str]) -> npt.NDArray[np.int64]:
        """Each file's row, -1 where it has none: the one whose name is the longest end of its path, suffix or not.

        As when images are looked up for a table, case and accents do not count where nothing else is found. Two files
        that would get one row are refused: one of them is another patient's.
        """
        rows = [self._of(file) for file in files]
        first: dict[int, str] = {}
        for file, row in zip(files, rows, strict=True):
            if row >= 0 and row in first:
                raise UserError(
                    f"{first[row]} and {file} would both have the row '{self.names[row]}': "
                    "name images in the table by their folders, too"
                )
            first[row] = file
        return np.array(rows, np.int64)

    def _of(self, file: str) -> int:
        ends = _ends(_plain(file))
        found = (row[form(end)] for form, row in self._row.items() for end in ends if form(end) in row)
        return next(found, -1)

    def answers(self, files: Sequence[str], probabilities: Floats) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """(files, classes): the answers with what the rows say, and who has one; others stay as they are."""
        rows = self.of(files)
        known = rows >= 0
        table = self.cells.reindex(rows).reset_index(drop=True)
        table["group"] = [self.owner[row] if row >= 0 else (place,) for place, row in enumerate(rows)]
        said = answers_beside(self.card, table, probabilities, known)
        return said, known


def answers_beside(
    card: ModelCard, table: pd.DataFrame, probabilities: Floats, known: npt.NDArray[np.bool_] | None = None
) -> Floats:
    """(images, classes): what a model answers with a table of a row an image, ``group`` among its columns."""
    beside = Beside.of(card, table, known)
    if beside is None:
        return probabilities
    ids, said = torch.arange(len(table)), torch.from_numpy(probabilities).float()
    answered: Floats = beside.answers(said, ids).double().numpy()
    return answered


def _plain(name: str) -> str:
    return name.replace("\\", "/").removeprefix("./").lstrip("/")


def _ends(path: str) -> list[str]:
    """What a table may call this file: all of its path, and ever less of it, each with its suffix and without."""
    parts = path.split("/")
    whole = ["/".join(parts[start:]) for start in range(len(parts))]
    return list(dict.fromkeys(name for end in whole for name in (end, without_suffix(end))))


def _only_ones(names: Iterable[str]) -> dict[str, int]:
    """The row of each name that one row alone has."""
    found: dict[str, list[int]] = {}
    for row, name in enumerate(names):
        found.setdefault(name, []).append(row)
    return {name: rows[0] for name, rows in found.items() if len(rows) == 1}

"""A table of what is known beside images that are to be predicted: which row belongs to which file."""

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from acpl.config import Config
from acpl.data.files import without_suffix
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
        self.row = {key: place for place, name in enumerate(cells[image]) for key in (without_suffix(name), name)}
        if card.clinical is not None:  # what is missing is said before any image is read
            Clinical.of_json(card.clinical).numbers(self.cells[:0])

    def of(self, names: Sequence[str]) -> npt.NDArray[np.int64]:
        """Each file's row, by its path or its name alone, with or without the suffix; -1 where it has none."""
        return np.array([next((self.row[key] for key in _keys(n) if key in self.row), -1) for n in names], np.int64)

    def answers(self, names: Sequence[str], probabilities: Floats) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """(files, classes): the answers with what the rows say, and who has one; others stay as they are."""
        rows = self.of(names)
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
    answered: Floats = beside.together(beside.added(said, ids), ids).double().numpy()
    return answered


def _keys(name: str) -> tuple[str, ...]:
    alone = PurePosixPath(name.replace("\\", "/")).name
    return (name, without_suffix(name), alone, without_suffix(alone))

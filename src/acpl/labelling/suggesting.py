"""Which unlabelled images a person should label next: far from what is labelled, unlike each other, one a patient."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from acpl import functional
from acpl.data.workers import Progress, nothing
from acpl.engine.run_folder import RunFolder, write_whole
from acpl.errors import UserError
from acpl.labelling.contact_sheet import Tile, contact_sheet
from acpl.labelling.pool import Sight, look, open_pool
from acpl.labelling.queue import SUGGESTIONS

SETS = 3
"""Information sets, as in the paper's eq. 2."""
CHOICE = 3
"""So many candidates for each image to choose, at least: with fewer there would be nothing to be diverse among."""
MOST = 50
"""So many at most: of a hundred thousand images, the sparsest are the high information."""


@dataclass(frozen=True)
class Suggestion:
    """Rows of the unlabelled images in the order they should be labelled, and the table that says so."""

    rows: npt.NDArray[np.int64]
    table: pd.DataFrame


def suggest_from(sight: Sight, budget: int) -> Suggestion:
    """At most ``budget`` images; the same ones each time.

    Of each patient only the image with the lowest density stands for choice. Those of high information (the mixture's
    component of lowest density, and the next sparsest where it has few) are the candidates, and of these the farthest
    from everything labelled and taken so far is taken each time.
    """
    if budget < 1:
        raise UserError(f"budget should be at least 1, but it is {budget}")
    table = sight.pool.manifest.table.iloc[sight.pool.unlabelled]
    sparsest_first = np.argsort(sight.density, kind="stable")
    groups = table["group"].to_numpy(dtype=object)[sparsest_first]
    one_each = sparsest_first[~pd.Series(groups).duplicated().to_numpy()]
    informative = _informative(sight.density, one_each)
    candidates = one_each[: max(CHOICE * budget, min(informative, MOST * budget))]
    taken = functional.farthest_first(sight.features[torch.from_numpy(candidates)], budget, sight.labelled_features)
    rows = candidates[taken.numpy()]

    rank = np.empty(len(sparsest_first), dtype=np.int64)
    rank[sparsest_first] = np.arange(1, len(sparsest_first) + 1)
    own = table.iloc[rows][["image", "group"]].reset_index(names="id")
    own["density"], own["information_rank"] = sight.density[rows], rank[rows]
    said = pd.DataFrame(sight.probabilities[rows], columns=[f"probability.{name}" for name in sight.pool.card.classes])
    return Suggestion(rows, pd.concat([own, said], axis=1))


def write_suggestions(
    run: Path, budget: int, out: Path | None = None, *, device: str = "auto", progress: Progress = nothing
) -> pd.DataFrame:
    """The suggestions as a CSV and a contact sheet beside it.

    Without ``out`` they are ``suggestions.csv`` and ``suggestions.png`` in the run's folder, made anew each time.
    """
    RunFolder.open(run)
    target = out if out is not None else run / SUGGESTIONS
    sheet = target.with_suffix(".png")
    if target.suffix.lower() != ".csv":
        raise UserError(f"{target} should be a .csv file; the pictures go beside it")
    for file in (target, sheet) if out is not None else ():
        if file.exists():
            raise UserError(f"{file} exists; choose another --out, nothing is ever written over")
    if not target.parent.is_dir():
        raise UserError(f"{target} cannot be written: there is no folder {target.parent}")
    sight = look(open_pool(run, progress), device=device)
    found = suggest_from(sight, budget)
    write_whole(sheet, contact_sheet(f"{len(found.rows)} images to label next · {run}", _tiles(sight, found)))
    write_whole(target, found.table.to_csv(index=False).encode())
    return found.table


def _tiles(sight: Sight, found: Suggestion) -> list[Tile]:
    pool = sight.pool
    pixels = pool.images.gather(torch.from_numpy(pool.manifest.ids[pool.unlabelled[found.rows]])).numpy()
    tiles = []
    for number, (row, image) in enumerate(zip(found.rows, pixels, strict=True)):
        top = int(sight.probabilities[row].argmax())
        tiles.append(
            Tile(
                image,
                (
                    f"{number + 1}  {found.table['image'].iloc[number]}",
                    f"{pool.card.classes[top]} {sight.probabilities[row, top]:.2f}",
                    f"density {sight.density[row]:.3f}",
                ),
            )
        )
    return tiles


def _informative(density: npt.NDArray[np.float64], sparsest_first: npt.NDArray[np.int64]) -> int:
    """How many of these are of high information; they come first."""
    if len(density) <= SETS:
        return len(sparsest_first)
    level = functional.information(torch.from_numpy(density).float(), SETS).level
    high = functional.select(level, SETS, "high").numpy()
    return int(high[sparsest_first].sum())

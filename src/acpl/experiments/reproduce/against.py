"""How far each row of a table is ahead of itself in another: the same methods, where one thing was changed."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from acpl.errors import UserError
from acpl.evaluation import ERRORS
from acpl.experiments.cells import Cell
from acpl.experiments.reproduce.entries import MEASURES, Lead, Seeds, lead, same_images
from acpl.experiments.reproduce.gathered import Gathered, Made
from acpl.experiments.reproduce.keeping import NOT_RUN, is_kept, short
from acpl.experiments.reproduce.plan import Arm, Planned
from acpl.experiments.reproduce.renewing import MADE
from acpl.experiments.reproduce.scores import ALL_KS, ALL_SHARES, TOGETHER, every_figure

AGAINST_FOR = ("table1", "table3", "table4", "table5", "supplement1", "figure-k", "departures", "calibration", "beyond")
"""Tables whose rows are ways to train, judged on the test part."""
_NOTE = (
    "Against another table: each row's figure less the same row's there, paired by images and seeds. Where both have "
    "the same runs there is nothing to compare."
)


def tables_named(folders: Sequence[str | Path], name: str, digest: str) -> list[Path]:
    """Where each of these folders keeps its table ``name``, of the data with this digest: below it, or it is it."""
    if folders and name not in AGAINST_FOR:
        raise UserError(f"against is for {', '.join(AGAINST_FOR)}")
    return [_table(Path(folder), name, digest) for folder in folders]


def with_others(made: Made, gathered: Gathered, tables: Sequence[Path]) -> Made:
    """The table, with what each of its rows has more than in these."""
    found = {short(str(table.resolve())): _ahead(made, gathered, table) for table in tables}
    alike = [f"Against {name}: no row has other runs there." for name, leads in found.items() if not leads]
    against = [lead for leads in found.values() for lead in leads]
    return replace(made, against=against, notes=[*made.notes, *([_NOTE] if against else []), *alike])


def _table(folder: Path, name: str, digest: str) -> Path:
    for place in (folder / name, folder):
        if (place / MADE).exists() and (known := _known(place)).get("name") == name:
            if known.get("data_digest", digest) != digest:
                raise UserError(f"{place} is a table of other data, {known.get('data')}: nothing there can be compared")
            return place
    raise UserError(f"{folder} has no {name}; against takes folders that `acpl reproduce {name} --out` wrote")


def _known(table: Path) -> dict[str, Any]:
    """What a table says of its making."""
    try:
        found = json.loads((table / MADE).read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise UserError(f"{table / MADE} should say what the table beside it was made of")
    return found


def _ahead(made: Made, gathered: Gathered, table: Path) -> list[Lead]:
    name = short(str(table.resolve()))
    other = _stored(table, gathered)
    if gathered.judged and other.judged:
        same_images({"this table": next(iter(gathered.judged.values())), name: next(iter(other.judged.values()))})
    shown = {one.measure for one in made.entries}
    measures = tuple(measure for measure in (*MEASURES, *ERRORS) if measure in shown)
    theirs = every_figure(other, measures)
    found = [
        lead(row, name, column, measure, figures, there)
        for (row, column, measure), figures in every_figure(gathered, measures).items()
        if measure in shown
        and (there := theirs.get((row, column, measure))) is not None
        and not _same(figures, there)
        and (measure != TOGETHER or gathered.request.seeds == other.request.seeds)
        and (column not in (ALL_SHARES, ALL_KS) or _columns(gathered, row) == _columns(other, row))
    ]
    return [one for one in found if one is not None]


def _columns(table: Gathered, row: str) -> set[str]:
    """The columns of which a row's mean over the shares, or over K, is one."""
    return {column for name, column in table.places() if name == row}


def _same(figures: Seeds, others: Seeds) -> bool:
    """Whether they are of the same runs, and so the same in every resample."""
    return all(
        np.array_equal(figures[seed].draws, others[seed].draws, equal_nan=True) for seed in set(figures) & set(others)
    )


def _stored(table: Path, like: Gathered) -> Gathered:
    """Another table from its folder alone."""
    known = _known(table)
    planned, failed = [], {}
    for run in known["runs"]:
        cell = Cell(str(run["run"]))
        planned.append(Planned(Arm(str(run["row"]), "", column=str(run["column"])), 0.0, int(run["seed"]), cell))
        if not is_kept(table / "runs" / cell.name):
            failed[cell.name] = str(run.get("failed", NOT_RUN))
    request = replace(like.request, seeds=int(known["seeds"]))
    return Gathered(request, like.ground, planned, table / "runs", failed, like.resamples, like.judge)

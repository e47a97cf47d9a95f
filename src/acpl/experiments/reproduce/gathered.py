"""A table's runs when they are done, and what a table is made of."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from acpl.evaluation import Resampled
from acpl.experiments.reproduce.entries import Entry, Judged, Lead, judge, judge_together, same_images
from acpl.experiments.reproduce.keeping import PREDICTIONS, is_kept, split_counts
from acpl.experiments.reproduce.plan import Arm, Ground, Planned, Request
from acpl.report.canvas import Canvas


@dataclass(frozen=True)
class Gathered:
    """What was planned, where its small files are, and what failed."""

    request: Request
    ground: Ground
    planned: Sequence[Planned]
    kept: Path
    failed: dict[str, str]
    resamples: int
    judge: Callable[[Path, int], Judged] = judge
    """A finished cell's figures, from its predictions and the number of resamples."""

    def folder(self, one: Planned) -> Path:
        """A cell's small files."""
        return self.kept / one.cell.name

    def places(self) -> list[tuple[str, str]]:
        """Each (row, column) once, in the order it was planned."""
        return list(dict.fromkeys((one.arm.row, one.column) for one in self.planned))

    def at(self, row: str, column: str) -> list[Planned]:
        """The finished cells of a row and column, seed by seed."""
        return [
            one
            for one in self.planned
            if (one.arm.row, one.column) == (row, column) and one.cell.name not in self.failed
        ]

    def reasons(self, row: str, column: str) -> list[str]:
        """Why seeds of a row and column are not there."""
        return [
            f"seed {one.seed}: {self.failed[one.cell.name]}"
            for one in self.planned
            if (one.arm.row, one.column) == (row, column) and one.cell.name in self.failed
        ]

    def seeds(self, row: str, column: str, measure: str) -> dict[int, Resampled]:
        """A measure of each seed that finished."""
        return {one.seed: self.judged[one.cell.name].figures[measure] for one in self.at(row, column)}

    @cached_property
    def together(self) -> dict[tuple[str, str], Resampled]:
        """The AUC of the mean of all seeds' answers, by row and column.

        Not there where seeds are missing, or had other labels: so many networks would have learnt from more of them.
        """
        found = {}
        for row, column in self.places():
            runs = [self.folder(one) for one in self.at(row, column)]
            labels = {str(split_counts(run)["checksum"]) for run in runs}
            if len(runs) == self.request.seeds > 1 and len(labels) == 1:
                found[row, column] = judge_together([run / PREDICTIONS for run in runs], self.resamples)
        return found

    @cached_property
    def judged(self) -> dict[str, Judged]:
        """Every finished cell, from its predictions; all on the same images."""
        names = dict.fromkeys(one.cell.name for one in self.planned)
        done = [name for name in names if name not in self.failed and is_kept(self.kept / name)]
        found = {name: self.judge(self.kept / name / PREDICTIONS, self.resamples) for name in done}
        same_images(found)
        return found


@dataclass(frozen=True)
class Made:
    """A table's figures, what a reader must know of them, and the picture where it has one."""

    entries: list[Entry]
    notes: list[str] = field(default_factory=list)
    figure: Canvas | None = None
    files: dict[str, str] = field(default_factory=dict)
    """Further text files by name."""
    leads: list[Lead] = field(default_factory=list)
    """How far our own methods are ahead of each of the others."""
    against: list[Lead] = field(default_factory=list)
    """How far each row is ahead of itself in another table, which stands as the one it is ahead of."""


@dataclass(frozen=True)
class Study:
    """How one of the paper's tables or figures is made."""

    name: str
    preset: str
    """What it starts from where no data are named: the paper's own."""
    fractions: tuple[float, ...]
    arms: Callable[[Request, Ground, float], list[Arm]]
    make: Callable[[Gathered], Made]
    reference: str = "supervised"
    """What differences are to."""
    beside: tuple[str, ...] = ()
    """Rows that do not compete for the best."""
    methods: tuple[str, ...] = ()
    """Methods it compares where none are named; empty: it is about ACPL alone."""
    settings: dict[str, object] = field(default_factory=dict)
    """What the paper fixes for this table; what is asked for wins."""
    prepare: Callable[[Planned, Path], None] = lambda planned, run: None
    """What is done with a finished run's folder before its small files are kept."""
    judge: Callable[[Path, int], Judged] = judge
    """What is asked of a run's predictions."""

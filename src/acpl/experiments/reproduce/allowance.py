"""The same small allowance for every method of a table: so many settings of its own, the best on validation taken."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from acpl.engine.writing import told
from acpl.experiments.cells import Cell, is_done, run_cells
from acpl.experiments.reproduce.keeping import is_kept, seen_on_validation
from acpl.experiments.reproduce.plan import Arm, Ground, Request, percent
from acpl.experiments.tuning import Choice, Settings, candidates, choose, chosen_before


@dataclass(frozen=True)
class Trials:
    """What one method may be given at one share of labels, and the run that judges each."""

    fraction: float
    method: str
    offered: tuple[Settings, ...]
    cells: tuple[Cell, ...]
    """Seed 0's, so that the one that is chosen need not be trained again for the table."""

    def record(self, folder: Path) -> Path:
        """Where the choice is kept; its name ends in a digest of the method as it stands."""
        return folder / f"{self.cells[0].name}.json"

    def before(self, folder: Path) -> Choice | None:
        """What was chosen before, for this table or for another beside it."""
        others = sorted(folder.parent.parent.glob(f"*/{folder.name}/{self.cells[0].name}.json"))
        found = (chosen_before(file, self.offered) for file in (self.record(folder), *others))
        return next((choice for choice in found if choice is not None), None)


def trials(request: Request, ground: Ground, arms: Callable[[float], Sequence[Arm]], count: int) -> list[Trials]:
    """``count`` settings of every method, at every share of labels; the first is the method as it stands."""
    return [
        _of_method(request, method, fraction, request.budget(ground, fraction), count)
        for fraction in request.fractions
        for method in dict.fromkeys(arm.method for arm in arms(fraction) if not arm.all_labels)
    ]


def _of_method(request: Request, method: str, fraction: float, steps: int, count: int) -> Trials:
    def run(settings: Settings) -> Cell:
        return replace(request.cell(Arm(method, method, dict(settings)), fraction, 0, steps), part="validation")

    offered = candidates(method, count, lambda settings: run(settings).name)
    return Trials(fraction, method, tuple(offered), tuple(map(run, offered)))


def not_run(of: Sequence[Trials], folder: Path, work: Path) -> list[Cell]:
    """The runs that a choice still waits for: not those that this table, or another beside it, has kept."""
    waiting = [cell for one in of if one.before(folder) is None for cell in one.cells]
    known = _kept_figures(waiting, folder)
    return [cell for cell in waiting if cell.name not in known and not is_done(work, cell)]


def _kept_figures(cells: Sequence[Cell], folder: Path) -> dict[str, float]:
    """What kept runs had on validation, by their names; weights are not kept, so it is what their training saw."""
    runs = {run.name: run for run in sorted(folder.parent.parent.glob("*/runs/*")) if is_kept(run)}
    seen = {cell.name: seen_on_validation(runs[cell.name]) for cell in cells if cell.name in runs}
    return {name: figure for name, figure in seen.items() if figure is not None}


def known_choices(of: Sequence[Trials], folder: Path) -> dict[tuple[float, str], Choice]:
    """What was chosen before."""
    before = {(one.fraction, one.method): one.before(folder) for one in of}
    return {place: choice for place, choice in before.items() if choice is not None}


def choose_all(
    of: Sequence[Trials], folder: Path, work: Path, *, jobs: int, say: Callable[[str], None]
) -> dict[tuple[float, str], Choice]:
    """The best on validation by share of labels and method; what was found is kept in ``folder``."""
    failed = run_cells(not_run(of, folder, work), work, jobs=jobs, say=say, keep_going=True)
    known = _kept_figures([cell for one in of for cell in one.cells], folder)
    with told(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return {
        (one.fraction, one.method): one.before(folder)
        or choose(work, one.cells, one.offered, failed, one.record(folder), known)
        for one in of
    }


def sentences(chosen: dict[tuple[float, str], Choice]) -> list[str]:
    """What a reader must know of the choices."""
    if not chosen:
        return []
    lines = []
    for (fraction, method), choice in chosen.items():
        values = ", ".join(f"{key} {value}" for key, value in choice.settings.items()) or "as it stands"
        lines.append(f"{method} at {percent(fraction)}: {values} ({choice.tried})")
    return [
        "Each method's own settings were chosen on seed 0's validation part among so many as the brackets say: "
        + "; ".join(lines)
        + "."
    ]

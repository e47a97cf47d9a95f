"""Cells of a table: a training and its judging each, run side by side, reused when done before."""

import json
import os
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from acpl.config import Config, resolve
from acpl.data.manifest import Manifest
from acpl.duration import duration
from acpl.engine.beginning import Beginning
from acpl.engine.run_folder import RunFolder
from acpl.engine.stopping import Stopped
from acpl.engine.training import MAY_CHANGE
from acpl.errors import UserError
from acpl.experiments.side_by_side import results

if TYPE_CHECKING:
    from acpl.experiments.progress import Board

LOGS = "logs"
"""Below the table's folder: what a cell's process printed, and the whole of an error."""
_PLACES = (*MAY_CHANGE, "skip_bad", "split_checksum", "data", "images", "split", "weights", "init_from")


@dataclass(frozen=True)
class Cell:
    """One run: its place below the experiment's folder and what ``train`` is called with."""

    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    part: Literal["test", "validation"] = "test"
    """What it is judged on; nothing else is opened."""

    @property
    def evaluation(self) -> str:
        """The file that is there when the cell is done."""
        return "evaluation.json" if self.part == "test" else "evaluation-validation.json"


def run_cells(
    cells: Sequence[Cell],
    folder: Path,
    *,
    jobs: int,
    say: Callable[[str], None],
    keep_going: bool = False,
    board: "Board | None" = None,
) -> dict[str, str]:
    """Train and evaluate every cell that is not there yet, ``jobs`` at a time with the cores shared out.

    A cell that an earlier stop cut short goes on where it was; one that was trained with other settings is refused.
    With ``keep_going`` a cell that fails does not stop the others: the reasons are returned by the cells' names.
    ``board`` is told of every start and end.
    """
    from acpl.experiments.progress import Board

    refuse_others(cells, folder)
    waiting = [cell for cell in cells if not is_done(folder, cell)]
    board = board or Board(cells, folder, jobs)
    failed: dict[str, str] = {}
    total = len(waiting)
    for number, (cell, reason) in enumerate(_finished(waiting, folder, jobs, board, say), start=1):
        if reason is not None and not keep_going:
            raise RuntimeError(f"{cell.name} failed: {reason}")
        board.ended(cell, reason)
        if reason is None:
            mean = read_evaluation(folder, cell)["auroc"]["mean"]
            figure = "AUROC undefined" if mean is None else f"AUROC {mean:.4f}"
        else:
            failed[cell.name] = reason
            figure = f"failed: {reason}"
        left = board.seconds_left()
        about = "" if left is None else f"  (about {duration(left)} left)"
        say(f"{number} of {total}  {cell.name}: {figure}{about}")
    return failed


def refuse_given_labels(config: Config, manifest: Manifest) -> None:
    """Who is labelled must follow from the fraction: else all fractions, and all labels, would be the same few."""
    if config.labelled is not None:
        raise UserError("labelled sets how many images keep their labels, but here fractions do")
    if "role" in manifest.table:
        raise UserError(
            f"{config.split or config.data} says who is labelled, but here fractions do; leave its column 'role' out"
        )


def refuse_others(cells: Sequence[Cell], folder: Path) -> None:
    """A cell is known by its name; what lies there may have been trained with settings that have changed since.

    Where its files lie is not compared: they may have been moved.
    """
    for cell in cells:
        target = folder / cell.name
        if not (target / "config.yaml").exists():
            continue
        run = RunFolder(target)
        old, new = run.config().model_dump(), resolve(**cell.settings).model_dump()
        wrong = [name for name in new if name not in _PLACES and old[name] != new[name]]
        if wrong:
            own = [name for name in new["settings"] if old["settings"].get(name) != new["settings"][name]]
            names = ", ".join(own if wrong == ["settings"] and own else wrong)
            raise UserError(f"{target} was trained with other settings ({names}); choose another --out")
        if (began := Beginning.kept_in(run)) is not None:
            began.refuse_another_edition(run)


def is_done(folder: Path, cell: Cell) -> bool:
    """Whether a cell was trained and judged to the end."""
    return (folder / cell.name / cell.evaluation).exists()


def read_evaluation(folder: Path, cell: Cell) -> dict[str, Any]:
    """What ``evaluate`` wrote for a cell."""
    result: dict[str, Any] = json.loads((folder / cell.name / cell.evaluation).read_text(encoding="utf-8"))
    return result


def gradient_steps(folder: Path, cell: Cell) -> int:
    """How many steps a cell's training took."""
    return int(last_epoch(folder, cell)["step"])


def last_epoch(folder: Path, cell: Cell) -> dict[str, Any]:
    """What the last epoch of a cell's training left: steps, images and seconds so far."""
    lines = (folder / cell.name / "events.jsonl").read_text(encoding="utf-8").splitlines()
    event: dict[str, Any] = json.loads(lines[-1])
    return event


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _finished(
    cells: Sequence[Cell], folder: Path, jobs: int, board: "Board", say: Callable[[str], None]
) -> Iterator[tuple[Cell, str | None]]:
    """Each cell when it is done, and why it failed if it did."""
    if jobs == 1:
        for cell in cells:
            board.started(cell)
            yield cell, _run(cell, folder, None)
        return
    threads = max(1, cores() // jobs)
    work = {cell.name: partial(_run, cell, folder, threads) for cell in cells}
    by_name = {cell.name: cell for cell in cells}
    logs = {name: folder / LOGS / f"{name}.txt" for name in work}

    def started(name: str) -> None:
        board.started(by_name[name])

    def stopping(number: int) -> None:
        say(f"stopping {number} {'run' if number == 1 else 'runs'} at the next step; another Ctrl-C does not wait")

    for name, reason in results(work, jobs, logs, started, stopping):
        yield by_name[name], reason


def _run(cell: Cell, folder: Path, threads: int | None) -> str | None:
    """Train and judge; the reason if that failed."""
    import torch

    from acpl import api

    if threads is not None:
        torch.set_num_threads(threads)
    target = folder / cell.name
    try:
        _train(target, cell.settings)
        api.evaluate(target, part=cell.part, device=cell.settings.get("device", "auto"))
    except Stopped:  # somebody asked this process to stop, not this cell to fail
        raise KeyboardInterrupt from None
    except UserError as error:
        return str(error)
    except Exception as error:
        log = folder / LOGS / f"{cell.name}.txt"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a", encoding="utf-8") as file:
            traceback.print_exc(file=file)
        return f"{type(error).__name__}: {' '.join(str(error).split())}"
    return None


def _train(target: Path, settings: dict[str, Any]) -> None:
    """Train, or go on with what an earlier stop has left."""
    from acpl import api

    if (target / "model.safetensors").exists():
        return
    if (target / "config.yaml").exists():
        api.train(resume=target, **{name: settings[name] for name in MAY_CHANGE if name in settings})
        return
    api.train(out=target, **settings)

"""Cells of a table: a training and an evaluation each, run side by side, reused when done before."""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from acpl.errors import UserError


@dataclass(frozen=True)
class Cell:
    """One run: its place below the experiment's folder and what ``train`` is called with."""

    name: str
    settings: dict[str, Any] = field(default_factory=dict)


def run_cells(
    cells: Sequence[Cell], folder: Path, *, jobs: int, say: Callable[[str], None], keep_going: bool = False
) -> dict[str, str]:
    """Train and evaluate every cell that is not there yet, ``jobs`` at a time with the cores shared out.

    A cell that an earlier stop cut short is run again from its start. With ``keep_going`` a cell that fails does not
    stop the others: the reasons are returned by the cells' names.
    """
    waiting = [cell for cell in cells if not (folder / cell.name / "evaluation.json").exists()]
    failed: dict[str, str] = {}
    started, total = time.perf_counter(), len(waiting)
    for number, (cell, reason) in enumerate(_finished(waiting, folder, jobs), start=1):
        if reason is not None and not keep_going:
            raise RuntimeError(f"{cell.name} failed: {reason}")
        if reason is None:
            figure = f"AUROC {read_evaluation(folder, cell)['auroc']['mean']:.4f}"
        else:
            failed[cell.name] = reason
            figure = f"failed: {reason}"
        left = (time.perf_counter() - started) / number * (total - number)
        say(f"{number} of {total}  {cell.name}: {figure}  (about {left / 60:.0f} min left)")
    return failed


def _finished(cells: Sequence[Cell], folder: Path, jobs: int) -> Iterator[tuple[Cell, str | None]]:
    """Each cell when it is done, and why it failed if it did."""
    if jobs == 1:
        for cell in cells:
            yield cell, _run(cell, folder, None)
        return
    threads = max(1, (os.cpu_count() or 1) // jobs)
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        running = {pool.submit(_run, cell, folder, threads): cell for cell in cells}
        for done in as_completed(running):
            try:
                yield running[done], done.result()
            except BrokenProcessPool:
                yield running[done], "its process was killed"


def read_evaluation(folder: Path, cell: Cell) -> dict[str, Any]:
    """What ``evaluate`` wrote for a cell."""
    result: dict[str, Any] = json.loads((folder / cell.name / "evaluation.json").read_text(encoding="utf-8"))
    return result


def gradient_steps(folder: Path, cell: Cell) -> int:
    """How many steps a cell's training took."""
    return int(last_epoch(folder, cell)["step"])


def last_epoch(folder: Path, cell: Cell) -> dict[str, Any]:
    """What the last epoch of a cell's training left: steps, images and seconds so far."""
    lines = (folder / cell.name / "events.jsonl").read_text(encoding="utf-8").splitlines()
    event: dict[str, Any] = json.loads(lines[-1])
    return event


def _run(cell: Cell, folder: Path, threads: int | None) -> str | None:
    """Train and judge; the reason if that failed."""
    import torch

    from acpl import api

    if threads is not None:
        torch.set_num_threads(threads)
    target = folder / cell.name
    shutil.rmtree(target, ignore_errors=True)  # what an earlier stop has left of it
    try:
        api.train(out=target, **cell.settings)
        api.evaluate(target)
    except UserError as error:
        return str(error)
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())}"
    return None

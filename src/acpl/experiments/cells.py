"""Cells of a table: a training and an evaluation each, run side by side, reused when done before."""

import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Cell:
    """One run: its place below the experiment's folder and what ``train`` is called with."""

    name: str
    settings: dict[str, Any] = field(default_factory=dict)


def run_cells(cells: Sequence[Cell], folder: Path, *, jobs: int, say: Callable[[str], None]) -> None:
    """Train and evaluate every cell that is not there yet, ``jobs`` at a time with the cores shared out."""
    waiting = [cell for cell in cells if not (folder / cell.name / "evaluation.json").exists()]
    for cell in waiting:
        if (folder / cell.name).exists():
            raise FileExistsError(f"{folder / cell.name} holds an unfinished run; remove it to run it again")
    threads = max(1, (os.cpu_count() or 1) // jobs)
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        running = {pool.submit(_run, cell, folder, threads): cell for cell in waiting}
        for done in as_completed(running):
            done.result()
            say(f"{running[done].name}: AUROC {read_evaluation(folder, running[done])['auroc']['mean']:.4f}")


def read_evaluation(folder: Path, cell: Cell) -> dict[str, Any]:
    """What ``evaluate`` wrote for a cell."""
    result: dict[str, Any] = json.loads((folder / cell.name / "evaluation.json").read_text(encoding="utf-8"))
    return result


def gradient_steps(folder: Path, cell: Cell) -> int:
    """How many steps a cell's training took."""
    lines = (folder / cell.name / "events.jsonl").read_text(encoding="utf-8").splitlines()
    return int(json.loads(lines[-1])["step"])


def _run(cell: Cell, folder: Path, threads: int) -> None:
    import torch

    from acpl import api

    torch.set_num_threads(threads)
    api.train(out=folder / cell.name, **cell.settings)
    api.evaluate(folder / cell.name)

"""Runs as ``results`` keeps them, made up: nothing is trained."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np

from acpl.experiments.cells import Cell
from acpl.experiments.reproduce.gathered import Gathered
from acpl.experiments.reproduce.keeping import PREDICTIONS, SMALL, SPLIT
from acpl.experiments.reproduce.plan import Arm, Ground, Planned, Request
from acpl.task import Task

IMAGES, SEEDS = 60, 3
TRUTH = np.random.default_rng(0).integers(0, 2, (IMAGES, 2))
GROUND = Ground(Task.MULTI_LABEL, ("a", "b"), 100, 100)


def said(seed: int, help_by: float) -> np.ndarray:
    return np.clip(np.random.default_rng(seed).random((IMAGES, 2)) + help_by * TRUTH, 0, 1)


def keep_run(
    folder: Path, score: np.ndarray, checksum: str, order: np.ndarray | None = None, truth: np.ndarray = TRUTH
) -> None:
    """A kept run's files, its images in any order."""
    folder.mkdir(parents=True)
    kinds = {"truth": truth, "probability": score, "decision": (score > 0.5).astype(int)}
    columns = [f"{kind}.{name}" for kind in kinds for name in "ab"]
    rows = [
        ",".join([str(n), f"{n:03d}.png", f"p{n // 2}", *(str(v) for values in kinds.values() for v in values[n])])
        for n in (np.arange(IMAGES) if order is None else order)
    ]
    text = "\n".join([",".join(["id", "image", "group", *columns]), *rows]) + "\n"
    for name in SMALL:
        (folder / name).write_text('{"event": "epoch", "step": 7}\n')
    (folder / PREDICTIONS).write_bytes(gzip.compress(text.encode()))
    (folder / SPLIT).write_text(json.dumps({"checksum": checksum}))


def gathered(
    kept: Path,
    arms: dict[str, list[str]],
    failed: dict[str, str] | None = None,
    *,
    more: float = 0.0,
    fractions: tuple[float, ...] = (0.2,),
) -> Gathered:
    """Arms by row, with the checksum of each seed's split; ``more`` helps all of them, but a row called "same"."""
    planned = []
    for place, (row, checksums) in enumerate(arms.items()):
        helped = 0.2 + 0.1 * place + (more if row != "same" else 0.0)
        for fraction in fractions:
            for seed, checksum in enumerate(checksums):
                name = f"{row}-{fraction:g}-{seed}"
                planned.append(Planned(Arm(row, "supervised"), fraction, seed, Cell(name)))
                if name not in (failed or {}):
                    keep_run(kept / name, said(seed + 10 * place, helped), checksum)
    return Gathered(Request("table3", fractions, SEEDS, ()), GROUND, planned, kept, failed or {}, 50)


def stored(table: Path, runs: Gathered, **more: Any) -> Path:
    """What ``reproduce`` writes beside the runs of a table."""
    lines: list[dict[str, Any]] = []
    for one in runs.planned:
        line: dict[str, Any] = {"row": one.arm.row, "column": one.column, "seed": one.seed, "run": one.cell.name}
        lines.append(line | ({"failed": runs.failed[one.cell.name]} if one.cell.name in runs.failed else {}))
    made = {"name": "table3", "data_digest": "abc", "seeds": runs.request.seeds, "runs": lines, **more}
    (table / "made.json").write_text(json.dumps(made))
    return table

"""ACPL against supervised training on both phantoms, and high against low information.

Supervised training is given the gradient steps that ACPL took with the same seed, besides the shorter warm-up
that ACPL itself starts from; all share splits, network, optimiser and augmentation. Where labels have mistakes it
learns those by heart in the end, so it is also judged as it was when it was best on validation, while ACPL stays as it
ended.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from acpl.engine.judging import compare_runs
from acpl.errors import UserError
from acpl.experiments.cells import Cell, gradient_steps, read_evaluation, run_cells

DATA = ("phantom-chest", "phantom-lesions")
STOPPED = {"keep": "best", "validate_every": 3}
"""Supervised training as it was at its best; every third epoch is looked at."""


@dataclass(frozen=True)
class Row:
    """One seed: mean AUROCs, and the paired difference of two runs with its 95 % interval."""

    data: str
    seed: int
    warmup: float
    baseline: float
    acpl: float
    gain: tuple[float, float, float]


def run_phantoms(folder: Path, *, seeds: int, jobs: int, say: Callable[[str], None], **common: Any) -> str:
    """Run what is missing and return the three tables as Markdown."""
    numbers = range(seeds)
    acpl = {(data, seed): _cell(data, "acpl", seed, common) for data in DATA for seed in numbers}
    low = {seed: _cell(DATA[0], "acpl", seed, {**common, "select": "low"}, "-low") for seed in numbers}
    table = folder / "table.md"
    if table.exists() and not any((folder / cell.name).exists() for cell in acpl.values()):
        raise UserError(f"{table} is of something else; choose another --out, nothing is ever written over")
    run_cells([*acpl.values(), *low.values()], folder, jobs=jobs, say=say)
    same = {key: {**common, "steps": gradient_steps(folder, cell)} for key, cell in acpl.items()}
    supervised = {key: _cell(key[0], "supervised", key[1], steps) for key, steps in same.items()}
    stopped = {key: _cell(key[0], "supervised", key[1], steps | STOPPED, "-best") for key, steps in same.items()}
    run_cells([*supervised.values(), *stopped.values()], folder, jobs=jobs, say=say)
    main = [_row(folder, *key, supervised[key], cell) for key, cell in acpl.items()]
    early = [_row(folder, *key, stopped[key], cell) for key, cell in acpl.items()]
    ablation = [_row(folder, DATA[0], seed, low[seed], acpl[DATA[0], seed]) for seed in numbers]
    text = (
        "ACPL − supervised (the same gradient steps):\n\n"
        + _table(main, "supervised, same steps")
        + "\n\nACPL − supervised as it was when it was best on validation:\n\n"
        + _table(early, "supervised, best epoch")
        + "\n\nHigh − low information, phantom-chest:\n\n"
        + _table(ablation, "ACPL, low information")
        + "\n"
    )
    table.write_text(text, encoding="utf-8")
    return text


def _cell(data: str, method: str, seed: int, settings: dict[str, Any], suffix: str = "") -> Cell:
    return Cell(f"{data}-{method}{suffix}-{seed}", {"data": data, "method": method, "seed": seed, **settings})


def _row(folder: Path, data: str, seed: int, baseline: Cell, acpl: Cell) -> Row:
    result = read_evaluation(folder, acpl)
    gain = compare_runs(folder / baseline.name, folder / acpl.name)["auroc"]
    return Row(
        data=data,
        seed=seed,
        warmup=result["snapshots"]["warm-up"]["auroc"]["mean"],
        baseline=read_evaluation(folder, baseline)["auroc"]["mean"],
        acpl=result["auroc"]["mean"],
        gain=(gain.point, gain.low, gain.high),
    )


def _table(rows: list[Row], baseline: str) -> str:
    """A line a seed and a line of means a data set; figures are mean test AUROC × 100."""
    lines = [
        f"| data | seed | warm-up | {baseline} | ACPL | difference [95 % interval] |",
        "|---|---|---|---|---|---|",
    ]
    for data in dict.fromkeys(row.data for row in rows):
        own = [row for row in rows if row.data == data]
        for row in own:
            point, bottom, top = (100 * value for value in row.gain)
            sign = "above" if bottom > 0 else "below" if top < 0 else "unclear"
            lines.append(
                f"| {data} | {row.seed} | {100 * row.warmup:.2f} | {100 * row.baseline:.2f} | {100 * row.acpl:.2f} "
                f"| {point:+.2f} [{bottom:+.2f}, {top:+.2f}] {sign} |"
            )
        means = [100 * np.mean([getattr(row, name) for row in own]) for name in ("warmup", "baseline", "acpl")]
        above = sum(row.gain[1] > 0 for row in own)
        lines.append(
            f"| **{data}** | **mean** | **{means[0]:.2f}** | **{means[1]:.2f}** | **{means[2]:.2f}** "
            f"| **{means[2] - means[1]:+.2f}; above 0 in {above} of {len(own)}** |"
        )
    return "\n".join(lines)

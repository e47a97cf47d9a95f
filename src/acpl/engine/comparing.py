"""Finished runs side by side: each one's figures, and what it has more or less than the first."""

from collections.abc import Sequence
from math import isnan
from pathlib import Path
from typing import Any

from acpl.engine.judging import JudgedPart, compare_runs, is_judged
from acpl.engine.run_folder import RunFolder
from acpl.errors import UserError


def judged_part(runs: Sequence[Path]) -> JudgedPart:
    """The part that all were judged on, test before validation; a UserError names a run that was not."""
    part: JudgedPart
    for part in ("test", "validation"):
        if all(is_judged(run, part) for run in runs):
            return part
    missing = next(run for run in runs if not is_judged(run, "test"))
    raise UserError(f"{missing} has not been evaluated: acpl evaluate {missing}")


def differences(runs: Sequence[Path], part: JudgedPart, *, resamples: int = 2000) -> list[dict[str, Any] | None]:
    """AUROC of each run less that of the first, on the same images; None for the first itself, and for no number."""
    classes = RunFolder.open(runs[0]).card().classes
    found: list[dict[str, Any] | None] = [None]
    for run in runs[1:]:
        change = compare_runs(runs[0], run, part=part, resamples=resamples)["auroc"]
        each = change.per_class
        found.append(
            {
                "mean": _number(change.point),
                "low": _number(change.low),
                "high": _number(change.high),
                "p": _number(change.p),
                "per_class": {name: _number(value) for name, value in zip(classes, each.point, strict=True)},
            }
        )
    return found


def _number(value: float) -> float | None:
    return None if isnan(value) else float(value)

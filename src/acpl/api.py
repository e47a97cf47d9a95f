"""The public functions: what the shell's verbs do, for Python."""

from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pandas as pd

from acpl import algorithms, config
from acpl.engine.judging import run_evaluation, run_prediction
from acpl.engine.monitor import Monitor, Quiet
from acpl.engine.training import run_training
from acpl.report import write_report


def train(
    *,
    preset: str | None = None,
    file: str | Path | None = None,
    out: str | Path | None = None,
    monitor: Monitor | None = None,
    **settings: Any,
) -> Path:
    """Train and return the run folder.

    ``settings`` are fields of :class:`acpl.Config` or settings of the method; they win over ``file`` (YAML), which
    wins over ``preset``. Without ``out`` the run goes to a new folder below ``runs``.
    """
    resolved = config.resolve(preset, Path(file) if file is not None else None, **settings)
    folder = Path(out) if out is not None else _new_folder(f"{resolved.data}-{resolved.method}")
    run = run_training(resolved, folder, monitor or Quiet())
    write_report(run.path)
    return run.path


def evaluate(run: str | Path, *, resamples: int = 2000, device: str = "auto") -> dict[str, Any]:
    """Judge a run on its test part, which nothing else opens; also written to ``evaluation.json``."""
    result = run_evaluation(Path(run), resamples=resamples, device=device)
    write_report(Path(run))
    return result


def predict(run: str | Path, images: Sequence[str | Path], *, device: str = "auto") -> tuple[pd.DataFrame, list[str]]:
    """Probabilities for image files or folders of them, and a sentence for each file that cannot be read."""
    return run_prediction(Path(run), [Path(image) for image in images], device=device)


def methods() -> dict[str, str]:
    """Every method's name, with one line on what it is."""
    return {name: algorithms.find(name).summary for name in algorithms.names()}


def presets() -> dict[str, dict[str, Any]]:
    """Every preset's name, with what it sets."""
    return {name: config.read_preset(name) for name in config.preset_names()}


def _new_folder(name: str) -> Path:
    return next(path for number in count(1) if not (path := Path("runs") / f"{name}-{number}").exists())

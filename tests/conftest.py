"""What several tests share: a tiny run and a tiny context."""

from pathlib import Path
from typing import Any

import pytest

import acpl

TINY = {
    "phantom_patients": 60,
    "phantom_errors": 0.0,
    "size": 32,
    "fraction": 0.3,
    "warmup_epochs": 1,
    "stages": 2,
    "stage_epochs": 1,
    "device": "cpu",
    "k": 3,
}

SMALLEST: dict[str, Any] = {
    "phantom_patients": 40,
    "phantom_errors": 0.0,
    "size": 32,
    "batch_size": 8,
    "warmup_epochs": 1,
    "stages": 1,
    "stage_epochs": 1,
    "device": "cpu",
}
"""For tables of many runs."""


@pytest.fixture(scope="session")
def chest_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished and judged multi-label run."""
    run = acpl.train(out=tmp_path_factory.mktemp("runs") / "chest", data="phantom-chest", **TINY)
    acpl.evaluate(run, resamples=50)
    return run


@pytest.fixture(scope="session")
def lesions_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished and judged multi-class run."""
    run = acpl.train(out=tmp_path_factory.mktemp("runs") / "lesions", data="phantom-lesions", **TINY)
    acpl.evaluate(run, resamples=50)
    return run

"""How many cells run side by side: never more than cores, cells or memory allow."""

import pytest

from acpl.config import resolve
from acpl.engine.training import source_of
from acpl.experiments import jobs
from acpl.experiments.jobs import GIB, choose_jobs, free_memory, training_bytes

CONFIG = resolve(phantom_patients=40, size=32, device="cpu")
MANIFEST = source_of(CONFIG).manifest()


@pytest.mark.parametrize(
    ("cores", "free", "cells", "count", "limit"),
    [
        (4, 100 * GIB, 51, 4, "cores"),
        (4, 100 * GIB, 3, 3, "cells"),
        (64, 4 * GIB, 51, 4, "memory"),
        (64, 0, 51, 1, "memory"),
        (2, None, 51, 2, "cores"),
    ],
)
def test_the_scarcest_decides_and_is_named(
    cores: int, free: int | None, cells: int, count: int, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "cores", lambda: cores)
    monkeypatch.setattr(jobs, "free_memory", lambda: free)
    found = choose_jobs(CONFIG, MANIFEST, cells)
    assert found.count == count
    assert found.why.startswith(f"{count} side by side, limited by {limit} (")


def test_memory_grows_with_images_batch_and_network() -> None:
    small = training_bytes(CONFIG, MANIFEST)
    assert training_bytes(CONFIG.model_copy(update={"batch_size": 64}), MANIFEST) > 1.5 * small
    assert training_bytes(CONFIG.model_copy(update={"size": 64}), MANIFEST) > 2 * small
    assert training_bytes(CONFIG.model_copy(update={"backbone": "densenet121"}), MANIFEST) > 5 * small


def test_free_memory_is_a_number_where_the_system_tells() -> None:
    free = free_memory()
    assert free is None or free > 0

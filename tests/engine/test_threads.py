from pathlib import Path

import pytest
import torch

from acpl.engine.threads import fit_threads, processor_quota


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"cpu.max": "200000 100000\n"}, 2),
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "5000 100000\n"}, 1),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu.max": ""}, None),
        ({"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({}, None),
    ],
)
def test_a_containers_quota_is_read_in_both_versions(files: dict[str, str], quota: int | None, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert processor_quota(tmp_path) == quota


@pytest.mark.parametrize(("asked", "threads"), [(None, 2), ("8", 8)])
def test_threads_fit_the_quota_unless_someone_said_how_many(
    asked: str | None, threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if asked:
        monkeypatch.setenv("OMP_NUM_THREADS", asked)
    current = [8]
    monkeypatch.setattr(torch, "get_num_threads", lambda: current[0])
    monkeypatch.setattr(torch, "set_num_threads", lambda number: current.__setitem__(0, number))
    (tmp_path / "cpu.max").write_text("200000 100000")
    fit_threads(tmp_path)
    assert current == [threads]
    (tmp_path / "cpu.max").write_text("1600000 100000")
    fit_threads(tmp_path)
    assert current == [threads]

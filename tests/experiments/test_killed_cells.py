"""Tables whose process is killed in the midst of a cell: the same call goes on within that cell, to the same table."""

import csv
import json
import multiprocessing
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.engine.test_resume import assert_same_run, dies_in
from tests.experiments.test_side_by_side import eventually

import acpl
from acpl import api
from acpl.algorithms.mean_teacher import MeanTeacher
from acpl.algorithms.supervised import Supervised

TINY: dict[str, Any] = {"phantom_patients": 40, "size": 32, "batch_size": 8, "warmup_epochs": 1, "stages": 1,
                        "stage_epochs": 1, "device": "cpu", "checkpoint_minutes": 0.0, "dropout": 0.2,
                        "data": "phantom-chest"}  # fmt: skip


def compare(folder: Path) -> None:
    methods, quiet = ["supervised", "mean-teacher"], {"say": lambda line: None}
    acpl.compare(folder, methods=methods, fractions=[0.3], seeds=1, budget=16, resamples=20, jobs=1, **quiet, **TINY)


def reproduce(folder: Path) -> None:
    wish: dict[str, Any] = {"methods": ["supervised"], "fractions": [0.3], "seeds": 1, "steps": 16, "resamples": 20}
    acpl.reproduce("table1", folder / "results", work=folder / "work", say=lambda line: None, **wish, **TINY)


def killed(what: str, folder: Path) -> None:
    torch.set_num_threads(1)
    dies_in(MeanTeacher if what == "compare" else Supervised, "after_step", 12)()
    {"compare": compare, "reproduce": reproduce}[what](folder)


def figures(table: Path) -> list[dict[str, str]]:
    """All but the time that was taken."""
    with table.open(encoding="utf-8", newline="") as file:
        return [{k: v for k, v in row.items() if "second" not in k} for row in csv.DictReader(file)]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_table_that_is_stopped_loses_no_step(tmp_path: Path) -> None:
    script = (
        "import signal, sys, acpl\n"
        "if __name__ == '__main__':\n"
        "    signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "    acpl.compare(sys.argv[1], methods=['supervised', 'mean-teacher'], fractions=[0.3], seeds=1, jobs=2,"
        f" budget=100_000, **{ {**TINY, 'checkpoint_minutes': 60.0} })\n"
    )
    (tmp_path / "table.py").write_text(script)
    with subprocess.Popen([sys.executable, str(tmp_path / "table.py"), str(tmp_path / "table")]) as table:
        try:
            assert eventually(lambda: len(list((tmp_path / "table").rglob("events.jsonl"))) == 2)
            assert eventually(lambda: all('"epoch"' in events.read_text() for events in tmp_path.rglob("events.jsonl")))
            table.send_signal(signal.SIGINT)
            table.wait(60)
        finally:
            table.kill()
    runs = [events.parent for events in tmp_path.rglob("events.jsonl")]
    assert len(runs) == 2
    for run in runs:
        (checkpoint,) = (run / "checkpoints").iterdir()
        last = json.loads((run / "events.jsonl").read_text().splitlines()[-1])
        assert int(checkpoint.stem) >= last["step"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("what", ["compare", "reproduce"])
def test_a_killed_table_goes_on_within_its_cell(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = {"compare": compare, "reproduce": reproduce}[what]
    process = multiprocessing.get_context("forkserver").Process(target=killed, args=(what, tmp_path / "cut"))
    process.start()
    process.join(200)
    assert process.exitcode == -signal.SIGKILL
    (checkpoints,) = (
        c for c in (tmp_path / "cut").rglob("checkpoints") if not (c.parent / "model.safetensors").exists()
    )
    assert any(checkpoints.iterdir())
    calls: list[dict[str, Any]] = []
    honest = api.train
    monkeypatch.setattr(api, "train", lambda **given: (calls.append(given), honest(**given))[1])
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        go(tmp_path / "cut")
        assert [call.get("resume") for call in calls][:1] == [checkpoints.parent]
        go(tmp_path / "whole")
    finally:
        torch.set_num_threads(threads)
    (cut,), (whole,) = (list((tmp_path / name).rglob("table.csv")) for name in ("cut", "whole"))
    assert figures(cut) == figures(whole)
    for model in (tmp_path / "whole").rglob("model.safetensors"):
        other = tmp_path / "cut" / model.relative_to(tmp_path / "whole")
        first, second = load_file(model), load_file(other)
        assert all(torch.equal(first[name], second[name]) for name in first)
        assert_same_run(model.parent, other.parent)

"""A run watched from its folder alone."""

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from acpl.report.watching import SILENT, progress, sparkline, view, watch_run


def epoch(stage: int, number: int, step: int, seconds: float) -> dict:
    return {
        "event": "epoch",
        "stage": stage,
        "epoch": number,
        "step": step,
        "seconds": seconds,
        "losses": {"l": 1 / step},
    }


WARM_UP = {"event": "stage", "stage": 0, "name": "warm-up", "steps": 100}
STAGE = {"event": "stage", "stage": 1, "name": "stage 1", "steps": 200, "selected": 1234, "left": 5}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "config.yaml").write_text("method: acpl\ndata: phantom-chest\n")
    return tmp_path


def write(run: Path, *events: dict, rest: str = "") -> None:
    (run / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events) + rest)


def shown(run: Path, later: float = 0.0) -> str:
    file = run / "events.jsonl"
    now = (file.stat().st_mtime if file.exists() else 0.0) + later
    console = Console(width=120, file=StringIO(), record=True)
    console.print(view(run, now))
    return " ".join(console.export_text().split())


def test_rate_and_time_left_are_of_the_stage_that_runs() -> None:
    epochs = [epoch(0, 1, 50, 100.0), epoch(0, 2, 100, 110.0), epoch(1, 1, 120, 112.0), epoch(1, 2, 140, 114.0)]
    found = progress([WARM_UP, STAGE], epochs)
    assert found == {"name": "stage 1", "done": 40, "total": 200, "epoch": 2, "rate": 10.0, "left": 16.0}


def test_before_a_stages_first_epoch_has_ended_nothing_is_made_up() -> None:
    assert progress([WARM_UP, STAGE], [epoch(0, 1, 100, 10.0)]) is None
    assert progress([], []) is None


def test_a_run_that_has_only_begun_is_shown(run: Path) -> None:
    assert "running: opening the images" in shown(run)
    write(run, WARM_UP)
    assert "running: warm-up, first epoch" in shown(run)


def test_a_line_that_is_half_written_waits_for_the_next_look(run: Path) -> None:
    write(run, WARM_UP, epoch(0, 1, 50, 5.0), rest='{"event": "epoch", "stage": 0, "epo')
    assert "epoch 1, step 50 of 100" in shown(run)


def test_the_table_has_a_row_a_stage_and_the_losses_a_line(run: Path) -> None:
    write(run, WARM_UP, epoch(0, 1, 50, 5.0), epoch(0, 2, 100, 10.0), STAGE, epoch(1, 1, 120, 12.0))
    text = shown(run)
    assert "warm-up 2" in text
    assert "stage 1 1 1,234 5" in text
    assert "loss l █▂▁ 0.020 → 0.008" in text


def test_a_run_without_news_may_have_stopped(run: Path) -> None:
    write(run, WARM_UP, epoch(0, 1, 50, 5.0))
    assert "may have stopped" not in shown(run, SILENT - 1)
    assert "no news for 10 min: it may have stopped" in shown(run, SILENT + 1)


def test_watching_ends_when_the_model_is_there(run: Path) -> None:
    write(run, WARM_UP, epoch(0, 1, 100, 5.0))
    looks = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            (run / "model.safetensors").touch()

    console = Console(file=StringIO(), record=True)
    watch_run(run, console, every=0.5, sleep=sleep)
    assert looks == [0.5] * 3
    assert "finished in 5.0 s" in console.export_text()


def test_a_sparkline_is_no_longer_than_its_place_and_ends_with_the_last_value() -> None:
    line = sparkline([float(n) for n in range(1000)], width=20)
    assert len(line) <= 20
    assert line[-1] == "█"
    assert sparkline([float("nan")]) == ""
    assert sparkline([2.0, 2.0]) == "▁▁"

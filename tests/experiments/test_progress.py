"""What people see while cells run."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from acpl.experiments import progress
from acpl.experiments.cells import Cell
from acpl.experiments.progress import Board
from acpl.report.live import live_table


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def cell(method: str, seed: int, steps: int = 100) -> Cell:
    return Cell(f"{method}-0.05-{seed}", {"method": method, "fraction": 0.05, "seed": seed, "steps": steps})


def epoch(folder: Path, one: Cell, step: int, **more: Any) -> None:
    (folder / one.name).mkdir(parents=True, exist_ok=True)
    with (folder / one.name / "events.jsonl").open("a") as file:
        file.write(json.dumps({"event": "epoch", "step": step, **more}) + "\n")


def finish(folder: Path, one: Cell, auroc: float) -> None:
    epoch(folder, one, one.settings["steps"], validation_auroc=auroc + 0.01)
    (folder / one.name / "evaluation.json").write_text(json.dumps({"auroc": {"mean": auroc}}))


def test_a_board_shows_what_is_done_runs_failed_and_waits(tmp_path: Path, clock: Clock) -> None:
    cells = [cell("acpl", seed) for seed in range(4)]
    finish(tmp_path, cells[0], 0.9)
    board = Board(cells, tmp_path, jobs=1)
    for one in cells[1:3]:
        board.started(one)
    board.ended(cells[1], "out of luck")
    epoch(tmp_path, cells[2], 30)
    with (tmp_path / cells[2].name / "events.jsonl").open("a") as file:
        file.write('{"event": "epoch", "st')  # being written
    (row,) = board.rows()
    assert row["states"] == ["done", "failed", "running", "waiting"]
    assert row["now"] == [(30, 100)]
    assert (row["validation"], row["test"]) == (pytest.approx(0.91), pytest.approx(0.9))
    assert board.counts() == {"done": 1, "running": 1, "failed": 1, "waiting": 1}


def test_what_is_left_goes_by_what_a_method_s_own_cells_took(tmp_path: Path, clock: Clock) -> None:
    quick, slow = [cell("mixup", seed) for seed in range(3)], [cell("ups", seed) for seed in range(3)]
    board = Board([*quick, *slow], tmp_path, jobs=1)
    assert board.seconds_left() is None
    board.started(quick[0])
    clock.now = 10.0
    finish(tmp_path, quick[0], 0.9)
    board.ended(quick[0], None)
    assert board.seconds_left() == pytest.approx(5 * 10)
    board.started(slow[0])
    clock.now = 50.0
    finish(tmp_path, slow[0], 0.9)
    board.ended(slow[0], None)
    assert board.seconds_left() == pytest.approx(2 * 10 + 2 * 40)
    board.started(slow[1])
    clock.now = 80.0
    assert board.seconds_left() == pytest.approx(2 * 10 + 40 + 10)
    board.jobs = 2
    assert board.seconds_left() == pytest.approx((2 * 10 + 40 + 10) / 2)


def drawn(rows: list[dict[str, Any]], height: int = 50, left: float | None = 600.0) -> str:
    console = Console(width=100, file=io.StringIO())
    counts = {"done": 1, "running": 1, "failed": 1, "waiting": 1}
    failures = {"acpl-0.05-1": "out of luck"}
    console.print(
        live_table(rows, title="a title", counts=counts, failures=failures, gone=100, left=left, height=height)
    )
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def row(method: str, *states: str) -> dict[str, Any]:
    now = [(30, 100) for state in states if state == "running"]
    return {"fraction": 0.05, "method": method, "states": states, "now": now, "validation": 0.91, "test": 0.9}


def test_a_cell_that_has_hardly_begun_says_nothing_about_the_time(tmp_path: Path, clock: Clock) -> None:
    board = Board([cell("acpl", 0), cell("acpl", 1)], tmp_path, jobs=1)
    board.started(board.cells[0])
    clock.now = 60.0  # most of it to open images
    epoch(tmp_path, board.cells[0], 9)
    assert board.seconds_left() is None
    epoch(tmp_path, board.cells[0], 10)
    assert board.seconds_left() == pytest.approx((600 - 60) + 600)


def test_the_table_says_all_of_it() -> None:
    text = drawn([row("acpl", "done", "failed", "running", "waiting")])
    for part in ("a title", "acpl", "●✗◐○", "30 of 100", "91.00", "90.00", "out of luck", "2 of 4"):
        assert part in text
    assert "1 running · 1 failed · 2 min gone, about 10 min left" in text
    assert "estimating what is left" in drawn([row("acpl", "waiting")], left=None)


def test_what_runs_stays_in_sight_where_the_terminal_is_too_low_for_all() -> None:
    rows = [row(f"method-{number:02d}", "running" if number in (3, 37) else "waiting") for number in range(40)]
    text = drawn(rows, height=24)
    assert len(text.splitlines()) <= 24
    assert "method-03" in text
    assert "method-37" in text
    assert "rows more" in text

"""The phantoms' tables: who is compared with whom."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.conftest import TINY

from acpl.engine.run_folder import RunFolder
from acpl.errors import UserError
from acpl.experiments import phantoms
from acpl.experiments.cells import Cell
from acpl.experiments.phantoms import run_phantoms

SCORES = {"acpl": 0.9, "acpl-low": 0.5, "supervised": 0.6, "supervised-best": 0.8}


def test_supervised_training_gets_acpl_s_steps_with_its_last_and_with_its_best_epoch(tmp_path: Path) -> None:
    said: list[str] = []
    tiny = {name: value for name, value in TINY.items() if name != "k"}  # supervised training has none
    text = run_phantoms(tmp_path, seeds=1, jobs=1, say=said.append, **tiny)
    last, best, low = text.split("|---|---|---|---|---|---|")[1:]
    assert [part.count("phantom-chest | 0") for part in (last, best, low)] == [1, 1, 1]
    assert [part.count("phantom-lesions | 0") for part in (last, best, low)] == [1, 1, 0]
    assert (tmp_path / "table.md").read_text(encoding="utf-8") == text
    for data in ("phantom-chest", "phantom-lesions"):
        acpl, plain, stopped = (
            RunFolder.open(tmp_path / f"{data}-{name}") for name in ("acpl-0", "supervised-0", "supervised-best-0")
        )
        assert plain.events()[-1]["step"] == stopped.events()[-1]["step"] == acpl.events()[-1]["step"]
        assert plain.config().keep == "last"
        assert stopped.config().keep == "best"
        assert plain.config().split_checksum == stopped.config().split_checksum == acpl.config().split_checksum
    said.clear()
    assert run_phantoms(tmp_path, seeds=1, jobs=1, say=said.append, **tiny) == text
    assert said == []  # nothing is run again
    with pytest.raises(UserError, match=r"acpl-0 was trained with other settings \(learning_rate\)"):
        run_phantoms(tmp_path, seeds=1, jobs=1, say=said.append, **{**tiny, "learning_rate": 0.5})


def test_what_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "table.md").write_text("mine")
    with pytest.raises(UserError, match="is of something else"):
        run_phantoms(tmp_path, seeds=1, jobs=1, say=print)
    (tmp_path / "table.md").unlink()
    thesis = tmp_path / "phantom-chest-acpl-0" / "thesis.doc"
    thesis.parent.mkdir()
    thesis.write_text("mine")
    tiny = {name: value for name, value in TINY.items() if name != "k"}
    with pytest.raises(RuntimeError, match="acpl-0 exists"):
        run_phantoms(tmp_path, seeds=1, jobs=1, say=print, **tiny)
    assert thesis.read_text() == "mine"


def test_each_table_has_its_own_baseline_and_each_seed_its_own_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: dict[str, dict[str, Any]] = {}

    def method(cell: str) -> str:
        return cell.removeprefix("phantom-chest-").removeprefix("phantom-lesions-").rsplit("-", 1)[0]

    def run(cells: Sequence[Cell], folder: Path, **_: Any) -> None:
        ran.update({cell.name: cell.settings for cell in cells})

    def evaluation(folder: Path, cell: Cell) -> dict[str, Any]:
        return {"auroc": {"mean": SCORES[method(cell.name)]}, "snapshots": {"warm-up": {"auroc": {"mean": 0.7}}}}

    def compare(baseline: Path, other: Path) -> dict[str, Any]:
        gain = SCORES[method(other.name)] - SCORES[method(baseline.name)]
        return {"auroc": SimpleNamespace(point=gain, low=gain - 0.15, high=gain + 0.15)}

    monkeypatch.setattr(phantoms, "run_cells", run)
    monkeypatch.setattr(phantoms, "gradient_steps", lambda folder, cell: 1000 + cell.settings["seed"])
    monkeypatch.setattr(phantoms, "read_evaluation", evaluation)
    monkeypatch.setattr(phantoms, "compare_runs", compare)
    last, best, low = run_phantoms(tmp_path, seeds=2, jobs=1, say=print).split("|---|---|---|---|---|---|")[1:]

    for data in ("phantom-chest", "phantom-lesions"):
        for seed in (0, 1):
            assert f"| {data} | {seed} | 70.00 | 60.00 | 90.00 | +30.00 [+15.00, +45.00] above |" in last
            assert f"| {data} | {seed} | 70.00 | 80.00 | 90.00 | +10.00 [-5.00, +25.00] unclear |" in best
            for name in ("supervised", "supervised-best"):
                assert ran[f"{data}-{name}-{seed}"]["steps"] == 1000 + seed
    assert "| phantom-chest | 1 | 70.00 | 50.00 | 90.00 | +40.00 [+25.00, +55.00] above |" in low
    assert ran["phantom-chest-acpl-low-1"]["select"] == "low"
    assert "**+30.00; above 0 in 2 of 2**" in last
    assert "**+10.00; above 0 in 0 of 2**" in best

"""What is kept of a run."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from acpl.experiments.cells import Cell
from acpl.experiments.reproduce.keeping import SMALL, SPLIT, compact, copy_kept, is_kept, kept_beside, run_and_keep
from acpl.experiments.reproduce.plan import Arm, Planned


def test_compact_predictions_are_smaller_and_the_same(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    said = random.random((500, 2), dtype=np.float32)
    table = pd.DataFrame({"image": [f"{n:04d}" for n in range(500)], "truth.A": random.integers(0, 2, 500)})
    table["probability.A"], table["probability.B"] = said.astype(float).T
    table["probability.C"] = random.random(500)  # of more digits than float32 has
    table.to_csv(tmp_path / "predictions.csv", index=False)
    (tmp_path / "predictions.csv.gz").write_bytes(compact(tmp_path / "predictions.csv"))
    again = pd.read_csv(tmp_path / "predictions.csv.gz", dtype={"image": str})
    assert np.array_equal(again[["probability.A", "probability.B"]].to_numpy().astype(np.float32), said)
    pd.testing.assert_frame_equal(again.drop(columns=["probability.A", "probability.B"]), table.iloc[:, [0, 1, 4]])
    sizes = [(tmp_path / name).stat().st_size for name in ("predictions.csv.gz", "predictions.csv")]
    assert 2 * sizes[0] < sizes[1]
    written = pd.read_csv(tmp_path / "predictions.csv.gz", dtype=str)
    assert written["probability.A"].str.len().max() <= 13  # nine digits
    assert compact(tmp_path / "predictions.csv")[4:8] == bytes(4)  # no date in it: the same run is the same file


def test_a_run_of_another_table_is_copied_not_run_again(tmp_path: Path) -> None:
    plain, with_stages = (
        Planned(Arm("acpl", "acpl", more=more), 0.2, 0, Cell("acpl-0.2-0-abc", {})) for more in ((), ("stages",))
    )
    other, kept = tmp_path / "table1/runs/acpl-0.2-0-abc", tmp_path / "table2/runs"
    other.mkdir(parents=True)
    for name in (*SMALL, SPLIT):
        (other / name).write_text(name)
    assert kept_beside(plain, kept) == other
    assert kept_beside(with_stages, kept) is None  # its stages are not there
    (other / "stages").mkdir()
    (other / "stages/1.parquet").write_text("rows")
    assert kept_beside(with_stages, kept) == other
    half = kept / other.name
    half.mkdir(parents=True)
    (half / SMALL[0]).write_text("cut off")
    failed = run_and_keep(
        [with_stages], kept, tmp_path / "work", prepare=lambda *_: pytest.fail("ran"), jobs=1, say=pytest.fail
    )
    assert failed == {}
    assert not (tmp_path / "work/acpl-0.2-0-abc").exists()
    assert (half / SMALL[0]).read_text() == SMALL[0]
    assert {file.name for file in half.rglob("*")} == {file.name for file in other.rglob("*")}


def test_a_copy_that_is_cut_off_does_not_look_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    (run / "stages").mkdir(parents=True)
    for name in (*SMALL, SPLIT):
        (run / name).write_text(name)

    def cut_off(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("acpl.experiments.reproduce.keeping.write_whole", cut_off)
    with pytest.raises(KeyboardInterrupt):
        copy_kept(run, tmp_path / "copy")
    assert (tmp_path / "copy" / SPLIT).exists()
    assert not is_kept(tmp_path / "copy")

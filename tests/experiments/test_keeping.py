"""What is kept of a run."""

from pathlib import Path

import numpy as np
import pandas as pd

from acpl.experiments.reproduce.keeping import compact


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

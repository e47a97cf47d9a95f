"""Small runs on noise whose patients are known, and what they left."""

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import acpl
from acpl.engine.monitor import Quiet

TINY: dict[str, Any] = {
    **{"backbone": "small", "weights": "none", "size": 32, "batch_size": 8, "warmup_epochs": 1, "stages": 1},
    **{"stage_epochs": 1, "k": 3, "device": "cpu", "fraction": 0.5, "draw": "images"},
}
ALL_THREE: dict[str, Any] = {"clinical": "site,age", "group_labels": 1.0, "group_answers": 0.5}
SITES = ("back", "face", "hand")


class Listens(Quiet):
    """Keeps what is said; may ask to stop at a step."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.said: list[str] = []
        self.left = stop_at

    def say(self, sentence: str) -> None:
        self.said.append(sentence)

    def step(self, losses: Any) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left == 0:
                signal.raise_signal(signal.SIGTERM)


def train(place: Path, out: Path, data: str = "lesions.csv", monitor: Any = None, **settings: Any) -> Path:
    return acpl.train(out=out, data=str(place / data), monitor=monitor, **{**TINY, **settings})


def weights(run: Path) -> bytes:
    return (run / "model.safetensors").read_bytes()


def card(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "model.json").read_text())
    return found


def auroc(run: Path, part: str = "") -> float:
    return float(json.loads((run / f"evaluation{part}.json").read_text())["auroc"]["mean"])


def events(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]


def probabilities(run: Path, part: str = "") -> pd.DataFrame:
    return pd.read_csv(run / f"predictions{part}.csv").set_index("image").sort_index().filter(like="probability.")


def stage(run: Path) -> pd.DataFrame:
    return pd.read_parquet(run / "stages" / "01.parquet").set_index("id").sort_index()


def answers(table: pd.DataFrame, column: str) -> np.ndarray:
    return table.filter(regex=rf"^{column}\.").to_numpy()

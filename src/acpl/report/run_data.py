"""A run folder as plain data: all that the page is made of."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from acpl.errors import UserError
from acpl.settings import read_yaml

Json = dict[str, Any]
Events = list[Json]


@dataclass(frozen=True)
class RunData:
    """What a run folder holds; what is not there yet is None or empty."""

    path: Path
    config: Json
    card: Json | None
    roles: Mapping[str, int]
    """Images labelled, unlabelled and in the validation part."""
    stages: Events
    epochs: Events
    troubles: list[str]
    """What went wrong in training and was gone on after, one sentence each."""
    joined: Json | None
    """Of several runs as one model: which they were, and how many labels they had."""
    part: str | None
    """The part that ``evaluation`` and ``judged`` speak of: test, or validation where the test part is closed."""
    evaluation: Json | None
    judged: Json | None
    selection: Json | None
    made: Json
    left_out: list[str]
    """What the page does without, for it could not be made or its file is damaged, one sentence each."""

    @property
    def steps(self) -> int:
        """Gradient steps."""
        return int(self.epochs[-1]["step"]) if self.epochs else 0

    @property
    def seconds(self) -> float:
        """From the first stage's begin to the last epoch's end."""
        return float(self.epochs[-1]["seconds"]) if self.epochs else 0.0

    @property
    def task(self) -> str:
        """multi-class or multi-label."""
        for known in (self.evaluation, self.selection, self.card):
            if known:
                return str(known["task"])
        return ""

    @property
    def classes(self) -> list[str]:
        """What is told apart."""
        for known in (self.card, self.selection, self.judged):
            if known:
                return [str(name) for name in known["classes"]]
        return list(self.evaluation["positives"]) if self.evaluation else []


def read_run(run: Path, part: str | None = None) -> RunData:
    """Everything in the folder that the page shows.

    ``part`` says whose figures; without it the test part's where they were made, else validation's.
    """
    events = read_events(run / "events.jsonl")
    parts = ("test", "validation") if part is None else (part,)
    part = next((p for p in parts if (run / f"evaluation{_suffix(p)}.json").exists()), None)
    judged, selection, made, left_out = _gathered(run / "report", part)
    return RunData(
        path=run,
        config=read_yaml(run / "config.yaml"),
        card=_json(run / "model.json"),
        roles=Counter(pd.read_csv(run / "split.csv", usecols=["role"])["role"]),
        stages=[event for event in events if event["event"] == "stage"],
        epochs=[event for event in events if event["event"] == "epoch"],
        troubles=[str(event.get("sentence", "")) for event in events if event["event"] == "trouble"],
        joined=next((event for event in events if event["event"] == "joined"), None),
        part=part,
        evaluation=None if part is None else _json(run / f"evaluation{_suffix(part)}.json"),
        judged=judged,
        selection=(selection or {}).get("found"),
        made=made or {},
        left_out=[
            *(str(event.get("sentence", "")) for event in events if event["event"] == "left_out"),
            *left_out,
            *map(str, (selection or {}).get("left_out", [])),
        ],
    )


def _gathered(folder: Path, part: str | None) -> tuple[Json | None, Json | None, Json | None, list[str]]:
    """What was gathered for the page alone: judged, selection, made; and what is damaged, which it can do without."""
    found: list[Json | None] = []
    left_out: list[str] = []
    for name in (None if part is None else f"judged{_suffix(part)}.json", "selection.json", "made.json"):
        try:
            found.append(None if name is None else _json(folder / name))
        except UserError as reason:
            found.append(None)
            left_out.append(str(reason))
    judged, selection, made = found
    return judged, selection, made, left_out


def read_events(file: Path) -> Events:
    """Every whole line; one that is being written at this moment is left for the next look."""
    if not file.exists():
        return []
    text = file.read_text(encoding="utf-8", errors="replace")
    found = []
    for line in text[: text.rfind("\n") + 1].splitlines():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return [event for event in found if isinstance(event, dict) and "event" in event]


def _json(file: Path) -> Json | None:
    if not file.exists():
        return None
    try:
        found: object = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        raise UserError(f"{file} is damaged: it is not JSON") from None
    if not isinstance(found, dict):
        raise UserError(f"{file} is damaged: it holds no table of names and values")
    return found


def _suffix(part: str) -> str:
    return "" if part == "test" else f"-{part}"

"""Where a run is, kept so that it can go on exactly there."""

import hashlib
import io
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from acpl.engine.writing import told, write_whole
from acpl.functional.group import ALONE, Group

KEPT = 2
_MARK = b"acpl checkpoint 1\n"


@dataclass
class Place:
    """How far a run has come."""

    stage: int = 0
    inside: bool = False
    """Whether the stage has been entered: its samples are selected."""
    epoch: int = 0
    """Epochs of the stage that are over."""
    done: int = 0
    """Steps of those epochs."""
    step: int = 0
    """Steps of the epoch that runs."""
    steps: int = 0
    """Of the whole run, as are the next two."""
    images: int = 0
    seconds: float = 0.0
    score: float = math.nan
    """The last look at validation in this stage."""
    best_score: float = -math.inf
    summary: dict[str, float] = field(default_factory=dict)
    """What the stage's line shows."""
    totals: dict[str, float] = field(default_factory=dict)
    """Sums of the losses of a running epoch; empty at its start."""
    random: dict[str, Tensor] | None = None
    """States of the random generators within an epoch; None at its start, where all follow from the seed."""

    @property
    def fresh(self) -> bool:
        """Whether the stage has not taken a step yet."""
        return self.done == 0 and self.step == 0

    def enter(self, summary: Mapping[str, float]) -> None:
        """A stage begins."""
        self.inside, self.summary, self.score = True, dict(summary), math.nan

    def next_epoch(self, steps: int) -> None:
        """An epoch of so many steps is over."""
        self.epoch, self.done, self.step = self.epoch + 1, self.done + steps, 0
        self.totals, self.random = {}, None

    def leave(self) -> None:
        """The stage is over."""
        self.stage, self.inside, self.epoch, self.done = self.stage + 1, False, 0, 0

    def remember(self, totals: Mapping[str, float], generator: torch.Generator, group: Group = ALONE) -> None:
        """Stop within an epoch; the processes' own random states go side by side."""
        self.totals = dict(totals)
        own = {"global": torch.get_rng_state()}
        if generator.device.type == "cuda":
            own["device"] = torch.cuda.get_rng_state(generator.device)
        if group.size > 1:
            own = {name: group.gather(state[None]) for name, state in own.items()}
        self.random = {**own, generator.device.type: generator.get_state()}

    def set_random(self, generator: torch.Generator, rank: int = 0, size: int = 1) -> None:
        """Go on within an epoch: what all share as it was, a process's own where as many of them go on."""
        if self.random is None:
            return
        if generator.device.type in self.random:  # on another kind of device the rest of the epoch is drawn anew
            generator.set_state(self.random[generator.device.type])
        states = {
            n: self.random[n].view(-1, self.random[n].shape[-1]) for n in ("global", "device") if n in self.random
        }
        if len(states["global"]) != size and rank > 0:
            return  # it has a seed of its own
        torch.set_rng_state(states["global"][rank])
        if "device" in states and generator.device.type == "cuda":
            torch.cuda.set_rng_state(states["device"][rank], generator.device)

    def state_dict(self, seconds: float) -> dict[str, Any]:
        """Everything; ``seconds`` is how long the run has trained in all."""
        return {**vars(self), "seconds": seconds}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` gave."""
        for name, value in state.items():
            setattr(self, name, value)


class Checkpoints:
    """``checkpoints/STEPS.pt`` of a run: each whole or not there, the last two kept."""

    def __init__(self, folder: Path, minutes: float) -> None:
        self.folder = folder
        self._seconds = 60 * minutes
        self._written = time.monotonic()

    def due(self) -> bool:
        """Whether the last one is old enough for another within a stage."""
        return time.monotonic() - self._written >= self._seconds

    def write(self, state: Mapping[str, Any], steps: int) -> None:
        """Written beside, synced and renamed; then those before the last two go."""
        buffer = io.BytesIO()
        torch.save(dict(state), buffer)  # plain tensors, numbers and names: read back without running code
        payload = buffer.getvalue()
        target = self.folder / f"{steps:08d}.pt"
        with told(target):
            self.folder.mkdir(exist_ok=True)
        write_whole(target, _MARK + hashlib.sha256(payload).digest() + payload)
        for old in self._files()[:-KEPT]:
            old.unlink(missing_ok=True)
        self._written = time.monotonic()

    def newest(self) -> Path | None:
        """The newest file, whole or not."""
        files = self._files()
        return files[-1] if files else None

    def read(self) -> tuple[dict[str, Any] | None, list[Path]]:
        """The newest whole checkpoint's state, and the broken ones that were passed over; leftovers of a crash go."""
        for leftover in self.folder.glob("*.part"):
            leftover.unlink(missing_ok=True)
        broken: list[Path] = []
        for file in reversed(self._files()):
            state = _read(file)
            if state is not None:
                return state, broken
            broken.append(file)
            file.rename(file.with_suffix(".broken"))  # so that it is not taken for one of the two that are kept
        return None, broken

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("*.pt"))


def _read(file: Path) -> dict[str, Any] | None:
    content = file.read_bytes()
    head = len(_MARK) + hashlib.sha256().digest_size
    payload = content[head:]
    if content[:head] != _MARK + hashlib.sha256(payload).digest():
        return None
    # The generators' states must lie on the CPU; optimiser and networks move what they take to their own device.
    state: dict[str, Any] = torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
    return state

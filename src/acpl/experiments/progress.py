"""How far the cells of a table are, from their folders: for people who watch."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from acpl.experiments.cells import Cell, is_done, read_evaluation

_TAIL = 8192
"""Bytes of a cell's events that surely hold its last epoch."""
_TELLING = 0.1
"""Share of its steps from which on a running cell says how long they take: before that it mostly prepared."""


class Board:
    """Which cells wait, run, are done or have failed, and how long the rest may take."""

    def __init__(self, cells: Sequence[Cell], folder: Path, jobs: int) -> None:
        self.cells = list(cells)
        self.folder = folder
        self.jobs = jobs
        self.failed: dict[str, str] = {}
        self._begun = time.monotonic()
        self._running: dict[str, float] = {}
        self._took: dict[str, float] = {}
        self._figures: dict[str, tuple[float | None, float | None]] = {}
        for cell in self.cells:
            if is_done(folder, cell):
                self._finish(cell)

    def started(self, cell: Cell) -> None:
        """A cell runs from now on."""
        self._running[cell.name] = time.monotonic()

    def ended(self, cell: Cell, reason: str | None) -> None:
        """A cell is done, or failed for this reason."""
        since = self._running.pop(cell.name, None)
        if reason is not None:
            self.failed[cell.name] = reason
            return
        self._finish(cell)
        if since is not None:
            self._took[cell.name] = time.monotonic() - since

    def counts(self) -> dict[str, int]:
        """Cells that are done, running, failed and waiting."""
        done, running, failed = len(self._figures), len(self._running), len(self.failed)
        return {
            "done": done,
            "running": running,
            "failed": failed,
            "waiting": len(self.cells) - done - running - failed,
        }

    def seconds_gone(self) -> float:
        """Since this board was made."""
        return time.monotonic() - self._begun

    def seconds_left(self) -> float | None:
        """What the running and waiting cells will take; None while nothing is known.

        A cell takes what the finished ones of its method took a step; where there is none, what all took.
        """
        known = self._paces()
        if not known:
            return None
        usual = sum(known.values()) / len(known)
        running, waiting = [], 0.0
        for cell in self.cells:
            if cell.name in self._figures or cell.name in self.failed:
                continue
            whole = known.get(_method(cell), usual) * _budget(cell)
            since = self._running.get(cell.name)
            if since is None:
                waiting += whole
            else:
                running.append(max(0.0, whole - (time.monotonic() - since)))
        return max([(sum(running) + waiting) / self.jobs, *running], default=0.0)

    def rows(self) -> list[dict[str, Any]]:
        """A method at a fraction each, in the cells' order; figures are means over its finished cells."""
        places: dict[tuple[float, str], list[Cell]] = {}
        for cell in self.cells:
            places.setdefault((cell.settings.get("fraction", 1.0), _method(cell)), []).append(cell)
        return [
            {
                "fraction": fraction,
                "method": method,
                "states": [self._state(cell) for cell in own],
                "now": [(self._steps(c), c.settings.get("steps")) for c in own if self._state(c) == "running"],
                "validation": _mean([self._figures[c.name][0] for c in own if c.name in self._figures]),
                "test": _mean([self._figures[c.name][1] for c in own if c.name in self._figures]),
            }
            for (fraction, method), own in places.items()
        ]

    def _state(self, cell: Cell) -> str:
        if cell.name in self._figures:
            return "done"
        if cell.name in self.failed:
            return "failed"
        return "running" if cell.name in self._running else "waiting"

    def _finish(self, cell: Cell) -> None:
        figure = read_evaluation(self.folder, cell)["auroc"]["mean"]
        if cell.part == "validation":
            self._figures[cell.name] = (figure, None)
        else:
            self._figures[cell.name] = (self._last_epoch(cell).get("validation_auroc"), figure)

    def _paces(self) -> dict[str, float]:
        """Seconds a step by method, from what finished here or, before that, from what runs."""
        found: dict[str, list[float]] = {}
        for cell in self.cells:
            if cell.name in self._took:
                found.setdefault(_method(cell), []).append(self._took[cell.name] / _budget(cell))
            elif cell.name in self._running and (steps := self._steps(cell)) >= _budget(cell) * _TELLING:
                gone = time.monotonic() - self._running[cell.name]
                found.setdefault(_method(cell), []).append(gone / steps)
        return {method: sum(paces) / len(paces) for method, paces in found.items()}

    def _steps(self, cell: Cell) -> int:
        return int(self._last_epoch(cell).get("step", 0))

    def _last_epoch(self, cell: Cell) -> dict[str, Any]:
        """The last epoch that a cell's events tell of; empty before the first."""
        try:
            with (self.folder / cell.name / "events.jsonl").open("rb") as file:
                file.seek(0, 2)
                file.seek(max(0, file.tell() - _TAIL))
                lines = file.read().decode(errors="replace").splitlines()
        except OSError:
            return {}
        for line in reversed(lines):
            try:
                event: dict[str, Any] = json.loads(line)
            except ValueError:  # cut by the start of the tail, or being written
                continue
            if isinstance(event, dict) and event.get("event") == "epoch":
                return event
        return {}


def _method(cell: Cell) -> str:
    return str(cell.settings.get("method", "acpl"))


def _budget(cell: Cell) -> int:
    return int(cell.settings.get("steps") or 1)


def _mean(values: Sequence[float | None]) -> float | None:
    defined = [value for value in values if value is not None and value == value]
    return sum(defined) / len(defined) if defined else None

"""What a build has decoded so far, so that one that is killed need not begin again."""

import json
import os
import time
from pathlib import Path

from acpl.data.decode_job import Outcome

NAME = "decoded.jsonl"
KEPT_EVERY = 10.0
"""Seconds: what is lost at most when a build is killed. Pixels are synced each time, which takes a while."""


class Journal:
    """A line for each image that is done, written only once its pixels are on the disk."""

    def __init__(self, folder: Path, images: Path) -> None:
        self._file = folder / NAME
        self._images = images
        self._new: list[str] = []
        self._kept = time.monotonic()

    def read(self) -> dict[int, Outcome]:
        """What an earlier build was done with, by row; a line that was cut off ends it."""
        known: dict[int, Outcome] = {}
        try:
            lines = self._file.read_text(encoding="utf-8").splitlines()
            for row, digest, reason in map(json.loads, lines):
                known[int(row)] = Outcome(digest, reason)
        except (OSError, ValueError, TypeError):
            pass
        return known

    def note(self, row: int, outcome: Outcome) -> None:
        """One more; what no process got to read is not done."""
        if outcome.digest is not None:
            self._new.append(json.dumps([row, *outcome]))

    def keep_now_and_then(self) -> None:
        """Write down what is new if that was long ago."""
        if time.monotonic() - self._kept >= KEPT_EVERY:
            self.keep()

    def keep(self) -> None:
        """Write down what is new."""
        new, self._new = self._new, []
        if new:
            _sync(self._images)
            with self._file.open("a", encoding="utf-8") as file:
                file.write("".join(f"{line}\n" for line in new))
                file.flush()
                os.fsync(file.fileno())
        self._kept = time.monotonic()

    def forget(self) -> None:
        """From here on the images lie elsewhere than it says."""
        self._new = []
        self._file.unlink(missing_ok=True)
        _sync(self._file.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

"""Being asked to stop: a checkpoint is written, and the user is told how to go on."""

import shlex
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from acpl.errors import UserError

ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, a scheduler, and a terminal that was closed."""


class Stopped(UserError):  # noqa: N818 — no mistake of anybody
    """A run that was asked to stop and can go on; ``when`` says at which point."""

    def __init__(self, folder: Path, when: str) -> None:
        super().__init__(f"stopped {when}: acpl train --resume {shlex.quote(str(folder))}")


class Stop:
    """Whether somebody has asked."""

    def __init__(self) -> None:
        self.asked = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Ctrl-C, SIGTERM and SIGHUP ask to stop at the next step; a second Ctrl-C does not wait."""
        with answered_by(self._ask):
            yield

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.asked = True


@contextmanager
def stopped_at_once(folder: Path) -> Iterator[None]:
    """What no step waits for, such as decoding, is broken off where somebody asks; the user is told how to go on."""
    try:
        with answered_by(signal.default_int_handler):
            yield
    except KeyboardInterrupt:
        kept = any((folder / "checkpoints").glob("*.pt"))
        when = (
            "at once; go on from the last checkpoint with" if kept else "before the first checkpoint; begin anew with"
        )
        raise Stopped(folder, when) from None


@contextmanager
def answered_by(handler: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    """The signals that ask to stop come to ``handler``; a closed terminal's only where nobody has said nohup."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread is told of signals
        return
    before: dict[int, Any] = {number: signal.getsignal(number) for number in ASKING}
    if before[signal.SIGHUP] is signal.SIG_IGN:
        del before[signal.SIGHUP]
    for number in before:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, signal.SIG_DFL if former is None else former)  # None: it was not set by Python

"""Being asked to stop: a checkpoint is written, and the user is told how to go on."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from acpl.errors import UserError


class Stopped(UserError):  # noqa: N818 — no mistake of anybody
    """A run that was asked to stop and can go on."""

    def __init__(self, folder: Path, steps: int) -> None:
        super().__init__(f"stopped at step {steps}, nothing is lost; go on with: acpl train --resume {folder}")


class Stop:
    """Whether somebody has asked."""

    def __init__(self) -> None:
        self.asked = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM ask to stop at the next step; a second Ctrl-C does not wait."""
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread is told of signals
            return
        before: dict[int, Any] = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        for number in before:
            signal.signal(number, self._ask)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.asked = True

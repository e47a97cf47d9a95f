"""An eye on the other processes of a run, so that none waits for one that is gone."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

_EVERY = 0.5  # seconds between two looks
NOTICE = 20.0
"""Seconds in which a process should notice by itself that another is gone, before it is ended."""


class Watch:
    """Ends this process where it would wait without end for another that is gone.

    Mostly it has nothing to do: a connection that breaks is noticed in the exchange that uses it. A GPU's exchange,
    or one with a process that still starts, can hang instead.
    """

    def __init__(self, rank: int, size: int, children: Sequence["subprocess.Popen[bytes]"] = ()) -> None:
        self.over = threading.Event()
        """The run is: whatever happens to the others now is no trouble."""
        self.group: Any = None
        """The GPUs' process group, which is told to give up first."""
        self._rank, self._size = rank, size
        self._children = children
        self._parent = os.getppid()
        self._thread = threading.Thread(target=self._look, name="acpl-watch", daemon=True)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self._thread.join(2 * _EVERY)

    def ended(self, seconds: float) -> str | None:
        """Which process of ours ended badly, in words, if one does within so many seconds."""
        until = time.monotonic() + seconds
        while self._children:
            for number, child in enumerate(self._children, start=1):
                if child.poll() not in (None, 0, 2):  # 2: it has said why
                    return f"process {self._rank + number} of {self._size} {how_it_ended(child.returncode)}"
            if time.monotonic() > until:
                return None
            time.sleep(_EVERY / 5)
        return None

    def _look(self) -> None:
        while not self.over.wait(_EVERY):
            lost = self._lost()
            if lost is None:
                continue
            if self.over.wait(NOTICE):
                return
            if self.group is not None:
                with suppress(Exception):
                    self.group.abort()
                if self.over.wait(NOTICE):
                    return
            sys.stderr.write(f"acpl: {lost}; this process waited for it in vain and ends, too\n")
            sys.stderr.flush()
            for child in self._children:
                child.kill()
            os._exit(2)

    def _lost(self) -> str | None:
        for number, child in enumerate(self._children, start=1):
            if child.poll() not in (None, 0):
                return f"process {self._rank + number} of {self._size} {how_it_ended(child.returncode)}"
        if os.getppid() != self._parent:
            return "the process that started this one is gone"
        return None


def how_it_ended(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"ended with exit code {code}"
    with suppress(ValueError):
        return f"was ended by signal {-code} ({signal.Signals(-code).name})"
    return f"was ended by signal {-code}"

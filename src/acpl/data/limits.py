"""What one file may cost the process that reads it: so much time, so much memory, and no more.

A codec can hang, or ask for all the memory there is, over a few hundred bytes that were made for it. Within these
limits the file is named and the rest goes on; what is wanted beyond them is the user's to say, in the environment.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from acpl.errors import UserError

SECONDS, GIGABYTES = 120.0, 4.0
SECONDS_VARIABLE, GIGABYTES_VARIABLE = "ACPL_FILE_SECONDS", "ACPL_FILE_GB"
GIGABYTE = 10**9


class Limits(NamedTuple):
    """What one file may take."""

    seconds: float = SECONDS
    """From the first byte read to the last pixel, on the clock."""
    gigabytes: float = GIGABYTES
    """Beyond what the process holds before its first file."""

    @classmethod
    def chosen(cls) -> "Limits":
        """The usual ones, or what $ACPL_FILE_SECONDS and $ACPL_FILE_GB say."""
        return cls(_number(SECONDS_VARIABLE, SECONDS), _number(GIGABYTES_VARIABLE, GIGABYTES))

    @property
    def too_slow(self) -> str:
        """What is said of a file that ran out of time."""
        return f"it could not be read within {self.seconds:g} seconds ({SECONDS_VARIABLE} allows more)"

    @property
    def too_large(self) -> str:
        """What is said of a file that ran out of memory."""
        return f"it needs more memory than the {self.gigabytes:g} GB that a file may take ({GIGABYTES_VARIABLE})"

    def bound_memory(self) -> None:
        """From here on this process gets no more memory than that; a no-op where the system knows no such limit."""
        with suppress(ImportError, OSError, ValueError):
            import resource

            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
            wanted = pages * resource.getpagesize() + int(self.gigabytes * GIGABYTE)
            _, hard = resource.getrlimit(resource.RLIMIT_AS)
            allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_AS, (allowed, hard))

    @contextmanager
    def bound_time(self) -> Iterator[None]:
        """What runs within is ended with its whole process when the time is over, even in the midst of a codec."""
        if not hasattr(signal, "setitimer"):
            yield
            return
        signal.setitimer(signal.ITIMER_REAL, self.seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def reason(self, exit_code: int | None, otherwise: str) -> str:
        """Why a process over a file ended as it did."""
        ran_out = hasattr(signal, "SIGALRM") and exit_code == -signal.SIGALRM
        return self.too_slow if ran_out else otherwise


def _number(variable: str, usual: float) -> float:
    given = os.environ.get(variable, "").strip()
    if not given:
        return usual
    try:
        number = float(given)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e9:
        raise UserError(f"{variable} should be a number above 0, but it is '{given[:40]}'")
    return number

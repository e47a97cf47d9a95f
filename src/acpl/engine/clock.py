"""Where the time of a run goes."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


class Clock:
    """Seconds by part of the work; a part that is entered again adds up."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._running: dict[str, float] = {}

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        """Time what is done within, under this name."""
        self._running[part] = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[part] = self._so_far(part)
            del self._running[part]

    def add(self, parts: Mapping[str, float]) -> None:
        """What an earlier process spent on the same run."""
        for part, seconds in parts.items():
            self._seconds[part] = self._seconds.get(part, 0.0) + seconds

    def parts(self) -> dict[str, float]:
        """Each part's seconds so far, in the order in which they were first entered; those that run now included."""
        return {part: round(self._so_far(part), 3) for part in {**self._seconds, **self._running}}

    def _so_far(self, part: str) -> float:
        started = self._running.get(part)
        return self._seconds.get(part, 0.0) + (0.0 if started is None else time.perf_counter() - started)

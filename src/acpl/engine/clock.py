"""Where the time of a run goes."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


class Clock:
    """Seconds by part of the work; a part that is entered again adds up."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        """Time what is done within, under this name."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[part] = self._seconds.get(part, 0.0) + time.perf_counter() - started

    def add(self, parts: Mapping[str, float]) -> None:
        """What an earlier process spent on the same run."""
        for part, seconds in parts.items():
            self._seconds[part] = self._seconds.get(part, 0.0) + seconds

    def parts(self) -> dict[str, float]:
        """Each part's seconds so far, in the order in which they were first entered."""
        return {part: round(seconds, 3) for part, seconds in self._seconds.items()}

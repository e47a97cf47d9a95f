"""What the product makes of a file: each is read by the same processes, under the same limits, as a user's are."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from acpl.data.check.scan import Looking
from acpl.data.decode import Decoding
from acpl.data.decode_job import GreyJob, PixelJob
from acpl.data.files import ImageFiles
from acpl.data.limits import Limits
from acpl.data.workers import CRASHED, DIED, _Worker

NAME = "probe.png"
"""By content, not by name, is it found out what a file is; and a name has to end in something."""


class Answer(NamedTuple):
    """What became of one file in one of the three ways in which files are read."""

    reason: str
    """Why it was refused; blank where it was decoded."""
    died: bool
    """Whether it took its process with it."""
    seconds: float
    memory: int
    """Bytes that its process has held at most so far."""


class Probe:
    """Reads files one after the other in processes that are started anew only when one has died."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / NAME
        self.file.touch()
        files = ImageFiles.open(folder)
        self.jobs: tuple[Any, ...] = (
            PixelJob([files], [NAME], Decoding(8, 1, "crop")),
            Looking(files, [NAME]),
            GreyJob(files, [NAME]),
        )
        self.limits = Limits.chosen()
        self.workers: dict[int, _Worker[Any]] = {}

    def __call__(self, content: bytes, ways: int = 3) -> list[Answer]:
        """An answer from each way of reading: to pixels, for a check of the data, for its colour."""
        self.file.write_bytes(content)
        return [self._ask(way) for way in range(ways)]

    def close(self) -> None:
        """Let the processes go."""
        while self.workers:
            self.workers.popitem()[1].end()

    def _ask(self, way: int) -> Answer:
        if way not in self.workers:
            worker = _Worker(self.jobs[way])
            worker.brief()
            self.workers[way] = worker
        worker, start = self.workers[way], time.perf_counter()
        memory = _peak(worker.process.pid)
        try:
            result = worker.ask([range(1)])
        except DIED:
            reason = self.limits.reason(self.workers.pop(way).end(), CRASHED)
            return Answer(reason, True, time.perf_counter() - start, memory)
        return Answer(_reason(result), False, time.perf_counter() - start, _peak(worker.process.pid))


@contextmanager
def probing(folder: Path) -> Iterator[Probe]:
    """A probe whose processes end with the block."""
    probe = Probe(folder)
    try:
        yield probe
    finally:
        probe.close()


def _reason(result: object) -> str:
    if isinstance(result, str):
        return result
    if result is None:
        return "it has no colour"
    return str(getattr(result, "reason", ""))


def _peak(process: int) -> int:
    """The most memory that a process has held, in bytes; 0 where the system does not tell."""
    try:
        status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    except OSError:
        return 0
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM")) if "VmHWM" in status else ("_ 0",)
    return 1024 * int(line.split()[1])

"""Work on many images in several processes: decoding them for the store, looking at them for a check.

The processes are started as programs of their own rather than by ``multiprocessing``: a caller's script is not run
again in each of them, so it needs no ``if __name__ == "__main__"`` and none of them imports torch; threads of the
caller are not forked; and when the caller is killed they read the end of their input and stop. No image is decoded in
the caller's own process, however few there are: a codec that crashes, hangs or asks for all memory takes down a worker
(limits.py) and its file is named.
"""

import os
import pickle
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import nullcontext, suppress
from typing import IO, Generic, Protocol, TypeVar, runtime_checkable

from acpl.data.limits import Limits

CHUNK = 64
AHEAD = 2
DIED = (EOFError, BrokenPipeError, pickle.UnpicklingError)
CRASHED = "it crashed the process that decoded it"
Progress = Callable[[str, int, int], None]
"""Told what is being done, how many images are done, and of how many."""
Result = TypeVar("Result")
Heard = Callable[[int, Result], None]
"""Told of each image, by its place in ``names``, and its result; from any thread, one at a time."""
Rows = deque[int]
START = "import sys; sys.path[:] = sys.argv[1:]; from acpl.data.workers import serve; serve()"


class Job(Protocol[Result]):
    """Something to be done for each of ``names``; it is pickled once for each process."""

    @property
    def names(self) -> Sequence[str]:
        """The images, by stored name."""
        ...

    def do(self, rows: range) -> list[Result]:
        """The result for each of these images, by their places in ``names``."""
        ...

    def failed(self, reason: str) -> Result:
        """The result for an image that ended the process that worked on it, or ran out of its limits."""
        ...


def nothing(what: str, done: int, total: int) -> None:
    """Report no progress."""


@runtime_checkable
class TriedAgain(Protocol):
    """A job whose rows are many images each: it bounds the time of each, and knows the one that a process died over."""

    def again(self, row: int, reason: str) -> bool:
        """Whether the image is known and has been blamed, so that the rest of the row is to be done."""
        ...


def do_all(
    job: Job[Result],
    what: str,
    *,
    rows: Sequence[int] | None = None,
    workers: int | None = None,
    progress: Progress = nothing,
    heard: "Heard[Result] | None" = None,
    chunk: int = CHUNK,
) -> list[Result]:
    """The result of every image, or of those at ``rows`` in their order; from as many processes as there are cores, or
    fewer where there are few images. A process is handed ``chunk`` of them at a time."""
    rows = range(len(job.names)) if rows is None else rows
    total = len(rows)
    if total == 0:
        progress(what, 0, 0)
        return []
    if workers is None:
        workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return _Crew(job, rows, min(workers, -(-total // chunk)), heard, chunk).run(what, progress)


def serve() -> None:
    """What a worker process does: read a job, then rows to work on until its input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the caller's to answer, who then ends the input
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not be taken for an answer
    requests = sys.stdin.buffer
    job = pickle.load(requests)  # pickles come through pipes from the process that started this one  # nosec B301
    limits = Limits.chosen()
    limits.bound_memory()
    _send(answers, "ready")
    while True:
        try:
            rows = pickle.load(requests)  # nosec B301
        except EOFError:
            return
        for row in rows:  # answered one by one: a process that dies takes no finished work with it
            try:
                _send(answers, _bounded(job, row, limits))
            except OSError as error:
                _send(answers, error)


def _bounded(job: Job[Result], row: int, limits: Limits) -> Result:
    """One image's result; out of memory is its own fault, and out of time the end of this process."""
    with nullcontext() if isinstance(job, TriedAgain) else limits.bound_time():
        try:
            return job.do(range(row, row + 1))[0]
        except MemoryError:
            return job.failed(limits.too_large)


class _Crew(Generic[Result]):
    """One thread for each worker process, that hands it rows and takes its answers."""

    def __init__(
        self, job: Job[Result], rows: Sequence[int], workers: int, heard: "Heard[Result] | None", chunk: int
    ) -> None:
        self.job = job
        self.rows = rows
        self.workers = workers
        self.heard = heard
        self.ahead = AHEAD if chunk > 1 else 1  # what takes long is not to wait behind another
        self.limits = Limits.chosen()
        self.results: dict[int, Result] = {}
        self.suspects: set[int] = set()
        self.waiting: queue.SimpleQueue[Rows] = queue.SimpleQueue()
        for start in range(0, len(rows), chunk):
            self.waiting.put(deque(rows[start : start + chunk]))
        self.lock = threading.Lock()
        self.running: set[_Worker[Result]] = set()
        self.stopped = False

    def run(self, what: str, progress: Progress) -> list[Result]:
        with ThreadPoolExecutor(self.workers) as threads:
            pending = {threads.submit(self._work) for _ in range(self.workers)}
            try:
                while pending:
                    finished, pending = wait(pending, timeout=0.1, return_when=FIRST_EXCEPTION)
                    progress(what, len(self.results), len(self.rows))
                    for future in finished:
                        future.result()
            finally:
                self._stop()
        return [self.results[row] for row in self.rows]

    def _work(self) -> None:
        worker = None
        asked: deque[Rows] = deque()
        try:
            while not self.stopped:
                self._take(asked)
                if not asked:
                    return
                worker = worker or self._hire()
                try:
                    result = worker.ask(asked)
                except DIED:
                    code = self._dismiss(worker)
                    worker = None
                    if not self.stopped:  # else it was ended with all others, and no image is to blame
                        self._blame(_next(asked), code)
                else:
                    self._note(_next(asked), result)
        finally:
            if worker is not None:
                self._dismiss(worker)

    def _take(self, asked: deque[Rows]) -> None:
        """Rows enough that the process finds the next ones waiting when it has done the first."""
        with suppress(queue.Empty):
            while len(asked) < self.ahead:
                asked.append(self.waiting.get_nowait())

    def _blame(self, row: int, code: int) -> None:
        """A worker died over this row: it is bad if it was too slow, or killed another before; else it is tried again,
        for what the row before it has broken, or the system was short of, is not its fault."""
        reason = self.limits.reason(code, CRASHED)
        if isinstance(self.job, TriedAgain):
            if self.job.again(row, reason):
                self.waiting.put(deque([row]))
            else:
                self._note(row, self.job.failed(reason))
        elif reason == CRASHED and row not in self.suspects:
            self.suspects.add(row)
            self.waiting.put(deque([row]))
        else:
            self._note(row, self.job.failed(reason))

    def _note(self, row: int, result: Result) -> None:
        with self.lock:
            self.results[row] = result
            if self.heard is not None:
                self.heard(row, result)

    def _hire(self) -> "_Worker[Result]":
        worker = _Worker(self.job)
        with self.lock:
            self.running.add(worker)
            if self.stopped:
                worker.kill()
        worker.brief()
        return worker

    def _dismiss(self, worker: "_Worker[Result]") -> int:
        with self.lock:
            self.running.discard(worker)
        return worker.end()

    def _stop(self) -> None:
        with self.lock:
            self.stopped = True
            for worker in self.running:
                worker.kill()


class _Worker(Generic[Result]):
    def __init__(self, job: Job[Result]) -> None:
        self.job = job
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 — open as long as the process runs
        self.process = subprocess.Popen(  # Python itself, with arguments of our own  # nosec B603
            [sys.executable, "-c", START, *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},  # a process is a core's worth
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.requests, self.answers = self.process.stdin, self.process.stdout
        self.sent = 0

    def brief(self) -> None:
        """Give it the job; wait until it is ready."""
        try:
            _send(self.requests, self.job)
            pickle.load(self.answers)  # nosec B301
        except DIED:
            self.process.wait()
            self.log.seek(0)
            words = self.log.read().decode(errors="replace").strip()
            self.end()
            raise RuntimeError(f"a process that reads images did not start: {words}") from None

    def ask(self, asked: Sequence[Sequence[int]]) -> Result:
        """What became of the first of these rows; one of ``DIED`` when the process has died over it."""
        while self.sent < len(asked):
            _send(self.requests, list(asked[self.sent]))
            self.sent += 1
        answer: Result | OSError = pickle.load(self.answers)  # nosec B301
        if len(asked[0]) == 1:
            self.sent -= 1
        if isinstance(answer, OSError):
            raise answer
        return answer

    def kill(self) -> None:
        self.process.kill()

    def end(self) -> int:
        """Let it go; its exit code."""
        with suppress(BrokenPipeError):
            self.requests.close()
        self.answers.close()
        code = self.process.wait()
        self.log.close()
        return code


def _next(asked: deque[Rows]) -> int:
    """Take the first row away, and with the last of its chunk the chunk."""
    row = asked[0].popleft()
    if not asked[0]:
        asked.popleft()
    return row


def _send(pipe: IO[bytes], message: object) -> None:
    pickle.dump(message, pipe)
    pipe.flush()

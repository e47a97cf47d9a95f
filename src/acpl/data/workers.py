"""Decoding in several processes, each of which writes its images straight into the store's file.

The processes are started as programs of their own rather than by ``multiprocessing``: a caller's script is not run
again in each of them, so it needs no ``if __name__ == "__main__"`` and none of them imports torch; threads of the
caller are not forked; and when the caller is killed they read the end of their input and stop.
"""

import hashlib
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
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

from acpl.data.decode import Decoding, decode
from acpl.data.files import BadImage, ImageFiles

CHUNK = 64
AHEAD = 2
DIED = (EOFError, BrokenPipeError, pickle.UnpicklingError)
FEW = 24
"""So many images are decoded sooner than processes are started."""
Progress = Callable[[str, int, int], None]
START = "import sys; sys.path[:] = sys.argv[1:]; from acpl.data.workers import serve; serve()"


class Job(NamedTuple):
    """Image number i of ``names`` becomes row i of the file ``target``."""

    files: ImageFiles
    names: Sequence[str]
    how: Decoding
    target: Path


class Outcome(NamedTuple):
    """What became of one image: the digest of the file's content if it could be read, a reason if it is bad."""

    digest: str | None
    reason: str | None


def decode_all(job: Job, *, workers: int | None, progress: Progress) -> list[Outcome]:
    """Every image decoded and written; in this process where there are few, else in as many as there are cores."""
    total = len(job.names)
    if workers is None:
        workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if total <= FEW:
        with job.target.open("r+b", buffering=0) as file:
            outcomes = decode_rows(job, range(total), file)
        progress("decoding", total, total)
        return outcomes
    return _Crew(job, min(workers, -(-total // CHUNK))).run(progress)


def decode_rows(job: Job, rows: range, file: IO[bytes]) -> list[Outcome]:
    """These rows decoded and written to the open target."""
    outcomes = []
    bytes_each = job.how.channels * job.how.size**2
    for row in rows:
        digest = None
        try:
            content = job.files.read(job.names[row])
            digest = hashlib.blake2b(content, digest_size=16).hexdigest()
            pixels = decode(content, job.how)
        except BadImage as bad:
            outcomes.append(Outcome(digest, str(bad)))
            continue
        file.seek(row * bytes_each)
        file.write(pixels.data)
        outcomes.append(Outcome(digest, None))
    return outcomes


def serve() -> None:
    """What a worker process does: read a job, then rows to decode until its input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the caller's to answer, who then ends the input
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not be taken for an answer
    requests = sys.stdin.buffer
    job = pickle.load(requests)
    _send(answers, "ready")
    with job.target.open("r+b", buffering=0) as file:
        while True:
            try:
                rows = pickle.load(requests)
            except EOFError:
                return
            try:
                _send(answers, decode_rows(job, rows, file))
            except OSError as error:
                _send(answers, error)


class _Crew:
    """One thread for each worker process, that hands it rows and takes its answers."""

    def __init__(self, job: Job, workers: int) -> None:
        self.job = job
        self.workers = workers
        self.outcomes: list[Outcome | None] = [None] * len(job.names)
        self.waiting: queue.SimpleQueue[range] = queue.SimpleQueue()
        for start in range(0, len(job.names), CHUNK):
            self.waiting.put(range(start, min(start + CHUNK, len(job.names))))
        self.done = 0
        self.lock = threading.Lock()
        self.running: set[_Worker] = set()
        self.stopped = False

    def run(self, progress: Progress) -> list[Outcome]:
        total = len(self.job.names)
        with ThreadPoolExecutor(self.workers) as threads:
            pending = {threads.submit(self._work) for _ in range(self.workers)}
            try:
                while pending:
                    finished, pending = wait(pending, timeout=0.1, return_when=FIRST_EXCEPTION)
                    progress("decoding", self.done, total)
                    for future in finished:
                        future.result()
            finally:
                self._stop()
        return [outcome for outcome in self.outcomes if outcome is not None]

    def _work(self) -> None:
        worker = None
        asked: deque[range] = deque()
        try:
            while not self.stopped:
                self._take(asked)
                if not asked:
                    return
                worker = worker or self._hire()
                try:
                    self._note(asked[0], worker.decode(asked))
                    asked.popleft()
                except DIED:
                    self._dismiss(worker)
                    worker = None
                    self._blame(asked)
        finally:
            if worker is not None:
                self._dismiss(worker)

    def _take(self, asked: deque[range]) -> None:
        """Rows enough that the process finds the next ones waiting when it has done the first."""
        with suppress(queue.Empty):
            while len(asked) < AHEAD:
                asked.append(self.waiting.get_nowait())

    def _blame(self, asked: deque[range]) -> None:
        """A worker died over the first of these: each row is tried alone, and one that kills again is bad."""
        guilty = asked.popleft()
        if len(guilty) == 1:
            self._note(guilty, [Outcome(None, "it crashed the process that decoded it")])
        else:
            for row in guilty:
                self.waiting.put(range(row, row + 1))
        while asked:
            self.waiting.put(asked.popleft())

    def _note(self, rows: range, outcomes: list[Outcome]) -> None:
        with self.lock:
            self.outcomes[rows.start : rows.stop] = outcomes
            self.done += len(rows)

    def _hire(self) -> "_Worker":
        worker = _Worker(self.job)
        with self.lock:
            self.running.add(worker)
            if self.stopped:
                worker.kill()
        worker.brief()
        return worker

    def _dismiss(self, worker: "_Worker") -> None:
        with self.lock:
            self.running.discard(worker)
        worker.end()

    def _stop(self) -> None:
        with self.lock:
            self.stopped = True
            for worker in self.running:
                worker.kill()


class _Worker:
    def __init__(self, job: Job) -> None:
        self.job = job
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 — open as long as the process runs
        self.process = subprocess.Popen(
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
            pickle.load(self.answers)
        except DIED:
            self.process.wait()
            self.log.seek(0)
            words = self.log.read().decode(errors="replace").strip()
            self.end()
            raise RuntimeError(f"a decoding process did not start: {words}") from None

    def decode(self, asked: Sequence[range]) -> list[Outcome]:
        """What became of the first of these rows; one of ``DIED`` when the process has died over them."""
        while self.sent < len(asked):
            _send(self.requests, asked[self.sent])
            self.sent += 1
        answer: list[Outcome] | OSError = pickle.load(self.answers)
        self.sent -= 1
        if isinstance(answer, OSError):
            raise answer
        return answer

    def kill(self) -> None:
        self.process.kill()

    def end(self) -> None:
        with suppress(BrokenPipeError):
            self.requests.close()
        self.answers.close()
        self.process.wait()
        self.log.close()


def _send(pipe: IO[bytes], message: object) -> None:
    pickle.dump(message, pipe)
    pipe.flush()

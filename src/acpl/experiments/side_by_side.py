"""Pieces of work in processes of their own: one that is killed takes no other with it, and none outlives us."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import NamedTuple

Work = Callable[[], str | None]
"""Returns None, or the reason of its failure. It is sent to another process, so it can be pickled."""


class _Running(NamedTuple):
    name: str
    process: SpawnProcess
    answer: Connection


_SPAWN = get_context("spawn")  # a fork would copy the locks of torch's threads, and cannot use a GPU
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LONGEST = 2000
"""Characters of a reason: it is read when its process has ended, so it must fit into the pipe."""
PATIENCE = 30.0
"""Seconds that processes have to end in an orderly way when they are asked to: for a training, to its next step."""


def results(
    work: Mapping[str, Work],
    jobs: int,
    logs: Mapping[str, Path],
    started: Callable[[str], None],
    stopping: Callable[[int], None] = lambda number: None,
) -> Iterator[tuple[str, str | None]]:
    """Each name when its work is done, ``jobs`` at a time in this order, and the reason if it failed.

    What a process prints goes to its log. When this generator is closed, by an interrupt too, the processes that still
    run, whose number ``stopping`` is told, are asked to stop, so that a training can write where it is; they are killed
    when that takes too long, or at a second interrupt. When this process dies in whatever way, they see it and end
    themselves.
    """
    waiting = list(work)
    running: dict[int, _Running] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                with _undisturbed():  # a process that is half started would be forgotten
                    one = _start(waiting[0], work[waiting[0]], logs[waiting[0]])
                    running[one.process.sentinel] = one
                started(waiting.pop(0))
            ended = wait(list(running))
            for sentinel in [sentinel for sentinel in running if sentinel in ended]:
                one = running.pop(sentinel)
                yield one.name, _outcome(one, logs[one.name])
    finally:
        if running:
            _end(running.values(), stopping)


def _start(name: str, work: Work, log: Path) -> _Running:
    answer, mouth = _SPAWN.Pipe(duplex=False)
    process = _SPAWN.Process(target=_in_child, args=(mouth, work, log), name=name)
    process.start()
    mouth.close()
    return _Running(name, process, answer)


def _outcome(one: _Running, log: Path) -> str | None:
    one.process.join()
    with suppress(OSError):
        if log.stat().st_size == 0:
            log.unlink()
    try:
        reason: str | None = one.answer.recv()
        return reason
    except EOFError:
        code = one.process.exitcode or 0
        if code == -getattr(signal, "SIGKILL", 9):
            return "its process was killed, perhaps for lack of memory"
        return f"its process ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}; see {log}"


def _end(running: Collection[_Running], stopping: Callable[[int], None]) -> None:
    try:
        for one in running:
            one.process.terminate()
        stopping(len(running))
        left, deadline = {one.process.sentinel for one in running}, time.monotonic() + PATIENCE
        while left and (seconds := deadline - time.monotonic()) > 0:
            left -= set(wait(list(left), seconds))
    finally:
        for one in running:
            _kill(one)


def _kill(one: _Running) -> None:
    try:
        os.killpg(one.process.pid or 0, signal.SIGKILL)  # its own group: what it has started ends too
    except (AttributeError, OSError):  # no groups on this system, or it has not made its own yet
        one.process.kill()
    one.process.join()


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Stop signals wait; a process that is started meanwhile has them wait, too.

    A mask alone would not do: another thread may take the signal, and its handler still runs here.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
    waiting: list[int] = []
    ours = threading.current_thread() is threading.main_thread()
    heard = [stop for stop in _STOPS if ours and signal.getsignal(stop) is not signal.SIG_IGN]  # as nohup has it
    handlers = {stop: signal.signal(stop, lambda number, _: waiting.append(number)) for stop in heard}
    try:
        yield
    finally:
        signal.pthread_sigmask(
            signal.SIG_SETMASK, mask
        )  # what the mask has held back comes now, and waits a little longer
        for stop, handler in handlers.items():
            signal.signal(stop, signal.SIG_DFL if handler is None else handler)
        for number in waiting:
            signal.raise_signal(number)


def _in_child(mouth: Connection, work: Work, log: Path) -> None:
    # An interrupt from the keyboard is for the parent, which decides; this process leaves the terminal's group.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as file:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        reason = work()
    except KeyboardInterrupt:
        reason = "it was asked to stop, and the same call goes on with it"
    mouth.send(None if reason is None else reason[:_LONGEST])


def _die_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
    if hasattr(os, "killpg"):
        os.killpg(0, signal.SIGKILL)
    os._exit(1)

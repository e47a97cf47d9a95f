"""Starting a run's processes on this machine, and ending them with it."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from acpl.engine.crew import Crew, connected
from acpl.engine.processes import Processes
from acpl.engine.watch import Watch

WORKER = "acpl.engine.worker"
_FAREWELL = 60.0  # seconds that the others have to end by themselves when the run is over


@dataclass
class _Role:
    rank: int = 0


_role = _Role()


def alone() -> None:
    """A new run begins, with this process as its only one until others are started."""
    _role.rank = 0


def speaks() -> bool:
    """Whether this process was the first of the last run that it took part in: the one that tells people."""
    return _role.rank == 0


@contextmanager
def at_work(crew: Crew, folder: Path | None = None) -> Iterator[Processes]:
    """The run's processes, connected; those that this one starts end with it."""
    children: list[subprocess.Popen[bytes]] = []
    in_order, _role.rank = False, crew.rank
    try:
        if crew.starts_others:
            children += _start_others(crew)
        with Watch(crew.rank, crew.size, children) as watch, connected(crew):
            processes = Processes(crew, watch)
            processes.folder = folder
            with processes.together():
                yield processes
        in_order = True
    finally:
        _end(children, _FAREWELL if in_order else 5.0)


def _start_others(crew: Crew) -> list["subprocess.Popen[bytes]"]:
    shared = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
        "MASTER_ADDR": crew.environment.main_address,
        "MASTER_PORT": str(crew.environment.main_port),
    }
    children = []
    for number in range(1, crew.devices):
        seat = {**asdict(crew), "rank": crew.rank + number, "local_rank": number, "starts_others": False}
        seat["environment"] = None
        environment = {**shared, "LOCAL_RANK": str(number), "NODE_RANK": str(crew.rank // crew.devices)}
        command = [sys.executable, "-m", WORKER, json.dumps(seat)]
        # Python itself, with a module of our own; it reads nothing, and a terminal's Ctrl-C comes through us.
        children.append(subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL))  # nosec B603
    return children


def _end(children: list["subprocess.Popen[bytes]"], patience: float) -> None:
    """Wait, then ask, then insist."""
    for ask in (None, subprocess.Popen.terminate, subprocess.Popen.kill):
        for child in children:
            if ask is not None and child.poll() is None:
                ask(child)
        until = time.monotonic() + patience
        for child in children:
            with suppress(subprocess.TimeoutExpired):
                child.wait(max(0.1, until - time.monotonic()))
        patience = 5.0

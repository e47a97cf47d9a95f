"""Several processes for a test: a server forks them with everything imported, each with a launcher's variables."""

import multiprocessing
import os
import socket
import traceback
from collections.abc import Callable, Mapping
from typing import Any

PATIENCE = 300
_SERVER = multiprocessing.get_context("forkserver")


def in_crew(size: int, work: Callable[..., Any], *arguments: Any, **options: Any) -> list[Any]:
    """What ``work`` returns on each of ``size`` processes, in the order of their ranks; the first error is raised."""
    _SERVER.set_forkserver_preload(["acpl.api", "monai.networks.nets", "lightning_fabric", "tests.engine.crews"])
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(size), "NODE_RANK": "0"}
    crew = []
    for rank in range(size):
        ours, theirs = _SERVER.Pipe()
        place = {**shared, "LOCAL_RANK": str(rank)} if size > 1 else {}
        process = _SERVER.Process(target=_member, args=(theirs, place, work, arguments, options))
        process.start()
        theirs.close()
        crew.append((process, ours))
    results = []
    try:
        for rank, (_, ours) in enumerate(crew):
            assert ours.poll(PATIENCE), f"process {rank} of {size} says nothing"
            results.append(ours.recv())
    finally:
        for process, _ in crew:
            process.join(10)
            if process.is_alive():
                process.kill()
                process.join()
    for rank, (failed, result) in enumerate(results):
        assert not failed, f"process {rank} of {size}:\n{result}"
    return [result for _, result in results]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _member(
    pipe: Any, place: Mapping[str, str], work: Callable[..., Any], arguments: tuple[Any, ...], options: Any
) -> None:
    import torch

    os.environ.update(place)
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    try:
        pipe.send((False, work(*arguments, **options)))
    except BaseException:
        pipe.send((True, traceback.format_exc()))

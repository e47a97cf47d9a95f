"""The command as a person calls it, in a process of its own."""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PATIENCE = 300
# The command that waits after each step, so that there is time to ask for a stop within a short run.
UNHURRIED = """
import time
from acpl.cli import main
from acpl.engine.step import TrainingStep

honest = TrainingStep.__call__


def call(self, number):
    honest(self, number)
    time.sleep(0.1)


TrainingStep.__call__ = call
main()
"""
_SERVER = multiprocessing.get_context("forkserver")
_IMPORTED = ["acpl.api", "acpl.cli", "monai.networks.nets", "lightning_fabric", "tests.shell"]


def acpl(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Call it with an interpreter that has yet to import everything: each verb is called so once at least."""
    command = [sys.executable, "-c", "from acpl.cli import main; main()", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


def acpl_imported(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Call it in a process that is forked with everything imported, which spares some seconds of each call."""
    words = ["acpl", *map(str, arguments)]
    _SERVER.set_forkserver_preload(_IMPORTED)
    with tempfile.TemporaryDirectory() as place:
        out, err = Path(place) / "out", Path(place) / "err"
        process = _SERVER.Process(target=_call, args=(words, cwd or Path.cwd(), dict(os.environ), out, err))
        process.start()
        process.join(PATIENCE)
        if process.is_alive():
            process.kill()
            raise subprocess.TimeoutExpired(words, PATIENCE)
        assert process.exitcode is not None
        return subprocess.CompletedProcess(words, process.exitcode, out.read_text(), err.read_text())


def _call(words: list[str], cwd: Path, environment: dict[str, str], out: Path, err: Path) -> None:
    for descriptor, file in ((1, out), (2, err)):
        handle = os.open(file, os.O_WRONLY | os.O_CREAT)
        os.dup2(handle, descriptor)
        os.close(handle)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    sys.argv = words
    from acpl.cli import main

    main()

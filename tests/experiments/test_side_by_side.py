"""Processes side by side: each fails alone, and none outlives the one that started it."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from acpl.experiments.side_by_side import Work, _undisturbed, results


def run(work: dict[str, Work], folder: Path, jobs: int = 2) -> tuple[dict[str, str | None], list[str]]:
    started: list[str] = []
    logs = {name: folder / "logs" / f"{name}.txt" for name in work}
    return dict(results(work, jobs, logs, started.append)), started


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_one_that_is_killed_takes_no_other_with_it(tmp_path: Path) -> None:
    outcome, started = run(
        {
            "killed": partial(signal.raise_signal, signal.SIGKILL),
            "gone": partial(os._exit, 3),
            "unlucky": partial(str, "out of luck"),
            "wordy": partial(str, "no " * 100_000),  # more than a pipe takes before somebody reads it
            "stopped": partial(signal.default_int_handler, signal.SIGTERM, None),
            "well": partial(time.sleep, 0),
        },
        tmp_path,
    )
    assert started == ["killed", "gone", "unlucky", "wordy", "stopped", "well"]
    assert str(outcome.pop("wordy")).startswith("no no no ")
    assert outcome == {
        "killed": "its process was killed, perhaps for lack of memory",
        "gone": f"its process ended with exit code 3; see {tmp_path / 'logs' / 'gone.txt'}",
        "unlucky": "out of luck",
        "stopped": "it was asked to stop, and the same call goes on with it",
        "well": None,
    }


def test_what_a_process_prints_goes_to_its_log_and_an_empty_log_goes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run({"loud": partial(print, "hello", flush=True), "quiet": partial(time.sleep, 0)}, tmp_path, jobs=1)
    assert (tmp_path / "logs" / "loud.txt").read_text() == "hello\n"
    assert not (tmp_path / "logs" / "quiet.txt").exists()
    assert capfd.readouterr().out == ""


PARENT = """
import signal, subprocess, sys
from functools import partial
from pathlib import Path
from acpl.experiments.side_by_side import results

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job would ignore it
    folder = Path(sys.argv[1])
    sleep = f"echo $$ > {folder}/pid.part; mv {folder}/pid.part {folder}/pid; exec sleep 600"
    work = {"long": partial(subprocess.check_call, ["sh", "-c", sleep])}
    try:
        list(results(work, 1, {"long": folder / "log.txt"}, started=lambda name: None))
    except KeyboardInterrupt:
        sys.exit(130)
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks processes up in /proc")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_process_outlives_the_parent(how: signal.Signals, tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    with subprocess.Popen([sys.executable, str(script), str(tmp_path)]) as parent:
        assert eventually(lambda: (tmp_path / "pid").exists())
        grandchild = int((tmp_path / "pid").read_text())
        assert alive(grandchild)
        parent.send_signal(how)
        try:
            parent.wait(60)
        finally:
            parent.kill()  # or a failure here would wait for ever
    assert eventually(lambda: not alive(grandchild))
    assert how is not signal.SIGINT or parent.returncode == 130


ASKED = """
import signal, sys, time
from functools import partial
from pathlib import Path
from acpl.experiments import side_by_side

def orderly(folder):
    def write(*_):
        (folder / "orderly").write_text("where it was")
        raise KeyboardInterrupt
    signal.signal(signal.SIGTERM, write)
    (folder / "ready-orderly").touch()
    time.sleep(600)

def stubborn(folder):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    (folder / "ready-stubborn").touch()
    time.sleep(600)

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    folder, side_by_side.PATIENCE = Path(sys.argv[1]), float(sys.argv[2])
    work = {work.__name__: partial(work, folder) for work in (orderly, stubborn)}
    logs = {name: folder / f"{name}.txt" for name in work}
    try:
        list(side_by_side.results(work, 2, logs, lambda name: None, lambda number: print(number, flush=True)))
    except KeyboardInterrupt:
        sys.exit(130)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize(("patience", "interrupts"), [(1.0, 1), (600.0, 2)])
def test_processes_are_asked_to_stop_before_they_are_killed(patience: float, interrupts: int, tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(ASKED)
    asked = [sys.executable, str(script), str(tmp_path), str(patience)]
    with subprocess.Popen(asked, stdout=subprocess.PIPE, text=True) as parent:
        assert eventually(lambda: all((tmp_path / f"ready-{name}").exists() for name in ("orderly", "stubborn")))
        assert parent.stdout is not None
        parent.send_signal(signal.SIGINT)
        assert parent.stdout.readline() == "2\n"
        assert eventually(lambda: (tmp_path / "orderly").exists())
        if interrupts == 2:
            assert parent.poll() is None
            parent.send_signal(signal.SIGINT)
        try:
            assert parent.wait(60) == 130
        finally:
            parent.kill()
    assert not (tmp_path / "orderly.txt").read_text()  # nothing that looks like a mistake


def alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def eventually(true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if true():
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_stop_waits_for_a_process_that_starts_even_where_another_thread_takes_the_signal(
    number: signal.Signals,
) -> None:
    over, heard = threading.Event(), []
    other = threading.Thread(target=over.wait)
    other.start()
    before = signal.signal(number, lambda *_: heard.append("stop"))
    try:
        with _undisturbed():
            os.kill(os.getpid(), number)
            time.sleep(0.1)
            assert not heard
        assert heard == ["stop"]
    finally:
        signal.signal(number, before)
        over.set()
        other.join()


def test_a_signal_that_is_ignored_stays_so_for_a_process_that_starts() -> None:
    """Under nohup: what handles a signal here would be the system's answer there, which ends a process."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with _undisturbed():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)

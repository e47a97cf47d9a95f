"""Words that nobody hears any more end nothing; a disk that is full is still heard of."""

import array
import errno
import os
import pty
import select
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import SMALLEST

from acpl.engine.outlets import Outlet, outlive_readers

# Prints more than any pipe holds, then says in a file that it came to its end.
TALKS = """
import sys
from acpl.engine.outlets import outlive_readers
outlive_readers()
for number in range(20_000):
    print("line", number, flush=number % 1000 == 0)
    print("line", number, file=sys.stderr)
sys.stdout.flush()
open(sys.argv[1], "w").write("done")
"""


def goes_nowhere(descriptor: int) -> bool:
    return os.path.samestat(os.fstat(descriptor), Path(os.devnull).stat())


def test_what_is_written_after_the_reader_has_gone_goes_nowhere() -> None:
    reader, writer = os.pipe()
    outlet = Outlet(writer)
    assert outlet.write(b"heard") == 5
    assert os.read(reader, 10) == b"heard"
    os.close(reader)
    assert outlet.write(array.array("i", [1, 2])) == 8  # bytes, not numbers
    assert goes_nowhere(writer)  # for processes that are started from now on, too
    assert outlet.write(b"again") == 5
    os.close(writer)


def test_a_terminal_that_was_closed_is_a_reader_that_has_gone() -> None:
    master, slave = pty.openpty()
    outlet = Outlet(slave)
    os.close(master)
    assert outlet.write(b"nobody") == 6
    assert goes_nowhere(slave)
    os.close(slave)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux")
@pytest.mark.parametrize(("place", "reason"), [("/dev/full", errno.ENOSPC), ("/proc/self/mem", errno.EIO)])
def test_what_is_wrong_with_a_file_is_raised(place: str, reason: int) -> None:
    """An error of input and output is a terminal's farewell, but a file's broken disk."""
    descriptor = os.open(place, os.O_RDWR)
    try:
        with pytest.raises(OSError, match=rf"\[Errno {reason}\]"):
            Outlet(descriptor).write(b"lost")
    finally:
        os.close(descriptor)


def test_streams_that_somebody_has_put_there_stay_theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "log").open("w") as theirs:
        monkeypatch.setattr("sys.stdout", theirs)
        monkeypatch.setattr("sys.stderr", None)  # as where there is no console
        outlive_readers()
        assert sys.stdout is theirs
        assert sys.stderr is None


def test_what_is_not_buffered_is_heard_at_once() -> None:
    said = "import sys; from acpl.engine.outlets import outlive_readers as o; o(); print(1, end=''); sys.stdin.read()"
    command = [sys.executable, "-u", "-c", said]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], 60)
        process.communicate()
    assert ready


@pytest.mark.parametrize("options", [[], ["-u"]])
def test_a_process_whose_reader_leaves_comes_to_its_end(options: list[str], tmp_path: Path) -> None:
    command = [sys.executable, *options, "-c", TALKS, str(tmp_path / "end")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"line 0\n"
        process.stdout.close()
        assert process.wait(60) == 0
    assert (tmp_path / "end").read_text() == "done"


def test_what_is_heard_is_what_was_said_in_the_same_encoding() -> None:
    said = "from acpl.engine.outlets import outlive_readers; outlive_readers(); print('né', '≥', sep='\\n', end='')"
    for coding, expected in (("utf-8", "né\n≥".encode()), ("latin-1:backslashreplace", b"n\xe9\n\\u2265")):
        environment = {**os.environ, "PYTHONIOENCODING": coding}
        done = subprocess.run([sys.executable, "-c", said], capture_output=True, env=environment, check=True)
        assert done.stdout == expected
        assert done.stderr == b""


def heard_by_nobody(*words: str) -> int:
    """The command's exit code where standard output was closed by its reader before the first word."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-c", "from acpl.cli import main; main()", *words]
    try:
        return subprocess.run(command, stdout=writer, timeout=300, check=False).returncode
    finally:
        os.close(writer)


def test_a_command_that_nobody_listens_to_succeeds() -> None:
    assert heard_by_nobody("presets") == 0


@pytest.mark.slow
def test_a_training_that_nobody_listens_to_ends_with_a_model(tmp_path: Path) -> None:
    options = [word for name, value in SMALLEST.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    assert heard_by_nobody("train", *options, "--fraction", "0.3", "--out", str(tmp_path / "run")) == 0
    assert (tmp_path / "run" / "model.safetensors").exists()
    assert (tmp_path / "run" / "report.html").exists()

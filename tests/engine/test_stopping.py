"""Being asked to stop, by whatever signal and at whatever moment: where the run is stays known, and how to go on."""

import fcntl
import json
import os
import pty
import shlex
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.conftest import SMALLEST
from tests.shell import UNHURRIED

import acpl
from acpl.cli import _orderly_stop
from acpl.data.sources.phantoms import PhantomSource
from acpl.engine import worker
from acpl.engine.checkpoints import Checkpoints
from acpl.engine.crew import Crew
from acpl.engine.monitor import Quiet
from acpl.engine.stopping import ASKING, Stop, Stopped, answered_by
from acpl.errors import SaidElsewhereError

QUICK = {**SMALLEST, "data": "phantom-chest", "method": "supervised", "stages": 0, "fraction": 0.3}


def unanswered(number: int, frame: object) -> None:
    """In the place of the system's answer, which would end these tests."""
    raise AssertionError(f"nobody has answered {signal.Signals(number).name}")


@pytest.fixture(autouse=True)
def as_in_a_terminal() -> Iterator[None]:
    """No signal is ignored, as SIGHUP is under nohup and SIGINT in a background job; all as before afterwards."""
    before = {number: signal.getsignal(number) for number in ASKING}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, unanswered)
    signal.signal(signal.SIGHUP, unanswered)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class Asks(Quiet):
    """Asks to stop, so many times, when a step is done."""

    def __init__(self, number: signal.Signals, times: int = 1) -> None:
        self.number, self.left = number, times

    def step(self, losses: Any) -> None:
        while self.left > 0:
            self.left -= 1
            signal.raise_signal(self.number)


def calls_first(number: signal.Signals, honest: Callable[..., Any]) -> Callable[..., Any]:
    """The function, before whose work somebody asks to stop."""

    def call(*arguments: Any, **named: Any) -> Any:
        signal.raise_signal(number)
        return honest(*arguments, **named)

    return call


@pytest.mark.parametrize("number", ASKING)
def test_each_of_the_signals_leaves_a_checkpoint_and_says_how_to_go_on(number: signal.Signals, tmp_path: Path) -> None:
    out = tmp_path / "my run"
    before = [signal.getsignal(one) for one in ASKING]
    with pytest.raises(Stopped) as stopped:
        acpl.train(out=out, monitor=Asks(number), **QUICK)
    said = f"stopped at step 1, nothing is lost; go on with: acpl train --resume {shlex.quote(str(out))}"
    assert str(stopped.value) == said
    assert shlex.split(said)[-1] == str(out)
    newest = Checkpoints(out / "checkpoints", 0).newest()
    assert newest is not None
    assert int(newest.stem) == 1
    assert [signal.getsignal(one) for one in ASKING] == before
    acpl.train(resume=out)
    assert (out / "model.safetensors").exists()


def test_under_nohup_a_closed_terminal_stops_nothing(tmp_path: Path) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    acpl.train(out=tmp_path / "run", monitor=Asks(signal.SIGHUP, times=3), **QUICK)
    assert (tmp_path / "run" / "model.safetensors").exists()
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


@pytest.mark.parametrize("number", ASKING)
def test_a_stop_while_images_are_opened_leaves_a_folder_that_is_begun_anew(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(PhantomSource, "open", calls_first(number, PhantomSource.open))
        with pytest.raises(Stopped, match="stopped before the first checkpoint; begin anew with: acpl train --resume"):
            acpl.train(out=out, **QUICK)
        assert [file.name for file in out.iterdir()] == ["config.yaml"]
        with pytest.raises(Stopped, match="before the first checkpoint"):  # when it goes on, too
            acpl.train(resume=out)
    acpl.train(resume=out)
    assert (out / "model.safetensors").exists()


def test_a_stop_after_the_last_step_goes_on_from_the_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from acpl.engine import training

    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(training, "gather_training", calls_first(signal.SIGTERM, training.gather_training))
        with pytest.raises(Stopped, match="stopped at once; go on from the last checkpoint with: acpl train --resume"):
            acpl.train(out=out, **QUICK)
    assert not (out / "model.safetensors").exists()
    acpl.train(resume=out)
    assert (out / "model.safetensors").exists()


def test_a_second_interrupt_does_not_wait_for_the_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(Stopped, match="stopped before the first checkpoint; begin anew with"):
        acpl.train(out=tmp_path / "run", monitor=Asks(signal.SIGINT, times=2), **QUICK)
    with pytest.raises(Stopped, match="stopped at step 1, nothing is lost"):  # a scheduler that asks twice does wait
        acpl.train(out=tmp_path / "other", monitor=Asks(signal.SIGTERM, times=2), **QUICK)


def test_signals_are_the_main_threads(tmp_path: Path) -> None:
    found: list[object] = []

    def work() -> None:
        with Stop().listening():
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [unanswered]


def test_a_handler_that_python_did_not_set_is_followed_by_the_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acpl.engine.stopping.signal.getsignal", lambda number: None)
    with answered_by(lambda number, frame: None):
        pass
    monkeypatch.undo()
    assert [signal.getsignal(number) for number in ASKING] == [signal.SIG_DFL] * 3


@pytest.mark.parametrize("number", ASKING)
def test_a_table_of_runs_is_stopped_in_order_by_each_of_them(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as left, _orderly_stop("stopped; it goes on"):
        signal.raise_signal(number)
    assert left.value.exit_code == 130
    assert capsys.readouterr().err == "stopped; it goes on\n"


def test_a_table_of_runs_under_nohup_is_not_stopped_by_a_closed_terminal() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with _orderly_stop("stopped"):
        signal.raise_signal(signal.SIGHUP)


def test_processes_beside_the_first_leave_the_terminals_signals_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    outlived: list[bool] = []

    def refuse(crew: Crew) -> None:
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGHUP)] == [signal.SIG_IGN] * 2
        assert signal.getsignal(signal.SIGTERM) is unanswered
        raise SaidElsewhereError("no")

    monkeypatch.setattr(worker, "outlive_readers", lambda: outlived.append(True))
    monkeypatch.setattr(worker, "at_work", refuse)
    seat = {field.name: 1 for field in fields(Crew)}
    assert worker.main(json.dumps(seat)) == 2
    assert outlived == [True]


# From a terminal: what a person starts, and what happens when it is closed.


@pytest.mark.slow
@pytest.mark.parametrize("nohup", [False, True])
def test_a_terminal_that_is_closed_leaves_a_checkpoint_or_under_nohup_a_model(nohup: bool, tmp_path: Path) -> None:
    out = tmp_path / "run"
    master, slave = pty.openpty()

    def sit_at_it() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN if nohup else signal.SIG_DFL)
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    given = {**QUICK, "warmup_epochs": 12 if nohup else 10_000}
    words = [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    process = subprocess.Popen(
        [sys.executable, "-c", UNHURRIED, "train", *words, "--out", str(out)],
        stdin=slave, stdout=slave, stderr=slave, start_new_session=True, preexec_fn=sit_at_it,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    os.close(slave)
    try:
        while not (out / "events.jsonl").exists() or (out / "events.jsonl").read_text().count("\n") < 3:
            time.sleep(0.05)
            assert process.poll() is None, os.read(master, 4096)
        os.close(master)
        assert process.wait(120) == (0 if nohup else 2)
    finally:
        process.kill()
        process.wait()
    assert (out / "model.safetensors").exists() is nohup
    state, broken = Checkpoints(out / "checkpoints", 0).read()
    assert state is not None
    assert not broken

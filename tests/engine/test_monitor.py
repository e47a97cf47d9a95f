"""What a person sees while it trains, in a terminal and in a log, and what trackers are told."""

import signal
import sys
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from tests.conftest import TINY

import acpl
from acpl.engine.clock import Clock
from acpl.engine.loggers import figures, find_loggers
from acpl.engine.monitor import Quiet, Terminal, Together


class Seen(Quiet):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def begin(self, stage: str, steps: int, done: int = 0) -> None:
        self.told.append(("begin", stage, steps, done))

    def epoch(self, number: int, steps: int, done: int = 0) -> None:
        self.told.append(("epoch", number, steps, done))

    def step(self, losses: Any) -> None:
        self.told.append(("step",))

    def progress(self, what: str, done: int, total: int) -> None:
        self.told.append(("progress", what, done, total))

    def event(self, event: Any) -> None:
        self.told.append(("event", event["event"]))

    def close(self) -> None:
        self.told.append(("close",))


def screen(terminal: bool) -> Console:
    return Console(file=StringIO(), force_terminal=terminal, width=120, _environ={})


def text(console: Console) -> str:
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_a_run_tells_of_every_stage_epoch_step_look_and_event(tmp_path: Path) -> None:
    seen = Seen()
    run = acpl.train(out=tmp_path / "run", data="phantom-chest", monitor=seen, **TINY)
    begun = [told for told in seen.told if told[0] == "begin"]
    assert [stage for _, stage, *_ in begun] == ["warm-up", "stage 1", "stage 2"]
    assert sum(steps for _, _, steps, _ in begun) == seen.told.count(("step",))
    assert sum(told[2] for told in seen.told if told[0] == "epoch") == seen.told.count(("step",))
    assert any(told[:2] == ("progress", "looking at images") and told[2] == told[3] for told in seen.told)
    lines = (run / "events.jsonl").read_text().splitlines()
    assert len([told for told in seen.told if told[0] == "event"]) == len(lines)
    assert seen.told[-1] == ("close",)


def test_a_terminal_shows_rate_and_time_left_of_stage_and_epoch() -> None:
    console = screen(terminal=True)
    monitor = Terminal(console)
    monitor.begin("warm-up", 50)
    monitor.epoch(3, 10)
    for _ in range(5):
        monitor.step({"labelled": 0.25})
    monitor._bars.refresh()
    shown = text(console)
    assert "warm-up" in shown
    assert "5/50" in shown
    assert "epoch 3" in shown
    assert "5/10" in shown
    assert "/s" in shown
    assert "labelled 0.250" in shown
    monitor.close()


def test_decoding_and_looking_have_a_bar_that_goes_when_they_are_done() -> None:
    console = screen(terminal=True)
    monitor = Terminal(console)
    monitor.progress("decoding", 30, 100)
    monitor._bars.refresh()
    assert "decoding" in text(console)
    assert "30/100" in text(console)
    monitor.progress("decoding", 100, 100)
    assert not any(task.visible for task in monitor._bars.tasks)
    assert not monitor._bars.live.is_started
    monitor.progress("looking at images", 7, 7)
    assert not monitor._bars.live.is_started  # done at once: no bar flickers
    monitor.progress("decoding", 10, 20)  # the next one starts anew
    assert monitor._bars.tasks[2].completed == 10
    monitor.close()


def test_a_log_gets_a_line_a_minute_and_nothing_that_moves() -> None:
    console, now = screen(terminal=False), [0.0]
    monitor = Terminal(console, clock=lambda: now[0])
    monitor.begin("warm-up", 1000)
    for _ in range(300):
        now[0] += 0.5
        monitor.step({"labelled": 0.5})
    monitor.progress("looking at images", 5, 10)
    monitor.end()
    lines = text(console).splitlines()
    assert lines[0] == "warm-up: step 120 of 1000  2.0/s  about 7 min left  labelled 0.500"
    assert len(lines) == 2
    assert "\x1b" not in text(console)


def test_a_run_that_goes_on_is_shown_from_where_it_was() -> None:
    console = screen(terminal=True)
    monitor = Terminal(console)
    monitor.begin("warm-up", 50, 23)
    monitor.epoch(3, 10, 3)
    monitor.step({"labelled": 0.25})
    monitor._bars.refresh()
    assert "24/50" in text(console)
    assert "4/10" in text(console)
    monitor.close()
    console, now = screen(terminal=False), [0.0]
    monitor = Terminal(console, clock=lambda: now[0])
    monitor.begin("warm-up", 1000, 800)
    for _ in range(121):
        now[0] += 0.5
        monitor.step({})
    assert text(console).splitlines() == ["warm-up: step 920 of 1000  2.0/s  about 40 s left"]


def test_a_resumed_run_tells_its_place_in_stage_and_epoch(tmp_path: Path) -> None:
    class Stops(Seen):
        def step(self, losses: Any) -> None:
            super().step(losses)
            if self.told.count(("step",)) == 5:
                signal.raise_signal(signal.SIGTERM)

    settings = {**TINY, "k": None, "method": "supervised", "batch_size": 4, "stages": 0, "warmup_epochs": 3}
    stops, seen = Stops(), Seen()
    with pytest.raises(acpl.UserError, match="stopped at step 5"):
        acpl.train(out=tmp_path / "run", data="phantom-chest", monitor=stops, **settings)
    acpl.train(resume=tmp_path / "run", monitor=seen)
    (_, _, steps, done), *_ = (told for told in seen.told if told[0] == "begin")
    first, *rest = (told for told in seen.told if told[0] == "epoch")
    assert (done, steps) == (5, 5 + seen.told.count(("step",)))
    assert first[3] == 5 - (first[1] - 1) * first[2]
    assert all(told[3] == 0 for told in rest)


def test_several_monitors_are_all_told() -> None:
    first, second = Seen(), Seen()
    both = Together([first, second])
    both.begin("warm-up", 3, 2)
    both.epoch(1, 3, 1)
    both.step({})
    both.close()
    assert first.told == second.told == [("begin", "warm-up", 3, 2), ("epoch", 1, 3, 1), ("step",), ("close",)]


def test_a_clock_adds_up_by_part_also_when_the_work_fails() -> None:
    clock = Clock()
    with clock("a"):
        pass
    with pytest.raises(ValueError, match="work"), clock("b"):
        raise ValueError("work")
    with clock("a"):
        pass
    assert list(clock.parts()) == ["a", "b"]
    assert all(seconds >= 0 for seconds in clock.parts().values())


def test_an_events_figures_have_names_and_no_undefined_numbers() -> None:
    losses = {"labelled": 0.5, "selected": float("nan")}
    epoch = {"event": "epoch", "step": 7, "losses": losses, "seconds": 2.0, "validation_auroc": float("nan")}
    assert figures(epoch) == {"loss/labelled": 0.5, "run/seconds": 2.0}
    stage = {"event": "stage", "stage": 1, "name": "stage 1", "selected": 3, "time": {"training": 1.0}}
    assert figures(stage) == {"pools/selected": 3.0, "run/stage": 1.0}


class Recorder:
    """Stands for any tracker's module: writes down what it is called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **named: Any) -> "Recorder":
            self.calls.append((name, arguments, named))
            return self

        return call

    def named(self, name: str) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        return [call[1:] for call in self.calls if call[0] == name]


@pytest.mark.parametrize(
    ("log", "module", "figure", "end"),
    [
        ("tensorboard", "torch.utils.tensorboard", "add_scalar", "close"),
        ("mlflow", "mlflow", "log_metrics", "end_run"),
        ("wandb", "wandb", "log", "finish"),
    ],
)
def test_a_tracker_is_told_every_figure_and_closed(
    log: str, module: str, figure: str, end: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tracker = Recorder()
    monkeypatch.setitem(sys.modules, module, tracker)  # type: ignore[arg-type]
    run = acpl.train(out=tmp_path / "run", data="phantom-chest", log=[log], **{**TINY, "stages": 1})
    calls = tracker.named(figure)
    told = [[arguments[0]] if log == "tensorboard" else list(arguments[0]) for arguments, _ in calls]
    names = {name for names in told for name in names}
    assert {"loss/labelled", "loss/selected", "pools/selected", "validation/auroc"} <= names
    assert len(tracker.named(end)) == 1
    assert (run / "model.safetensors").exists()


def test_a_tracker_is_closed_when_training_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tracker = Recorder()
    monkeypatch.setitem(sys.modules, "mlflow", tracker)  # type: ignore[arg-type]
    monkeypatch.setattr("acpl.engine.loop.Trainer.fit", lambda *_: SimpleNamespace().missing)
    with pytest.raises(AttributeError):
        acpl.train(out=tmp_path / "run", data="phantom-chest", log=["mlflow"], **TINY)
    assert len(tracker.named("end_run")) == 1


def test_a_tracker_that_is_unknown_or_not_installed_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(acpl.UserError, match=r"--log wandb needs the extra of that name: pip install 'acpl\[wandb\]'"):
        find_loggers(["wandb"])
    with pytest.raises(acpl.UserError, match="unknown log 'tensorbord'; did you mean 'tensorboard'"):
        find_loggers(["tensorbord"])

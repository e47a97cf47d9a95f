"""What a person sees while it trains."""

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.progress import TimeRemainingColumn as TimeLeft
from rich.text import Text

from acpl.duration import duration

LINE_EVERY = 60.0
"""Seconds between two lines of progress in a log."""


class Monitor(Protocol):
    """Told of every step, epoch, stage and event."""

    def say(self, text: str) -> None:
        """A line for people."""
        ...

    def opened(self, folder: Path, config: Mapping[str, Any]) -> None:
        """The run folder is there; ``config`` is the whole configuration."""
        ...

    def begin(self, stage: str, steps: int, done: int = 0) -> None:
        """A stage of so many steps starts, or goes on when ``done`` of them are done."""
        ...

    def epoch(self, number: int, steps: int, done: int = 0) -> None:
        """The stage's epoch of this number, from 1, starts; it has so many steps, of which ``done`` are done."""
        ...

    def step(self, losses: Mapping[str, float]) -> None:
        """One step is done."""
        ...

    def end(self) -> None:
        """The stage is over."""
        ...

    def progress(self, what: str, done: int, total: int) -> None:
        """Work beside the steps, such as decoding or inference, has come so far."""
        ...

    def event(self, event: Mapping[str, Any]) -> None:
        """This was written to ``events.jsonl``."""
        ...

    def close(self) -> None:
        """Nothing more will come."""
        ...


class Quiet:
    """Says nothing."""

    def say(self, text: str) -> None:
        """Nothing."""

    def opened(self, folder: Path, config: Mapping[str, Any]) -> None:
        """Nothing."""

    def begin(self, stage: str, steps: int, done: int = 0) -> None:
        """Nothing."""

    def epoch(self, number: int, steps: int, done: int = 0) -> None:
        """Nothing."""

    def step(self, losses: Mapping[str, float]) -> None:
        """Nothing."""

    def end(self) -> None:
        """Nothing."""

    def progress(self, what: str, done: int, total: int) -> None:
        """Nothing."""

    def event(self, event: Mapping[str, Any]) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class Together:
    """Several monitors, each told everything."""

    def __init__(self, monitors: Iterable[Monitor]) -> None:
        self.monitors = list(monitors)

    def say(self, text: str) -> None:
        """To all."""
        self._all(lambda monitor: monitor.say(text))

    def opened(self, folder: Path, config: Mapping[str, Any]) -> None:
        """To all."""
        self._all(lambda monitor: monitor.opened(folder, config))

    def begin(self, stage: str, steps: int, done: int = 0) -> None:
        """To all."""
        self._all(lambda monitor: monitor.begin(stage, steps, done))

    def epoch(self, number: int, steps: int, done: int = 0) -> None:
        """To all."""
        self._all(lambda monitor: monitor.epoch(number, steps, done))

    def step(self, losses: Mapping[str, float]) -> None:
        """To all."""
        self._all(lambda monitor: monitor.step(losses))

    def end(self) -> None:
        """To all."""
        self._all(lambda monitor: monitor.end())

    def progress(self, what: str, done: int, total: int) -> None:
        """To all."""
        self._all(lambda monitor: monitor.progress(what, done, total))

    def event(self, event: Mapping[str, Any]) -> None:
        """To all."""
        self._all(lambda monitor: monitor.event(event))

    def close(self) -> None:
        """To all."""
        self._all(lambda monitor: monitor.close())

    def _all(self, tell: Callable[[Monitor], None]) -> None:
        for monitor in self.monitors:
            tell(monitor)


class Terminal(Quiet):
    """In a terminal: bars with rate and time left for the stage, its epoch, and decoding or inference beside them.

    Elsewhere, as in a log: a line for each stage, and within a long one a line a minute.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self.console = console
        self._bars = Progress(
            TextColumn("{task.description:<20}"),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            Rate(),
            TimeLeft(elapsed_when_finished=True),
            TextColumn("{task.fields[note]}", style="dim"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._stage, self._epoch, self._work = (
            self._bars.add_task("", start=False, visible=False, note="") for _ in range(3)
        )
        self._lines = None if console.is_terminal else Lines(self.say, clock)

    def say(self, text: str) -> None:
        """Printed above the bars."""
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def begin(self, stage: str, steps: int, done: int = 0) -> None:
        """A fresh bar for the stage."""
        self._fresh(self._stage, stage, steps, done)
        if self._lines is not None:
            self._lines.begin(stage, steps, done)

    def epoch(self, number: int, steps: int, done: int = 0) -> None:
        """A fresh bar for the epoch."""
        self._fresh(self._epoch, f"  epoch {number}", steps, done)

    def step(self, losses: Mapping[str, float]) -> None:
        """Both bars move."""
        if losses:
            text = "  ".join(f"{name} {value:.3f}" for name, value in losses.items())
            self._bars.update(self._stage, note=text)
        self._bars.advance(self._stage)
        self._bars.advance(self._epoch)
        if self._lines is not None:
            self._lines.step(losses)

    def end(self) -> None:
        """The bars go."""
        for task in (self._stage, self._epoch, self._work):
            self._bars.update(task, visible=False)
        self._bars.stop()

    def progress(self, what: str, done: int, total: int) -> None:
        """A bar for this work, that goes when it is done; none for what is done at once."""
        if done >= total and not self._bars.tasks[self._work].visible:
            return
        if self._bars.tasks[self._work].description != what or done < self._bars.tasks[self._work].completed:
            self._fresh(self._work, what, total)
        self._bars.update(self._work, completed=done, total=total)
        if done >= total:
            self._bars.update(self._work, visible=False, description="")
            if not any(task.visible for task in self._bars.tasks):
                self._bars.stop()

    def close(self) -> None:
        """No bar is left behind."""
        self.end()

    def _fresh(self, task: TaskID, what: str, total: int, done: int = 0) -> None:
        self._bars.reset(task, total=total, completed=done, description=what, visible=True, note="")
        self._bars.start()


class Lines:
    """Progress for a log: a line a minute with rate and time left, nothing that moves."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._say = say
        self._clock = clock
        self.begin("", 0)

    def begin(self, stage: str, steps: int, done: int = 0) -> None:
        """A stage of so many steps starts; what was done before counts, but not for the rate."""
        self._stage, self._steps, self._first, self._done = stage, steps, done, done
        self._losses: Mapping[str, float] = {}
        self._started = self._said = self._clock()

    def step(self, losses: Mapping[str, float]) -> None:
        """One step is done; a line when the last is a minute old."""
        self._done += 1
        self._losses = losses or self._losses
        now = self._clock()
        if now - self._said < LINE_EVERY or self._done >= self._steps:
            return
        self._said = now
        rate = (self._done - self._first) / (now - self._started)
        left = duration((self._steps - self._done) / rate)
        terms = "".join(f"  {name} {value:.3f}" for name, value in self._losses.items())
        self._say(f"{self._stage}: step {self._done} of {self._steps}  {rate:.1f}/s  about {left} left{terms}")


class Rate(ProgressColumn):
    """How many a second."""

    def render(self, task: Task) -> Text:
        """Empty until it is known."""
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f}/s" if speed >= 10 else f"{speed:.1f}/s", style="dim")

"""What a person sees while it trains."""

from collections.abc import Mapping
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class Monitor(Protocol):
    """Told of every step and every stage."""

    def say(self, text: str) -> None:
        """A line for people."""
        ...

    def begin(self, stage: str, steps: int) -> None:
        """A stage of so many steps starts."""
        ...

    def step(self, losses: Mapping[str, float]) -> None:
        """One step is done."""
        ...

    def end(self) -> None:
        """The stage is over."""
        ...

    def progress(self, what: str, done: int, total: int) -> None:
        """Work before the first stage, such as decoding, has come so far."""
        ...


class Quiet:
    """Says nothing."""

    def say(self, text: str) -> None:
        """Nothing."""

    def begin(self, stage: str, steps: int) -> None:
        """Nothing."""

    def step(self, losses: Mapping[str, float]) -> None:
        """Nothing."""

    def end(self) -> None:
        """Nothing."""

    def progress(self, what: str, done: int, total: int) -> None:
        """Nothing."""


class Terminal:
    """A progress bar for the stage that runs (in a terminal), a line for each that is done."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._bar = Progress(
            TextColumn("{task.description:<10}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[losses]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", start=False, visible=False, losses="")

    def say(self, text: str) -> None:
        """Printed above the bar."""
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def begin(self, stage: str, steps: int) -> None:
        """A fresh bar."""
        self._bar.reset(self._task, total=steps, description=stage, losses="", visible=True)
        self._bar.start()

    def step(self, losses: Mapping[str, float]) -> None:
        """The bar moves."""
        if losses:
            text = " ".join(f"{name} {value:.3f}" for name, value in losses.items())
            self._bar.update(self._task, advance=1, losses=text)
        else:
            self._bar.advance(self._task)

    def end(self) -> None:
        """The bar goes."""
        self._bar.stop()

    def progress(self, what: str, done: int, total: int) -> None:
        """The bar shows this work, and goes when it is done."""
        self._bar.update(self._task, description=what, completed=done, total=total, losses="", visible=True)
        self._bar.start()
        if done >= total:
            self._bar.stop()

"""A run as it goes, for the terminal: read from its folder alone, so that it may be on another machine."""

import time
from collections.abc import Callable, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from acpl.duration import duration
from acpl.report.run_data import Events, Json, read_events
from acpl.settings import read_yaml

SILENT = 600.0
"""Seconds without an event after which a run may have stopped."""
BLOCKS = "▁▂▃▄▅▆▇█"
WIDTH = 48


def watch_run(
    run: Path,
    console: Console,
    *,
    once: bool = False,
    every: float = 2.0,
    sleep: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.time,
) -> None:
    """Show the run until it has finished or the user has seen enough; ``once`` shows it and returns."""
    if once:
        console.print(view(run, now()))
        return
    with Live(view(run, now()), console=console, auto_refresh=False) as live:
        while not finished(run):
            sleep(every)
            live.update(view(run, now()), refresh=True)


def finished(run: Path) -> bool:
    """Whether the model is there."""
    return (run / "model.safetensors").exists()


def view(run: Path, now: float) -> Group:
    """What is going on, how far it is, and what came out so far."""
    config = read_yaml(run / "config.yaml")
    file = run / "events.jsonl"
    events = read_events(file)
    silence = max(0.0, now - file.stat().st_mtime) if file.exists() else 0.0
    stages = [event for event in events if event["event"] == "stage"]
    epochs = [event for event in events if event["event"] == "epoch"]
    head = Text.assemble((f"{config.get('method')} on {config.get('data')}", "bold"), f"   {run}")
    blocks: list[RenderableType] = [head, *_status(stages, epochs, finished(run), silence)]
    if stages:
        blocks.append(_table(stages, epochs))
    blocks += _lines(epochs)
    blocks += [Text(str(event.get("sentence", "")), "yellow") for event in events if event["event"] == "trouble"]
    return Group(*blocks)


def progress(stages: Events, epochs: Events) -> Json | None:
    """Of the stage that runs: steps done and in all, epoch, rate and seconds left; None before the first epoch ends."""
    if not stages or not epochs or epochs[-1]["stage"] != stages[-1]["stage"]:
        return None
    stage, last = stages[-1], epochs[-1]
    before = [event for event in epochs if event["stage"] < stage["stage"]]
    done = last["step"] - (before[-1]["step"] if before else 0)
    own = [event for event in epochs if event["stage"] == stage["stage"]][-8:]
    seconds, steps = own[-1]["seconds"] - own[0]["seconds"], own[-1]["step"] - own[0]["step"]
    rate = steps / seconds if seconds > 0 else None
    total = stage.get("steps")
    left = (total - done) / rate if rate and total else None
    return {"name": stage["name"], "done": done, "total": total, "epoch": last["epoch"], "rate": rate, "left": left}


def sparkline(values: Sequence[float], width: int = WIDTH) -> str:
    """A line of blocks, one a value or one for several, from the least to the greatest.

    >>> sparkline([0.0, 0.5, 1.0])
    '▁▅█'
    """
    there = [value for value in values if isfinite(value)]
    if not there:
        return ""
    step = -(-len(there) // width)
    shown = there[::-1][::step][::-1]
    low, high = min(shown), max(shown)
    scale = (len(BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(BLOCKS[round((value - low) * scale + 1e-9)] for value in shown)


def _status(stages: Events, epochs: Events, done: bool, silence: float) -> list[RenderableType]:
    if done:
        seconds = f" in {duration(epochs[-1]['seconds'])}" if epochs else ""
        return [Text(f"finished{seconds}", style="green")]
    quiet = [Text(f"no news for {duration(silence)}: it may have stopped", style="yellow")] if silence > SILENT else []
    at = progress(stages, epochs)
    if at is None:
        name = f"{stages[-1]['name']}, first epoch" if stages else "opening the images"
        return [Text(f"running: {name}"), *quiet]
    rate = "" if at["rate"] is None else f"  {at['rate']:.1f} steps/s"
    left = "" if at["left"] is None else f"  about {duration(at['left'])} left in this stage"
    of = "" if at["total"] is None else f" of {at['total']:,}"
    words = Text(f"running: {at['name']}, epoch {at['epoch']}, step {at['done']:,}{of}{rate}{left}")
    bar = [] if at["total"] is None else [ProgressBar(total=at["total"], completed=at["done"], width=WIDTH)]
    return [words, *bar, *quiet]


def _table(stages: Events, epochs: Events) -> Table:
    counts = [key for key in ("selected", "anchors", "left") if any(key in stage for stage in stages)]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("stage")
    for heading in ("epochs", *counts, "validation AUROC"):
        table.add_column(heading, justify="right")
    for stage in stages:
        own = [event for event in epochs if event["stage"] == stage["stage"]]
        scores = [event["validation_auroc"] for event in own if event.get("validation_auroc") is not None]
        score = f"{scores[-1]:.4f}" if scores and isfinite(scores[-1]) else ""
        cells: list[Any] = [stage["name"], len(own), *(f"{stage[k]:,.0f}" if k in stage else "" for k in counts)]
        table.add_row(*(Text(str(cell)) for cell in (*cells, score)))
    return table


def _lines(epochs: Events) -> list[RenderableType]:
    """Each loss and the validation AUROC as a line of blocks."""
    found: list[RenderableType] = []
    names = list(dict.fromkeys(name for event in epochs for name in event["losses"]))
    series = {f"loss {name}": [e["losses"][name] for e in epochs if name in e["losses"]] for name in names}
    series["validation AUROC"] = [e["validation_auroc"] for e in epochs if e.get("validation_auroc") is not None]
    for name, values in series.items():
        there = [value for value in values if isfinite(value)]
        if len(there) > 1:
            ends = f"  {there[0]:.3f} → {there[-1]:.3f}"
            found.append(Text.assemble((f"{name:<20}", "dim"), (sparkline(there), "cyan"), ends))
    return found

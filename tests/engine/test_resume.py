"""A run that was cut short goes on exactly where it was."""

import contextlib
import dataclasses
import itertools
import multiprocessing
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from tests.conftest import TINY
from tests.shell import UNHURRIED

import acpl
from acpl.algorithms.acpl import ACPL
from acpl.engine.checkpoints import Checkpoints, Place
from acpl.engine.feed import FarFeed, NearFeed
from acpl.engine.monitor import Quiet
from acpl.engine.run_folder import RunFolder
from acpl.engine.stopping import Stopped
from acpl.engine.training import MAY_CHANGE

KILLED = ("acpl", "mean-teacher", "ups", "s2mts2")
KILLS = 50


def settings_for(method: str) -> dict[str, Any]:
    own = {"acpl": {"k": 3}, "ups": {"k": None, "positive": 0.3, "positive_spread": 0.5, "negative_spread": 0.5}}
    return {**TINY, "data": "phantom-chest", "method": method, "k": None, "dropout": 0.2, "checkpoint_minutes": 0.0,
            "warmup_epochs": 4, "stage_epochs": 3, "batch_size": 8, **own.get(method, {})}  # fmt: skip


def work(out: Path, method: str) -> None:
    """Train, or go on: what a killed process and the one after it do."""
    torch.set_num_threads(1)
    if (out / "config.yaml").exists():
        acpl.train(resume=out)
    else:
        acpl.train(out=out, **settings_for(method))


def assert_same(one: Any, other: Any, where: str = "checkpoint") -> None:
    """Two checkpoints' parts, with all that lies below them, are the same but for the time they took."""
    assert type(one) is type(other), where
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one.keys() - {"seconds", "time", "events"}:
            assert_same(one[key], other[key], f"{where}.{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), where
        for place, (first, second) in enumerate(zip(one, other, strict=True)):
            assert_same(first, second, f"{where}.{place}")
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one.nan_to_num(), other.nan_to_num()), where
    else:
        assert one == other or one != one, where


def assert_same_run(one: Path, other: Path) -> None:
    """The same weights, last checkpoint, stages and events, to the bit."""
    for name in ("model", "warm-up"):
        files = [run / f"{name}.safetensors" for run in (one, other)]
        assert files[0].exists() == files[1].exists()
        if files[0].exists():
            first, second = (load_file(file) for file in files)
            assert all(torch.equal(first[key], second[key]) for key in first), name
    states = [Checkpoints(run / "checkpoints", 0).read()[0] for run in (one, other)]
    assert states[0] is not None
    assert_same(*states)
    for file in sorted((one / "stages").glob("*.parquet")) if (one / "stages").exists() else []:
        pd.testing.assert_frame_equal(pd.read_parquet(file), pd.read_parquet(other / "stages" / file.name))
    told = [
        [{k: v for k, v in e.items() if k not in ("seconds", "time")} for e in RunFolder(run).events()]
        for run in (one, other)
    ]
    assert repr(told[0]) == repr(told[1])


@pytest.mark.slow
@pytest.mark.parametrize("method", KILLED)
def test_a_run_that_is_killed_again_and_again_ends_with_the_same_bits(method: str, tmp_path: Path) -> None:
    """SIGKILL at random moments: while drawing, in a step, between stages, while writing a checkpoint."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["acpl.engine.training", "monai.networks.nets", "tests.engine.test_resume"])
    lots = random.Random(method)

    def start(out: Path) -> Any:
        process = context.Process(target=work, args=(out, method))
        process.start()
        return process

    awake = context.Process(target=time.sleep, args=(0,))  # the server's own start is not part of a run
    awake.start()
    awake.join()
    started = time.monotonic()
    unbroken = start(tmp_path / "unbroken")
    unbroken.join()
    assert unbroken.exitcode == 0
    length = time.monotonic() - started
    kills, runs = 0, 0
    while kills < -(-KILLS // len(KILLED)) or runs == 0:
        runs += 1
        out = tmp_path / f"killed-{runs}"
        while not (out / "model.safetensors").exists():
            process = start(out)
            process.join(lots.uniform(0.1, 1.0) * length)
            if process.is_alive() and kills < -(-KILLS // len(KILLED)):
                process.kill()
                kills += 1
            process.join()
            assert process.exitcode in (0, -signal.SIGKILL)
        assert_same_run(tmp_path / "unbroken", out)
    print(f"{method}: {kills} kills in {runs} runs")


def dies_at_sync(name: str, number: int = 1) -> Callable[[], None]:
    """Killed while a file of this name is written: its part is there, its name is not yet."""

    def plant() -> None:
        honest, left = os.fsync, itertools.count(number, -1)

        def sync(handle: int) -> None:
            if fnmatch(Path(f"/proc/self/fd/{handle}").readlink().name, name) and next(left) == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            honest(handle)

        os.fsync = sync

    return plant


def dies_in(owner: type, name: str, number: int, *, after: bool = False) -> Callable[[], None]:
    """Killed in so many-th call of a function, before or after its work."""

    def plant() -> None:
        honest, left = getattr(owner, name), itertools.count(number, -1)

        def call(*arguments: Any, **named: Any) -> Any:
            last = next(left) == 1
            result = honest(*arguments, **named) if after or not last else None
            if last:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        setattr(owner, name, call)

    return plant


def dies_in_a_line(number: int) -> Callable[[], None]:
    """Killed when half of an event is written."""

    def plant() -> None:
        honest, left = RunFolder.append_event, itertools.count(number, -1)

        def append(folder: RunFolder, event: Any) -> None:
            if next(left) == 1:
                with (folder.path / "events.jsonl").open("ab") as file:
                    file.write(b'{"event": "epoch", "sta')
                os.kill(os.getpid(), signal.SIGKILL)
            honest(folder, event)

        RunFolder.append_event = append  # type: ignore[method-assign]

    return plant


MOMENTS = {
    "while writing what it begins with": dies_at_sync("beginning.json.part"),
    "in a step": dies_in(ACPL, "losses", 6),
    "after a step": dies_in(ACPL, "after_step", 6, after=True),
    "between stages": dies_in(ACPL, "before_stage", 2, after=True),
    "after a stage": dies_in(ACPL, "after_stage", 2),
    "in an event": dies_in_a_line(5),
    "while writing a checkpoint": dies_at_sync("*.pt.part", 3),
    "while old checkpoints go": dies_in(Path, "unlink", 2),
    "while writing a stage's table": dies_at_sync("01.parquet.part"),
    "while writing a stage's features": dies_at_sync("features-02.parquet.part"),
    "while writing a snapshot": dies_at_sync("warm-up.safetensors.part"),
    "while writing a stage's snapshot": dies_at_sync("stage 1.safetensors.part"),
    "while gathering the report": dies_at_sync("selection.json.part"),
    "while writing the card": dies_at_sync("model.json.part"),
    "while writing the model": dies_at_sync("model.safetensors.part"),
}


def work_until(out: Path, moment: str) -> None:
    """Train until a moment at which the process dies."""
    torch.set_num_threads(1)
    MOMENTS[moment]()
    acpl.train(out=out, **SNAPPED)


SNAPPED = {**TINY, "data": "phantom-chest", "dropout": 0.2, "checkpoint_minutes": 0.0, "warmup_epochs": 2,
           "stage_epochs": 2, "batch_size": 8, "snapshots": True}  # fmt: skip


@pytest.mark.slow
def test_a_run_that_is_killed_at_each_kind_of_moment_ends_with_the_same_bits(tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["acpl.engine.training", "monai.networks.nets", "tests.engine.test_resume"])
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        whole = acpl.train(out=tmp_path / "whole", **SNAPPED)
        for number, moment in enumerate(MOMENTS):
            out = tmp_path / str(number)
            process = context.Process(target=work_until, args=(out, moment))
            process.start()
            process.join(120)
            assert process.exitcode == -signal.SIGKILL, moment
            assert not (out / "model.safetensors").exists(), moment
            acpl.train(resume=out)
            assert_same_run(whole, out)
            assert not list(out.rglob("*.part")), moment
    finally:
        torch.set_num_threads(threads)


def decode_until_killed(out: Path, table: Path, cache: Path) -> None:
    """Train on files until some of them are decoded."""
    from acpl.data import journal

    honest = journal.Journal.keep

    def keep(self: journal.Journal) -> None:
        honest(self)
        if self.read():
            os.kill(os.getpid(), signal.SIGKILL)

    journal.KEPT_EVERY = 0
    journal.Journal.keep = keep  # type: ignore[method-assign]
    acpl.train(out=out, data=str(table), cache=cache, **ON_FILES)


ON_FILES = {"size": 32, "method": "supervised", "warmup_epochs": 1, "stages": 0, "labelled": 20, "draw": "images",
            "device": "cpu"}  # fmt: skip


@pytest.mark.slow
def test_a_run_that_is_killed_while_decoding_ends_with_the_same_bits(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    rows = ["image,A,B"]
    for number in range(700):
        pixels = np.random.default_rng(number).integers(0, 256, (300, 300), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{number}.png", compress_level=0)
        rows.append(f"{number}.png,{number % 2},{number // 2 % 2}")
    (tmp_path / "images" / "labels.csv").write_text("\n".join(rows))
    table = tmp_path / "images" / "labels.csv"
    whole = acpl.train(out=tmp_path / "whole", data=str(table), cache=tmp_path / "elsewhere", **ON_FILES)
    context = multiprocessing.get_context("forkserver")
    process = context.Process(target=decode_until_killed, args=(tmp_path / "run", table, tmp_path / "cache"))
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    (part,) = (tmp_path / "cache").iterdir()
    assert 0 < (part / "decoded.jsonl").read_text().count("\n") < 700
    assert [file.name for file in (tmp_path / "run").iterdir()] == ["config.yaml"]
    acpl.train(resume=tmp_path / "run")
    first, second = (load_file(run / "model.safetensors") for run in (whole, tmp_path / "run"))
    assert all(torch.equal(first[name], second[name]) for name in first)


COMMAND = [sys.executable, "-c", UNHURRIED, "train", "--data", "phantom-chest", "--quiet"]
OPTIONS = ["--phantom-patients", "60", "--size", "32", "--fraction", "0.3", "--device", "cpu", "--batch-size", "8",
           "--warmup-epochs", "30", "--stages", "0", "--method", "supervised", "--dropout", "0.2"]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_asked_to_stop_says_how_to_go_on(number: signal.Signals, tmp_path: Path) -> None:
    out, whole = tmp_path / "run", tmp_path / "whole"
    process = subprocess.Popen([*COMMAND, *OPTIONS, "--out", str(out)], stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "OMP_NUM_THREADS": "1"})  # fmt: skip
    while not (out / "events.jsonl").exists() or (out / "events.jsonl").read_text().count("\n") < 3:
        time.sleep(0.05)
        assert process.poll() is None
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert f"go on with: acpl train --resume {out}" in said
    state, broken = Checkpoints(out / "checkpoints", 0).read()
    assert state is not None
    assert not broken
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        acpl.train(resume=out)
        settings = dict(zip((o[2:].replace("-", "_") for o in OPTIONS[::2]), OPTIONS[1::2], strict=True))
        acpl.train(out=whole, data="phantom-chest", **settings)
    finally:
        torch.set_num_threads(threads)
    assert_same_run(whole, out)


class Stutters(Quiet):
    """Asks to stop after so many steps, and remembers what was said."""

    def __init__(self, steps: int) -> None:
        self.left = steps
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def step(self, losses: Any) -> None:
        self.left -= 1
        if self.left == 0:
            signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize(("method", "feed"), [("acpl", NearFeed), ("fixmatch", FarFeed), ("s2mts2", NearFeed)])
def test_a_run_that_is_stopped_every_few_steps_ends_with_the_same_bits(
    method: str, feed: type[NearFeed | FarFeed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = () if feed is NearFeed else (torch.device("cpu"),)
    monkeypatch.setattr("acpl.engine.step.feed_for", lambda store, _: feed(store, *where))
    settings = {**settings_for(method), "schedule": "cosine", "batch_size": 4, "warmup_epochs": 2, "stage_epochs": 1,
                "checkpoint_minutes": 5}  # fmt: skip
    whole, out = tmp_path / "whole", tmp_path / "run"
    listener = Stutters(-1)
    acpl.train(out=whole, monitor=listener, **settings)
    said, within, stops = [], 0, 0
    go_on: dict[str, Any] = {"out": out, **settings}
    while not (out / "model.safetensors").exists():
        monitor = Stutters(7)
        with contextlib.suppress(Stopped):
            acpl.train(monitor=monitor, **go_on)
        go_on = {"resume": out}
        said += [line for line in monitor.said if line.startswith(("warm-up", "stage", "fixmatch", "s2mts2"))]
        state, _ = Checkpoints(out / "checkpoints", 5).read()
        assert state is not None
        within += state["place"]["random"] is not None
        stops += 1
    assert stops >= 3
    assert within >= 1
    assert_same_run(whole, out)
    assert said == [line for line in listener.said if line.startswith(("warm-up", "stage", "fixmatch", "s2mts2"))]
    assert_time_only_grows(out)


class StopsBetweenStages(Quiet):
    """Asks to stop when a stage's last step is done."""

    def end(self) -> None:
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize(("method", "own"), [("acpl", {"reinitialise": True}), ("acpl-plus", {"teachers": 2})])
def test_what_is_drawn_between_stages_is_the_same_after_a_stop_there(
    method: str, own: dict[str, Any], tmp_path: Path
) -> None:
    settings = {**settings_for(method), "warmup_epochs": 1, "stage_epochs": 1, **own}
    whole = acpl.train(out=tmp_path / "whole", **settings)
    go_on: dict[str, Any] = {"out": tmp_path / "run", **settings}
    for _ in range(3):
        with pytest.raises(Stopped):
            acpl.train(monitor=StopsBetweenStages(), **go_on)
        go_on = {"resume": tmp_path / "run"}
    acpl.train(**go_on)
    assert_same_run(whole, tmp_path / "run")


def test_the_best_predictor_is_kept_over_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    falling = itertools.count(1)
    monkeypatch.setattr("acpl.engine.loop.defined_mean", lambda _: 1 / next(falling))
    settings = {**settings_for("acpl"), "keep": "best", "validate_every": 1}
    whole = acpl.train(out=tmp_path / "whole", **settings)
    falling = itertools.count(1)
    with pytest.raises(Stopped):
        acpl.train(out=tmp_path / "run", monitor=Stutters(8), **settings)
    acpl.train(resume=tmp_path / "run")
    assert_same_run(whole, tmp_path / "run")


def assert_time_only_grows(run: Path) -> None:
    """What an earlier process spent counts."""
    events = RunFolder(run).events()
    seconds = [event["seconds"] for event in events if event["event"] == "epoch"]
    training = [event["time"].get("training", 0.0) for event in events if "time" in event]
    assert seconds == sorted(seconds)
    assert training == sorted(training)


def test_a_place_is_restored_whole() -> None:
    """Every part of it: one that is forgotten would not always show in the weights."""
    place = Place(3, True, 2, 20, 4, 64, 512, 8.5, 0.7, 0.9, {"selected": 3.0}, {"labelled": 1.5}, None)
    place.remember({"labelled": 2.5}, torch.Generator().manual_seed(3))
    other = Place()
    other.load_state_dict(place.state_dict(12.5))
    assert all(getattr(place, field.name) != field.default for field in dataclasses.fields(Place))
    place.seconds = 12.5
    assert repr(other) == repr(place)


@pytest.fixture
def cut_run(tmp_path: Path) -> Path:
    """A run whose last checkpoint and model never came to be."""
    run = acpl.train(out=tmp_path / "run", **settings_for("acpl"))
    shutil.copytree(run, tmp_path / "whole")
    (run / "model.safetensors").unlink()
    max((run / "checkpoints").iterdir()).unlink()
    return run


def test_a_broken_checkpoint_is_named_and_the_one_before_it_taken(cut_run: Path, tmp_path: Path) -> None:
    good = max((cut_run / "checkpoints").iterdir())
    for content in (good.read_bytes()[:-1], b"", b"junk", good.read_bytes()[:-9] + b"x" + good.read_bytes()[-8:]):
        (cut_run / "checkpoints" / "99999999.pt").write_bytes(content)
        state, broken = Checkpoints(cut_run / "checkpoints", 0).read()
        assert state is not None
        assert [file.name for file in broken] == ["99999999.pt"]
    (cut_run / "checkpoints" / "99999999.pt").write_bytes(b"junk")

    class Ear:
        said: list[str]

        def __getattr__(self, name: str) -> Any:
            return lambda *heard: None

    ear = Ear()
    ear.said = []
    ear.say = ear.said.append  # type: ignore[attr-defined]
    acpl.train(resume=cut_run, monitor=ear)  # type: ignore[arg-type]
    assert any("broken checkpoint passed over" in line and "99999999.pt" in line for line in ear.said)
    assert [file.name for file in (cut_run / "checkpoints").glob("*.broken")] == ["99999999.broken"]
    assert_same_run(tmp_path / "whole", cut_run)


def test_without_any_whole_checkpoint_a_run_starts_again(cut_run: Path, tmp_path: Path) -> None:
    shutil.rmtree(cut_run / "checkpoints")
    acpl.train(resume=cut_run)
    assert_same_run(tmp_path / "whole", cut_run)


def test_changed_settings_are_refused_by_name(cut_run: Path) -> None:
    with pytest.raises(acpl.UserError, match="batch_size was 8 when this run began and cannot be 16 now"):
        acpl.train(resume=cut_run, batch_size=16)
    with pytest.raises(acpl.UserError, match="k was 3 when this run began and cannot be 5 now"):
        acpl.train(resume=cut_run, k=5)
    with pytest.raises(acpl.UserError, match="nonsense"):
        acpl.train(resume=cut_run, nonsense=5)
    with pytest.raises(acpl.UserError, match="--resume takes its settings from the run"):
        acpl.train(resume=cut_run, preset="demo")
    for name, value in {"seed": 1, "method": "supervised", "data": "phantom-lesions", "learning_rate": 0.5}.items():
        with pytest.raises(acpl.UserError, match=f"{name} was .* when this run began and cannot be {value} now"):
            acpl.train(resume=cut_run, **{name: value})
    acpl.train(resume=cut_run, batch_size="8", checkpoint_minutes=3)


def test_what_may_change_is_what_the_promise_says() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reliability.md").read_text(encoding="utf-8")
    (line,) = (line for line in page.splitlines() if line.startswith("| other settings |"))
    assert set(re.findall(r"`(\w+)`", line.partition("may differ")[0])) == set(MAY_CHANGE)


def test_what_is_no_unfinished_run_is_refused(chest_run: Path, tmp_path: Path) -> None:
    with pytest.raises(acpl.UserError, match="holds a run that is done"):
        acpl.train(resume=chest_run)
    with pytest.raises(acpl.UserError, match="is not a run folder"):
        acpl.train(resume=tmp_path)


def test_a_second_process_on_the_same_run_is_refused(cut_run: Path) -> None:
    with (
        RunFolder(cut_run).locked(),
        pytest.raises(acpl.UserError, match="is being worked on by another process"),
    ):
        acpl.train(resume=cut_run)


def test_what_a_killed_process_needed_for_itself_is_cleared_away_by_who_holds_the_run(tmp_path: Path) -> None:
    folder, left = RunFolder(tmp_path), tmp_path / ".features-killed"
    left.mkdir()
    (left / "features-00000.f32").write_bytes(b"rows")
    (tmp_path / "features-01.parquet").write_bytes(b"kept")
    with folder.locked():
        assert not left.exists()
        left.mkdir()  # of this process
        with pytest.raises(acpl.UserError, match="worked on by another process"), folder.locked():
            pass
        assert left.exists()
    assert (tmp_path / "features-01.parquet").exists()


def test_a_run_that_trains_is_closed_to_others(tmp_path: Path) -> None:
    class Intruder(Quiet):
        tried = 0

        def epoch(self, number: int, steps: int, done: int = 0) -> None:
            self.tried += 1
            with pytest.raises(acpl.UserError, match="is being worked on by another process"):
                acpl.train(resume=tmp_path / "run")

    intruder = Intruder()
    quick = {**TINY, "k": None, "method": "supervised", "stages": 0}
    acpl.train(out=tmp_path / "run", monitor=intruder, **quick)
    assert intruder.tried == 1


def test_another_run_s_weights_can_be_started_from(chest_run: Path, lesions_run: Path, tmp_path: Path) -> None:
    quick = {**TINY, "stages": 0, "learning_rate": 1e-12, "method": "supervised", "k": None}
    run = acpl.train(out=tmp_path / "on", data="phantom-chest", init_from=chest_run, **quick)
    before, after = (load_file(folder / "model.safetensors") for folder in (chest_run, run))
    assert torch.allclose(before["head.weight"], after["head.weight"], atol=1e-5)
    with pytest.raises(acpl.UserError, match=r"init_from: .* has channels 3, but this run has 1"):
        acpl.train(out=tmp_path / "no", data="phantom-chest", init_from=lesions_run, **quick)
    with pytest.raises(acpl.UserError, match="not a run folder"):
        acpl.train(out=tmp_path / "no", data="phantom-chest", init_from=tmp_path / "nowhere", **quick)

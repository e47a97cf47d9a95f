"""Several processes train as one would: gloo on this machine, two to four at a time."""

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from tests.engine.crews import free_port, in_crew

import acpl
from acpl import algorithms
from acpl.engine.checkpoints import Checkpoints
from acpl.engine.crew import launched_crew
from acpl.engine.launching import at_work
from acpl.engine.run_folder import RunFolder

# eps: with Adam's own, a gradient of 1e-8 would move a weight as far as one of 1, in either direction.
TINY = {"data": "phantom-chest", "phantom_patients": 60, "phantom_errors": 0.0, "size": 32, "fraction": 0.3,
        "device": "cpu", "dropout": 0.0, "batch_size": 12, "warmup_epochs": 2, "stages": 2,
        "stage_epochs": 1, "learning_rate": 0.003, "eps": 1e-3}  # fmt: skip


SAME = 0.05
"""Share of the way that training has gone: see ``apart``."""


# Work of a process; what it returns goes back to the test.


def exchange() -> dict[str, Any]:
    crew = launched_crew()
    assert crew is not None
    with at_work(crew) as group:
        rank, size = group.rank, group.size
        rows = torch.arange(rank * 10, rank * 10 + (0 if rank == 1 else rank + 1))  # 1, none, 3, …
        found: dict[str, Any] = {
            "sum": group.sum(torch.tensor([rank, 2**60])).tolist(),
            "yes": group.sum(torch.tensor([True, rank == 0])).tolist(),
            "least": group.least(torch.tensor([float(rank), -float(rank)])).tolist(),
            "gathered": group.gather(rows).tolist(),
            "wide": group.gather(rows[:, None].expand(-1, 2) > 10).tolist(),
            "nothing": list(group.gather(torch.empty(0, 3)).shape),
            "passed": group.pass_on(rows).tolist(),
            "round": [],
            "told": group.told({"by": rank}),
            "agreed": group.agree(rank == size - 1, False),
            "flags": [group.flag(rank == 1 and number == 2) for number in range(5)],
        }
        for _ in range(size):
            rows = group.pass_on(rows)
            found["round"].append(rows.tolist())
    assert "MASTER_PORT" in os.environ  # the test's own; nothing that was added is left
    assert "GLOO_SOCKET_IFNAME" not in os.environ
    return found


def train(out: Path, stop_at: int | None = None, look_batch: int = 256, **settings: Any) -> dict[str, Any]:
    """Train, and what the method holds when it is over; ``stop_at`` asks the last process to stop there."""
    from acpl.engine import inference, loop

    inference.BATCH = look_batch
    states: list[Any] = []
    after, epoch = loop.Trainer.fit, loop.Trainer._epoch

    def fit(self: Any, method: Any, state: Any = None) -> Any:
        states.append({"start": plain(method.state_dict())})
        try:
            return after(self, method, state)
        finally:
            place = {"steps": self.place.steps, "images": self.place.images}
            states[-1] |= plain({"method": method.state_dict(), **place})

    def asked(self: Any, *arguments: Any) -> Any:
        if stop_at is not None and self.processes.rank == self.processes.size - 1:
            step = arguments[2]
            real = step.__class__.__call__

            def call(one: Any, number: int) -> None:
                real(one, number)
                self.stop.asked = self.place.steps + 1 >= stop_at

            step.__class__.__call__ = call
            try:
                return epoch(self, *arguments)
            finally:
                step.__class__.__call__ = real
        return epoch(self, *arguments)

    loop.Trainer.fit, loop.Trainer._epoch = fit, asked  # type: ignore[method-assign]
    said = None
    try:
        if (out / "config.yaml").exists():
            acpl.train(resume=out, **settings)
        else:
            # not the preset's crops: with those a sample here lies on the border of two information sets, and sums in
            # another order send it across
            acpl.train(out=out, **{"crop": (0.6, 1.0), **TINY, **settings})
    except acpl.UserError as error:
        said = f"{type(error).__name__}: {error}"
    return {"said": said, **(states[-1] if states else {})}


def plain(state: Any) -> Any:
    """A state as NumPy arrays, which go through a pipe as they are."""
    if isinstance(state, torch.Tensor):
        return state.detach().cpu().numpy().copy()
    return {name: plain(value) for name, value in state.items()} if isinstance(state, dict) else state


def differences(one: Any, other: Any, where: str = "") -> Iterator[tuple[str, float]]:
    """Where two states differ, and by how much."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for name in one:
            yield from differences(one[name], other[name], f"{where}.{name}")
    elif hasattr(one, "shape"):
        assert one.shape == other.shape, where
        apart = torch.from_numpy(one).double().nan_to_num() - torch.from_numpy(other).double().nan_to_num()
        yield where, float(apart.abs().max()) if apart.numel() else 0.0
    else:
        assert one == other, where


def furthest(one: Any, other: Any) -> tuple[str, float]:
    return max(differences(one, other), key=lambda found: found[1])


def apart(result: Any, reference: Any) -> float:
    """How far two runs' trained weights are apart, as a share of how far training has moved the reference's.

    Sums in another order differ by 1e-7 of a value, but a ReLU whose input is 0 but for that opens or not: over some
    steps that makes some thousandths. Statistics of a part alone make 0.9, another seed 11.
    """
    weights = [name for name in reference["start"]["trained"] if name.endswith(("weight", "bias"))]

    def distance(one: Any, other: Any) -> float:
        return math.sqrt(sum(float(((one[n].astype("f8") - other[n]) ** 2).sum()) for n in weights))

    moved = distance(reference["method"]["trained"], reference["start"]["trained"])
    return distance(result["method"]["trained"], reference["method"]["trained"]) / moved


# Tests


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 3])
def test_processes_exchange_uneven_and_empty_parts(size: int) -> None:
    results = in_crew(size, exchange)
    parts = [[0], [], [20, 21, 22]][:size]
    everything = [number for part in parts for number in part]
    for rank, found in enumerate(results):
        assert found["sum"] == [sum(range(size)), size * 2**60]
        assert found["yes"] == [size, 1]
        assert found["least"] == [0.0, -(size - 1.0)]
        assert found["gathered"] == everything
        assert found["wide"] == [[number > 10] * 2 for number in everything]
        assert found["nothing"] == [0, 3]
        assert found["passed"] == parts[rank - 1]
        assert found["round"] == [parts[(rank - far) % size] for far in range(1, size + 1)]
        assert found["told"] == {"by": 0}
        assert found["agreed"] == (True, False)
        # Raised at the third call of one process, heard by all at the fourth.
        assert found["flags"] == [False, False, False, True, False]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["supervised", "acpl"])
@pytest.mark.parametrize("data", ["phantom-chest", "phantom-lesions"])
def test_two_and_four_processes_learn_what_one_does(data: str, method: str, tmp_path: Path) -> None:
    """The same number of steps and images and, but for the order of sums, weights."""
    settings = {"data": data, "method": method, **({"k": 3} if method == "acpl" else {"stages": 0})}
    if data == "phantom-lesions":
        settings |= {"cutmix": 0.7, "batch_size": 16}  # four parts of even size
    (alone,) = in_crew(1, train, tmp_path / "1", **settings)
    for size in (2, 4):
        results = in_crew(size, train, tmp_path / str(size), **settings)
        for result in results[1:]:
            assert furthest(results[0], result)[1] == 0, "all processes must end with the same bits"
        assert results[0]["steps"] == alone["steps"]
        assert results[0]["images"] == alone["images"]
        assert apart(results[0], alone) < SAME
        first, second = (
            next(event["losses"] for event in RunFolder(tmp_path / name).events() if "losses" in event)
            for name in ("1", str(size))
        )
        assert first == pytest.approx(second, rel=1e-3), "the whole batch's losses are told"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "look_batch", "looks"), [("phantom-chest", 8, "mirrored"), ("phantom-lesions", 256, "one")]
)
def test_the_same_weights_select_the_same_on_one_to_four_processes(
    data: str, look_batch: int, looks: str, tmp_path: Path
) -> None:
    """Ids, pseudo-labels, densities and anchors to the bit: uneven shares of small batches, empty ones of large."""
    warm = tmp_path / "warm"
    steps = 4 if data == "phantom-chest" else 2
    (stopped,) = in_crew(1, train, warm, steps, look_batch, data=data, method="acpl", k=3, looks=looks)
    assert stopped["said"].startswith(f"Stopped: stopped at step {steps}")
    assert (warm / "warm-up.safetensors").exists(), "the warm-up should have ended just then"
    assert not (warm / "stages").exists()
    found = []
    for size in (1, 2, 3, 4):
        out = tmp_path / str(size)
        shutil.copytree(warm, out)
        results = in_crew(size, train, out, None, look_batch)
        assert all(result["said"] is None for result in results)
        found.append(pd.read_parquet(out / "stages" / "01.parquet"))
        assert found[0]["selected"].any()
        pd.testing.assert_frame_equal(found[-1], found[0], check_exact=True)


@pytest.mark.slow
@pytest.mark.parametrize("method", algorithms.names())
def test_every_method_holds_the_same_on_all_processes(method: str, tmp_path: Path) -> None:
    """Memories, queues, teachers and pseudo-labels besides the weights; dropout differs from part to part."""
    chosen = {"acpl": {"k": 3}, "graph-xnet": {"k": 3},
              "acpl-plus": {"k": 3, "consistency": 1.0, "labelled_loss": "class-balanced", "teachers": 1},
              "ups": {"positive": 0.3, "positive_spread": 0.5, "negative_spread": 0.5}}  # fmt: skip
    settings = {"dropout": 0.3, "steps": 7, **chosen.get(method, {})}
    first, second = in_crew(2, train, tmp_path / "run", method=method, **settings)
    assert first["said"] is None
    assert furthest(first, second)[1] == 0
    assert first["steps"] == 7 or method in ("acpl", "acpl-plus")
    assert (tmp_path / "run" / "model.safetensors").exists()
    assert json.loads((tmp_path / "run" / "model.json").read_text())["classes"]


# Three steps an epoch, so that what is heard one step later is still heard within it.
STEADY = {"method": "supervised", "stages": 0, "batch_size": 6, "warmup_epochs": 6}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "sizes", "stops"),
    [
        (STEADY, (2, 1, 3), (1, 7, None)),
        (STEADY, (1, 3, 2), (1, 7, None)),
        ({"method": "acpl", "k": 3}, (3, 2, 1), (1, 5, None)),
        ({"method": "acpl", "k": 3}, (1, 2, 4), (1, 5, None)),
    ],
)
def test_a_run_goes_on_with_another_number_of_processes(
    settings: dict[str, Any], sizes: tuple[int, ...], stops: tuple[int | None, ...], tmp_path: Path
) -> None:
    """Stopped by one process's word, twice, and ended with the weights of an unbroken run of one."""
    (unbroken,) = in_crew(1, train, tmp_path / "unbroken", **settings)
    out = tmp_path / "run"
    for size, stop in zip(sizes, stops, strict=True):
        results = in_crew(size, train, out, stop, **({} if (out / "config.yaml").exists() else settings))
        if stop is None:
            continue
        assert results[0]["said"].startswith("Stopped: stopped at step")
        assert all(result["said"].startswith("SaidElsewhere") for result in results[1:])
        state, broken = Checkpoints(out / "checkpoints", 0).read()
        assert state is not None
        assert not broken
        assert state["place"]["steps"] in (stop, stop + 1)
        if settings is STEADY:
            assert state["place"]["random"] is not None, "it should have stopped within an epoch"
    assert results[0]["said"] is None
    assert results[0]["steps"] == unbroken["steps"]
    assert results[0]["images"] == unbroken["images"]
    assert apart(results[0], unbroken) < SAME


@pytest.mark.slow
def test_as_many_processes_go_on_with_the_very_same_random_numbers(tmp_path: Path) -> None:
    settings = {**STEADY, "dropout": 0.5}
    unbroken = in_crew(2, train, tmp_path / "unbroken", **settings)
    in_crew(2, train, tmp_path / "run", 4, **settings)
    state, _ = Checkpoints(tmp_path / "run" / "checkpoints", 0).read()
    assert state is not None
    assert len(state["place"]["random"]["global"]) == 2
    ended = in_crew(2, train, tmp_path / "run")
    assert furthest(unbroken[0]["method"], ended[0]["method"])[1] == 0


@pytest.mark.slow
def test_what_one_process_refuses_ends_all_with_its_sentence(tmp_path: Path) -> None:
    results = in_crew(3, train, tmp_path / "run", method="supervised", batch_size=8)
    assert results[0]["said"] == ("UserError: batch_size 8 cannot be shared out evenly among 3 processes; 6 or 9 can")
    assert [result["said"].split(":")[0] for result in results[1:]] == ["SaidElsewhereError"] * 2
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize("which", [0, 1, 2])
def test_what_one_process_fails_of_in_a_step_all_say_in_its_words(which: int, tmp_path: Path) -> None:
    results = in_crew(3, broken_on_one, tmp_path / "run", which)
    said = f"the disk of process {which} is full"
    assert [result["said"] for result in results] == [f"UserError: {said}", *[f"SaidElsewhereError: {said}"] * 2]


def broken_on_one(out: Path, which: int) -> dict[str, Any]:
    from acpl.engine import step

    real = step.TrainingStep.__call__

    def call(self: Any, number: int) -> None:
        if self._part.number == which and number == 1:
            raise acpl.UserError(f"the disk of process {which} is full")
        real(self, number)

    step.TrainingStep.__call__ = call  # type: ignore[method-assign]
    return train(out, method="supervised", stages=0, batch_size=9)


# From the shell: what a person starts, and what happens to it.

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
STARTED: list["subprocess.Popen[str]"] = []
LONG = ["--data", "phantom-chest", "--phantom-patients", "60", "--size", "32", "--fraction", "0.3", "--device", "cpu",
        "--batch-size", "8", "--warmup-epochs", "100000", "--stages", "0", "--method", "supervised",
        "--checkpoint-minutes", "0"]  # fmt: skip


@pytest.fixture(autouse=True)
def none_is_left_behind() -> Iterator[None]:
    """What a test that failed has started would take the processors from those that follow."""
    yield
    for process in STARTED:
        if process.poll() is None:
            process.kill()
    STARTED.clear()


def start(*words: str, **variables: str) -> "subprocess.Popen[str]":
    command = [sys.executable, *(words if words[0] == "-m" else ("-m", "acpl", "train", *words))]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env={**ENVIRONMENT, **variables}, preexec_fn=as_in_a_terminal)  # fmt: skip
    STARTED.append(process)
    return process


def as_in_a_terminal() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whatever these tests were started by, such as nohup


def has_checkpoint(out: Path, process: "subprocess.Popen[str]", more_than: int = 0) -> None:
    until = time.monotonic() + 200
    while not any(int(file.stem) > more_than for file in (out / "checkpoints").glob("*.pt")):
        time.sleep(0.1)
        if process.poll() is not None:
            pytest.fail(f"it has ended with {process.returncode}:\n{process.communicate()[1]}")
        assert time.monotonic() < until


def children(process: "subprocess.Popen[str]") -> list[int]:
    """The processes of a run that this one has started: its own workers of data have another command."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                command = (entry / "cmdline").read_text()
            except OSError:
                continue
            if parent == process.pid and "acpl" in command:
                found.append(int(entry.name))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_asked_to_stop_all_stop_with_one_checkpoint(number: signal.Signals, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = start(*LONG, "--devices", "2", "--out", str(out))
    has_checkpoint(out, process)
    (other,) = children(process)
    process.send_signal(number)
    if number == signal.SIGHUP:  # a terminal that is closed tells all
        os.kill(other, number)
    printed, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert said.count("\n") == 1, said
    assert f"go on with: acpl train --resume {out}" in said
    assert "next:" not in printed
    assert not Path(f"/proc/{other}").exists()
    step = int(re.findall(r"stopped at step (\d+)", said)[0])
    newest = Checkpoints(out / "checkpoints", 0).newest()
    assert newest is not None
    assert int(newest.stem) == step


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["other", "first"])
def test_one_that_is_killed_stops_all_with_a_word(victim: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = start(*LONG, "--devices", "3", "--batch-size", "12", "--out", str(out))
    has_checkpoint(out, process)
    others = children(process)
    assert len(others) == 2
    os.kill(others[0] if victim == "other" else process.pid, signal.SIGKILL)
    _, said = process.communicate(timeout=60)  # ends when the last has closed its end
    words = [line for line in said.splitlines() if line.startswith("acpl: ")]
    assert len(words) == 1, said
    who = "process 1 of 3 was ended by signal 9 (SIGKILL)" if victim == "other" else "process 0 of the run ended"
    assert who in words[0]
    assert f"go on from the last checkpoint with: acpl train --resume {out}" in words[0]
    until = time.monotonic() + 20
    while any(Path(f"/proc/{other}").exists() for other in others):
        time.sleep(0.1)
        assert time.monotonic() < until
    assert Checkpoints(out / "checkpoints", 0).read()[0] is not None


@pytest.mark.slow
def test_torchrun_goes_on_from_the_last_checkpoint_when_one_is_killed(tmp_path: Path) -> None:
    out = tmp_path / "run"
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1",
                "--master-port", str(free_port()), "-m", "acpl", "train"]  # fmt: skip
    process = start(*torchrun, *LONG, "--out", str(out), "--quiet")
    has_checkpoint(out, process)
    reached = max(int(file.stem) for file in (out / "checkpoints").glob("*.pt"))
    before = children(process)
    assert len(before) == 2
    os.kill(before[1], signal.SIGKILL)
    has_checkpoint(out, process, more_than=reached + 20)
    assert len(set(children(process)) - set(before)) == 2
    steps = [event["step"] for event in RunFolder(out).events() if event["event"] == "epoch"]
    assert steps == sorted(set(steps)), "no epoch is told twice, none is lost"
    assert [a - b for a, b in zip(steps[1:], steps, strict=False)] == [steps[0]] * (len(steps) - 1)
    process.terminate()
    _, said = process.communicate(timeout=60)
    assert "Traceback" not in said.split("torch/distributed")[0]


def meet(port: int, attempt: int) -> list[int]:
    """Meet the other where torchrun says, the second a little later than the first."""
    rank = os.environ["LOCAL_RANK"]
    os.environ |= {"TORCHELASTIC_RUN_ID": "one", "TORCHELASTIC_RESTART_COUNT": str(attempt),
                   "TORCHELASTIC_USE_AGENT_STORE": "True", "MASTER_PORT": str(port),
                   "RANK": rank, "GROUP_RANK": "0", "LOCAL_WORLD_SIZE": "2"}  # fmt: skip
    time.sleep(2 * int(rank))
    crew = launched_crew()
    assert crew is not None
    with at_work(crew) as group:
        return group.gather(torch.tensor([group.rank])).tolist()


@pytest.mark.slow
def test_a_restart_does_not_look_for_processes_of_the_attempt_before() -> None:
    """Their addresses are still in the store, which torchrun keeps."""
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    for attempt in (0, 1, 2):
        assert in_crew(2, meet, store.port, attempt) == [[0, 1], [0, 1]]


def test_a_restart_that_would_not_find_its_run_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "3")
    with pytest.raises(acpl.UserError, match="--out should name the run's folder"):
        acpl.train(**TINY)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    run = acpl.train(out=tmp_path / "run", method="supervised", **{**TINY, "stages": 0, "warmup_epochs": 1})
    (run / "model.safetensors").unlink()
    with pytest.raises(acpl.UserError, match="batch_size was 12 when this run began and cannot be 24 now"):
        acpl.train(out=run, method="supervised", **{**TINY, "stages": 0, "warmup_epochs": 1, "batch_size": 24})
    assert acpl.train(out=run, method="supervised", **{**TINY, "stages": 0, "warmup_epochs": 1}) == run
    assert (run / "model.safetensors").exists()


@pytest.fixture
def two_machines() -> Iterator[tuple[list[str], list[str]]]:
    """Commands that run what follows on one of two machines: network namespaces, 10.77.0.1 and 10.77.0.2."""
    names = [f"acpl-{os.getpid()}-{number}" for number in (1, 2)]

    def ip(*words: str) -> None:
        done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"no network namespaces here: ip {' '.join(words)}: {done.stderr.strip()}")

    if shutil.which("ip") is None:
        pytest.skip("no network namespaces here: there is no command ip")
    try:
        for name in names:
            ip("netns", "add", name)
        wires = [f"acpl{os.getpid() % 100000}{side}" for side in "ab"]
        ip("link", "add", wires[0], "netns", names[0], "type", "veth", "peer", "name", wires[1], "netns", names[1])
        for number, (name, wire) in enumerate(zip(names, wires, strict=True), start=1):
            ip("-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", wire)
            ip("-n", name, "link", "set", wire, "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield ["ip", "netns", "exec", names[0]], ["ip", "netns", "exec", names[1]]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


@pytest.mark.slow
def test_two_machines_with_addresses_of_their_own(two_machines: tuple[list[str], list[str]], tmp_path: Path) -> None:
    """Two processes each, the second machine without the run's folder: the result of one process."""
    settings = {**TINY, "method": "supervised", "stages": 0, "warmup_epochs": 3}
    options = [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    shared = {**ENVIRONMENT, "MASTER_ADDR": "10.77.0.1", "MASTER_PORT": str(free_port())}
    machines = []
    for number, machine in enumerate(two_machines):
        home = tmp_path / f"machine-{number}"
        home.mkdir()
        command = [
            *machine,
            sys.executable,
            "-m",
            "acpl",
            "train",
            *options,
            "--devices",
            "2",
            "--nodes",
            "2",
            "--out",
            "run",
        ]
        machines.append(
            subprocess.Popen(command, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             env={**shared, "NODE_RANK": str(number), "PYTHONPATH": os.pathsep.join(sys.path)})
        )  # fmt: skip
    ended = [machine.communicate(timeout=240) for machine in machines]
    assert [machine.returncode for machine in machines] == [0, 0], ended
    assert "next: acpl evaluate" in ended[0][0]
    assert ended[1][0] == ""
    assert "acpl" not in ended[1][1]  # torch itself has a word on names that it cannot resolve
    assert not (tmp_path / "machine-1" / "run").exists()
    acpl.train(out=tmp_path / "alone", **settings)
    weights = [load_file(run / "model.safetensors") for run in (tmp_path / "alone", tmp_path / "machine-0" / "run")]
    one, other = (torch.cat([values.flatten().float() for values in each.values()]) for each in weights)
    assert (one - other).norm() < 1e-3 * one.norm()

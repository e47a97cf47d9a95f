"""Who trains together, found in the environment; and what is refused before anybody is started."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import acpl
from acpl.config import Config
from acpl.engine.crew import _SIZES, check_batch_size, check_number, interface_towards, launched_crew, own_crew
from acpl.engine.device import Device
from acpl.engine.inference import BATCH, share_of
from acpl.engine.run_folder import ElsewhereFolder, ModelCard
from acpl.engine.watch import how_it_ended
from acpl.errors import UserError


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """No launcher's variables but those that a test sets."""
    for name in os.environ:
        if name.startswith(("SLURM_", "TORCHELASTIC_")) or name in (*_SIZES, "LOCAL_RANK", "NODE_RANK", "RANK"):
            monkeypatch.delenv(name)


def set_all(monkeypatch: pytest.MonkeyPatch, **variables: object) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, str(value))


def test_a_process_that_nobody_launched_is_alone_and_needs_no_fabric() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from acpl.engine.crew import launched_crew, own_crew; "
         "assert launched_crew() is None and own_crew(1, 1) is None; import acpl.api; "
         "print('lightning_fabric' in sys.modules)"],
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    assert done.stdout.strip() == "False"


def test_torchrun_s_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, TORCHELASTIC_RUN_ID="x", WORLD_SIZE=8, LOCAL_WORLD_SIZE=4, RANK=5, LOCAL_RANK=1, GROUP_RANK=1)
    crew = launched_crew()
    assert crew is not None
    assert (crew.rank, crew.size, crew.local_rank, crew.devices, crew.nodes) == (5, 8, 1, 4, 2)
    assert not crew.starts_others
    check_number(1, 1, crew)
    check_number(4, 2, crew)
    with pytest.raises(UserError, match="devices 2 × nodes 1 make 2 processes, but the launcher has started 8"):
        check_number(2, 1, crew)


def test_srun_s_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, SLURM_NTASKS=6, SLURM_NTASKS_PER_NODE=3, SLURM_NNODES=2, SLURM_PROCID=4, SLURM_LOCALID=1,
            SLURM_NODEID=1, SLURM_JOB_ID=77, SLURM_JOB_NAME="train", SLURM_NODELIST="node[3-4]")  # fmt: skip
    assert launched_crew() is None, "a batch script's own process was not started by srun"
    set_all(monkeypatch, SLURM_STEP_ID=0)
    crew = launched_crew()
    assert crew is not None
    assert (crew.rank, crew.size, crew.local_rank, crew.devices, crew.nodes) == (4, 6, 1, 3, 2)
    assert crew.environment.main_address == "node3"
    monkeypatch.delenv("SLURM_NTASKS_PER_NODE")
    with pytest.raises(UserError, match="Use `--ntasks-per-node=6` instead"):
        launched_crew()


def test_one_process_of_a_launcher_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, TORCHELASTIC_RUN_ID="x", WORLD_SIZE=1, LOCAL_WORLD_SIZE=1, RANK=0, LOCAL_RANK=0)
    assert launched_crew() is None


def test_own_processes_of_one_and_of_several_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    crew = own_crew(3, 1)
    assert crew is not None
    assert (crew.rank, crew.size, crew.starts_others) == (0, 3, True)
    with pytest.raises(UserError, match="nodes is 2: start the same command on each machine with MASTER_ADDR"):
        own_crew(3, 2)
    set_all(monkeypatch, MASTER_ADDR="10.0.0.1", MASTER_PORT=1234, NODE_RANK=1)
    crew = own_crew(3, 2)
    assert crew is not None
    assert (crew.rank, crew.size, crew.nodes, crew.environment.main_address) == (3, 6, 2, "10.0.0.1")
    set_all(monkeypatch, NODE_RANK=2)
    with pytest.raises(UserError, match="NODE_RANK is 2, but nodes is 2: it should be 0 to 1"):
        own_crew(3, 2)


def test_without_fabric_the_command_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightning_fabric.plugins.environments", None)
    with pytest.raises(UserError, match=r"pip install 'acpl\[distributed\]'"):
        acpl.train(devices=2, device="cpu")


def test_batches_that_cannot_be_shared_out_are_refused_with_those_that_can(tmp_path: Path) -> None:
    check_batch_size(32, 4)
    with pytest.raises(UserError, match="batch_size 32 cannot be shared out evenly among 3 processes; 30 or 33 can"):
        acpl.train(out=tmp_path / "run", devices=3, device="cpu", batch_size=32)
    with pytest.raises(UserError, match=r"among 8 processes; 8 can$"):
        check_batch_size(4, 8)
    check_batch_size(7, 1, even=True)
    check_batch_size(32, 4, even=True)
    with pytest.raises(
        UserError, match=r"cutmix pairs a batch's images, .* 12 gives 4 processes no even number each; 16 do"
    ):
        check_batch_size(12, 4, even=True)
    assert not (tmp_path / "run").exists()


def test_each_process_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="cuda:1 is one GPU"):
        Device.check_several("cuda:1", 2)
    Device.check_several("cpu", 64)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    Device.check_several("auto", 2)
    with pytest.raises(UserError, match="3 processes a machine were asked for, but it has 2 GPU"):
        Device.check_several("cuda", 3)
    assert [Device.choose("auto", "auto", rank).torch.index for rank in range(2)] == [0, 1]


@pytest.mark.parametrize("count", [0, 1, BATCH, BATCH + 1, 7 * BATCH - 3])
@pytest.mark.parametrize("parts", [1, 2, 3, 4, 9])
def test_shares_of_a_look_are_whole_batches_in_order(count: int, parts: int) -> None:
    rows = [share_of(count, number, parts) for number in range(parts)]
    assert [row for share in rows for row in range(share.start, share.stop)] == list(range(count))
    assert all(share.start % BATCH == 0 or share.start == count for share in rows)
    sizes = [-(-(share.stop - share.start) // BATCH) for share in rows]
    assert max(sizes) - min(sizes) <= 1


def test_this_machine_reaches_itself_by_its_loopback() -> None:
    assert interface_towards("127.0.0.1") == "lo"
    assert interface_towards("no such name") is None


def test_the_other_processes_folder_stays_empty(tmp_path: Path) -> None:
    folder = ElsewhereFolder(tmp_path / "run")
    card = ModelCard("multi-label", ["a"], "small", "relu", 1, 8, [0.0], [1.0], None, False)
    with folder.locked():
        folder.write_config(Config())
        folder.append_event({"event": "x"})
        folder.write_weights("model", {})
        folder.write_stage(1, {}, [])
        folder.write_card(card)
        folder.write_json("x.json", {})
        folder.sync_events()
        folder.cut_events(0)
    assert folder.events_size() == 0
    assert not (tmp_path / "run").exists()
    written = {name for name in dir(ElsewhereFolder) if name.startswith(("write_", "append_", "cut_", "sync_"))}
    assert written <= set(vars(ElsewhereFolder)), "a new way to write must be silent here, too"


def test_exit_codes_in_words() -> None:
    assert how_it_ended(3) == "ended with exit code 3"
    assert how_it_ended(-9) == "was ended by signal 9 (SIGKILL)"
    assert how_it_ended(-1000) == "was ended by signal 1000"


def test_the_module_that_torchrun_starts_is_the_shell_s() -> None:
    assert importlib.import_module("acpl.__main__").main is importlib.import_module("acpl.cli").main
    assert json.loads(json.dumps({"devices": Config().devices, "nodes": Config().nodes})) == {"devices": 1, "nodes": 1}

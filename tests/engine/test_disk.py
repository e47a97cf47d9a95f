"""Real disks that are full, may only be read, or vanish, and the command itself: a sentence each, and nothing is lost.

The disks are mounted in a namespace of the test's own process, which needs Linux, and go with it.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.engine.test_resume import assert_same_run

OPTIONS = (
    "--data phantom-chest --phantom-patients 60 --size 32 --fraction 0.3 --device cpu --batch-size 8 --k 3 "
    "--warmup-epochs 3 --stages 1 --stage-epochs 2 --checkpoint-minutes 0 --quiet"
)
DRIVER = """
import contextlib, io, json, os, subprocess, sys
import torch
from acpl.cli import main
torch.set_num_threads(1)

def mounted(folder, *how):
    os.makedirs(folder, exist_ok=True)
    subprocess.run(["mount", *how, folder], check=True)

def acpl(line):
    sys.argv = ["acpl", *line.split()]
    said, heard = io.StringIO(), io.StringIO()
    code = 0
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(heard):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    answers.append([code, said.getvalue().strip(), heard.getvalue().strip()])

answers = []
exec(sys.argv[1], {**globals(), "place": sys.argv[2], "options": sys.argv[3]})
print(json.dumps(answers))
"""
ALONE = ["unshare", "--map-root-user", "--mount"]


def may_mount() -> bool:
    if shutil.which("unshare") is None or shutil.which("mount") is None:
        return False
    probe = [*ALONE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


pytestmark = [pytest.mark.slow, pytest.mark.skipif(not may_mount(), reason="no disk can be mounted here")]


def on_a_disk(script: str, place: Path) -> list[tuple[int, str, str]]:
    """Exit code, what was said in trouble and what else was said, of each command that the script gives."""
    done = subprocess.run(
        [*ALONE, sys.executable, "-c", DRIVER, script, str(place), OPTIONS],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    answers: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return [(code, said, heard) for code, said, heard in answers]


def assert_sentence(answer: tuple[int, str, str], *words: str) -> None:
    code, said, _ = answer
    assert code == 2, said
    assert "\n" not in said
    assert said.startswith("acpl: ")
    for word in words:
        assert word in said


def test_a_disk_that_fills_up_costs_nothing_that_was_written(tmp_path: Path) -> None:
    script = """
import shutil
disk = place + "/disk"
mounted(disk, "-t", "tmpfs", "-o", "size=15m", "tmpfs")
acpl(f"train {options} --out {disk}/run")
shutil.copytree(disk + "/run", place + "/cut")
mounted(disk, "-o", "remount,size=60m")
acpl(f"train --resume {disk}/run --quiet")
shutil.copytree(disk + "/run", place + "/run")
with open(disk + "/rest", "wb", buffering=0) as rest, contextlib.suppress(OSError):
    while True:
        rest.write(bytes(2**12))
acpl(f"evaluate {disk}/run --resamples 10 --device cpu")
acpl(f"report {disk}/run")
acpl(f"export {disk}/run --format torchscript")
acpl(f"export {disk}/run --format onnx")
image = os.path.dirname(disk) + "/image.png"
from PIL import Image
Image.new("L", (40, 40), 99).save(image)
acpl(f"predict {disk}/run {image} --device cpu --out {disk}/predicted.csv")
acpl(f"suggest {disk}/run --device cpu")
left = sorted(name for _, _, names in os.walk(disk) for name in names if name.endswith(".part") or "predicted" in name)
acpl(f"train {options} --out {place}/whole")
answers.append([0, " ".join(left), ""])
"""
    cut, resumed, *full, whole, left = on_a_disk(script, tmp_path)
    assert_sentence(cut, ".pt could not be written, for the disk is full; everything written before is whole")
    assert (resumed[0], whole[0]) == (0, 0)
    assert not list((tmp_path / "cut").rglob("*.part"))
    assert_same_run(tmp_path / "whole", tmp_path / "run")
    assert len(full) == 6
    for answer in full:
        assert_sentence(answer, "could not be written, for the disk is full")
    assert left[1] == ""


def test_a_folder_that_may_only_be_read_is_named(tmp_path: Path) -> None:
    script = """
import os, shutil
acpl(f"train {options} --out {place}/own/run")
shutil.copytree(place + "/own/run", place + "/own/cut")
os.unlink(place + "/own/cut/model.safetensors")
mounted(place + "/bound", "--bind", place + "/own")
mounted(place + "/bound", "-o", "remount,ro,bind")
from PIL import Image
Image.new("L", (40, 40), 99).save(place + "/image.png")
for line in (
    f"train {options} --out {place}/bound/new",
    f"train --resume {place}/bound/cut --quiet",
    f"evaluate {place}/bound/run --resamples 10 --device cpu",
    f"report {place}/bound/run",
    f"export {place}/bound/run --format safetensors",
    f"suggest {place}/bound/run --device cpu",
    f"predict {place}/bound/run {place}/image.png --device cpu --out {place}/bound/predicted.csv",
    f"compare --methods supervised --fractions 0.3 --seeds 1 --data phantom-chest --out {place}/bound/compared",
    f"reproduce table1 --data phantom-chest --work {place}/bound/work --out {place}/bound/results --methods supervised "
    "--seeds 1 --fractions 0.3 --steps 2 --phantom-patients 40 --size 32 --device cpu",
):
    acpl(line)
"""
    made, *refused = on_a_disk(script, tmp_path)
    assert made[0] == 0
    assert len(refused) == 9
    for answer in refused:
        code, said, heard = answer
        assert (code, said.count("\n")) == (2, 0), (said, heard)
        assert "Read-only file system" in said or "may only be read" in said
        assert f"{tmp_path}/bound" in said


def test_a_disk_that_is_taken_away_ends_training_with_a_sentence(tmp_path: Path) -> None:
    script = """
import threading, time
disk = place + "/disk"
mounted(disk, "-t", "tmpfs", "-o", "size=60m", "tmpfs")
def take_away():
    while not os.path.exists(disk + "/run/events.jsonl"):
        time.sleep(0.02)
    subprocess.run(["umount", "--lazy", disk], check=True)
thief = threading.Thread(target=take_away)
thief.start()
acpl(f"train {options} --out {disk}/run".replace("--warmup-epochs 3", "--warmup-epochs 2000"))
thief.join()
"""
    (answer,) = on_a_disk(script, tmp_path)
    assert_sentence(answer, "could not be written, for the folder", "is gone: was it moved, or a disk taken away?")

"""The tutorial's commands, run in order in an empty folder."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pandas as pd
import pytest

TUTORIAL = Path(__file__).parents[1] / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
REVIEWED = 20
SHORTER = {"warmup_epochs: 40": "warmup_epochs: 4", "stage_epochs: 4": "stage_epochs: 1"}
"""What only a good result would need: nothing here asks how good it is."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with the command ``acpl`` of this interpreter on the path."""
    command = tmp_path / "bin" / "acpl"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from acpl.cli import main; main()" "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("ACPL_CACHE", str(tmp_path / "cache"))
    work = tmp_path / "work"
    work.mkdir()
    return work


def play_the_radiologist(line: str, place: Path) -> None:
    """Serve the review, give the true findings for its first images over HTTP, and end it as Ctrl+C does."""
    truth = pd.read_csv(place / "truth.csv", dtype={"image": str}).set_index("image")
    server = subprocess.Popen(["sh", "-c", f"exec {line}"], cwd=place, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    first = server.stdout.readline()
    assert first.startswith("open: http://127.0.0.1:"), first
    address = first.split()[1]
    origin = "/".join(address.split("/")[:3])
    with urllib.request.urlopen(f"{address}queue.json") as answer:
        queue = json.load(answer)
    for item in queue["items"][:REVIEWED]:
        labels = [name for name in queue["classes"] if truth.loc[item["image"], name] == 1]
        body = json.dumps({"id": item["id"], "labels": labels}).encode()
        headers = {"Content-Type": "application/json", "Origin": origin}
        urllib.request.urlopen(urllib.request.Request(f"{address}decide", body, headers)).close()
    server.send_signal(signal.SIGINT)
    rest, _ = server.communicate(timeout=60)
    assert server.returncode == 0
    assert f"reviewed: {REVIEWED} images" in rest
    assert "next: acpl train --data runs/first/reviewed.csv" in rest


@pytest.mark.slow
def test_every_command_of_the_tutorial_runs_and_the_second_round_has_more_labels(place: Path) -> None:
    text = TUTORIAL.read_text(encoding="utf-8")
    for whole, short in SHORTER.items():
        assert text.count(whole) == 1
        text = text.replace(whole, short)
    blocks = BLOCK.findall(text)
    assert len(blocks) >= 9
    for kind, code in blocks:
        if kind == "python":
            subprocess.run([sys.executable, "-c", code], cwd=place, check=True)
            continue
        for line in code.splitlines():
            if line.startswith("acpl review"):
                play_the_radiologist(line, place)
            else:
                done = subprocess.run(["sh", "-ec", line], cwd=place, capture_output=True, text=True, check=False)
                assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"

    roles = [pd.read_csv(place / "runs" / run / "split.csv")["role"].value_counts() for run in ("first", "second")]
    assert roles[1]["labelled"] == roles[0]["labelled"] + REVIEWED
    assert roles[1]["validation"] == roles[0]["validation"]
    truth = pd.read_csv(place / "truth.csv", dtype=str).set_index("image")
    reviewed = pd.read_csv(place / "runs/first/reviewed.csv", dtype=str, keep_default_na=False).set_index("image")
    classes = list(truth.columns[2:])
    labelled = reviewed.index[(reviewed[classes] != "").all(axis=1)]
    pd.testing.assert_frame_equal(reviewed.loc[labelled, classes], truth.loc[labelled, classes])
    judged = json.loads((place / "runs/second/evaluation.json").read_text())
    assert judged["against"]["auroc"]["verdict"] in ("above", "below", "unclear")
    assert len(pd.read_csv(place / "predictions.csv")) == len(truth)
    assert json.loads((place / "exported/model.json").read_text())["classes"] == classes
    assert (place / "runs/first/suggestions.png").stat().st_size > 10_000

"""Full disks, folders that may only be read, folders that vanish: one sentence, and nothing lost that was written."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import TINY

import acpl
from acpl.engine import writing
from acpl.engine.checkpoints import Checkpoints
from acpl.engine.monitor import Quiet
from acpl.engine.run_folder import RunFolder
from acpl.engine.writing import append_line, whole_lines, write_whole
from acpl.errors import UserError


def failing(number: int) -> object:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "the disk is full; everything written before is whole"),
        (errno.EDQUOT, "the disk is full"),
        (errno.EROFS, "its folder may only be read"),
        (errno.EACCES, "its folder may only be read"),
        (errno.EIO, "Input/output error; everything written before is whole"),
    ],
)
def test_what_the_disk_refuses_is_one_sentence_and_the_file_before_it_stays(
    number: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_whole(tmp_path / "model.json", b"old")
    monkeypatch.setattr(writing.os, "fsync", failing(number))
    with pytest.raises(UserError) as refused:
        write_whole(tmp_path / "model.json", b"new and longer")
    assert words in str(refused.value)
    assert str(tmp_path / "model.json") in str(refused.value)
    assert "\n" not in str(refused.value)
    assert (tmp_path / "model.json").read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["model.json"]


def test_a_file_is_synced_then_renamed_then_its_folder_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this order: after a power cut there is the old file or the new one, and never a name without content."""
    done: list[str] = []
    sync, rename = os.fsync, Path.replace
    monkeypatch.setattr(
        writing.os, "fsync", lambda fd: (done.append(f"sync {Path(f'/proc/self/fd/{fd}').readlink().name}"), sync(fd))
    )
    monkeypatch.setattr(Path, "replace", lambda path, to: (done.append(f"rename {path.name}"), rename(path, to))[1])
    write_whole(tmp_path / "model.json", b"new")
    assert done == ["sync model.json.part", "rename model.json.part", f"sync {tmp_path.name}"]


def test_a_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"the folder {tmp_path / 'run'} is gone"):
        write_whole(tmp_path / "run" / "model.json", b"new")
    with pytest.raises(UserError, match=f"the folder {tmp_path / 'run'} is gone"):
        append_line(tmp_path / "run" / "events.jsonl", "{}")


def test_a_line_that_was_cut_off_is_not_an_event_and_the_next_one_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    append_line(file, '{"event": 1}')
    with file.open("ab") as torn:
        torn.write(b'{"event": 2, "losses": {"supervi')
    assert whole_lines(file) == ['{"event": 1}']
    append_line(file, '{"event": 3}')
    assert [json.loads(line)["event"] for line in whole_lines(file)] == [1, 3]


def test_a_first_line_that_was_cut_off_leaves_nothing(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    file.write_bytes(b"x" * 10_000)
    assert whole_lines(file) == []
    append_line(file, "{}")
    assert file.read_bytes() == b"{}\n"


LIMITED = """
import resource, sys
from pathlib import Path
from acpl.engine.writing import append_line, write_whole
from acpl.errors import UserError
folder = Path(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
write_whole(folder / "small", b"x" * 4000)
for name, work in {"whole": lambda: write_whole(folder / "large", bytes(100_000)),
                   "line": lambda: [append_line(folder / "lines", "y" * 1199) for _ in range(20)]}.items():
    try:
        work()
    except UserError as error:
        print(name, "disk is full" in str(error))
"""


def test_a_file_that_outgrows_what_the_system_allows_leaves_the_others_whole(tmp_path: Path) -> None:
    told = subprocess.check_output([sys.executable, "-c", LIMITED, str(tmp_path)], text=True)
    assert told.splitlines() == ["whole True", "line True"]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["lines", "small"]
    assert (tmp_path / "small").read_bytes() == b"x" * 4000
    assert whole_lines(tmp_path / "lines") == ["y" * 1199] * 4
    assert (tmp_path / "lines").stat().st_size == 4800


class Vanishing(Quiet):
    """Takes the run folder away when the second stage begins."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stages = 0

    def begin(self, stage: str, steps: int, done: int = 0) -> None:
        self.stages += 1
        if self.stages == 2:
            shutil.rmtree(self.folder)


def test_training_into_a_folder_that_vanishes_ends_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"events\.jsonl could not be written, for the folder .* is gone"):
        acpl.train(out=tmp_path / "run", data="phantom-chest", monitor=Vanishing(tmp_path / "run"), **TINY)


def test_training_on_a_disk_that_fills_up_keeps_what_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = writing.os.fsync
    written = []

    def fills_up(handle: int) -> None:
        name = str(Path(f"/proc/self/fd/{handle}").readlink())
        if name.endswith(".pt.part") and any(other.endswith(".pt.part") for other in written):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written.append(name)
        real(handle)

    monkeypatch.setattr(writing.os, "fsync", fills_up)
    with pytest.raises(UserError, match=r"\d{8}\.pt could not be written, for the disk is full"):
        acpl.train(out=tmp_path / "run", data="phantom-chest", **TINY)
    folder = RunFolder(tmp_path / "run")
    state, broken = Checkpoints(tmp_path / "run" / "checkpoints", 0).read()
    assert state is not None
    assert not broken
    assert folder.config().seed == 0
    assert {event["event"] for event in folder.events()} >= {"stage", "epoch"}
    assert not list((tmp_path / "run").rglob("*.part"))


def test_a_run_folder_that_is_damaged_is_named_by_its_file(chest_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    for name, content, ask in (
        ("model.json", b"{", RunFolder.card),
        ("model.json", b'{"task": 3}', RunFolder.card),
        ("model.safetensors", b"\xff" * 100, lambda folder: folder.read_weights("model")),
        ("events.jsonl", b"{\n", RunFolder.events),
        ("config.yaml", b"seed: [", RunFolder.config),
        ("config.yaml", b"\xff\xfe", RunFolder.config),
    ):
        shutil.copytree(chest_run, run)
        (run / name).write_bytes(content)
        with pytest.raises(UserError, match=name):
            ask(RunFolder.open(run))
        shutil.rmtree(run)

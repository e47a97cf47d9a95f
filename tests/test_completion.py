"""What the shell offers when Tab is pressed, asked as a shell asks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from acpl import completion
from acpl.data.sources import phantoms
from acpl.engine.exporting import Format
from acpl.models import BACKBONES


def offered(line: str, cwd: Path | None = None) -> list[str]:
    """The words that bash would be given for this line, whose last word is incomplete."""
    script = "import sys; sys.argv = ['acpl']; from acpl.cli import main; main()"
    words = line.split(" ")
    environment = {
        **os.environ,
        "_ACPL_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, cwd=cwd, check=False
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("acpl sugg", ["suggest"]),
        ("acpl train --method mix", ["mixmatch", "mixup"]),
        ("acpl train --preset chest", ["chestxray14"]),
        ("acpl train --backbone dense", ["densenet121", "densenet169"]),
        ("acpl train --schedule c", ["constant", "cosine"]),
        ("acpl compare --methods acpl,fix", ["acpl,fixmatch"]),
        ("acpl methods ups", ["ups"]),
        ("acpl export run --format s", ["safetensors"]),
    ],
)
def test_names_are_completed(line: str, words: list[str]) -> None:
    assert offered(line) == words


def test_data_are_names_tables_and_folders(tmp_path: Path) -> None:
    (tmp_path / "phantasy.csv").touch()
    (tmp_path / "phantasy.txt").touch()
    (tmp_path / "photos").mkdir()
    assert offered("acpl train --data ph", tmp_path) == ["phantom-chest", "phantom-lesions", "phantasy.csv", "photos/"]


def test_what_is_offered_is_what_there_is() -> None:
    from typing import get_args

    assert get_args(Format) == completion.FORMATS
    assert set(phantoms.PHANTOMS) <= set(completion.DATA)
    assert completion.BACKBONES[:-1] == BACKBONES

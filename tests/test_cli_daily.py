"""The shell's verbs for a day's work, as a person uses them."""

import shutil
from pathlib import Path

import pytest

from tests.shell import acpl, acpl_imported


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["suggest", "/nowhere"], "/nowhere is not a run folder"),
        (["review", "/nowhere"], "/nowhere is not a run folder"),
        (["export", "/nowhere"], "/nowhere is not a run folder"),
        (["export", "/nowhere", "--format", "tflite"], "format should be onnx, torchscript, safetensors"),
    ],
)
def test_wrong_input_is_one_sentence_and_exit_code_2(arguments: list[str], sentence: str, tmp_path: Path) -> None:
    done = acpl_imported(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_suggest_says_where_table_and_pictures_are(lesions_run: Path, tmp_path: Path) -> None:
    run = shutil.copytree(lesions_run, tmp_path / "run")
    done = acpl("suggest", run, "--budget", "1000")
    assert done.returncode == 0, done.stderr
    assert "fewer than 1000: each patient is suggested once" in done.stdout
    assert (run / "suggestions.csv").exists()
    assert f"pictures: {run / 'suggestions.png'}" in done.stdout
    assert done.stdout.splitlines()[-1] == f"next: acpl review {run}"


def test_export_says_how_far_the_outputs_are_from_the_runs(lesions_run: Path, tmp_path: Path) -> None:
    done = acpl("export", lesions_run, "--format", "safetensors", "--out", tmp_path / "exported")
    assert done.returncode == 0, done.stderr
    assert "images differ by at most " in done.stdout
    assert (tmp_path / "exported" / "model.json").exists()

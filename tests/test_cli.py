"""The shell, as a person uses it: separate processes."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image


def acpl(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from acpl.cli import main; main()", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


def test_help_needs_neither_torch_nor_monai() -> None:
    script = (
        "import sys; sys.argv = ['acpl', 'train', '--help']\n"
        "from acpl.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('torch', 'monai', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "--learning-rate" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["train", "--method", "acl"], "unknown method 'acl'; did you mean 'acpl'?"),
        (["train", "--preset", "none"], "unknown preset 'none'"),
        (["train", "--k", "0"], "k should be greater than 0, but it is '0'"),
        (["train", "--fraction", "1.5"], "fraction should be less than or equal to 1"),
        (["train", "--data", "phantom-ches"], "unknown data 'phantom-ches'; did you mean 'phantom-chest'?"),
        (["train", "--nonsense", "1"], "unknown setting 'nonsense'"),
        (["train", "stray"], "unexpected argument 'stray'"),
        (["train", "--device", "tpu9"], "device should be auto, cpu, cuda or cuda:N"),
        (["evaluate", "/nowhere"], "/nowhere is not a run folder"),
        (["predict", "/nowhere", "x.png"], "/nowhere is not a run folder"),
        (["methods", "acl"], "unknown method 'acl'"),
    ],
)
def test_wrong_input_is_one_sentence_and_exit_code_2(arguments: list[str], sentence: str, tmp_path: Path) -> None:
    done = acpl(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_evaluate_prints_one_json_object(lesions_run: Path) -> None:
    done = acpl("evaluate", lesions_run, "--json", "--resamples", "20")
    result = json.loads(done.stdout)
    assert {"mean", "low", "high", "per_class"} <= set(result["auroc"])
    assert {"sensitivity", "f1", "specificity", "balanced_accuracy"} <= set(result)


def test_evaluate_against_another_run_says_above_below_or_unclear(chest_run: Path, tmp_path: Path) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    shutil.copytree(chest_run, run)
    shutil.copytree(chest_run, other)
    done = acpl("evaluate", run, "--against", other, "--resamples", "20")
    assert "unclear" in done.stdout
    done = acpl("evaluate", run, "--against", other, "--resamples", "20", "--json", "--part", "validation")
    assert json.loads(done.stdout)["against"]["auroc"]["mean"] == 0
    done = acpl("evaluate", run, "--part", "train")
    assert done.stderr == "acpl: part should be test or validation, but it is 'train'\n"


def test_evaluate_prints_a_table_of_warm_up_against_acpl(chest_run: Path) -> None:
    done = acpl("evaluate", chest_run, "--resamples", "20")
    assert "supervised warm-up" in done.stdout
    assert "acpl" in done.stdout
    assert "report.html" in done.stdout


def test_predict_writes_a_csv_and_never_over_another(chest_run: Path, tmp_path: Path) -> None:
    Image.new("L", (40, 40)).save(tmp_path / "scan.png")
    done = acpl("predict", chest_run, tmp_path / "scan.png")
    header, row = done.stdout.splitlines()
    assert header.startswith("id,Effusion,")
    assert row.startswith(str(tmp_path / "scan.png"))
    target = tmp_path / "out.csv"
    assert acpl("predict", chest_run, tmp_path / "scan.png", "--out", target).returncode == 0
    again = acpl("predict", chest_run, tmp_path / "scan.png", "--out", target)
    assert again.returncode == 2
    assert "exists; choose another --out" in again.stderr


def test_predict_lists_what_it_could_not_read_and_predicts_the_rest(chest_run: Path, tmp_path: Path) -> None:
    Image.new("L", (40, 40)).save(tmp_path / "scan.png")
    (tmp_path / "bad.png").write_text("no image")
    done = acpl("predict", chest_run, tmp_path, "--out", tmp_path / "out.csv", "--bad", tmp_path / "bad.csv")
    assert done.returncode == 0
    assert done.stderr.startswith(f"not read: {tmp_path / 'bad.png'}: ")
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 2
    header, row = (tmp_path / "bad.csv").read_text().splitlines()
    assert header == "id,reason"
    assert row.startswith(str(tmp_path / "bad.png"))
    nowhere = acpl("predict", chest_run, tmp_path, "--out", tmp_path / "none" / "out.csv")
    assert nowhere.returncode == 2
    assert "there is no folder" in nowhere.stderr


def test_methods_and_presets_are_listed() -> None:
    assert set(json.loads(acpl("methods", "--json").stdout)) >= {"acpl", "supervised"}
    assert set(json.loads(acpl("presets", "--json").stdout)) == {"chestxray14", "demo", "images", "isic2018"}
    assert "--pseudo-label" in acpl("methods", "acpl").stdout


def test_train_says_a_line_a_stage_and_where_to_go_on(tmp_path: Path) -> None:
    tiny = "--phantom-patients 40 --size 32 --fraction 0.3 --warmup-epochs 1 --stages 1 --stage-epochs 1 --k 3"
    done = acpl("train", *tiny.split(), "--device", "cpu", "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert any(line.startswith("stage 1") and "selected" in line for line in lines)
    assert lines[-1] == f"next: acpl evaluate {tmp_path / 'run'}"

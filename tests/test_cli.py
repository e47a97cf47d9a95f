"""The shell, as a person uses it: separate processes."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.shell import acpl, acpl_imported


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
        (["train", "--looks", "sideways"], "looks should be 'one', 'mirrored' or 'turned', but it is 'sideways'"),
        (["train", "--nonsense", "1"], "unknown setting 'nonsense'"),
        (["train", "stray"], "unexpected argument 'stray'"),
        (["train", "--device", "tpu9"], "device should be auto, cpu, cuda or cuda:N"),
        (["evaluate", "/nowhere"], "/nowhere is not a run folder"),
        (["predict", "/nowhere", "x.png"], "/nowhere is not a run folder"),
        (["methods", "acl"], "unknown method 'acl'"),
    ],
)
def test_wrong_input_is_one_sentence_and_exit_code_2(arguments: list[str], sentence: str, tmp_path: Path) -> None:
    done = acpl_imported(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_nothing_but_the_sentence_is_said_when_everything_is_yet_to_be_imported(tmp_path: Path) -> None:
    done = acpl("train", "--method", "acl", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "acpl: unknown method 'acl'; did you mean 'acpl'?\n"


def test_evaluate_prints_one_json_object(lesions_run: Path) -> None:
    done = acpl_imported("evaluate", lesions_run, "--json", "--resamples", "20")
    result = json.loads(done.stdout)
    assert {"mean", "low", "high", "per_class"} <= set(result["auroc"])
    assert {"sensitivity", "f1", "specificity", "balanced_accuracy"} <= set(result)


def test_evaluate_against_another_run_says_above_below_or_unclear(chest_run: Path, tmp_path: Path) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    shutil.copytree(chest_run, run)
    shutil.copytree(chest_run, other)
    done = acpl_imported("evaluate", run, "--against", other, "--resamples", "20")
    assert "unclear" in done.stdout
    done = acpl_imported("evaluate", run, "--against", other, "--resamples", "20", "--json", "--part", "validation")
    assert json.loads(done.stdout)["against"]["auroc"]["mean"] == 0
    done = acpl_imported("evaluate", run, "--part", "train")
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
    assert acpl_imported("predict", chest_run, tmp_path / "scan.png", "--out", target).returncode == 0
    again = acpl_imported("predict", chest_run, tmp_path / "scan.png", "--out", target)
    assert again.returncode == 2
    assert "exists; choose another --out" in again.stderr


def test_predict_lists_what_it_could_not_read_and_predicts_the_rest(chest_run: Path, tmp_path: Path) -> None:
    Image.new("L", (40, 40)).save(tmp_path / "scan.png")
    (tmp_path / "bad.png").write_text("no image")
    done = acpl_imported("predict", chest_run, tmp_path, "--out", tmp_path / "out.csv", "--bad", tmp_path / "bad.csv")
    assert done.returncode == 0
    assert done.stderr.startswith(f"not read: {tmp_path / 'bad.png'}: ")
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 2
    header, row = (tmp_path / "bad.csv").read_text().splitlines()
    assert header == "id,reason"
    assert row.startswith(str(tmp_path / "bad.png"))
    nowhere = acpl_imported("predict", chest_run, tmp_path, "--out", tmp_path / "none" / "out.csv")
    assert nowhere.returncode == 2
    assert "there is no folder" in nowhere.stderr


def test_methods_and_presets_are_listed() -> None:
    assert set(json.loads(acpl("methods", "--json").stdout)) >= {"acpl", "supervised"}
    assert set(json.loads(acpl("presets", "--json").stdout)) == {"chestxray14", "compare", "demo", "images", "isic2018"}
    assert "--pseudo-label" in acpl_imported("methods", "acpl").stdout


def test_train_says_a_line_a_stage_and_where_to_go_on(tmp_path: Path) -> None:
    tiny = "--phantom-patients 40 --size 32 --fraction 0.3 --warmup-epochs 1 --stages 1 --stage-epochs 1 --k 3"
    done = acpl("train", *tiny.split(), "--device", "cpu", "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert any(line.startswith("stage 1") and "selected" in line for line in lines)
    assert lines[-1] == f"next: acpl evaluate {tmp_path / 'run'}"


@pytest.fixture
def folder_with_bad_files(tmp_path: Path) -> Path:
    """Twelve patients with two images each, half of them labelled; two of the files are bad."""
    rng = np.random.default_rng(0)
    (tmp_path / "scans").mkdir()
    rows = ["image,patient,Mass,Nodule,split"]
    for number in range(24):
        name, part = f"{number:02d}.png", ("train", "train", "validation", "test")[number // 2 % 4]
        nodule = number // 2 % 2 if part == "train" else number % 2
        labels = "," if part == "train" and number % 2 else f"{number // 8 % 2},{nodule}"
        rows.append(f"{name},p{number // 2},{labels},{part}")
        Image.fromarray(rng.integers(0, 256, (40, 50), dtype=np.uint8)).save(tmp_path / "scans" / name)
    (tmp_path / "scans" / "01.png").write_text("a note, not a picture")
    (tmp_path / "scans" / "08.png").write_bytes(b"")
    (tmp_path / "labels.csv").write_text("\n".join(rows))
    return tmp_path


def test_data_check_exits_with_1_when_something_would_spoil_a_result(folder_with_bad_files: Path) -> None:
    where = ["--data", "labels.csv", "--images", "scans"]
    done = acpl("data", "check", *where, cwd=folder_with_bad_files)
    assert done.returncode == 1, done.stderr
    assert "01.png" in done.stdout
    result = json.loads(acpl_imported("data", "check", *where, "--json", cwd=folder_with_bad_files).stdout)
    assert result["spoils"]
    assert result["task"] == "multi-label"
    for name in ("01.png", "08.png"):
        (folder_with_bad_files / "scans" / name).unlink()
    table = folder_with_bad_files / "labels.csv"
    kept = [line for line in table.read_text().splitlines() if not line.startswith(("01", "08"))]
    table.write_text("\n".join(kept))
    assert acpl_imported("data", "check", *where, cwd=folder_with_bad_files).returncode == 0


def test_training_names_every_bad_file_before_the_first_step_and_goes_on_when_told(folder_with_bad_files: Path) -> None:
    quick = (
        "--backbone small --weights none --size 32 --batch-size 4 --warmup-epochs 1 --stages 1 --stage-epochs 1 --k 2"
    )
    train = ["train", "--data", "labels.csv", "--images", "scans", "--cache", "cache", "--out", "run", *quick.split()]
    refused = acpl_imported(*train, cwd=folder_with_bad_files)
    assert refused.returncode == 2
    assert refused.stderr.count(".png") == 2
    assert "01.png: it is not an image" in refused.stderr
    assert "08.png: the file is empty" in refused.stderr
    assert "--skip-bad" in refused.stderr
    assert not (folder_with_bad_files / "run").exists()
    done = acpl_imported(*train, "--skip-bad", cwd=folder_with_bad_files)
    assert done.returncode == 0, done.stderr
    assert "left out: 01.png" in done.stdout
    judged = acpl_imported("evaluate", folder_with_bad_files / "run", "--json", "--resamples", "20")
    assert judged.returncode == 0, judged.stderr
    assert json.loads(judged.stdout)["images"] == 6


def test_weights_and_backbones_are_checked_before_anything_else(tmp_path: Path) -> None:
    for wrong, sentence in (
        (["--backbone", "vgg"], "unknown backbone 'vgg'; there are: densenet121"),
        (["--weights", "densenet121-res224-nih"], "official test patients"),
        (["--data", "labels.csv"], "labels.csv could not be read: No such file"),
    ):
        done = acpl_imported("train", *wrong, "--out", tmp_path / "run")
        assert done.returncode == 2
        assert sentence in done.stderr
        assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_compare_ends_with_a_table(tmp_path: Path) -> None:
    tiny = "--phantom-patients 40 --size 32 --batch-size 8 --budget 2 --jobs 1 --seeds 1 --fractions 0.3 --device cpu"
    done = acpl("compare", "--methods", "supervised,mixup", *tiny.split(), "--out", tmp_path / "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "2 of 2" in done.stdout
    assert (tmp_path / "out" / "table.csv").exists()
    assert json.loads((tmp_path / "out" / "plan.json").read_text())["preset"] == "compare"
    assert "acpl compare --methods supervised,mixup" in (tmp_path / "out" / "table.md").read_text()
    for wrong, sentence in (
        (["--fractions", "few"], "fractions should be numbers"),
        (["--budget", "more"], "budget should be same or a number of gradient steps, but it is 'more'"),
        (["--jobs", "many"], "jobs should be auto or a number"),
        (["--tune", "9"], "tune should be from 1 to 4"),
    ):
        refused = acpl_imported("compare", *wrong, "--out", tmp_path / "other")
        assert refused.returncode == 2
        assert sentence in refused.stderr
        assert not (tmp_path / "other").exists()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_comparison_that_is_stopped_goes_on_with_what_is_missing(tmp_path: Path) -> None:
    tiny = "--phantom-patients 40 --size 32 --batch-size 8 --seeds 1 --fractions 0.3 --device cpu --jobs 2 --budget 3"
    out = tmp_path / "out"
    words = ["compare", "--methods", "supervised,mixup,ups", *tiny.split(), "--out", str(out)]
    command = [sys.executable, "-c", "from acpl.cli import main; main()", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        for line in running.stdout:
            if line.startswith("1 of 3"):
                break
        running.send_signal(signal.SIGTERM)
        _, said = running.communicate()
    assert running.returncode == 130
    assert said == f"stopped; the same call goes on with what {out} has not got yet\n"
    assert not (out / "table.csv").exists()
    done_before = {file.parent.name: file.stat().st_mtime_ns for file in out.glob("*/evaluation.json")}
    assert len(done_before) in (1, 2)
    again = acpl_imported(*words)
    assert again.returncode == 0, again.stderr
    missing = 3 - len(done_before)
    assert f"{missing} of {missing}" in again.stdout
    now = {file.parent.name: file.stat().st_mtime_ns for file in out.glob("*/evaluation.json")}
    assert len(now) == 3
    assert now.items() >= done_before.items()

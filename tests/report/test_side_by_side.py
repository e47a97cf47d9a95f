"""Runs side by side, and the folder of a comparison."""

import json
import shutil
from pathlib import Path

import pytest
from tests.conftest import TINY

import acpl
from acpl.report.plots import GREEN, GREY, ROSE
from acpl.report.side_by_side import _colour, run_names


@pytest.fixture(scope="module")
def other_run(chest_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = acpl.train(out=tmp_path_factory.mktemp("runs") / "other", data="phantom-chest", seed=1, **TINY)
    acpl.evaluate(run, resamples=50)
    return run


def test_runs_are_compared_by_the_paired_difference_that_evaluate_gives(
    chest_run: Path, other_run: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(other_run, copy)
    against = acpl.evaluate(copy, against=chest_run, resamples=50)["against"]["auroc"]
    page = acpl.make_report(chest_run, other_run, out=tmp_path / "two.html", resamples=50).read_text()
    assert f"{against['mean']:+.4f} [{against['low']:+.4f}, {against['high']:+.4f}]" in page
    for run in (chest_run, other_run):
        area = json.loads((run / "evaluation.json").read_text())["auroc"]
        assert f"{area['mean']:.4f} [{area['low']:.4f}, {area['high']:.4f}]" in page
    assert "Paired differences" in page
    assert "validation AUROC" in page


def test_a_run_that_was_not_judged_is_named_and_not_judged_behind_the_users_back(
    chest_run: Path, other_run: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(other_run, run)
    (run / "predictions.csv").unlink()
    with pytest.raises(acpl.UserError, match="run has not been evaluated: acpl evaluate"):
        acpl.make_report(chest_run, run, out=tmp_path / "two.html")
    assert not (run / "predictions.csv").exists()


def test_a_page_that_exists_is_not_written_over(chest_run: Path, other_run: Path, tmp_path: Path) -> None:
    target = tmp_path / "two.html"
    target.write_text("mine")
    with pytest.raises(acpl.UserError, match="nothing is ever written over"):
        acpl.make_report(chest_run, other_run, out=target)
    assert target.read_text() == "mine"


def test_the_folder_of_a_comparison_has_a_page_with_its_table(chest_run: Path, tmp_path: Path) -> None:
    heading = "fraction,rank,method,auroc,low,high,spread,behind,behind_low,behind_high,p"
    heading += ",finished,failed,steps,images,seconds"
    rows = [
        "0.3,1,acpl,0.91,0.88,0.93,0.01,,,,,1,,3,160,4.2",
        "0.3,2,<i>mine,0.85,0.8,0.9,0.02,-0.06,-0.09,-0.03,0.004,1,,3,160,4.1",
        "0.3,,broken,,,,,,,,,0,seed 0: it broke,,,",
    ]
    (tmp_path / "table.csv").write_text("\n".join([heading, *rows]) + "\n")
    (tmp_path / "plan.json").write_text("{}")
    shutil.copytree(chest_run, tmp_path / "acpl-0.3-0")
    page = acpl.make_report(tmp_path).read_text()
    assert "2 methods compared" in page
    assert "30 % labelled" in page
    assert "-0.0600 [-0.0900, -0.0300]" in page
    assert "&lt;i&gt;mine" in page
    assert "<i>mine" not in page
    assert "seed 0: it broke" in page
    assert (tmp_path / "report.html").exists()


def test_a_comparison_s_page_shows_what_holds_for_other_trainings(chest_run: Path, tmp_path: Path) -> None:
    heading = "fraction,rank,method,auroc,low,high,spread,behind,behind_low,behind_high,wider_low,wider_high,p"
    rows = [
        "0.3,1,acpl,0.91,0.88,0.93,0.01,,,,,,,1,,3,160,4.2",
        "0.3,2,mine,0.85,0.8,0.9,0.02,-0.06,-0.09,-0.03,-0.2,0.08,0.004,1,,3,160,4.1",
    ]
    (tmp_path / "table.csv").write_text("\n".join([f"{heading},finished,failed,steps,images,seconds", *rows]) + "\n")
    (tmp_path / "plan.json").write_text("{}")
    shutil.copytree(chest_run, tmp_path / "acpl-0.3-0")
    page = acpl.make_report(tmp_path).read_text()
    assert "for other trainings, too" in page
    assert "[-0.2000, +0.0800]" in page


def test_a_comparison_without_a_class_to_rank_is_still_a_page(chest_run: Path, tmp_path: Path) -> None:
    heading = "fraction,rank,method,auroc,low,high,spread,behind,behind_low,behind_high,p"
    heading += ",finished,failed,steps,images,seconds"
    rows = ["0.3,1,acpl,nan,nan,nan,,,,,,1,,3,160,4.2", "0.3,2,mine,nan,nan,nan,,nan,nan,nan,nan,1,,3,160,4.1"]
    (tmp_path / "table.csv").write_text("\n".join([heading, *rows]) + "\n")
    (tmp_path / "plan.json").write_text("{}")
    shutil.copytree(chest_run, tmp_path / "acpl-0.3-0")
    page = acpl.make_report(tmp_path).read_text()
    assert page.count(">undefined<") == 2
    assert "not tested" in page


@pytest.mark.parametrize(
    ("low", "high", "p", "colour"),
    [
        (0.1, 0.2, 0.01, GREEN),
        (-0.2, -0.1, 0.01, ROSE),
        (-0.1, 0.1, 0.4, GREY),
        (0.1, 0.1, 1.0, GREY),  # one patient
        (0.1, 0.2, None, GREY),
        (None, None, None, GREY),
    ],
)
def test_only_what_is_clear_has_a_colour(low: float | None, high: float | None, p: float | None, colour: int) -> None:
    assert _colour(low, high, p) == colour


def test_folders_of_one_name_are_told_apart(tmp_path: Path) -> None:
    assert run_names([tmp_path / "a", tmp_path / "b"]) == ["a", "b"]
    assert run_names([tmp_path / "x" / "run", tmp_path / "y" / "run"]) == ["x/run", "y/run"]

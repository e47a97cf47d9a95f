"""Two judged runs side by side: what each class says, and what few patients cannot."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import acpl
from acpl.engine.comparing import differences
from acpl.engine.judging import compare_runs


def changed(run: Path, target: Path, change: Callable[[pd.DataFrame], pd.DataFrame]) -> Path:
    """A copy of a judged run that predicted something else."""
    shutil.copytree(run, target)
    table = pd.read_csv(run / "predictions.csv", dtype=str, keep_default_na=False)
    change(table).to_csv(target / "predictions.csv", index=False)
    return target


def knowing(table: pd.DataFrame) -> pd.DataFrame:
    """As a model that is always right."""
    names = [name.removeprefix("truth.") for name in table if name.startswith("truth.")]
    return table.assign(**{f"probability.{name}": table[f"truth.{name}"] for name in names})


def of_one_patient(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(group="the same")


def healthy(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(**{name: "0" for name in table if name.startswith("truth.")})


def test_each_class_has_a_p_beside_its_interval(chest_run: Path, tmp_path: Path) -> None:
    run = changed(chest_run, tmp_path / "knowing", knowing)
    found = compare_runs(chest_run, run, resamples=99)["auroc"]
    assert found.per_class_p.shape == found.per_class.point.shape
    there = ~np.isnan(found.per_class.point)
    np.testing.assert_array_equal(np.isnan(found.per_class_p), ~there)
    p, low, high = (values[there] for values in (found.per_class_p, found.per_class.low, found.per_class.high))
    assert ((p > 0) & (p <= 1) & ((p >= 0.05) | (low > 0) | (high < 0))).all()
    assert min(p) < 0.05
    against = acpl.evaluate(run, against=changed(chest_run, tmp_path / "other", knowing), resamples=99)["against"]
    assert json.loads((run / "evaluation.json").read_text())["against"] == against
    assert set(against["auroc"]["per_class_p"]) == set(against["auroc"]["per_class"])
    assert set(against["sensitivity"]["per_class_p"]) == set(against["auroc"]["per_class"])


def test_one_patient_makes_no_difference_certain(chest_run: Path, tmp_path: Path) -> None:
    before = changed(chest_run, tmp_path / "before", of_one_patient)
    after = changed(chest_run, tmp_path / "after", lambda table: of_one_patient(knowing(table)))
    found = compare_runs(before, after, resamples=99)["auroc"]
    assert found.point > 0
    assert found.p == 1
    assert np.nanmin(found.per_class_p) == 1
    assert differences([before, after], "test", resamples=99)[1]["p"] == 1  # type: ignore[index]


def test_a_difference_that_nothing_defines_is_no_number_and_still_a_page(chest_run: Path, tmp_path: Path) -> None:
    runs = [changed(chest_run, tmp_path / name, healthy) for name in ("a", "b")]
    found = differences(runs, "test", resamples=9)[1]
    assert found is not None
    assert [found[key] for key in ("mean", "low", "high", "p")] == [None] * 4
    page = acpl.make_report(*runs, out=tmp_path / "two.html", resamples=9).read_text()
    assert "undefined" in page
    assert "not tested" in page
    assert "nan" not in page.partition("<table")[2].partition("</table")[0]


@pytest.mark.parametrize("resamples", [1, 2])
def test_very_few_resamples_are_shown_without_an_interval_where_none_defines_a_class(
    chest_run: Path, tmp_path: Path, resamples: int
) -> None:
    run = changed(chest_run, tmp_path / "run", knowing)
    assert acpl.evaluate(run, against=chest_run, resamples=resamples)["against"]["auroc"]["p"] >= 2 / (resamples + 1)

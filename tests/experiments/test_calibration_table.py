"""The table of how far each method's probabilities are off."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from sklearn.calibration import calibration_curve
from tests.experiments.kept_runs import IMAGES, SEEDS, TRUTH, gathered, keep_run, said

from acpl.evaluation.calibration import BINS, ERRORS
from acpl.experiments.reproduce.entries import Lead, judge_calibration
from acpl.experiments.reproduce.gathered import Gathered, Made
from acpl.experiments.reproduce.keeping import NOT_RUN, PREDICTIONS
from acpl.experiments.reproduce.scores import ALL_SHARES, CEILING, FLOOR, calibration_table

make = partial(calibration_table, reference=FLOOR)
ERROR, OF_THE_CALLED = ERRORS


def by_scikit_learn(truth: np.ndarray, score: np.ndarray) -> float:
    """Each bin's distance, by how many images are in it."""
    share, mean = calibration_curve(truth, score, n_bins=BINS)
    counts, _ = np.histogram(score, np.linspace(0, 1, BINS + 1))
    return float(np.abs(share - mean) @ counts[counts > 0] / len(score))


def asked(kept: Path, *rows: str, failed: dict[str, str] | None = None, shares: tuple[float, ...] = (0.2,)) -> Gathered:
    runs = gathered(kept, {row: ["x"] * SEEDS for row in rows}, failed, fractions=shares)
    return replace(runs, judge=judge_calibration)


def ahead(made: Made) -> dict[tuple[str, str, str], Lead]:
    return {(one.over, one.column, one.measure): one for one in made.leads}


def test_a_run_has_the_error_of_each_class(tmp_path: Path) -> None:
    score = said(0, 0.2)
    keep_run(tmp_path / "run", score, "x", np.random.default_rng(1).permutation(IMAGES))
    judged = judge_calibration(tmp_path / "run" / PREDICTIONS, 20)
    assert list(judged.figures) == [ERROR]  # an image has any number of findings: there is no one class called
    assert judged.figures[ERROR].point == pytest.approx([by_scikit_learn(TRUTH[:, c], score[:, c]) for c in range(2)])
    assert judged.figures[ERROR].draws.shape == (20, 2)


def test_where_classes_exclude_each_other_that_of_the_class_called_as_well(tmp_path: Path) -> None:
    truth = np.eye(2, dtype=int)[TRUTH[:, 0]]
    first = np.random.default_rng(2).random(IMAGES)
    score = np.stack([first, 1 - first], axis=1)
    keep_run(tmp_path / "run", score, "x", truth=truth)
    judged = judge_calibration(tmp_path / "run" / PREDICTIONS, 20)
    right = truth[np.arange(IMAGES), score.argmax(axis=1)]
    assert list(judged.figures) == list(ERRORS)
    assert judged.figures[OF_THE_CALLED].point == pytest.approx([by_scikit_learn(right, score.max(axis=1))])


def test_less_is_better_and_ahead_is_how_much_less(tmp_path: Path) -> None:
    runs = asked(tmp_path, FLOOR, "ups", "acpl", CEILING)
    made = make(runs)
    entries = {one.row: one for one in made.entries}
    assert {one.measure for one in made.entries} == {ERROR}
    for row, one in entries.items():
        errors = [runs.judged[f"{row}-0.2-{seed}"].figures[ERROR].point.mean() for seed in range(SEEDS)]
        assert one.mean == pytest.approx(np.mean(errors))
        assert one.spread == pytest.approx(np.std(errors, ddof=1))
        assert one.low is not None
        assert one.high is not None
        assert 0 <= one.low <= one.mean <= one.high  # a percentile interval lies above what resampling inflates
        assert one.share is None
    assert entries["acpl"].difference == pytest.approx(entries["acpl"].mean - entries[FLOOR].mean)
    lead = ahead(made)["ups", "20 %", ERROR]
    assert lead.difference == pytest.approx(entries["ups"].mean - entries["acpl"].mean)
    assert lead.difference_low <= lead.difference <= lead.difference_high
    assert lead.wider_low is not None


@pytest.mark.parametrize("rows", [(FLOOR, "acpl", CEILING), (CEILING, "acpl", FLOOR)])
def test_it_has_no_share_of_a_gap_whichever_is_further_off(rows: tuple[str, ...], tmp_path: Path) -> None:
    made = make(asked(tmp_path, *rows))
    means = {one.row: one.mean or 0 for one in made.entries}
    assert means[FLOOR] != means[CEILING]
    assert {one.share for one in made.entries} == {None}


def test_over_several_shares_it_has_their_mean_and_says_what_it_is(tmp_path: Path) -> None:
    made = make(asked(tmp_path, FLOOR, "acpl", CEILING, shares=(0.02, 0.2)))
    columns = {(one.row, one.column): one.mean for one in made.entries}
    assert columns["acpl", ALL_SHARES] == pytest.approx((columns["acpl", "2 %"] + columns["acpl", "20 %"]) / 2)
    assert any(note.startswith("Calibration error: ") for note in made.notes)
    assert not any(note.startswith(("Floor", "Together")) for note in made.notes)


def test_seeds_that_are_missing_are_told_and_with_no_run_there_is_no_figure(tmp_path: Path) -> None:
    made = make(asked(tmp_path / "a", FLOOR, "acpl", failed={"acpl-0.2-1": NOT_RUN}))
    one = next(one for one in made.entries if one.row == "acpl")
    assert (one.seeds, one.failed) == (2, [f"seed 1: {NOT_RUN}"])
    nothing = make(asked(tmp_path / "b", FLOOR, failed={f"{FLOOR}-0.2-{seed}": NOT_RUN for seed in range(SEEDS)}))
    assert {one.mean for one in nothing.entries} == {None}

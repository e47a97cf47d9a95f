"""What all seeds say together, judged as one model."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from tests.experiments.kept_runs import IMAGES, SEEDS, TRUTH, gathered, keep_run, said

from acpl.experiments.reproduce.entries import judge_together
from acpl.experiments.reproduce.keeping import NOT_RUN, PREDICTIONS
from acpl.experiments.reproduce.scores import CEILING, FLOOR, TOGETHER, methods_table


def test_it_is_the_figure_of_the_mean_of_the_answers_whatever_their_order(tmp_path: Path) -> None:
    scores = [said(seed, 0.3) for seed in range(SEEDS)]
    for seed, score in enumerate(scores):
        keep_run(tmp_path / str(seed), score, "x", np.random.default_rng(seed).permutation(IMAGES))
    found = judge_together([tmp_path / str(seed) / PREDICTIONS for seed in range(SEEDS)], 20)
    mean = np.mean(scores, axis=0)
    assert found.point == pytest.approx([roc_auc_score(TRUTH[:, c], mean[:, c]) for c in range(2)])
    assert found.draws.shape == (20, 2)


def test_a_table_has_it_where_all_seeds_had_the_same_labels(tmp_path: Path) -> None:
    runs = gathered(tmp_path, {FLOOR: ["x"] * 3, "acpl": ["x"] * 3, "other": ["x", "x", "y"], CEILING: ["z"] * 3})
    made = methods_table(runs, reference=FLOOR)
    joined = {one.row: one for one in made.entries if one.measure == TOGETHER}
    assert sorted(joined) == ["acpl", CEILING, FLOOR]  # one seed of the other had other labels
    assert joined["acpl"].mean == pytest.approx(
        np.mean(judge_together([tmp_path / f"acpl-0.2-{seed}" / PREDICTIONS for seed in range(3)], 50).point)
    )
    assert (joined[FLOOR].difference, joined[FLOOR].failed) == (None, [])
    assert joined["acpl"].difference == pytest.approx(joined["acpl"].mean - (joined[FLOOR].mean or 0))
    assert joined["acpl"].share is not None
    assert any(note.startswith("Together: the mean of all seeds' answers") for note in made.notes)


def test_with_seeds_missing_or_nothing_to_compare_with_there_is_none(tmp_path: Path) -> None:
    fewer = gathered(tmp_path / "a", {FLOOR: ["x"] * 3, "acpl": ["x"] * 3}, {"acpl-0.2-1": NOT_RUN})
    assert list(fewer.together) == [(FLOOR, "20 %")]
    drawn = gathered(tmp_path / "b", {FLOOR: ["x", "y", "z"], CEILING: ["w"] * 3})
    made = methods_table(drawn, reference=FLOOR)
    assert not [one for one in made.entries if one.measure == TOGETHER]
    assert not any("Together" in note for note in made.notes)


def test_our_methods_are_measured_with_every_other_one(tmp_path: Path) -> None:
    rows = {name: ["x"] * 3 for name in (FLOOR, "ups", "acpl", "acpl-plus", CEILING)}
    made = methods_table(gathered(tmp_path, rows), reference=FLOOR)
    places = [(one.of, one.over, one.measure) for one in made.leads]
    others = {"acpl": ("ups", "acpl-plus"), "acpl-plus": ("ups", "acpl")}
    assert sorted(places) == sorted((of, o, m) for of in others for o in others[of] for m in ("auroc", TOGETHER))
    means = {(one.row, one.measure): one.mean or 0 for one in made.entries}
    for one in made.leads:
        assert one.difference == pytest.approx(means[one.of, one.measure] - means[one.over, one.measure])
        assert one.difference_low <= one.difference <= one.difference_high
        assert (one.seeds, one.wider_low is None) == ((1, True) if one.measure == TOGETHER else (3, False))
    assert any(note.startswith("Ahead of each of the others") for note in made.notes)


def test_with_nobody_else_in_the_table_there_is_nobody_to_be_ahead_of(tmp_path: Path) -> None:
    made = methods_table(gathered(tmp_path, {name: ["x"] * 3 for name in (FLOOR, "acpl", CEILING)}), reference=FLOOR)
    assert made.leads == []
    assert not any(note.startswith("Ahead") for note in made.notes)

"""What all seeds say together, judged as one model."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from acpl.experiments.cells import Cell
from acpl.experiments.reproduce.entries import judge_together
from acpl.experiments.reproduce.gathered import Gathered
from acpl.experiments.reproduce.keeping import NOT_RUN, PREDICTIONS, SMALL, SPLIT
from acpl.experiments.reproduce.plan import Arm, Ground, Planned, Request
from acpl.experiments.reproduce.scores import CEILING, FLOOR, TOGETHER, methods_table
from acpl.task import Task

IMAGES, SEEDS = 60, 3
TRUTH = np.random.default_rng(0).integers(0, 2, (IMAGES, 2))
GROUND = Ground(Task.MULTI_LABEL, ("a", "b"), 100, 100)


def said(seed: int, help_by: float) -> np.ndarray:
    return np.clip(np.random.default_rng(seed).random((IMAGES, 2)) + help_by * TRUTH, 0, 1)


def keep_run(folder: Path, score: np.ndarray, checksum: str, order: np.ndarray | None = None) -> None:
    """A kept run's files, its images in any order."""
    folder.mkdir(parents=True)
    kinds = {"truth": TRUTH, "probability": score, "decision": (score > 0.5).astype(int)}
    columns = [f"{kind}.{name}" for kind in kinds for name in "ab"]
    rows = [
        ",".join([str(n), f"{n:03d}.png", f"p{n // 2}", *(str(v) for values in kinds.values() for v in values[n])])
        for n in (np.arange(IMAGES) if order is None else order)
    ]
    text = "\n".join([",".join(["id", "image", "group", *columns]), *rows]) + "\n"
    for name in SMALL:
        (folder / name).write_text('{"event": "epoch", "step": 7}\n')
    (folder / PREDICTIONS).write_bytes(gzip.compress(text.encode()))
    (folder / SPLIT).write_text(json.dumps({"checksum": checksum}))


def gathered(kept: Path, arms: dict[str, list[str]], failed: dict[str, str] | None = None) -> Gathered:
    """Arms by row, with the checksum of each seed's split."""
    planned = []
    for place, (row, checksums) in enumerate(arms.items()):
        for seed, checksum in enumerate(checksums):
            name = f"{row}-{seed}"
            planned.append(Planned(Arm(row, "supervised"), 0.2, seed, Cell(name)))
            if name not in (failed or {}):
                keep_run(kept / name, said(seed + 10 * place, 0.2 + 0.1 * place), checksum)
    return Gathered(Request("table3", (0.2,), SEEDS, ()), GROUND, planned, kept, failed or {}, 50)


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
        np.mean(judge_together([tmp_path / f"acpl-{seed}" / PREDICTIONS for seed in range(3)], 50).point)
    )
    assert (joined[FLOOR].difference, joined[FLOOR].failed) == (None, [])
    assert joined["acpl"].difference == pytest.approx(joined["acpl"].mean - (joined[FLOOR].mean or 0))
    assert joined["acpl"].share is not None
    assert any(note.startswith("Together: the mean of all seeds' answers") for note in made.notes)


def test_with_seeds_missing_or_nothing_to_compare_with_there_is_none(tmp_path: Path) -> None:
    fewer = gathered(tmp_path / "a", {FLOOR: ["x"] * 3, "acpl": ["x"] * 3}, {"acpl-1": NOT_RUN})
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

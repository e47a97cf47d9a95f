"""AUC over K: what either row has in the mean over K, and what is said of K that lack seeds."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.experiments.kept_runs import GROUND, SEEDS, keep_run, said, stored

from acpl.experiments.cells import Cell
from acpl.experiments.reproduce.against import with_others
from acpl.experiments.reproduce.entries import Entry
from acpl.experiments.reproduce.gathered import Gathered
from acpl.experiments.reproduce.keeping import NOT_RUN
from acpl.experiments.reproduce.plan import Arm, Planned, Request
from acpl.experiments.reproduce.pool_figures import k_figure
from acpl.experiments.reproduce.scores import ALL_KS

ROWS = ("purified", "all join")


def over_k(kept: Path, ks: tuple[int, ...], failed: tuple[str, ...] = (), more: float = 0.0) -> Gathered:
    """Runs of both rows at these K, of which some were not run; ``more`` helps all of them."""
    planned = []
    for place, row in enumerate(ROWS):
        for k in ks:
            for seed in range(SEEDS):
                cell = Cell(f"{row}-{k}-{seed}")
                planned.append(Planned(Arm(row, "acpl", column=f"K = {k}"), 0.2, seed, cell))
                if cell.name not in failed:
                    keep_run(kept / cell.name, said(seed + k, 0.3 - 0.1 * place + 0.02 * k + more), "sha256:all")
    request = Request("figure-k", (0.2,), SEEDS, ())
    return Gathered(request, GROUND, planned, kept, dict.fromkeys(failed, NOT_RUN), 50)


def entries(runs: Gathered) -> dict[tuple[str, str], Entry]:
    return {(one.row, one.column): one for one in k_figure(runs).entries}


def svg(runs: Gathered) -> str:
    figure = k_figure(runs).figure
    assert figure is not None
    return figure.svg()


def apart(runs: Gathered) -> list[str]:
    return [note for note in k_figure(runs).notes if "apart" in note]


def test_the_mean_over_k_is_one_question_with_both_intervals(tmp_path: Path) -> None:
    found = entries(over_k(tmp_path, (2, 5, 9)))
    for row in ROWS:
        each = [found[row, f"K = {k}"] for k in (2, 5, 9)]
        assert found[row, ALL_KS].mean == pytest.approx(sum(one.mean or 0 for one in each) / 3)
    mean, each = found["all join", ALL_KS], [found["all join", f"K = {k}"] for k in (2, 5, 9)]
    assert mean.difference == pytest.approx(sum(one.difference or 0 for one in each) / 3)
    assert mean.wider_low is not None
    assert mean.wider_low < (mean.difference or 0)
    assert found["purified", ALL_KS].difference is None


def test_a_seed_that_lacks_a_k_has_no_mean_over_k(tmp_path: Path) -> None:
    found = entries(over_k(tmp_path, (2, 5), ("all join-5-1",)))
    assert (found["all join", ALL_KS].seeds, found["all join", ALL_KS].failed) == (2, ["seed 1: not in every column"])
    assert found["purified", ALL_KS].seeds == SEEDS


def test_k_that_lack_seeds_do_not_tell_how_far_k_matters(tmp_path: Path) -> None:
    whole = over_k(tmp_path / "whole", (2, 5, 9))
    cut = over_k(tmp_path / "cut", (2, 5, 9), ("all join-9-0", "all join-9-2"))
    first = over_k(tmp_path / "first", (2, 5))
    assert apart(cut) == [apart(whole)[0], apart(first)[1]]
    assert apart(cut)[1] != apart(whole)[1]
    assert apart(over_k(tmp_path / "one", (2, 5), ("all join-5-0",))) == [apart(first)[0]]
    lacking = tuple(f"{row}-{k}-1" for row in ROWS for k in (2, 5))
    assert len(apart(over_k(tmp_path / "lacking", (2, 5), lacking))) == len(ROWS)  # all have two seeds


def test_k_that_lack_seeds_are_not_drawn(tmp_path: Path) -> None:
    cut = svg(over_k(tmp_path / "cut", (2, 5, 9), ("all join-9-0",)))
    assert cut.count("<circle") == 2 * 3 - 1
    assert "mean of 3 seeds" in cut
    lacking = tuple(f"{row}-{k}-1" for row in ROWS for k in (2, 5))
    fewer = svg(over_k(tmp_path / "lacking", (2, 5), lacking))
    assert fewer.count("<circle") == 2 * 2
    assert "mean of 2 seeds" in fewer


def test_one_k_has_no_mean_over_k(tmp_path: Path) -> None:
    runs = over_k(tmp_path, (2,))
    assert {column for _, column in entries(runs)} == {"K = 2"}
    assert apart(runs) == []


def test_where_no_seed_has_every_k_there_is_no_mean(tmp_path: Path) -> None:
    failed = tuple(f"{row}-{k}-{seed}" for row in ROWS for seed, k in enumerate((2, 5, 2)))
    assert {column for _, column in entries(over_k(tmp_path, (2, 5), failed))} == {"K = 2", "K = 5"}


def test_nothing_run_is_nothing_said(tmp_path: Path) -> None:
    runs = over_k(tmp_path, (2, 5))
    nothing = replace(runs, failed={one.cell.name: "RuntimeError: out of luck" for one in runs.planned})
    assert all(one.mean is None and one.failed for one in entries(nothing).values())
    assert apart(nothing) == []


def test_means_over_other_k_are_not_compared(tmp_path: Path) -> None:
    before = over_k(tmp_path / "figure-k" / "runs", (2, 5))
    table = stored(tmp_path / "figure-k", before, name="figure-k")
    for ks, columns in (((2, 5), {"K = 2", "K = 5", ALL_KS}), ((5, 9), {"K = 5"})):
        after = over_k(tmp_path / f"{ks}", ks, more=0.1)
        assert {one.column for one in with_others(k_figure(after), after, [table]).against} == columns

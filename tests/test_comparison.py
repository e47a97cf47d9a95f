"""Methods compared: the same budget for all, nothing dropped in silence, gone on with after a stop."""

import csv
from pathlib import Path

import numpy as np
import pytest

import acpl
from acpl.errors import UserError
from acpl.experiments.comparison import Entry, holm

TINY = {
    "phantom_patients": 40,
    "size": 32,
    "batch_size": 8,
    "warmup_epochs": 1,
    "stages": 1,
    "stage_epochs": 1,
    "device": "cpu",
}


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Entry], list[str]]:
    folder = tmp_path_factory.mktemp("comparison") / "out"
    said: list[str] = []
    entries = acpl.compare(
        folder,
        methods=["supervised", "mean-teacher", "acpl"],
        fractions=[0.3],
        seeds=2,
        steps=6,
        resamples=50,
        say=said.append,
        **TINY,
    )
    return folder, entries, said


def test_every_cell_has_the_same_steps_and_split(compared: tuple[Path, list[Entry], list[str]]) -> None:
    folder, entries, said = compared
    assert len(said) == 6
    assert sorted(entry.method for entry in entries) == ["acpl", "mean-teacher", "supervised"]
    assert {entry.steps for entry in entries if entry.method != "acpl"} == {6.0}
    for seed in range(2):
        splits = {(folder / f"{method}-0.3-{seed}" / "split.csv").read_text() for method in ("supervised", "acpl")}
        assert len(splits) == 1
    assert {entry.method: entry.images for entry in entries}["supervised"] == 6 * 8


def test_the_best_comes_first_and_the_others_are_told_how_far_behind(
    compared: tuple[Path, list[Entry], list[str]],
) -> None:
    _, entries, _ = compared
    assert [entry.rank for entry in entries] == [1, 2, 3]
    aurocs = [entry.auroc for entry in entries]
    assert aurocs == sorted(aurocs, reverse=True)
    assert entries[0].behind is None
    for entry in entries[1:]:
        assert entry.behind == pytest.approx(entry.auroc - entries[0].auroc)
        assert 0 < entry.p <= 1


def test_a_mean_is_the_mean_of_its_seeds(compared: tuple[Path, list[Entry], list[str]]) -> None:
    folder, entries, _ = compared
    for entry in entries:
        each = [acpl.evaluate(folder / f"{entry.method}-0.3-{seed}", resamples=5)["auroc"]["mean"] for seed in range(2)]
        assert entry.auroc == pytest.approx(np.mean(each))
        assert entry.spread == pytest.approx(np.std(each, ddof=1))


def test_called_again_it_runs_nothing_and_says_the_same(compared: tuple[Path, list[Entry], list[str]]) -> None:
    folder, entries, _ = compared
    said: list[str] = []
    plan = {"methods": ["supervised", "mean-teacher", "acpl"], "fractions": [0.3], "seeds": 2, "steps": 6}
    again = acpl.compare(folder, **plan, resamples=50, say=said.append, **TINY)
    assert again == entries
    assert said == []
    with pytest.raises(UserError, match="holds a comparison with other seeds"):
        acpl.compare(folder, **{**plan, "seeds": 3}, **TINY)


def test_the_tables_hold_every_method(compared: tuple[Path, list[Entry], list[str]]) -> None:
    folder, entries, _ = compared
    rows = list(csv.DictReader((folder / "table.csv").open()))
    assert [row["method"] for row in rows] == [entry.method for entry in entries]
    assert float(rows[0]["auroc"]) == entries[0].auroc
    for name in ("table.md", "table.tex"):
        text = (folder / name).read_text()
        assert all(entry.method in text for entry in entries)
        assert f"{100 * entries[0].auroc:.2f}" in text


def test_a_cell_that_fails_is_shown_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from acpl.algorithms.mean_teacher import MeanTeacher

    def broken(*_: object) -> None:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(MeanTeacher, "losses", broken)
    entries = acpl.compare(
        tmp_path / "out", methods=["supervised", "mean-teacher"], fractions=[0.3], seeds=1, steps=2, resamples=5, **TINY
    )
    assert [entry.method for entry in entries] == ["supervised", "mean-teacher"]
    assert entries[1].auroc is None
    assert entries[1].failed == ["seed 0: RuntimeError: out of luck"]
    assert "out of luck" in (tmp_path / "out" / "table.md").read_text()


def test_holm_by_hand() -> None:
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == {"a": 0.03, "c": pytest.approx(0.06), "b": pytest.approx(0.06)}
    assert holm({"a": 0.9, "b": 0.8}) == {"b": 1.0, "a": 1.0}
    assert holm({}) == {}


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.doc").touch()
    with pytest.raises(UserError, match="holds no comparison"):
        acpl.compare(tmp_path, methods=["supervised"], seeds=1, steps=1, **TINY)
    with pytest.raises(UserError, match="unknown method 'acl'"):
        acpl.compare(tmp_path / "new", methods=["acl"], **TINY)
    assert not (tmp_path / "new").exists()

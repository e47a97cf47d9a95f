"""Methods compared: the same budget for all, nothing dropped in silence, gone on with after a stop."""

import csv
import io
import json
import os
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from rich.console import Console
from scipy.stats import studentized_range

import acpl
from acpl.algorithms.mixup import MixUp
from acpl.config import resolve
from acpl.engine.judging import resampled_auroc
from acpl.engine.training import source_of
from acpl.errors import UserError
from acpl.evaluation import Resampled, mean_over_trainings
from acpl.experiments.cells import Cell, refuse_given_labels
from acpl.experiments.comparison import notes_on, steps_of, write_tables
from acpl.experiments.contents import contents
from acpl.experiments.published import published_figure
from acpl.experiments.standings import Entry, simultaneous, summarise
from acpl.experiments.tuning import MOST, Choice, candidates, choose, chosen_before
from acpl.report.comparison import comparison_tables
from tests.conftest import SMALLEST as TINY


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Entry], list[str]]:
    folder = tmp_path_factory.mktemp("comparison") / "out"
    said: list[str] = []
    entries = acpl.compare(
        folder,
        methods=["supervised", "mean-teacher", "acpl"],
        fractions=[0.3],
        seeds=2,
        budget=6,
        resamples=50,
        say=said.append,
        **TINY,
    )
    return folder, entries, said


def test_every_cell_has_the_same_steps_and_split(compared: tuple[Path, list[Entry], list[str]]) -> None:
    folder, entries, said = compared
    assert said[0] == "phantom-chest: 3 methods × 1 fraction × 2 seeds, 6 gradient steps a run, 1 side by side"
    assert [line.split()[:3] for line in said[1:]] == [[str(number), "of", "6"] for number in range(1, 7)]
    assert sorted(entry.method for entry in entries) == ["acpl", "mean-teacher", "supervised"]
    assert {entry.steps for entry in entries} == {6.0}
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
    plan = {"methods": ["supervised", "mean-teacher", "acpl"], "fractions": [0.3], "seeds": 2, "budget": 6}
    again = acpl.compare(folder, **plan, resamples=50, say=said.append, **TINY)
    assert again == entries
    assert len(said) == 1
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
        tmp_path / "out",
        methods=["supervised", "mean-teacher"],
        fractions=[0.3],
        seeds=1,
        budget=2,
        resamples=5,
        **TINY,
    )
    assert [entry.method for entry in entries] == ["supervised", "mean-teacher"]
    assert entries[1].auroc is None
    assert entries[1].failed == ["seed 0: RuntimeError: out of luck"]
    for name in ("table.md", "table.csv", "table.tex"):
        assert "out of luck" in (tmp_path / "out" / name).read_text()
    assert "in broken" in (tmp_path / "out" / "logs" / "mean-teacher-0.3-0.txt").read_text()


def shaken(points: np.ndarray, generator: np.random.Generator, resamples: int = 399) -> list[Resampled]:
    """Figures with errors of one size, and resamples that have the same errors around them."""
    draws = points + generator.normal(size=(resamples, len(points)))
    return [Resampled(points[i : i + 1], draws[:, i : i + 1]) for i in range(len(points))]


def behind_the_best(points: np.ndarray, generator: np.random.Generator) -> dict[str, float]:
    figures = shaken(points, generator)
    best = int(np.argmax(points))
    return simultaneous(figures, {str(i): one.less(figures[best]) for i, one in enumerate(figures) if i != best})


def test_equal_methods_are_seldom_called_behind_the_one_that_came_out_best() -> None:
    generator = np.random.default_rng(0)
    false = [min(behind_the_best(generator.normal(size=12), generator).values()) < 0.05 for _ in range(1000)]
    assert 0.03 < np.mean(false) < 0.08  # by chance 5 %; by the smallest p times eleven, 16 %


def test_p_is_small_where_a_method_is_far_behind_and_1_where_it_is_the_same() -> None:
    generator = np.random.default_rng(1)
    points = np.array([9.0, 8.9, 0.0])
    found = behind_the_best(points, generator)
    assert found["2"] == 1 / 400
    assert found["1"] > 0.5
    one, other = shaken(np.array([0.5, 0.5]), generator)
    assert simultaneous([one, one, other], {"same": one.less(one)}) == {"same": 1.0}
    assert simultaneous([one], {}) == {}


def test_p_is_tukey_s_by_scipy_where_errors_are_normal() -> None:
    """Among so many methods whose errors are normal and of one known size it is the studentised range's."""
    points = np.array([3.0, 1.0, 0.5, 0.0, -1.0])
    found = behind_the_best_of_many(points)
    for number, p in found.items():
        range_ = points[0] - points[int(number)]
        assert p == pytest.approx(studentized_range.sf(range_, len(points), np.inf), abs=0.02)


def behind_the_best_of_many(points: np.ndarray) -> dict[str, float]:
    figures = shaken(points, np.random.default_rng(2), resamples=20_000)
    return simultaneous(figures, {str(i): figures[i].less(figures[0]) for i in range(1, len(points))})


def test_a_cell_of_other_settings_is_refused(tuned: tuple[Path, list[Entry]], tmp_path: Path) -> None:
    folder, _ = tuned
    shutil.copytree(folder, tmp_path / "out")
    again = {"methods": ["supervised", "mixup"], "fractions": [0.3], "seeds": 1, "budget": 2, "tune": 2, "resamples": 5}
    assert acpl.compare(tmp_path / "out", **again, **TINY)
    config = tmp_path / "out" / "mixup-0.3-0" / "config.yaml"
    config.write_text(config.read_text().replace("batch_size: ", "batch_size: 1"))
    with pytest.raises(UserError, match=r"mixup-0\.3-0 was trained with other settings \(batch_size\)"):
        acpl.compare(tmp_path / "out", **again, **TINY)


def test_a_cell_of_another_edition_of_its_method_is_refused(
    tuned: tuple[Path, list[Entry]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = tuned
    shutil.copytree(folder, tmp_path / "out")
    monkeypatch.setattr(MixUp, "edition", 2, raising=False)
    again = {"methods": ["supervised", "mixup"], "fractions": [0.3], "seeds": 1, "budget": 2, "tune": 2, "resamples": 5}
    with pytest.raises(UserError, match=r"mixup-0\.3-0 was begun with edition 1 of mixup, but this is edition 2"):
        acpl.compare(tmp_path / "out", **again, **TINY)


def test_a_table_that_was_edited_is_another_comparison(tmp_path: Path) -> None:
    table = tmp_path / "labels.csv"
    table.write_text("image,a,b\n1.png,1,0\n2.png,0,1\n")
    before = contents(resolve("images", data=str(table)))
    shutil.copy(table, tmp_path / "moved.csv")
    assert contents(resolve("images", data=str(tmp_path / "moved.csv"))) == before
    table.write_text("image,a,b\n1.png,1,1\n2.png,0,1\n")
    os.utime(table, (1, 1))
    assert contents(resolve("images", data=str(table))) != before


def test_who_is_labelled_must_follow_from_the_fraction(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="labelled sets how many"):
        acpl.compare(tmp_path / "out", methods=["supervised"], budget=1, labelled=5, **TINY)
    assert not (tmp_path / "out").exists()
    config = resolve(**TINY)
    manifest = source_of(config).manifest()
    refuse_given_labels(config, manifest)
    with pytest.raises(UserError, match="says who is labelled"):
        refuse_given_labels(config, replace(manifest, table=manifest.table.assign(role="labelled")))


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.doc").touch()
    with pytest.raises(UserError, match="holds no comparison"):
        acpl.compare(tmp_path, methods=["supervised"], seeds=1, budget=1, **TINY)
    with pytest.raises(UserError, match="unknown method 'acl'"):
        acpl.compare(tmp_path / "new", methods=["acl"], **TINY)
    assert not (tmp_path / "new").exists()


def test_a_mean_over_fewer_seeds_says_so_and_is_compared_over_those_that_both_have(
    compared: tuple[Path, list[Entry], list[str]], tmp_path: Path
) -> None:
    folder, whole, _ = compared
    best, other = whole[0].method, whole[1].method
    cells = {method: [Cell(f"{method}-0.3-{seed}") for seed in range(2)] for method in (best, other)}
    failed = {f"{other}-0.3-1": "no luck"}
    entries = {entry.method: entry for entry in summarise(folder, 0.3, cells, failed, resamples=50)}
    assert (entries[best].finished, entries[other].finished, entries[other].seeds) == (2, 1, 2)
    first = {
        method: acpl.evaluate(folder / f"{method}-0.3-0", resamples=5)["auroc"]["mean"] for method in (best, other)
    }
    assert entries[other].auroc == pytest.approx(first[other])
    leader, behind = sorted(entries.values(), key=lambda entry: entry.rank or 0)
    assert behind.behind == pytest.approx(first[behind.method] - first[leader.method])
    assert entries[other].spread is None
    assert (behind.wider_low, leader.wider_low) == (None, None)  # of one training nothing is known about another
    write_tables(tmp_path, list(entries.values()), {})
    for name in ("table.md", "table.tex"):
        text = (tmp_path / name).read_text()
        assert f"{other} (1 of 2)" in text
        assert "seed 1: no luck" in text
        assert "the mean is over 1 of 2 seeds" in text


def test_what_a_method_is_behind_by_has_an_interval_for_other_trainings(
    compared: tuple[Path, list[Entry], list[str]], tmp_path: Path
) -> None:
    folder, (best, other, *_), _ = compared
    figures = [
        [resampled_auroc(folder / f"{one.method}-0.3-{seed}", resamples=5)[1] for seed in range(2)]
        for one in (other, best)
    ]
    wanted = mean_over_trainings([one.less(two) for one, two in zip(*figures, strict=True)])
    cells = {one.method: [Cell(f"{one.method}-0.3-{seed}") for seed in range(2)] for one in (best, other)}
    leader, behind = summarise(folder, 0.3, cells, {}, resamples=5)
    assert (behind.wider_low, behind.wider_high) == pytest.approx((wanted.low, wanted.high))
    assert behind.behind == pytest.approx(wanted.point)
    assert (leader.wider_low, leader.wider_high) == (None, None)
    write_tables(tmp_path, [leader, behind], {})
    for name in ("table.md", "table.tex"):
        text = (tmp_path / name).read_text()
        assert f"[{100 * wanted.low:+.2f}, {100 * wanted.high:+.2f}]" in text
        assert "for other trainings on other patients" in text


def test_every_method_gets_as_many_settings_each_of_which_it_understands() -> None:
    for method in acpl.methods():
        offered = candidates(method, MOST)
        assert len(offered) == MOST
        assert offered[0] == {}
        configs = []
        for extra in offered:
            resolved = resolve("images", method=method, data="x.csv", **extra).model_dump()
            assert resolved not in configs, f"{method} {extra} is another candidate again"
            configs.append(resolved)
    with pytest.raises(UserError, match="tune should be from 1 to 4"):
        candidates("acpl", 5)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Entry]]:
    folder = tmp_path_factory.mktemp("tuned") / "out"
    methods = ["supervised", "mixup"]
    return folder, acpl.compare(
        folder, methods=methods, fractions=[0.3], seeds=1, budget=2, tune=2, resamples=5, **TINY
    )


def test_settings_are_chosen_on_validation_and_the_test_part_is_not_opened_for_it(
    tuned: tuple[Path, list[Entry]],
) -> None:
    folder, entries = tuned
    for entry in entries:
        record = json.loads((folder / "tuning" / f"{entry.method}-0.3.json").read_text())
        assert [row["settings"] for row in record] == candidates(entry.method, 2)
        best = max(record, key=lambda row: row["validation_auroc"])
        assert best["chosen"]
        assert entry.chosen == best["settings"]
        assert entry.tried == 2
        trained = yaml.safe_load((folder / f"{entry.method}-0.3-0" / "config.yaml").read_text())
        assert {**trained, **trained["settings"]}.items() >= best["settings"].items()
        for number in range(2):
            trial = folder / "tuning" / f"{entry.method}-0.3-{number}"
            assert (trial / "evaluation-validation.json").exists()
            assert not (trial / "evaluation.json").exists()
            assert not (trial / "predictions.csv").exists()
            assert json.loads((trial / "events.jsonl").read_text().splitlines()[-1])["step"] == 2


def test_the_earlier_of_equal_settings_is_chosen_and_a_failed_one_never(tmp_path: Path) -> None:
    cells = [Cell(f"tuning/x-0.1-{number}", part="validation") for number in range(3)]
    for cell, figure in zip(cells, (0.6, 0.7, 0.7), strict=True):
        (tmp_path / cell.name).mkdir(parents=True)
        (tmp_path / cell.name / "evaluation-validation.json").write_text(json.dumps({"auroc": {"mean": figure}}))
    offered = [{}, {"k": 1}, {"k": 2}]
    kept = tmp_path / "tuning" / "x-0.1.json"
    assert choose(tmp_path, cells, offered, {}, kept) == Choice({"k": 1}, 3)
    kept.unlink()
    assert choose(tmp_path, cells, offered, {cell.name: "no luck" for cell in cells}, kept) == Choice({}, 0)
    assert choose(tmp_path, cells, offered, {cells[1].name: "no luck"}, kept) == Choice({"k": 2}, 2)
    # The other is better, but what is there was trained with this one.
    assert choose(tmp_path, cells, offered, {}, kept) == Choice({"k": 2}, 2)
    assert chosen_before(kept, offered) == Choice({"k": 2}, 2)
    assert chosen_before(kept, offered[:2]) is None  # a choice among others says nothing
    assert choose(tmp_path, cells[:2], offered[:2], {}, kept) == Choice({"k": 1}, 2)


def test_the_budget_is_the_same_for_all_or_a_number() -> None:
    manifest = source_of(resolve(**TINY)).manifest()
    assert steps_of("SAME", 0.3, TINY, manifest) == steps_of("same", 0.3, TINY, manifest) > 0
    assert steps_of("7", 0.3, TINY, manifest) == 7
    for wrong in ("more", "0", "-1", "1.5"):
        with pytest.raises(UserError, match="budget should be same or a number of gradient steps"):
            steps_of(wrong, 0.3, TINY, manifest)


def test_a_wrong_setting_is_refused_before_anything_runs(tmp_path: Path) -> None:
    for wrong, sentence in (
        ({"batch_size": 0}, "batch_size"),
        ({"tune": 9}, "tune should be"),
        ({"jobs": 0}, "jobs should be"),
        ({"nonsense": 1}, "nonsense"),
    ):
        with pytest.raises(UserError, match=sentence):
            acpl.compare(tmp_path / "new", methods=["supervised"], budget=1, **{**TINY, **wrong})
        assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_cells_run_side_by_side(tmp_path: Path) -> None:
    said: list[str] = []
    entries = acpl.compare(
        tmp_path / "out",
        methods=["supervised", "mixup"],
        fractions=[0.3],
        seeds=1,
        budget=2,
        jobs=2,
        resamples=5,
        say=said.append,
        **TINY,
    )
    assert {entry.finished for entry in entries} == {1}
    assert len(said) == 3
    assert (tmp_path / "out" / "about.json").exists()


def test_published_figures_stand_beside_those_on_the_papers_data() -> None:
    assert published_figure("chestxray14", 0.02, "acpl").auroc == pytest.approx(0.7482)
    assert published_figure("isic2018", 0.2, "src-mt").auroc == pytest.approx(0.9358)
    assert published_figure("chestxray14", 0.15, "noteacher") is None
    assert published_figure("isic2018", 0.1, "acpl") is None
    assert published_figure("phantom-chest", 0.2, "acpl") is None
    assert published_figure("chestxray14", 0.2, "mean-teacher").note == "with DenseNet-169"
    assert published_figure("chestxray14", 0.02, "acpl").note == "mean of three runs 74.44"
    assert published_figure("chestxray14", 0.05, "acpl").note == ""


def test_a_table_of_the_papers_data_has_a_column_of_published_figures(
    compared: tuple[Path, list[Entry], list[str]], tmp_path: Path
) -> None:
    folder, entries, _ = compared
    beside = [replace(entry, published=0.7482 if entry.method == "acpl" else None) for entry in entries]
    write_tables(tmp_path, beside, {})
    assert "published" not in (folder / "table.md").read_text()
    for name in ("table.md", "table.tex"):
        text = (tmp_path / name).read_text()
        assert " published " in text
        assert "74.82" in text
        assert "best on the test part" in text
    with (tmp_path / "table.csv").open() as file:
        assert {row["method"]: row["published"] for row in csv.DictReader(file)}["acpl"] == "0.7482"
    for width in (80, 150):
        console = Console(width=width, file=io.StringIO())
        console.print(comparison_tables([asdict(entry) for entry in beside], notes_on(beside), width))
        shown = console.file.getvalue()
        assert "…" not in shown
        assert all(f"{100 * entry.auroc:.2f} [" in shown for entry in beside)
        assert "74.82" in shown

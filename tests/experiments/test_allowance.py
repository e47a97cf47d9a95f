"""The same allowance for every method of a table, and a table of the runs that are there."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.conftest import SMALLEST

import acpl
from acpl.errors import UserError
from acpl.experiments.reproduce.allowance import choose_all, not_run, sentences, trials
from acpl.experiments.reproduce.keeping import SMALL, SPLIT, seen_on_validation
from acpl.experiments.reproduce.plan import Arm, Ground, Request
from acpl.experiments.reproduce.studies import STUDIES
from acpl.experiments.tuning import Choice, candidates
from acpl.task import Task

TINY: dict[str, Any] = {
    **SMALLEST,
    "steps": 2,
    "seeds": 2,
    "resamples": 20,
    "fractions": [0.3],
    "data": "phantom-chest",
    "methods": ["mean-teacher"],
}
GROUND = Ground(Task.MULTI_LABEL, ("a",), train=100, known=100, validation=10)


def called(place: Path, **more: Any) -> list[str]:
    said: list[str] = []
    acpl.reproduce("table1", place / "results", work=place / "work", say=said.append, **{**TINY, **more})
    return said


def request(**more: Any) -> Request:
    settings = {"data": "phantom-chest", "preset": "demo"}
    return Request("table1", (0.1, 0.2), 2, ("acpl", "fixmatch"), steps=5, settings=settings, **more)


def test_every_method_gets_as_many_settings_at_every_share() -> None:
    wanted = request()
    found = trials(wanted, GROUND, lambda share: STUDIES["table1"].arms(wanted, GROUND, share), 3)
    assert [(one.fraction, one.method) for one in found] == [
        (share, method) for share in (0.1, 0.2) for method in ("supervised", "acpl", "fixmatch")
    ]
    for one in found:
        assert list(one.offered) == candidates(one.method, 3)
        assert all(cell.part == "validation" and cell.settings["seed"] == 0 for cell in one.cells)
        assert len({cell.name for cell in one.cells}) == 3
        # As it stands it is the table's own first run, so that it is trained once.
        assert one.cells[0].name == wanted.cell(Arm(one.method, one.method), one.fraction, 0, 5).name


def test_a_setting_that_is_tuned_already_makes_room_for_the_next() -> None:
    wanted = request(tuned={"acpl": {"k": 50}})
    found = trials(wanted, GROUND, lambda share: STUDIES["table1"].arms(wanted, GROUND, share), 3)
    assert [one.offered for one in found if one.method == "acpl"] == [({}, {"k": 10}, {"k": 200})] * 2


def test_a_choice_is_for_its_share_and_method_alone_and_never_for_the_ceiling() -> None:
    wanted = request(chosen={(0.1, "fixmatch"): {"confidence": 0.7}, (0.1, "supervised"): {"weight_decay": 0.1}})
    arm = Arm("fixmatch", "fixmatch")
    assert wanted.cell(arm, 0.1, 0, 5).settings["confidence"] == 0.7
    assert "confidence" not in wanted.cell(arm, 0.2, 0, 5).settings
    assert wanted.cell(Arm("x", "fixmatch", {"confidence": 0.9}), 0.1, 0, 5).settings["confidence"] == 0.9
    assert wanted.cell(Arm("supervised", "supervised"), 0.1, 0, 5).settings["weight_decay"] == 0.1
    assert "weight_decay" not in wanted.cell(Arm("all", "supervised", all_labels=True), 0.1, 0, 5).settings


def test_what_was_chosen_is_told() -> None:
    assert sentences({}) == []
    (told,) = sentences({(0.02, "acpl"): Choice({"k": 50}, 3), (0.02, "ups"): Choice({}, 2)})
    assert told.endswith("brackets say: acpl at 2 %: k 50 (3); ups at 2 %: as it stands (2).")


@pytest.mark.parametrize(
    ("name", "more", "sentence"),
    [
        ("table4", {"methods": (), "tune": 2}, "table4 is about acpl alone; tune is for table1, table2, table3"),
        ("table1", {"tune": 0}, "tune should be from 1 to 4"),
        ("table1", {"tune": 9}, "tune should be from 1 to 4"),
    ],
)
def test_what_cannot_be_tuned_is_refused(name: str, more: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=sentence):
        acpl.reproduce(name, tmp_path / "results", work=tmp_path / "work", **{**TINY, **more})
    assert list(tmp_path.iterdir()) == []


def test_without_validation_labels_nothing_can_be_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = Ground(Task.MULTI_LABEL, ("a",), train=100, known=100, validation=0)
    monkeypatch.setattr(Request, "ground", lambda _: nobody)
    with pytest.raises(UserError, match="tune chooses on the validation part, but phantom-chest has none"):
        called(tmp_path, tune=2)


def kept_run(folder: Path, keep: str, looks: list[float | None]) -> None:
    folder.mkdir(parents=True)
    for name in (*SMALL, SPLIT):
        (folder / name).write_text("")
    (folder / "config.yaml").write_text(yaml.safe_dump({"keep": keep}))
    events = [{"event": "stage"}, *({"event": "epoch", "validation_auroc": look} for look in looks)]
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))


@pytest.mark.parametrize(
    ("keep", "looks", "figure"),
    [
        ("best", [None, 0.7, float("nan"), 0.9, 0.8], 0.9),
        ("last", [None, 0.7, 0.9, 0.8, float("nan")], 0.8),
        ("best", [None, float("nan")], None),
        ("best", [], None),
    ],
)
def test_a_kept_run_has_on_validation_what_its_kept_model_had(
    keep: str, looks: list[float | None], figure: float | None, tmp_path: Path
) -> None:
    kept_run(tmp_path / "run", keep, looks)
    assert seen_on_validation(tmp_path / "run") == figure


@pytest.mark.parametrize("table", ["table1", "table3"])
def test_a_candidate_that_a_table_has_run_already_is_not_tried_again(table: str, tmp_path: Path) -> None:
    wanted = request()
    found = trials(wanted, GROUND, lambda share: STUDIES["table1"].arms(wanted, GROUND, share), 3)[:1]
    cells = found[0].cells
    records, work = tmp_path / "results" / "table1" / "tuning", tmp_path / "work"
    for cell, figure in ((cells[0], 0.8), (cells[1], 0.9), (cells[2], None)):
        kept_run(tmp_path / "results" / table / "runs" / cell.name, "best", [figure])
    (tmp_path / "results" / table / "runs" / cells[1].name / "evaluation.json").unlink()  # copying was cut short
    assert not_run(found, records, work) == [cells[1], cells[2]]
    for cell, figure in ((cells[1], 0.7), (cells[2], 0.6)):
        (work / cell.name).mkdir(parents=True)
        (work / cell.name / cell.evaluation).write_text(json.dumps({"auroc": {"mean": figure}}))
    assert not_run(found, records, work) == []
    chosen = choose_all(found, records, work, jobs=1, say=print)
    assert chosen == {(0.1, "supervised"): Choice({}, 3)}
    (file,) = records.iterdir()
    assert [row["validation_auroc"] for row in json.loads(file.read_text())] == [0.8, 0.7, 0.6]


@pytest.mark.slow
def test_the_best_on_validation_is_taken_for_every_seed_and_trained_once(tmp_path: Path) -> None:
    assert sum(line.startswith("to try") for line in called(tmp_path, tune=2, dry_run=True)) == 4
    assert list(tmp_path.iterdir()) == []
    said = called(tmp_path, tune=2)
    target = tmp_path / "results" / "table1"
    records = {file.name.split("-0.3-")[0]: json.loads(file.read_text()) for file in (target / "tuning").iterdir()}
    assert sorted(records) == ["mean-teacher", "supervised"]
    made = json.loads((target / "made.json").read_text())
    for method, record in records.items():
        best = max(record, key=lambda row: row["validation_auroc"])
        assert best["chosen"]
        for run in [run for run in made["runs"] if run["row"] == method]:
            config = yaml.safe_load((target / "runs" / run["run"] / "config.yaml").read_text())
            assert {**config, **config["settings"]}.items() >= best["settings"].items()
    # Four candidates, of which two are seed 0's runs; seed 1 of both and two ceilings besides.
    assert len(list((tmp_path / "work").glob("*/model.safetensors"))) == 8
    not_chosen = [run for run in (tmp_path / "work").glob("*-0.3-0-*") if not (target / "runs" / run.name).exists()]
    assert len(not_chosen) == 2
    assert not any((run / "evaluation.json").exists() for run in not_chosen)  # the test part was not opened for them
    assert "chosen on seed 0's validation part" in (target / "table.md").read_text()
    assert len(said) == 4 + 6
    (tmp_path / "work").rename(tmp_path / "gone")
    assert called(tmp_path, tune=2) == []
    # Another table of these results takes the same choices and the same runs.
    asked = {**TINY, "tune": 2, "dry_run": True}
    acpl.reproduce("table2", tmp_path / "results", work=tmp_path / "work", say=said.append, **asked)
    assert said[-1] == "4 cells, 0 to run"
    assert not any(line.startswith("to try") for line in said)


@pytest.mark.slow
def test_a_table_of_the_runs_that_are_there_says_which_are_not(tmp_path: Path) -> None:
    called(tmp_path, seeds=1)
    assert called(tmp_path, run=False) == []
    text = (tmp_path / "results" / "table1" / "table.md").read_text()
    assert "(1 of 2 seeds)" in text
    assert "Not run yet: supervised, 30 %, seed 1; mean-teacher, 30 %, seed 1; all labels, 30 %, seed 1." in text
    assert "failed" not in text
    assert len(list((tmp_path / "work").glob("*/model.safetensors"))) == 3
    called(tmp_path)
    assert "Not run yet" not in (tmp_path / "results" / "table1" / "table.md").read_text()

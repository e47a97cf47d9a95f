"""Every table and figure of the paper from one command, on tiny phantoms, checked against scikit-learn."""

import csv
import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from sklearn.metrics import f1_score, recall_score, roc_auc_score

import acpl
from acpl.data.sources.phantoms import PhantomSource
from acpl.errors import UserError
from acpl.experiments.reproduce.keeping import keep, short
from acpl.experiments.reproduce.names import NAMES
from acpl.experiments.reproduce.scores import ALL_SHARES
from acpl.experiments.reproduce.selection import BY_TEST, BY_VALIDATION, SNAPSHOTS
from tests.conftest import SMALLEST

TINY: dict[str, Any] = {
    **SMALLEST,
    "stages": 2,
    "steps": 4,
    "seeds": 1,
    "resamples": 20,
    "fractions": [0.3],
    "data": "phantom-chest",
}
OTHERS: dict[str, dict[str, Any]] = {
    "table1": {"methods": ["acpl", "mean-teacher"], "fractions": [0.2, 0.3], "seeds": 2},
    "table2": {"methods": ["acpl"], "fractions": [0.2]},
    "table3": {"methods": ["acpl"], "data": "phantom-lesions", "seeds": 2},
    "beside": {"methods": ["acpl"], "data": "phantom-lesions", "group_answers": 0.5},
    "calibration": {"methods": ["acpl"], "fractions": [0.2, 0.3], "seeds": 2},
    "figure-k": {"ks": [2, 5]},
    "figure-balance": {"seeds": 2},
}
LEVELS = ("low", "medium", "high")
Reproduced = Callable[[str], Path]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reproduce")


@pytest.fixture(scope="module")
def reproduced(place: Path) -> Reproduced:
    """A name's folder; made when first asked for, with the runs that other names made."""

    def make(name: str) -> Path:
        target = place / "results" / name
        if not target.exists():
            again(name, place)
        return target

    return make


def again(name: str, place: Path, **more: Any) -> list[str]:
    """Call for a name and return what was said."""
    said: list[str] = []
    given = {**TINY, **OTHERS.get(name, {}), **more}
    acpl.reproduce(name, place / "results", work=place / "work", say=said.append, **given)
    return said


def rows_of(target: Path) -> list[dict[str, str]]:
    with (target / "table.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def runs_of(target: Path, row: str, column: str) -> list[Path]:
    made = json.loads((target / "made.json").read_text())
    return [target / "runs" / run["run"] for run in made["runs"] if (run["row"], run["column"]) == (row, column)]


def by_scikit_learn(predictions: Path, measure: str) -> dict[str, float]:
    """Each class's figure, for classes that the test part has and has not."""
    table = pd.read_csv(predictions)
    found = {}
    for name in [column.removeprefix("truth.") for column in table if column.startswith("truth.")]:
        truth = table[f"truth.{name}"]
        if measure == "auroc" and truth.nunique() == 2:
            found[name] = float(roc_auc_score(truth, table[f"probability.{name}"]))
        elif measure != "auroc" and truth.sum() > 0:
            judge = {"sensitivity": recall_score, "f1": f1_score}[measure]
            found[name] = float(judge(truth, table[f"probability.{name}"] >= 0.18, zero_division=0))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_name_runs_end_to_end(name: str, reproduced: Reproduced) -> None:
    target = reproduced(name)
    rows = rows_of(target)
    assert rows
    assert all(not row["failed"] for row in rows), rows
    assert any(row["mean"] for row in rows)
    text = (target / "table.md").read_text()
    assert name in text
    assert "Beside: " in text
    assert r"\begin{tabular}" in (target / "table.tex").read_text()
    made = json.loads((target / "made.json").read_text())
    assert not {"data", "images", "cache", "device"} & made["settings"].keys()
    for run in made["runs"]:
        folder = target / "runs" / run["run"]
        assert json.loads((folder / "split.json").read_text())["checksum"] == run["split"]
        assert {"config.yaml", "evaluation.json", "predictions.csv.gz"} <= {file.name for file in folder.iterdir()}
    heavy = [*target.rglob("*.safetensors"), *target.rglob("*.pt"), *target.rglob("split.csv")]
    assert heavy == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("figure")])
def test_a_figure_is_there_as_svg_and_png(name: str, reproduced: Reproduced) -> None:
    target = reproduced(name)
    drawing = ElementTree.parse(target / "figure.svg").getroot()
    with Image.open(target / "figure.png") as image:
        assert image.size == (2 * float(drawing.attrib["width"]), 2 * float(drawing.attrib["height"]))
        assert len(image.convert("RGB").getcolors(2**24) or []) > 10


@pytest.mark.slow
@pytest.mark.parametrize("name", ["table1", "table3", "table4", "supplement1", "departures"])
def test_the_numbers_are_those_of_scikit_learn_from_the_predictions(name: str, reproduced: Reproduced) -> None:
    target, compared = reproduced(name), 0
    for row in rows_of(target):
        if row["measure"] not in ("auroc", "sensitivity", "f1") or row["row"] in (BY_VALIDATION, BY_TEST):
            continue
        if row["column"] == ALL_SHARES:
            continue
        runs = runs_of(target, row["row"], row["column"])
        each = [np.mean(list(by_scikit_learn(run / "predictions.csv.gz", row["measure"]).values())) for run in runs]
        assert float(row["mean"]) == pytest.approx(np.mean(each), abs=1e-9)
        assert int(row["seeds"]) == len(runs)
        compared += 1
    assert compared > 3


@pytest.mark.slow
def test_class_figures_are_those_of_scikit_learn(reproduced: Reproduced) -> None:
    target = reproduced("table2")
    rows = rows_of(target)
    (run,) = runs_of(target, "acpl", "20 %")
    wanted = by_scikit_learn(run / "predictions.csv.gz", "auroc")
    found = {row["row"]: float(row["mean"]) for row in rows if row["column"] == "acpl" and row["mean"]}
    assert found.pop("Mean") == pytest.approx(np.mean(list(wanted.values())))
    assert found == pytest.approx(wanted)


@pytest.mark.slow
def test_differences_are_to_the_reference_and_the_ceiling_has_every_label(reproduced: Reproduced) -> None:
    target = reproduced("table1")
    rows = {(row["row"], row["column"]): row for row in rows_of(target)}
    for column in ("20 %", "30 %"):
        floor = float(rows["supervised", column]["mean"])
        assert rows["supervised", column]["difference"] == ""
        for name in ("acpl", "mean-teacher", "all labels"):
            row = rows[name, column]
            assert float(row["difference"]) == pytest.approx(float(row["mean"]) - floor)
            assert float(row["difference_low"]) <= float(row["difference"]) <= float(row["difference_high"])
        (few, *_), (every, *_) = runs_of(target, "acpl", column), runs_of(target, "all labels", column)
        whole, part = (json.loads((run / "split.json").read_text()) for run in (every, few))
        assert whole["labelled"] == part["labelled"] + part["unlabelled"]
        assert "unlabelled" not in whole
    made = json.loads((target / "made.json").read_text())
    assert {run["steps"] for run in made["runs"]} == {4}
    for name in ("acpl", "all labels"):
        over, *each = (rows[name, column] for column in (ALL_SHARES, "20 %", "30 %"))
        for figure in ("mean", "difference"):
            assert float(over[figure]) == pytest.approx(np.mean([float(one[figure]) for one in each]))
    assert ("acpl", ALL_SHARES) not in {(row["row"], row["column"]) for row in rows_of(reproduced("table3"))}


@pytest.mark.slow
def test_differences_of_several_seeds_have_an_interval_for_other_trainings(reproduced: Reproduced) -> None:
    several, single = (reproduced(name) for name in ("table1", "table4"))
    compared = [row for row in rows_of(several) if row["difference"]]
    assert compared
    for row in compared:
        assert float(row["wider_low"]) <= float(row["difference"]) <= float(row["wider_high"])
    assert "For other trainings, too: " in (several / "table.md").read_text()
    assert not any(row["wider_low"] for row in rows_of(single))
    assert "For other trainings" not in (single / "table.md").read_text()


@pytest.mark.slow
def test_acpl_is_measured_with_every_other_method(reproduced: Reproduced) -> None:
    target = reproduced("table1")
    leads = pd.read_csv(target / "ahead.csv")
    means = {(row["row"], row["column"]): float(row["mean"]) for row in rows_of(target)}
    assert set(zip(leads["of"], leads["over"], leads["column"], strict=True)) == {
        ("acpl", "mean-teacher", column) for column in ("20 %", "30 %", ALL_SHARES)
    }
    for one in leads.itertuples():
        assert one.difference == pytest.approx(means["acpl", one.column] - means["mean-teacher", one.column])
    assert "how far acpl is ahead of each of the others" in (target / "table.md").read_text()
    assert not (reproduced("table3") / "ahead.csv").exists()


@pytest.mark.slow
def test_who_is_ahead_of_whom_goes_when_the_others_go(place: Path, reproduced: Reproduced) -> None:
    copy = place / "fewer"
    shutil.copytree(reproduced("table1"), copy / "table1")
    acpl.reproduce("table1", copy, work=place / "work", **{**TINY, **OTHERS["table1"], "methods": ["acpl"]})
    assert not (copy / "table1" / "ahead.csv").exists()
    assert "how far acpl" not in (copy / "table1" / "table.md").read_text()


@pytest.mark.slow
def test_a_table_is_compared_with_one_made_otherwise_and_forgets_it_when_not_asked(
    place: Path, reproduced: Reproduced
) -> None:
    plain, target = reproduced("table3"), place / "steeper" / "table3"
    given: dict[str, Any] = {**TINY, **OTHERS["table3"], "learning_rate": 0.01, "work": place / "work"}
    acpl.reproduce("table3", place / "steeper", against=[place / "results"], **given)
    found = pd.read_csv(target / "against.csv")
    means = [{(row["row"], row["measure"]): float(row["mean"]) for row in rows_of(table)} for table in (target, plain)]
    assert {"supervised", "acpl", "all labels"} == set(found["of"])
    assert set(found["over"]) == {"results/table3"}
    for one in found.itertuples():
        assert one.difference == pytest.approx(means[0][one.of, one.measure] - means[1][one.of, one.measure])
    assert json.loads((target / "made.json").read_text())["against"] == ["results/table3"]
    assert "how far each is ahead of itself in results/table3" in (target / "table.md").read_text()
    acpl.reproduce("table3", place / "steeper", **given)
    assert not (target / "against.csv").exists()
    assert "against" not in json.loads((target / "made.json").read_text())
    with pytest.raises(UserError, match="table of other data"):
        acpl.reproduce("table3", place / "chests", against=[plain], **{**given, "data": "phantom-chest"})


@pytest.mark.slow
def test_the_paper_s_figures_stand_beside_ours(reproduced: Reproduced) -> None:
    lines = (reproduced("table3") / "table.md").read_text().splitlines()
    line = next(line for line in lines if line.startswith("| acpl"))
    assert all(figure in line for figure in ("94.36", "72.14", "62.23"))
    paper = {(row["row"], row["column"]): row["paper"] for row in rows_of(reproduced("table1"))}
    assert float(paper["acpl", "20 %"]) == pytest.approx(0.8177)
    assert paper["acpl", "30 %"] == ""
    paper = {(row["row"], row["column"]): row["paper"] for row in rows_of(reproduced("table2"))}
    assert float(paper["Mean", "acpl"]) == pytest.approx(0.8177)


@pytest.mark.slow
def test_called_again_nothing_runs_and_what_was_lost_is_made_anew(place: Path, reproduced: Reproduced) -> None:
    target = reproduced("table5")
    before = (target / "table.csv").read_text()
    assert again("table5", place) == []
    moved = place / "work-elsewhere"
    (place / "work").rename(moved)
    assert again("table5", place) == []  # the small files under results are enough
    moved.rename(place / "work")
    (model,) = runs_of(target, "model", "30 %")
    shutil.rmtree(model)
    shutil.rmtree(place / "work" / model.name)
    said = again("table5", place)
    assert len(said) == 1
    assert said[0].startswith(f"1 of 1  {model.name}")
    assert (target / "table.csv").read_text() == before


@pytest.mark.slow
def test_tables_share_their_runs(reproduced: Reproduced, place: Path) -> None:
    one = runs_of(reproduced("table4"), "high, purified", "30 %")
    other = runs_of(reproduced("table5"), "informative mixup", "30 %")
    assert [run.name for run in one] == [run.name for run in other]
    listed = again("figure-size", place, dry_run=True)
    assert listed[-1] == "3 cells, 0 to run"


@pytest.mark.slow
def test_a_cell_that_fails_is_shown_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from acpl.algorithms.mean_teacher import MeanTeacher

    def broken(*_: object) -> None:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(MeanTeacher, "losses", broken)
    again("table1", tmp_path, methods=["mean-teacher"], fractions=[0.3], seeds=1)
    target = tmp_path / "results" / "table1"
    rows = {row["row"]: row for row in rows_of(target)}
    assert rows["mean-teacher"]["mean"] == ""
    assert rows["mean-teacher"]["failed"] == "seed 0: RuntimeError: out of luck"
    assert rows["supervised"]["mean"] != ""
    text = (target / "table.md").read_text()
    assert "| mean-teacher | missing |" in text
    assert "failed: mean-teacher, 30 %, seed 0: RuntimeError: out of luck" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["figure-k", "figure-size", "figure-balance", "figure-examples", "departures", "table2"]
)
def test_where_every_run_fails_the_table_says_so_and_nothing_else_breaks(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from acpl.algorithms.acpl import ACPL
    from acpl.algorithms.supervised import Supervised

    def broken(*_: object) -> None:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(ACPL, "losses", broken)
    monkeypatch.setattr(Supervised, "losses", broken)
    again(name, tmp_path, seeds=1)
    target = tmp_path / "results" / name
    assert all(row["mean"] == "" and "out of luck" in row["failed"] for row in rows_of(target))
    assert "out of luck" in (target / "table.md").read_text()
    assert (target / "figure.png").exists() == name.startswith("figure")


@pytest.mark.slow
def test_choosing_on_test_is_measured_from_what_the_stages_left(reproduced: Reproduced) -> None:
    target = reproduced("departures")
    rows = {row["row"]: float(row["mean"]) for row in rows_of(target)}
    (run,) = runs_of(target, "the paper", "30 %")
    with np.load(run / SNAPSHOTS) as stored:
        names = [str(name) for name in stored["names"]]
        assert names == ["stage 1", "stage 2", "warm-up"]
        figures = {
            part: {name: mean_auroc(stored[f"{part}.truth"], stored[f"{part}.{name}"]) for name in names}
            for part in ("validation", "test")
        }
    best = max(figures["validation"], key=lambda name: figures["validation"][name])
    assert rows[BY_VALIDATION] == pytest.approx(figures["test"][best])
    assert rows[BY_TEST] == pytest.approx(max(figures["test"].values()))
    assert rows["the paper"] == pytest.approx(figures["test"]["stage 2"])
    # What training itself keeps as the best on validation is what the study finds.
    assert rows["best checkpoint kept (by validation)"] == pytest.approx(rows[BY_VALIDATION])
    assert "choosing among 3 kept predictors" in (target / "table.md").read_text()


def mean_auroc(truth: np.ndarray, score: np.ndarray) -> float:
    there = [c for c in range(truth.shape[1]) if len(set(truth[:, c])) == 2]
    return float(np.mean([roc_auc_score(truth[:, c], score[:, c]) for c in there]))


@pytest.mark.slow
def test_sizes_and_shares_are_counted_from_the_stages(reproduced: Reproduced) -> None:
    target = reproduced("figure-size")
    (run,) = runs_of(target, "high", "30 %")
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    stages = [event for event in events if event["event"] == "stage" and event["stage"] > 0]
    labelled = json.loads((run / "split.json").read_text())["labelled"]
    sizes = [float(row["mean"]) for row in rows_of(target) if row["row"] == "high"]
    assert sizes == list(np.cumsum([labelled, *(stage["selected"] for stage in stages)]))


@pytest.mark.slow
def test_balance_is_counted_among_the_true_labels(reproduced: Reproduced) -> None:
    from acpl.data.phantoms import chest_labels

    target = reproduced("figure-balance")
    labels, _ = chest_labels(range(TINY["phantom_patients"]), seed=0)
    nothing = labels.sum(axis=1) == 0
    tables = [pd.read_parquet(run / "stages" / "01.parquet") for run in runs_of(target, "acpl", "30 %")]
    pools = [table["id"].to_numpy() for table in tables]
    high = [table.loc[table["information"] == 2, "id"].to_numpy() for table in tables]
    shares = {row["column"]: float(row["mean"]) for row in rows_of(target) if row["row"] == "No Finding"}
    assert shares["the pool"] == pytest.approx(np.mean([nothing[ids].mean() for ids in pools]))
    assert shares["high information"] == pytest.approx(np.mean([nothing[ids].mean() for ids in high]))


@pytest.mark.slow
def test_a_tuned_setting_reaches_its_method_and_no_other(tmp_path: Path) -> None:
    file = tmp_path / "tuned.yaml"
    file.write_text("all: {learning_rate: 0.002}\nacpl: {k: 2, stages: 1}\n")
    again("table1", tmp_path, methods=["acpl"], fractions=[0.3], seeds=1, tuned=file)
    target = tmp_path / "results" / "table1"
    (own,), (other,) = runs_of(target, "acpl", "30 %"), runs_of(target, "supervised", "30 %")
    assert "learning_rate: 0.002" in (own / "config.yaml").read_text()
    assert "learning_rate: 0.002" in (other / "config.yaml").read_text()
    assert "  k: 2" in (own / "config.yaml").read_text()
    assert "stages: 1" in (own / "config.yaml").read_text()
    assert "stages: 2" in (other / "config.yaml").read_text()


def test_a_dry_run_lists_the_cells_and_writes_nothing(tmp_path: Path) -> None:
    said = again("table4", tmp_path, seeds=2, dry_run=True)
    assert said[-1] == "14 cells, 14 to run"
    assert sum("high, purified" in line for line in said) == 2
    assert list(tmp_path.iterdir()) == []
    said = again("figure-k", tmp_path, ks=[], dry_run=True)
    assert {("purified" in line, "all join" in line) for line in said[:-1]} == {(True, False), (False, True)}


@pytest.mark.parametrize(
    ("name", "wrong", "sentence"),
    [
        ("table9", {}, "unknown table or figure 'table9'; did you mean"),
        ("table1", {"methods": ["acl"]}, "unknown method 'acl'"),
        ("table4", {"methods": ["ups"]}, "table4 is about acpl alone; methods can be named for table1"),
        ("table4", {"fractions": [1.5]}, "fractions should be above 0 and at most 1"),
        ("figure-k", {"ks": [0]}, "ks should be at least 1"),
        ("table4", {"ks": [3]}, "ks can be named for figure-k only"),
        ("figure-k", {"fractions": [0.1, 0.2]}, "figure-k shows one fraction, but 2 were named"),
        ("trust", {"fractions": [0.1, 0.2]}, "trust shows one fraction, but 2 were named"),
        ("trust", {"methods": ["acpl", "acpl-plus"]}, "trust is about one method that selects by information"),
        ("trust", {"methods": ["ups"]}, "one method that selects by information: acpl or acpl-plus"),
        ("trust", {"tune": 2}, "trust is about acpl alone; tune is for table1, table2, table3"),
        ("table1", {"labelled": 8}, "labelled sets how many images keep their labels, but here fractions do"),
        ("table4", {"seeds": 0}, "should be at least 1"),
        ("table4", {"tuned": "nowhere.yaml"}, "nowhere.yaml could not be read"),
    ],
)
def test_wrong_wishes_are_refused_in_one_sentence(
    name: str, wrong: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=sentence):
        again(name, tmp_path, **wrong)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("named", "method"), [({}, "acpl"), ({"methods": ["acpl-plus"]}, "acpl-plus")])
def test_trust_may_be_asked_of_acpl_plus(named: dict[str, Any], method: str, tmp_path: Path) -> None:
    said = again("trust", tmp_path, dry_run=True, **named)
    assert said[0].startswith(f"to run   {method}-0")
    assert said[-1] == "1 cells, 1 to run"


def test_the_shell_lists_every_name_without_loading_torch() -> None:
    script = (
        "import sys; sys.argv = ['acpl', 'reproduce', '--help']\n"
        "from acpl.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('torch', 'monai', 'pandas', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert all(f"{name}:" in done.stdout for name in NAMES)


@pytest.mark.slow
def test_the_shell_goes_all_the_way(tmp_path: Path) -> None:
    tiny = "--phantom-patients 40 --size 32 --batch-size 8 --steps 2 --seeds 1 --fractions 0.3 --device cpu --stages 1"
    command = [sys.executable, "-c", "from acpl.cli import main; main()", "reproduce", "figure-size", *tiny.split()]
    done = subprocess.run([*command, "--data", "phantom-chest"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "3 of 3" in done.stdout
    assert done.stdout.rstrip().endswith("written: results/figure-size")
    assert (tmp_path / "results" / "figure-size" / "figure.png").exists()
    assert (tmp_path / "runs" / "reproduce").is_dir()


def test_every_run_says_on_what_it_was_made_wherever_the_table_is_written(reproduced: Reproduced) -> None:
    made = json.loads((reproduced("table4") / "made.json").read_text())
    assert {run["machine"] for run in made["runs"]} == {f"CPU, {platform.machine()}"}
    assert all(run["versions"]["torch"] == version("torch") for run in made["runs"])


def test_what_is_kept_does_not_say_where_it_lay(reproduced: Reproduced, place: Path, tmp_path: Path) -> None:
    (one,) = runs_of(reproduced("table4"), "supervised", "30 %")
    run = tmp_path / "run"
    shutil.copytree(place / "work" / one.name, run)
    for name, line in (("config.yaml", "data: {}\n"), ("evaluation.json", '"data": "{}"')):
        text = (run / name).read_text()
        assert line.format("phantom-chest") in text
        (run / name).write_text(
            text.replace(line.format("phantom-chest"), line.format(tmp_path / "ham" / "labels.csv"))
        )
    keep(run, tmp_path / "kept")
    for name in ("config.yaml", "evaluation.json"):
        text = (tmp_path / "kept" / name).read_text()
        assert "ham/labels.csv" in text
        assert str(tmp_path) not in text


def test_paths_are_kept_by_their_last_two_parts(tmp_path: Path) -> None:
    assert short(str(tmp_path / "ham" / "labels.csv")) == "ham/labels.csv"
    assert short("phantom-chest") == "phantom-chest"


@pytest.mark.slow
def test_trust_is_how_scikit_learn_ranks_what_was_said_of_the_unlabelled(reproduced: Reproduced) -> None:
    target = reproduced("trust")
    found = {(row["row"], row["column"]): row["mean"] for row in rows_of(target)}
    (run,) = (target / "runs").iterdir()
    table = pd.read_parquet(run / "stages" / "01.parquet").set_index("id")
    manifest = PhantomSource("phantom-chest", TINY["phantom_patients"], TINY["size"]).manifest()
    truth = pd.DataFrame(manifest.labels, index=manifest.ids, columns=manifest.classes).loc[table.index]
    rows = {f"{name} information": table.index[table["information"] == n] for n, name in enumerate(LEVELS)}
    rows["the pool"] = table.index
    weight = table["density"].clip(0, 1)
    compared = 0
    for row, some in rows.items():
        for column in ("model", "neighbours", "informative mixup"):
            each = []
            for name in [name for name in manifest.classes if truth.loc[some, name].nunique() == 2]:
                model, neighbours = table[f"model.{name}"], table[f"neighbours.{name}"]
                both = weight * model + (1 - weight) * neighbours
                said = {"model": model, "neighbours": neighbours, "informative mixup": both}[column]
                each.append(roc_auc_score(truth.loc[some, name], said.loc[some]))
            if each:
                assert float(found[row, column]) == pytest.approx(np.mean(each), abs=1e-5)
                compared += 1
    assert compared >= 6

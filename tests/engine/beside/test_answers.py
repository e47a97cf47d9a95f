"""What is known beside the images, from a table to pseudo-labels and figures; the images themselves are noise."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from tests.engine.beside.runs import (
    ALL_THREE,
    SITES,
    Listens,
    answers,
    auroc,
    card,
    events,
    probabilities,
    stage,
    train,
    weights,
)
from tests.engine.crews import in_crew

import acpl
from acpl.data.clinical import ClinicalColumn
from acpl.data.manifest import Manifest
from acpl.engine import inference
from acpl.engine.beside import Beside, Clinical
from acpl.engine.run_folder import RunFolder
from acpl.engine.stopping import Stopped
from acpl.engine.thresholds import set_on_validation
from acpl.labelling.pool import look, open_pool
from acpl.task import Task

# Clinical columns.


def test_a_column_that_tells_the_classes_apart_is_heard_where_images_are_noise(plain: Path, informed: Path) -> None:
    assert auroc(plain) < 0.75
    assert auroc(informed) > 0.99
    assert auroc(informed, "-validation") > 0.99
    assert max(event["validation_auroc"] for event in events(informed) if "validation_auroc" in event) > 0.99


def test_the_model_itself_is_trained_on_other_pseudo_labels(plain: Path, informed: Path, place: Path) -> None:
    before, after = stage(plain), stage(informed)
    table = pd.read_csv(place / "lesions.csv")
    own = table["site"].map(SITES.index).to_numpy()[after.index]
    rows = np.arange(len(after))
    assert (answers(after, "model")[rows, own] > answers(before, "model")[rows, own]).all()


def test_the_card_says_what_was_learnt_and_is_all_that_judging_needs(informed: Path) -> None:
    kept = card(informed)["clinical"]
    assert [column["name"] for column in kept["columns"]] == ["site", "age"]
    assert kept["columns"][0]["words"] == list(SITES)
    assert np.shape(kept["weights"]) == (4 + 3 + 1, 3)
    for kind in range(3):
        assert np.argmax(kept["weights"][kind]) == kind
    assert np.sum(kept["usual"]) == pytest.approx(1)


def test_rows_in_another_order_and_columns_written_otherwise_are_judged_alike(
    informed: Path, place: Path, tmp_path: Path
) -> None:
    table = pd.read_csv(place / "lesions.csv", dtype=str, keep_default_na=False).iloc[::-1]
    table["site"] = " " + table["site"].str.upper()
    table["age"] = [f"{age}.0" if age else "unknown" for age in table["age"]]
    table[["age", "site", "split", "patient", "dx", "image"]].to_csv(place / "otherwise.csv", index=False)
    run = Path(shutil.copytree(informed, tmp_path / "run"))
    (run / "config.yaml").write_text((run / "config.yaml").read_text().replace("lesions.csv", "otherwise.csv"))
    split = pd.read_csv(run / "split.csv")
    split.assign(id=79 - split["id"]).sort_values("id").to_csv(run / "split.csv", index=False)
    acpl.evaluate(run, resamples=2)
    assert np.abs(probabilities(run) - probabilities(informed)).to_numpy().max() < 1e-6


def test_nothing_is_learnt_from_labels_that_are_not_given(informed: Path, place: Path, tmp_path: Path) -> None:
    """Other labels of unlabelled, validation and test rows leave what was learnt as it was, to the bit."""
    split = pd.read_csv(informed / "split.csv")
    given = split.loc[split["role"] == "labelled", "image"]
    table = pd.read_csv(place / "lesions.csv", dtype=str, keep_default_na=False)
    hidden = ~table["image"].isin(given)
    table.loc[hidden, "dx"] = table.loc[hidden, "dx"].map({"a": "b", "b": "c", "c": "a"})
    file = place / "relabelled.csv"
    table.to_csv(file, index=False)
    other = train(place, tmp_path / "other", "relabelled.csv", clinical="site,age", split=informed / "split.csv")
    assert pd.read_csv(other / "split.csv").equals(split)
    assert card(other)["clinical"] == card(informed)["clinical"]
    table.loc[~hidden, "dx"] = table.loc[~hidden, "dx"].map({"a": "b", "b": "c", "c": "a"})
    table.to_csv(file, index=False)
    again = train(place, tmp_path / "again", "relabelled.csv", clinical="site,age", split=informed / "split.csv")
    assert card(again)["clinical"]["weights"] != card(informed)["clinical"]["weights"]


def test_cells_of_the_test_part_decide_nothing(informed: Path, place: Path, tmp_path: Path) -> None:
    table = pd.read_csv(place / "lesions.csv", dtype=str, keep_default_na=False)
    table.loc[table["split"] == "test", ["site", "age"]] = ["elsewhere", "no number"]
    table.to_csv(place / "strange.csv", index=False)
    other = train(place, tmp_path / "other", "strange.csv", clinical="site,age")
    assert card(other)["clinical"] == card(informed)["clinical"]
    assert weights(other) == weights(informed)
    acpl.evaluate(other, resamples=2)


def test_a_class_of_its_own_for_no_finding_goes_with_clinical_columns(place: Path, tmp_path: Path) -> None:
    run = train(place, tmp_path / "run", "chests.csv", clinical="site", normal_output=True)
    acpl.evaluate(run, resamples=2)
    assert np.shape(card(run)["clinical"]["weights"]) == (5, 3)
    assert list(probabilities(run)) == ["probability.Mass", "probability.Nodule"]
    assert auroc(run) > 0.99
    assert answers(stage(run), "model").shape[1] == 3


def test_a_column_that_is_not_there_is_refused_and_leaves_no_run(place: Path, tmp_path: Path) -> None:
    with pytest.raises(acpl.UserError, match="unknown clinical column 'sit'; did you mean 'site'"):
        train(place, tmp_path / "run", clinical="sit")
    with pytest.raises(acpl.UserError, match="unknown clinical column 'dx'"):  # a label is no description
        train(place, tmp_path / "run", clinical="dx")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "damage",
    [
        {"columns": 1},
        {"columns": [{"name": "site"}]},
        {"weights": [[0.0, 0.0, 0.0]]},
        {"weights": "no"},
        {"usual": None},
        {"usual": [0.5]},
    ],
    ids=str,
)
def test_a_damaged_card_is_named(damage: dict[str, Any]) -> None:
    whole = Clinical([ClinicalColumn("site", words=("a",))], torch.zeros(3, 2), torch.full((2,), 0.5)).as_json()
    assert Clinical.of_json(whole).weights.shape == (3, 2)
    with pytest.raises(acpl.UserError, match=r"model\.json is damaged: what 'clinical' says"):
        Clinical.of_json(whole | damage)


# A patient's labels.


def test_a_patients_labels_reach_the_patients_other_images_and_nobody_elses(
    plain: Path, place: Path, tmp_path: Path
) -> None:
    monitor = Listens()
    run = train(place, tmp_path / "run", group_labels=0.5, monitor=monitor)
    assert not any("group_labels" in sentence for sentence in monitor.said)
    table = pd.read_csv(place / "lesions.csv")
    split = pd.read_csv(run / "split.csv").set_index("id")
    labelled = set(table.loc[split.index[split["role"] == "labelled"], "patient"])
    before, after = stage(plain), stage(run)
    theirs = table.loc[after.index, "patient"].isin(labelled).to_numpy()
    assert 0 < theirs.sum() < len(theirs)
    own = table.loc[after.index, "dx"].map("abc".index).to_numpy()
    rows = np.arange(len(after))
    changed = (answers(after, "model") != answers(before, "model")).any(axis=1)
    assert np.array_equal(changed, theirs)
    assert (answers(after, "model")[rows, own] > answers(before, "model")[rows, own])[theirs].all()
    taught, taught_before = answers(after, "pseudo_label"), answers(before, "pseudo_label")
    assert np.array_equal(taught[~theirs], taught_before[~theirs], equal_nan=True)
    chosen = theirs & after["selected"].to_numpy(dtype=bool)
    assert chosen.any()
    assert (taught != taught_before)[chosen].any(axis=1).all()


def test_labels_that_nobody_shares_are_said_to_be_of_no_use(place: Path, tmp_path: Path) -> None:
    monitor = Listens()
    train(place, tmp_path / "run", group_labels=1.0, draw="groups", stages=0, monitor=monitor)
    assert "group_labels adds nothing: nobody has both labelled and unlabelled images" in monitor.said
    assert not any("group_answers" in sentence for sentence in monitor.said)


def test_answers_that_nobody_shares_are_said_to_be_of_no_use(place: Path, tmp_path: Path) -> None:
    rows = pd.read_csv(place / "lesions.csv", dtype=str).drop(columns="patient")
    rows.to_csv(tmp_path / "alone.csv", index=False)
    for settings, said in (({"group_answers": 1.0}, 1), ({}, 0)):
        monitor = Listens()
        given = {"images": place, "stages": 0, "monitor": monitor, **settings}
        train(tmp_path, tmp_path / str(said), data="alone.csv", **given)
        assert sum("group_answers adds nothing: no two images" in sentence for sentence in monitor.said) == said


def test_a_model_is_judged_without_the_labels_of_the_judged_patients(plain: Path, place: Path, tmp_path: Path) -> None:
    """Evidence from labels is for unlabelled images of training alone."""
    run = train(place, tmp_path / "run", group_labels=0.5, stages=0)
    without = train(place, tmp_path / "without", stages=0)
    assert weights(run) == weights(without)
    for one in (run, without):
        acpl.evaluate(one, part="validation", resamples=2)
    assert probabilities(run, "-validation").equals(probabilities(without, "-validation"))


# Answers that a patient's images share.


def test_images_of_one_patient_get_one_answer(place: Path, tmp_path: Path) -> None:
    run = train(place, tmp_path / "run", "chests.csv", group_answers=1.0, stages=0)
    alone = train(place, tmp_path / "alone", "chests.csv", stages=0)
    for one in (run, alone):
        acpl.evaluate(one, resamples=2)
    shared, own = (pd.read_csv(one / "predictions.csv") for one in (run, alone))
    names = ["probability.Mass", "probability.Nodule"]
    for _, images in shared.groupby("group"):
        assert len(images) == 2
        assert (images[names].nunique() == 1).all()
    assert (own.groupby("group")[names].nunique() == 2).all().all()


def test_validation_in_training_judges_as_judging_does(place: Path, tmp_path: Path) -> None:
    for number, settings in enumerate(({"group_answers": 1.0}, ALL_THREE)):
        run = train(place, tmp_path / str(number), "chests.csv", stages=0, **settings)
        acpl.evaluate(run, part="validation", resamples=2)
        seen = [event["validation_auroc"] for event in events(run) if event.get("validation_auroc") is not None]
        assert seen == pytest.approx([auroc(run, "-validation")], abs=1e-9)


# All of them.


def test_with_all_of_them_off_nothing_changes(plain: Path, place: Path, tmp_path: Path) -> None:
    off = {"clinical": (), "clinical_in": "everything", "group_labels": None, "group_answers": 0.0}
    run = train(place, tmp_path / "run", **off, group_pseudo_labels=0.0)
    assert weights(run) == weights(plain)
    assert card(run) == card(plain)
    assert (card(run)["clinical"], card(run)["group_answers"]) == (None, 0.0)
    pd.testing.assert_frame_equal(stage(run), stage(plain))
    assert Beside.of(RunFolder(run).card(), pd.DataFrame()) is None


@pytest.mark.parametrize("stop_at", [2, 5])
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(place: Path, tmp_path: Path, stop_at: int) -> None:
    whole = train(place, tmp_path / "whole", **ALL_THREE)
    with pytest.raises(Stopped):
        train(place, tmp_path / "cut", monitor=Listens(stop_at), **ALL_THREE)
    acpl.train(resume=tmp_path / "cut")
    assert weights(tmp_path / "cut") == weights(whole)
    assert card(tmp_path / "cut") == card(whole)
    pd.testing.assert_frame_equal(stage(tmp_path / "cut"), stage(whole))


def test_runs_are_joined_where_they_learnt_the_same_from_the_patients_data(
    informed: Path, plain: Path, place: Path, tmp_path: Path
) -> None:
    same = train(place, tmp_path / "same", clinical="site,age", learning_rate=0.01, stages=0)
    other = train(place, tmp_path / "other", clinical="site,age", seed=3, stages=0)
    both = acpl.join([informed, same], out=tmp_path / "both", device="cpu")
    acpl.evaluate(both, resamples=2, device="cpu")
    assert card(both)["clinical"] == card(informed)["clinical"]
    assert auroc(both) > 0.99
    for run in (other, plain):
        with pytest.raises(acpl.UserError) as error:
            acpl.join([informed, run], out=tmp_path / "no", device="cpu")
        assert str(error.value) == (
            f"{run} and {informed} learnt other things from the patients' data: "
            "their columns differ, or whose labels they had"
        )
    shared = train(place, tmp_path / "shared", clinical="site,age", group_answers=0.5, stages=0)
    with pytest.raises(acpl.UserError, match=r"has group_answers 0\.5, but .* has 0\.0"):
        acpl.join([informed, shared], out=tmp_path / "no", device="cpu")


def test_what_to_label_next_hears_the_patients_data(informed: Path, tmp_path: Path) -> None:
    sight = look(open_pool(informed), device="cpu")
    truth = sight.pool.manifest.labels[sight.pool.unlabelled]
    assert np.array_equal(sight.probabilities.argmax(axis=1), truth.argmax(axis=1))
    assert len(acpl.suggest(informed, budget=3, out=tmp_path / "next.csv", device="cpu")) == 3


def test_a_joined_model_calls_classes_from_what_its_answers_are_with_the_patients_data(
    place: Path, tmp_path: Path
) -> None:
    runs = [
        train(place, tmp_path / str(rate), "chests.csv", clinical="site", learning_rate=rate, stages=0)
        for rate in (1e-3, 1e-2)
    ]
    for run in (*runs, acpl.join(runs, out=tmp_path / "both", device="cpu")):
        acpl.evaluate(run, part="validation", resamples=2, device="cpu")
        table = pd.read_csv(run / "predictions-validation.csv")
        truth, said = (table.filter(like=f"{kind}.").to_numpy(dtype=float) for kind in ("truth", "probability"))
        thresholds, _ = set_on_validation(["Mass", "Nodule"], truth, said)
        assert card(run)["thresholds"] == pytest.approx(thresholds, abs=1e-6)
        assert np.array_equal(table.filter(like="decision."), truth)


def test_answers_are_found_by_id_in_any_order() -> None:
    table = pd.DataFrame({"group": ["x", "y", "x"]}, index=[7, 2, 5])
    beside = Beside._by_id(Task.MULTI_LABEL, table, torch.tensor([[1.0], [0.0], [-1.0]]), 1.0)
    said = torch.full((3, 1), 0.5)
    found = beside.added(said, torch.tensor([5, 2, 7]))
    torch.testing.assert_close(found, torch.sigmoid(torch.tensor([[-1.0], [0.0], [1.0]])))
    torch.testing.assert_close(beside.together(found, torch.tensor([5, 2, 7])), said)
    torch.testing.assert_close(beside.together(found[:2], torch.tensor([5, 2])), found[:2])  # the other is not judged


def test_the_weights_are_the_same_when_the_card_is_read_again() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.normal(60, 10, 50), "sex": "f", "part": "train", "image": "i", "group": "g"})
    table.loc[40:, ["sex", "part"]] = ["m", "validation"]
    manifest = Manifest(Task.MULTI_LABEL, ("a", "b"), table, (rng.random((50, 2)) < 0.4).astype(np.float32))
    learnt = Clinical.learnt(("age", "sex"), manifest, np.arange(50) < 30)
    assert [column.words for column in learnt.columns] == [None, ("f",)]  # a word of validation alone has no place
    assert all(weight == round(weight, 6) for weight in learnt.weights.flatten().tolist())
    back = Clinical.of_json(json.loads(json.dumps(learnt.as_json())))
    assert torch.equal(back.weights, learnt.weights)
    assert torch.equal(back.evidence(table, manifest.task), learnt.evidence(table, manifest.task))


def test_a_network_that_hears_labels_alone_is_untouched_by_what_is_added_to_its_answers(
    informed: Path, plain: Path
) -> None:
    one, other = (load_file(run / "warm-up.safetensors") for run in (plain, informed))
    assert all(torch.equal(one[name], other[name]) for name in one)


def look_once(place: Path, out: Path) -> None:
    """A run whose weights are hardly trained, so that several processes look with the same ones, each at its part."""
    inference.BATCH = 4
    os.environ["ACPL_CACHE"] = str(out.parent / "cache")
    given = {**ALL_THREE, "group_pseudo_labels": 0.5, "learning_rate": 1e-30}
    train(place, out, **given, warmup_epochs=1, devices=int(os.environ.get("WORLD_SIZE", 1)))


@pytest.mark.slow
def test_several_processes_give_the_pseudo_labels_that_one_gives(place: Path, tmp_path: Path) -> None:
    for size in (1, 2):
        in_crew(size, look_once, place, tmp_path / str(size))
    one, two = stage(tmp_path / "1"), stage(tmp_path / "2")
    for column in ("model", "pseudo_label"):
        np.testing.assert_allclose(answers(one, column), answers(two, column), atol=1e-6)
    assert card(tmp_path / "1")["clinical"] == card(tmp_path / "2")["clinical"]

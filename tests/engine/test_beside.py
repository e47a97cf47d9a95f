"""What is known beside the images, from a table to pseudo-labels and figures; the images themselves are noise."""

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from tests.engine.crews import in_crew
from tests.engine.tape import Tape
from tests.noise import write_noise

import acpl
from acpl.data.clinical import ClinicalColumn
from acpl.data.manifest import Manifest
from acpl.engine import inference
from acpl.engine.beside import Beside, Clinical, InSteps
from acpl.engine.monitor import Quiet
from acpl.engine.run_folder import RunFolder
from acpl.engine.step import Workbench
from acpl.engine.stopping import Stopped
from acpl.engine.thresholds import set_on_validation
from acpl.engine.training import source_of
from acpl.labelling.pool import look, open_pool
from acpl.task import Task

TINY: dict[str, Any] = {
    **{"backbone": "small", "weights": "none", "size": 32, "batch_size": 8, "warmup_epochs": 1, "stages": 1},
    **{"stage_epochs": 1, "k": 3, "device": "cpu", "fraction": 0.5, "draw": "images"},
}
ALL_THREE: dict[str, Any] = {"clinical": "site,age", "group_labels": 1.0, "group_answers": 0.5}
IN_TEACHING: dict[str, Any] = {"clinical": "site,age", "clinical_in": "pseudo-labels", "group_pseudo_labels": 1.0}
HEARD_IN_STEPS: dict[str, Any] = {"k": None, "steps": 12, "clinical": "site,age", "clinical_in": "pseudo-labels"}
IN_STEPS: dict[str, Any] = {**HEARD_IN_STEPS, "method": "fixmatch", "confidence": 0.4}
STAGES = " between its stages"
SITES = ("back", "face", "hand")


class Listens(Quiet):
    """Keeps what is said; may ask to stop at a step."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.said: list[str] = []
        self.left = stop_at

    def say(self, sentence: str) -> None:
        self.said.append(sentence)

    def step(self, losses: Any) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left == 0:
                signal.raise_signal(signal.SIGTERM)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Noise of 40 patients, two images each, whose site tells which of three lesions they have, or two findings."""
    folder = tmp_path_factory.mktemp("noise")
    rows = []
    for number, name in enumerate(write_noise(folder, 80)):
        patient = number // 2
        kind = patient % 3
        part = "train" if patient < 20 else "val" if patient < 29 else "test"
        row = {"image": name, "patient": f"p{patient}", "split": part, "dx": "abc"[kind]}
        known = {"site": SITES[kind], "age": "" if number % 7 == 0 else str(30 + 10 * kind + number % 5)}
        rows.append(row | known | {"Mass": int(kind == 0), "Nodule": int(kind == 1)})
    table = pd.DataFrame(rows)
    table.drop(columns=["Mass", "Nodule"]).to_csv(folder / "lesions.csv", index=False)
    table.drop(columns="dx").to_csv(folder / "chests.csv", index=False)
    return folder


@pytest.fixture(scope="module", autouse=True)
def one_cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACPL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def train(place: Path, out: Path, data: str = "lesions.csv", monitor: Any = None, **settings: Any) -> Path:
    return acpl.train(out=out, data=str(place / data), monitor=monitor, **{**TINY, **settings})


@pytest.fixture(scope="module")
def plain(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that knows nothing but the images; judged."""
    run = train(place, tmp_path_factory.mktemp("runs") / "plain")
    acpl.evaluate(run, resamples=2)
    return run


@pytest.fixture(scope="module")
def informed(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with the site and the age; judged."""
    run = train(place, tmp_path_factory.mktemp("runs") / "informed", clinical="site,age")
    acpl.evaluate(run, resamples=2)
    acpl.evaluate(run, part="validation", resamples=2)
    return run


def weights(run: Path) -> bytes:
    return (run / "model.safetensors").read_bytes()


def card(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "model.json").read_text())
    return found


def auroc(run: Path, part: str = "") -> float:
    return float(json.loads((run / f"evaluation{part}.json").read_text())["auroc"]["mean"])


def events(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]


def probabilities(run: Path, part: str = "") -> pd.DataFrame:
    return pd.read_csv(run / f"predictions{part}.csv").set_index("image").sort_index().filter(like="probability.")


def stage(run: Path) -> pd.DataFrame:
    return pd.read_parquet(run / "stages" / "01.parquet").set_index("id").sort_index()


def answers(table: pd.DataFrame, column: str) -> np.ndarray:
    return table.filter(regex=rf"^{column}\.").to_numpy()


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


# What pseudo-labels alone know.


@pytest.fixture(scope="module")
def taught(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that made its pseudo-labels with the site, the age and the patient's other images; judged."""
    monitor = Listens()
    run = train(place, tmp_path_factory.mktemp("runs") / "taught", monitor=monitor, **IN_TEACHING)
    assert not any("nothing" in sentence for sentence in monitor.said)
    acpl.evaluate(run, part="validation", resamples=2)
    return run


def test_pseudo_labels_hear_what_the_answers_do_not(plain: Path, informed: Path, taught: Path, place: Path) -> None:
    before, after = stage(plain), stage(taught)  # of the same network: only what is added differs
    own = pd.read_csv(place / "lesions.csv")["site"].map(SITES.index).to_numpy()[after.index]
    rows = np.arange(len(after))
    assert (answers(after, "model")[rows, own] > answers(before, "model")[rows, own]).mean() > 0.9
    assert weights(taught) != weights(plain)
    assert (card(taught)["clinical"], card(taught)["group_answers"]) == (None, 0.0)
    first = [next(e for e in events(run) if "validation_auroc" in e)["validation_auroc"] for run in (plain, taught)]
    assert first[0] == first[1]  # the warm-up is judged by the image alone, as if nothing else were known
    assert auroc(taught, "-validation") < 0.9 < auroc(informed, "-validation")
    seen = [event["validation_auroc"] for event in events(taught) if "validation_auroc" in event]
    assert seen[-1] == pytest.approx(auroc(taught, "-validation"), abs=1e-9)


def test_a_model_that_was_taught_so_asks_for_no_table(taught: Path, place: Path) -> None:
    images = [place / name for name in pd.read_csv(place / "lesions.csv")["image"][:3]]
    said, bad = acpl.predict(taught, images, device="cpu")
    assert (len(said), bad) == (3, [])


def test_a_patients_unlabelled_images_share_what_is_said_of_them(place: Path, plain: Path, tmp_path: Path) -> None:
    for share in (1.0, 0.4):
        run = train(place, tmp_path / str(share), group_pseudo_labels=share)
        before, after = stage(plain), stage(run)
        assert before.index.equals(after.index)
        patient = pd.read_csv(place / "lesions.csv").loc[after.index, "patient"].to_numpy()
        alone = pd.DataFrame(answers(before, "model"), index=after.index)
        logits = np.log(alone)
        logits = logits.sub(logits.mean(axis=1), axis=0)
        together = np.exp(share * logits.groupby(patient).transform("mean") + (1 - share) * logits)
        together = together.div(together.sum(axis=1), axis=0).to_numpy()
        np.testing.assert_allclose(answers(after, "model"), together, atol=1e-5)
        others = pd.Series(patient).duplicated(keep=False).to_numpy()
        assert 0 < others.sum() < len(others)
        moved = np.abs(answers(after, "model") - alone.to_numpy()).max(axis=1) > 1e-6
        assert np.array_equal(moved, others)


def with_other_labels_hidden(run: Path, place: Path) -> str:
    """A table in which all is different that ``run``'s pseudo-labels may not know."""
    split = pd.read_csv(run / "split.csv")
    table = pd.read_csv(place / "lesions.csv", dtype=str, keep_default_na=False)
    hidden = ~table["image"].isin(split.loc[split["role"] == "labelled", "image"])
    table.loc[hidden, "dx"] = table.loc[hidden, "dx"].map({"a": "b", "b": "c", "c": "a"})
    table.loc[table["split"] == "test", ["site", "age"]] = ["elsewhere", "no number"]
    table.to_csv(place / "hidden.csv", index=False)
    return "hidden.csv"


def test_what_pseudo_labels_know_comes_from_given_labels_alone(taught: Path, place: Path, tmp_path: Path) -> None:
    data = with_other_labels_hidden(taught, place)
    other = train(place, tmp_path / "other", data, split=taught / "split.csv", **IN_TEACHING)
    assert weights(other) == weights(taught)
    pd.testing.assert_frame_equal(stage(other), stage(taught))


def test_a_run_taught_so_goes_on_to_the_same_bits(taught: Path, place: Path, tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        train(place, tmp_path / "cut", monitor=Listens(2), **IN_TEACHING)
    table = place / "lesions.csv"
    before = table.read_text()
    try:  # whose images they are decides what is taught: another table is another run
        table.write_text(before.replace("p1,", "p2,"))
        with pytest.raises(acpl.UserError, match="group"):
            acpl.train(resume=tmp_path / "cut")
    finally:
        table.write_text(before)
    acpl.train(resume=tmp_path / "cut")
    assert weights(tmp_path / "cut") == weights(taught)
    pd.testing.assert_frame_equal(stage(tmp_path / "cut"), stage(taught))


def test_settings_of_pseudo_labels_that_teach_nobody_are_named(place: Path, tmp_path: Path) -> None:
    monitor = Listens()
    train(place, tmp_path / "run", method="supervised", monitor=monitor, **IN_TEACHING, group_labels=1.0, k=None)
    for name in ("clinical_in 'pseudo-labels'", "group_labels", "group_pseudo_labels"):
        assert (
            f"{name} added nothing: supervised made no pseudo-labels{STAGES * name.startswith('group_p')}"
            in monitor.said
        )
    monitor = Listens()
    train(place, tmp_path / "steps", monitor=monitor, **IN_STEPS, group_labels=1.0, group_pseudo_labels=1.0)
    said = [sentence for sentence in monitor.said if "nothing" in sentence]
    assert said == [f"group_pseudo_labels added nothing: fixmatch made no pseudo-labels{STAGES}"]
    rows = pd.read_csv(place / "lesions.csv", dtype=str).drop(columns="patient")
    rows.to_csv(tmp_path / "alone.csv", index=False)
    monitor = Listens()
    given = {"images": place, "stages": 0, "group_pseudo_labels": 0.5, "monitor": monitor}
    train(tmp_path, tmp_path / "alone", data="alone.csv", **given)
    wanted = "group_pseudo_labels adds nothing: no two unlabelled images are of one patient or lesion"
    assert wanted in monitor.said


def fixmatch(place: Path, out: Path, data: str = "lesions.csv", **settings: Any) -> Path:
    return train(place, out, data, **{**IN_STEPS, **settings})


@pytest.fixture(scope="module")
def taught_in_steps(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A method that makes its pseudo-labels in every step, with the site and the age."""
    return fixmatch(place, tmp_path_factory.mktemp("runs") / "steps")


def test_pseudo_labels_of_every_step_hear_it_too(taught_in_steps: Path, place: Path, tmp_path: Path) -> None:
    alone = fixmatch(place, tmp_path / "alone", clinical=(), clinical_in="everything")
    assert weights(taught_in_steps) != weights(alone)
    assert (card(taught_in_steps)["clinical"], card(taught_in_steps)["group_answers"]) == (None, 0.0)
    one, other = (events(run)[-1]["losses"] for run in (taught_in_steps, alone))
    assert one["unlabelled"] != other["unlabelled"]


def as_in_training(run: Path) -> tuple[Manifest, Any, Beside]:
    """A run's images, their roles, and what was known beside them."""
    config = RunFolder(run).config()
    manifest = source_of(config).open(("train", "validation")).manifest
    roles = pd.read_csv(run / "split.csv").set_index("id").loc[manifest.ids, "role"].to_numpy(dtype=object)
    learnt = Clinical.learnt(config.clinical, manifest, roles == "labelled")
    beside = Beside.in_training(config, learnt, manifest, roles)
    assert beside is not None
    return manifest, roles, beside


def test_they_hear_of_unlabelled_images_alone(place: Path, tmp_path: Path) -> None:
    """With evidence in every answer, too, nothing is taught of labelled ones but their labels."""
    everything = fixmatch(place, tmp_path / "everything", clinical_in="everything")
    manifest, roles, beside = as_in_training(everything)
    unlabelled = torch.from_numpy(manifest.ids[roles == "unlabelled"])
    hear = InSteps(beside, unlabelled, torch.device("cpu"))
    torch.manual_seed(0)
    ids = torch.from_numpy(manifest.ids.copy())[torch.randperm(len(manifest.ids))]
    said = torch.softmax(torch.randn(len(ids), 3), dim=1)
    found, theirs = hear(said, ids), torch.isin(ids, unlabelled)
    assert 0 < theirs.sum() < len(ids)
    assert torch.equal(found[theirs], beside.added(said[theirs], ids[theirs]))
    assert torch.equal(found[~theirs], said[~theirs])
    assert not torch.equal(beside.added(said, ids)[~theirs], said[~theirs])


@pytest.mark.parametrize("share", [1.0, 0.4])
@pytest.mark.parametrize("data", ["lesions.csv", "chests.csv"])
def test_what_is_remembered_is_shared_as_what_is_seen_between_stages(
    data: str, share: float, place: Path, tmp_path: Path
) -> None:
    run = fixmatch(place, tmp_path / "run", data, group_pseudo_labels=share, steps=1)
    manifest, roles, beside = as_in_training(run)
    unlabelled = torch.from_numpy(manifest.ids[roles == "unlabelled"])
    hear = InSteps(beside, unlabelled, torch.device("cpu"))
    training = int(manifest.ids[roles != "validation"].max()) + 1  # a method's tables end there
    torch.manual_seed(0)
    said = torch.rand(training, len(manifest.classes)) * 0.8 + 0.1
    said = said / said.sum(dim=1, keepdim=True) if manifest.task is Task.MULTI_CLASS else said
    known = torch.rand(training) < 0.7
    found = hear.shared(said, known)
    theirs = unlabelled[known[unlabelled]]
    wanted = beside.guesses(beside.added(said[theirs], theirs), theirs)
    assert 0 < len(theirs) < len(unlabelled)
    torch.testing.assert_close(found[theirs], wanted, atol=1e-6, rtol=0)
    assert not torch.equal(wanted, beside.added(said[theirs], theirs))
    labelled = torch.from_numpy(manifest.ids[roles == "labelled"])
    assert torch.equal(found[labelled], said[labelled])


def test_a_method_that_remembers_shares_what_it_said_of_a_patients_images(place: Path, tmp_path: Path) -> None:
    given: dict[str, Any] = {"method": "temporal-ensembling", "k": None, "steps": 24, "group_pseudo_labels": 1.0}
    monitor = Listens()
    whole = train(place, tmp_path / "whole", monitor=monitor, **given)
    assert not any("nothing" in sentence for sentence in monitor.said)
    assert weights(whole) != weights(train(place, tmp_path / "alone", **{**given, "group_pseudo_labels": 0.0}))
    with pytest.raises(Stopped):
        train(place, tmp_path / "cut", monitor=Listens(9), **given)
    acpl.train(resume=tmp_path / "cut")
    assert weights(tmp_path / "cut") == weights(whole)


def test_what_steps_hear_comes_from_given_labels_alone(taught_in_steps: Path, place: Path, tmp_path: Path) -> None:
    data = with_other_labels_hidden(taught_in_steps, place)
    other = fixmatch(place, tmp_path / "other", data, split=taught_in_steps / "split.csv")
    assert weights(other) == weights(taught_in_steps)


def test_steps_that_hear_go_on_to_the_same_bits(taught_in_steps: Path, place: Path, tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        fixmatch(place, tmp_path / "cut", monitor=Listens(3))
    acpl.train(resume=tmp_path / "cut")
    assert weights(tmp_path / "cut") == weights(taught_in_steps)


@pytest.mark.parametrize("method", ["fixmatch", "temporal-ensembling"])
def test_steps_that_hear_can_be_recorded_and_replayed(
    method: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {"confidence": 0.4} if method == "fixmatch" else {"group_pseudo_labels": 0.5}
    given = {**HEARD_IN_STEPS, "method": method, **own}
    written = train(place, tmp_path / "written", **given)
    tapes: list[Tape] = []

    def recording(self: Workbench) -> Tape:
        tapes.append(Tape())
        return tapes[-1]

    monkeypatch.setattr(Workbench, "recording", recording)
    replayed = train(place, tmp_path / "replayed", **given)
    assert any(tape.operations for tape in tapes)
    for one, other in zip(events(written), events(replayed), strict=True):
        assert one.get("losses", {}) == pytest.approx(other.get("losses", {}), rel=1e-3, abs=1e-5)


def test_teaching_with_columns_needs_columns(place: Path, tmp_path: Path) -> None:
    with pytest.raises(acpl.UserError, match="clinical_in 'pseudo-labels' needs clinical"):
        train(place, tmp_path / "run", clinical_in="pseudo-labels")
    assert not (tmp_path / "run").exists()


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

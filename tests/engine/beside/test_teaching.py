"""What pseudo-labels alone know beside the images: between a method's stages and in its steps."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from tests.engine.beside.runs import SITES, Listens, answers, auroc, card, events, stage, train, weights
from tests.engine.tape import Tape

import acpl
from acpl.data.manifest import Manifest
from acpl.engine.beside import Beside, Clinical, InSteps
from acpl.engine.run_folder import RunFolder
from acpl.engine.step import Workbench
from acpl.engine.stopping import Stopped
from acpl.engine.training import source_of
from acpl.task import Task

IN_TEACHING: dict[str, Any] = {"clinical": "site,age", "clinical_in": "pseudo-labels", "group_pseudo_labels": 1.0}
HEARD_IN_STEPS: dict[str, Any] = {"k": None, "steps": 12, "clinical": "site,age", "clinical_in": "pseudo-labels"}
IN_STEPS: dict[str, Any] = {**HEARD_IN_STEPS, "method": "fixmatch", "confidence": 0.4}
STAGES = " between its stages"


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

"""Several runs as one model."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.conftest import TINY
from tests.shell import acpl_imported

import acpl
from acpl.engine.run_folder import RunFolder


@pytest.fixture(scope="module")
def chests(chest_run: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two runs with the same labels, and one that had others."""
    place = tmp_path_factory.mktemp("chests")
    same = acpl.train(out=place / "same", data="phantom-chest", **TINY, learning_rate=0.01)
    other = acpl.train(out=place / "other", data="phantom-chest", **TINY, seed=2)
    for run in (same, other):
        acpl.evaluate(run, resamples=20)
    return [chest_run, same, other]


@pytest.fixture(scope="module")
def joined(chests: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = acpl.join(chests[:2], out=tmp_path_factory.mktemp("joined") / "both", device="cpu")
    acpl.evaluate(run, resamples=20, device="cpu")
    return run


def said(run: Path) -> pd.DataFrame:
    table = pd.read_csv(run / "predictions.csv").set_index("image").sort_index()
    return table[[name for name in table if name.startswith("probability.")]]


def test_it_answers_with_the_mean_of_its_runs_probabilities(chests: list[Path], joined: Path) -> None:
    mean = (said(chests[0]) + said(chests[1])) / 2
    assert np.abs(said(joined) - mean).to_numpy().max() < 1e-6
    assert RunFolder(joined).card().networks == 2


def test_lesions_too_whose_most_probable_class_is_called(lesions_run: Path, tmp_path: Path) -> None:
    other = acpl.train(out=tmp_path / "other", data="phantom-lesions", **TINY, seed=1)
    acpl.evaluate(other, resamples=5)
    run = acpl.join([lesions_run, other], out=tmp_path / "both", device="cpu")
    acpl.evaluate(run, resamples=5, device="cpu")
    assert np.abs(said(run) - (said(lesions_run) + said(other)) / 2).to_numpy().max() < 1e-6
    assert RunFolder(run).card().decision_rule() == "argmax"


def test_a_threshold_that_was_asked_for_stays(tmp_path: Path) -> None:
    tiny = {**TINY, "stages": 0, "threshold": 0.18}
    runs = [acpl.train(out=tmp_path / str(seed), data="phantom-lesions", **tiny, seed=seed) for seed in range(2)]
    both = acpl.join(runs, out=tmp_path / "both", device="cpu")
    assert RunFolder(both).card().decision_rule() == [0.18] * 7


def test_thresholds_are_set_anew_on_validation_and_the_test_part_stays_closed(
    chests: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from acpl.data.sources.phantoms import PhantomSource

    opened: list[tuple[str, ...]] = []
    original = PhantomSource.open

    def watched(self: PhantomSource, parts: Any) -> Any:
        opened.append(tuple(parts))
        return original(self, parts)

    monkeypatch.setattr(PhantomSource, "open", watched)
    run = acpl.join(chests[:2], out=tmp_path / "both", device="cpu")
    assert opened == [("validation",)]
    monkeypatch.undo()
    acpl.evaluate(run, part="validation", resamples=5, device="cpu")
    table = pd.read_csv(run / "predictions-validation.csv")
    card = RunFolder(run).card()
    assert card.thresholds != RunFolder(chests[0]).card().thresholds
    assert card.thresholds is not None
    for name, threshold in zip(card.classes, card.thresholds, strict=True):
        truth, score = table[f"truth.{name}"].to_numpy() == 1, table[f"probability.{name}"].to_numpy()
        if truth.any() and not truth.all():
            best = max((score >= t)[truth].mean() - (score >= t)[~truth].mean() for t in score)
            called = score >= threshold
            assert called[truth].mean() - called[~truth].mean() == pytest.approx(best)


def test_every_verb_takes_it(joined: Path, chests: list[Path], tmp_path: Path) -> None:
    for form in ("torchscript", "safetensors"):
        assert acpl.export(joined, form, out=tmp_path / form).difference < 1e-5
    card = json.loads((tmp_path / "safetensors" / "model.json").read_text())
    assert card["network"]["networks"] == 2
    assert "acpl.models.Joined([acpl.models.build_classifier('small'" in card["network"]["build"]
    model = acpl.load(joined, device="cpu")
    assert len(model(np.zeros((3, 40, 30), dtype=np.uint8))) == 3
    assert len(acpl.suggest(joined, budget=3, out=tmp_path / "next.csv", device="cpu")) == 3
    page = acpl.make_report(joined).read_text()
    assert "2 networks (small) answer together" in page
    assert "Time by part" not in page
    assert f"acpl join {chests[0]} {chests[1]}" in page
    assert "labels between them" not in page
    assert acpl.make_report(*chests[:2], joined, out=tmp_path / "all.html").exists()
    with pytest.raises(acpl.UserError, match="holds a run that is done"):
        acpl.train(resume=joined)
    with pytest.raises(acpl.UserError, match="has networks 2, but this run has 1"):
        acpl.train(out=tmp_path / "on", data="phantom-chest", **TINY, init_from=str(joined))


def test_more_labels_than_one_run_had_are_told(chests: list[Path], tmp_path: Path) -> None:
    done = acpl_imported("join", *chests[1:], "--out", tmp_path / "both", "--device", "cpu")
    counts = [(pd.read_csv(run / "split.csv")["role"] == "labelled").to_numpy() for run in chests[1:]]
    every, one = int((counts[0] | counts[1]).sum()), int(max(counts[0].sum(), counts[1].sum()))
    assert every > one
    assert f"2 networks, which had {every} labelled images between them, none more than {one}" in done.stdout
    assert int((pd.read_csv(tmp_path / "both" / "split.csv")["role"] == "labelled").sum()) == every
    assert f"Its networks had {every} labels between them" in (tmp_path / "both" / "report.html").read_text()


def test_runs_that_do_not_belong_together_are_refused(
    chests: list[Path], joined: Path, lesions_run: Path, tmp_path: Path
) -> None:
    first, second = chests[:2]
    tiny = {**TINY, "stages": 1}
    size = acpl.train(out=tmp_path / "size", data="phantom-chest", **{**tiny, "size": 40})
    phantoms = acpl.train(out=tmp_path / "phantoms", data="phantom-chest", **tiny, phantom_seed=5)
    parts = acpl.train(out=tmp_path / "parts", data="phantom-chest", **tiny)
    split = pd.read_csv(parts / "split.csv")
    moved = split.copy()
    moved.loc[moved["role"] == "validation", "role"] = "unlabelled"
    for runs, sentence in (
        ([first], "join takes at least two runs"),
        ([first, second, first], "is named twice"),
        ([first, lesions_run], "has task multi-class, but .* has multi-label"),
        ([first, size], "has size 40, but .* has 32"),
        ([first, phantoms], "was not trained on the same images as"),
        ([first, joined], "is joined itself; name the runs"),
        ([first, tmp_path], "is not a run folder"),
    ):
        with pytest.raises(acpl.UserError, match=sentence):
            acpl.join(runs, out=tmp_path / "no", device="cpu")
    for other in (moved, split.iloc[1:]):
        other.to_csv(parts / "split.csv", index=False)
        with pytest.raises(acpl.UserError, match=r"was not trained on the same parts .* one may have learnt what"):
            acpl.join([first, parts], out=tmp_path / "no", device="cpu")
    with pytest.raises(acpl.UserError, match="exists; choose another --out"):
        acpl.join([first, second], out=joined)
    assert not (tmp_path / "no").exists()
    assert not list(tmp_path.glob(".no*"))


def test_networks_that_see_images_otherwise_are_refused(chests: list[Path], tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(chests[1], other)
    card = json.loads((other / "model.json").read_text())
    (other / "model.json").write_text(json.dumps({**card, "mean": [card["mean"][0] + 0.01]}))
    with pytest.raises(acpl.UserError, match="normalises images otherwise"):
        acpl.join([chests[0], other], out=tmp_path / "no", device="cpu")


def test_a_disk_that_is_full_leaves_nothing_behind(
    chests: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RunFolder, "write_weights", full)
    with pytest.raises(acpl.UserError, match="both cannot be made: No space left on device"):
        acpl.join(chests[:2], out=tmp_path / "both", device="cpu")
    assert list(tmp_path.iterdir()) == []

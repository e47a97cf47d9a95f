"""Evaluation of finished runs: figures, thresholds, parts, comparison."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from sklearn.metrics import (
    average_precision_score,
    balanced_accuracy_score,
    f1_score,
    recall_score,
    roc_auc_score,
    roc_curve,
)
from tests.conftest import TINY

import acpl
from acpl.data.sources import Dataset
from acpl.data.sources.phantoms import PhantomSource
from acpl.engine.judging import compare_runs
from acpl.engine.run_folder import RunFolder
from acpl.evaluation import calibration_error, calibration_figures, resample, top_label_calibration_error


def read(run: Path, part: str = "") -> tuple[dict, pd.DataFrame]:
    result = json.loads((run / f"evaluation{part}.json").read_text())
    return result, pd.read_csv(run / f"predictions{part}.csv", dtype={"group": str})


def columns(table: pd.DataFrame, kind: str) -> np.ndarray:
    return table.filter(regex=rf"^{kind}\.").to_numpy()


def test_the_figures_are_scikit_learns_on_the_written_predictions(chest_run: Path) -> None:
    result, table = read(chest_run)
    for name, value in result["auroc"]["per_class"].items():
        truth = table[f"truth.{name}"]
        if truth.nunique() < 2:
            assert value is None
            assert name in result["auroc"]["left_out"]
            continue
        score, called = table[f"probability.{name}"], table[f"decision.{name}"]
        decisions = {key: figure["per_class"][name] for key, figure in result["decisions"].items()}
        assert value == pytest.approx(roc_auc_score(truth, score))
        assert result["average_precision"]["per_class"][name] == pytest.approx(average_precision_score(truth, score))
        assert decisions == pytest.approx(
            {
                "sensitivity": recall_score(truth, called),
                "specificity": recall_score(1 - truth, 1 - called),
                "f1": f1_score(truth, called),
                "balanced_accuracy": balanced_accuracy_score(truth, called),
            }
        )
        assert result["positives"][name] == truth.sum()
    error = calibration_error(columns(table, "truth"), columns(table, "probability"))
    assert list(result["calibration_error"]["per_class"].values()) == pytest.approx(error)
    assert "warm-up" in result["snapshots"]


@pytest.mark.parametrize("run", ["chest_run", "lesions_run"])
def test_every_mean_is_of_its_classes_and_inside_its_interval(run: str, request: pytest.FixtureRequest) -> None:
    result, _ = read(request.getfixturevalue(run))
    tables = {
        **result["decisions"],
        **{key: result[key] for key in ("auroc", "average_precision", "calibration_error")},
    }
    for name, table in tables.items():
        values = [value for value in table["per_class"].values() if value is not None]
        assert table["mean"] == pytest.approx(np.mean(values)), name
        assert table["low"] <= table["mean"] <= table["high"], name
        assert table["left_out"] == [key for key, value in table["per_class"].items() if value is None], name
    for name, table in result["decisions"].items():
        assert result[name] == table["mean"]
        assert result[f"{name}_interval"] == [table["low"], table["high"]]


def test_multi_class_figures_are_those_of_the_most_probable_class(lesions_run: Path) -> None:
    result, table = read(lesions_run)
    truth, score = columns(table, "truth"), columns(table, "probability")
    labels, called = truth.argmax(axis=1), score.argmax(axis=1)
    present = sorted(set(labels))
    assert (result["rule"], result["thresholds"]) == ("argmax", None)
    assert result["sensitivity"] == pytest.approx(recall_score(labels, called, labels=present, average="macro"))
    assert result["f1"] == pytest.approx(f1_score(labels, called, labels=present, average="macro"))
    assert result["balanced_accuracy"] == result["sensitivity"]
    error = top_label_calibration_error(truth, score)
    assert result["top_label_calibration_error"]["mean"] == pytest.approx(error)


def test_multi_label_thresholds_are_the_best_on_validation_and_nothing_else(chest_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(chest_run, run)
    result = acpl.evaluate(run, part="validation", resamples=5)
    _, table = read(run, "-validation")
    assert result["rule"] == "validation"
    assert list(result["thresholds"].values()) == json.loads((run / "model.json").read_text())["thresholds"]
    for name, threshold in result["thresholds"].items():
        truth, score = table[f"truth.{name}"], table[f"probability.{name}"]
        if threshold == 0.5:
            assert truth.nunique() < 2 or best_youden(truth, score) == 0
        else:
            called = score >= threshold
            gain = recall_score(truth, called) + recall_score(1 - truth, 1 - called) - 1
            assert gain == pytest.approx(best_youden(truth, score))


def best_youden(truth: pd.Series, score: pd.Series) -> float:
    false_alarms, found, _ = roc_curve(truth, score)
    return float((found - false_alarms).max())


def test_a_snapshot_is_judged_at_thresholds_of_its_own(chest_run: Path) -> None:
    result, _ = read(chest_run)
    assert result["snapshots"]["warm-up"]["thresholds"] != result["thresholds"]


def test_a_fixed_threshold_is_each_classs_own_question(tmp_path: Path) -> None:
    run = acpl.train(out=tmp_path / "run", threshold=0.18, **{**TINY, "data": "phantom-lesions"})
    result = acpl.evaluate(run, resamples=5)
    _, table = read(run)
    assert result["rule"] == 0.18
    assert set(result["thresholds"].values()) == {0.18}
    np.testing.assert_array_equal(columns(table, "decision"), columns(table, "probability") >= 0.18)
    labels, called = columns(table, "truth").argmax(axis=1), columns(table, "probability").argmax(axis=1)
    recall = recall_score(labels, called, labels=sorted(set(labels)), average="macro")
    assert result["balanced_accuracy"] == pytest.approx(recall)


def test_rules_that_cannot_be_kept_are_refused_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(acpl.UserError, match="'argmax' names one class an image, but this data set is multi-label"):
        acpl.train(out=tmp_path / "run", threshold="argmax", **TINY)
    original = PhantomSource.open
    monkeypatch.setattr(PhantomSource, "open", lambda self, parts: original(self, ("train",)))
    with pytest.raises(acpl.UserError, match="'validation' needs a validation part with labels"):
        acpl.train(out=tmp_path / "run", threshold="validation", **TINY)
    assert not (tmp_path / "run").exists()
    run = acpl.train(out=tmp_path / "run", **TINY)
    assert set(RunFolder.open(run).card().thresholds or []) == {0.5}


def test_a_run_from_before_there_were_rules_can_still_be_judged(chest_run: Path) -> None:
    card = RunFolder.open(chest_run).card()
    old = replace(card, threshold=None, thresholds=None, snapshot_thresholds={})
    assert old.decision_rule() == [0.5] * len(card.classes)
    assert replace(old, task="multi-class").decision_rule("warm-up") == "argmax"


def without_labels(rows: slice):
    """A source whose test images of these rows have a label missing."""
    original = PhantomSource.open

    def opened(self: PhantomSource, parts: tuple[str, ...]) -> Dataset:
        dataset = original(self, parts)  # type: ignore[arg-type]
        dataset.manifest.labels[rows, 0] = np.nan
        return dataset

    return opened


def test_images_whose_labels_are_not_all_known_are_left_out_and_counted(
    chest_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    shutil.copytree(chest_run, run)
    before, whole = read(run)
    monkeypatch.setattr(PhantomSource, "open", without_labels(slice(0, 7)))
    after = acpl.evaluate(run, resamples=5)
    assert (before["unlabelled_left_out"], after["unlabelled_left_out"]) == (0, 7)
    assert after["images"] == before["images"] - 7
    assert read(run)[1]["image"].tolist() == whole["image"].tolist()[7:]
    monkeypatch.setattr(PhantomSource, "open", without_labels(slice(None)))
    with pytest.raises(acpl.UserError, match="no image in the test part of phantom-chest has all its labels"):
        acpl.evaluate(run, resamples=5)


def test_unlabelled_validation_images_are_left_out_of_training_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = PhantomSource.open

    def opened(self: PhantomSource, parts: tuple[str, ...]) -> Dataset:
        dataset = original(self, parts)  # type: ignore[arg-type]
        rows = np.flatnonzero((dataset.manifest.table["part"] == "validation").to_numpy())
        dataset.manifest.labels[rows[:3], 0] = np.nan
        return dataset

    monkeypatch.setattr(PhantomSource, "open", opened)
    run = acpl.train(out=tmp_path / "run", data="phantom-chest", **TINY)
    assert acpl.evaluate(run, part="validation", resamples=5)["unlabelled_left_out"] == 3


def test_judging_on_validation_leaves_the_test_parts_files_alone(chest_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(chest_run, run)
    before = [(run / name).read_bytes() for name in ("evaluation.json", "predictions.csv")]
    result = acpl.evaluate(run, part="validation", resamples=5)
    assert result["part"] == "validation"
    assert [(run / name).read_bytes() for name in ("evaluation.json", "predictions.csv")] == before
    with pytest.raises(acpl.UserError, match="part should be test or validation, but it is 'train'"):
        acpl.evaluate(run, part="train")  # type: ignore[arg-type]


def test_the_difference_of_a_run_to_itself_is_nothing(chest_run: Path) -> None:
    for same in compare_runs(chest_run, chest_run, resamples=20).values():
        assert (same.point, same.low, same.high, same.p) == (0, 0, 0, 1)


def test_runs_on_different_images_are_not_compared(chest_run: Path, lesions_run: Path) -> None:
    with pytest.raises(acpl.UserError, match="not judged on the same images and classes"):
        compare_runs(chest_run, lesions_run)


def test_a_run_is_compared_with_another_that_is_judged_first(chest_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(chest_run, run)
    other = acpl.train(out=tmp_path / "other", data="phantom-chest", seed=1, **TINY)
    against = acpl.evaluate(run, against=other, resamples=30)["against"]
    one, two = read(run)[0], read(other)[0]
    assert "has not been opened yet" not in (other / "report.html").read_text()
    assert against["run"] == str(other)
    for name in ("auroc", "average_precision"):
        assert against[name]["mean"] == pytest.approx(one[name]["mean"] - two[name]["mean"])
        assert against[name]["low"] <= against[name]["mean"] <= against[name]["high"]
    for name in ("sensitivity", "specificity", "f1", "balanced_accuracy"):
        assert against[name]["mean"] == pytest.approx(one[name] - two[name])
    low, high = against["auroc"]["low"], against["auroc"]["high"]
    assert against["auroc"]["verdict"] == ("above" if low > 0 else "below" if high < 0 else "unclear")
    backwards = acpl.evaluate(other, against=run, resamples=30)["against"]
    assert backwards["auroc"]["mean"] == pytest.approx(-against["auroc"]["mean"])


def test_runs_are_compared_image_by_image_whatever_the_order_and_the_names(chest_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(chest_run, run)
    table = pd.read_csv(run / "predictions.csv", dtype=str)
    table["group"] = table["group"].replace(table["group"][0], "NA")
    table.iloc[::-1].to_csv(run / "predictions.csv", index=False)
    assert compare_runs(chest_run, run, resamples=5)["auroc"].high == 0
    table["truth.Effusion"] = table["truth.Effusion"].map({"0": "1", "1": "0"})
    table.to_csv(run / "predictions.csv", index=False)
    with pytest.raises(acpl.UserError, match="on the same images with different labels"):
        compare_runs(chest_run, run)


def test_data_that_has_other_classes_by_now_is_refused(chest_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(chest_run, run)
    folder = RunFolder.open(run)
    card = folder.card()
    folder.write_card(replace(card, classes=[*card.classes[:-1], "Other"]))
    with pytest.raises(acpl.UserError, match=r"but the model was trained for multi-label with .*Other"):
        acpl.evaluate(run)


def test_images_that_cannot_be_read_can_be_left_out_of_judging_alone(tmp_path: Path) -> None:
    rows = ["image,Mass,split"]
    for number in range(40):
        part = "train" if number < 20 else "validation" if number < 28 else "test"
        Image.new("L", (32, 32), 40 + 150 * (number % 2)).save(tmp_path / f"{number}.png")
        rows.append(f"{number}.png,{number % 2},{part}")
    (tmp_path / "labels.csv").write_text("\n".join(rows))
    run = acpl.train(
        out=tmp_path / "run", data=tmp_path / "labels.csv", backbone="small", weights="none", size=32, batch_size=8,
        warmup_epochs=1, stages=0, device="cpu", cache=tmp_path / "cache",
    )  # fmt: skip
    (tmp_path / "39.png").unlink()
    with pytest.raises(acpl.UserError, match=r"1 of 12 images cannot be used:\n  39.png: .*\n.*--skip-bad"):
        acpl.evaluate(run, resamples=20)
    result = acpl.evaluate(run, resamples=20, skip_bad=True)
    assert (result["images"], result["unreadable_left_out"]) == (11, 1)


def test_the_interval_of_a_calibration_error_is_mirrored(chest_run: Path) -> None:
    result, table = read(chest_run)
    statistic = calibration_figures(columns(table, "truth"), columns(table, "probability"))
    resampled = resample(statistic, len(table), table["group"], resamples=result["resamples"])["calibration_error"]
    expected, plain = resampled.error_interval(), resampled.interval()
    found = result["calibration_error"]
    assert (found["low"], found["high"]) == pytest.approx((expected.low, expected.high))
    assert (found["low"], found["high"]) != pytest.approx((plain.low, plain.high))

"""Evaluation and prediction of finished runs."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from sklearn.metrics import f1_score, recall_score, roc_auc_score

import acpl
from acpl.data.decode import BadImage, decode
from acpl.data.phantoms import draw_chest
from acpl.engine.judging import compare_runs


def test_the_figures_are_scikit_learns_on_the_written_predictions(chest_run: Path) -> None:
    result = json.loads((chest_run / "evaluation.json").read_text())
    table = pd.read_csv(chest_run / "predictions.csv")
    for name, value in result["auroc"]["per_class"].items():
        truth = table[f"truth.{name}"]
        if truth.nunique() < 2:
            assert value is None
            assert name in result["auroc"]["left_out"]
        else:
            assert value == pytest.approx(roc_auc_score(truth, table[f"probability.{name}"]))
    values = [value for value in result["auroc"]["per_class"].values() if value is not None]
    assert result["auroc"]["mean"] == pytest.approx(np.mean(values))
    assert result["auroc"]["low"] <= result["auroc"]["mean"] <= result["auroc"]["high"]
    assert "warm-up" in result["snapshots"]


def test_multi_class_runs_have_sensitivity_and_f1(lesions_run: Path) -> None:
    result = json.loads((lesions_run / "evaluation.json").read_text())
    table = pd.read_csv(lesions_run / "predictions.csv")
    truth = table.filter(regex="^truth").to_numpy().argmax(axis=1)
    called = table.filter(regex="^probability").to_numpy().argmax(axis=1)
    present = sorted(set(truth))
    assert result["sensitivity"] == pytest.approx(recall_score(truth, called, labels=present, average="macro"))
    assert result["f1"] == pytest.approx(f1_score(truth, called, labels=present, average="macro"))


def test_the_difference_of_a_run_to_itself_is_nothing(chest_run: Path) -> None:
    same = compare_runs(chest_run, chest_run, resamples=20)
    assert (same.point, same.low, same.high) == (0, 0, 0)


def test_runs_on_different_images_are_not_compared(chest_run: Path, lesions_run: Path) -> None:
    with pytest.raises(acpl.UserError, match="not judged on the same images"):
        compare_runs(chest_run, lesions_run)


def test_predicting_a_saved_phantom_gives_the_test_parts_probabilities(chest_run: Path, tmp_path: Path) -> None:
    drawn = draw_chest([7], size=32)
    for number, pixels in enumerate(drawn.images):
        Image.fromarray(pixels[0]).save(tmp_path / f"{number}.png")
    table, bad = acpl.predict(chest_run, [tmp_path])
    assert bad == []
    judged = pd.read_csv(chest_run / "predictions.csv", dtype={"group": str})
    expected = judged.loc[judged["group"] == "00007"].filter(regex="^probability").to_numpy()
    assert table.drop(columns="id").to_numpy() == pytest.approx(expected, abs=1e-5)


def test_a_file_that_cannot_be_read_is_named_and_the_rest_predicted(chest_run: Path, tmp_path: Path) -> None:
    Image.new("L", (40, 30)).save(tmp_path / "good.png")
    (tmp_path / "bad.png").write_text("not an image")
    table, bad = acpl.predict(chest_run, [tmp_path])
    assert [Path(name).name for name in table["id"]] == ["good.png"]
    assert len(bad) == 1
    assert "bad.png: not an image that can be read" in bad[0]


def test_no_image_no_file_and_nothing_readable_are_said(chest_run: Path, tmp_path: Path) -> None:
    with pytest.raises(acpl.UserError, match="no image was found"):
        acpl.predict(chest_run, [tmp_path])
    with pytest.raises(acpl.UserError, match="does not exist"):
        acpl.predict(chest_run, [tmp_path / "nothing.png"])
    (tmp_path / "bad.png").write_text("not an image")
    with pytest.raises(acpl.UserError, match="none of 1 files could be read"):
        acpl.predict(chest_run, [tmp_path])


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "CMYK", "1"])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_mode_becomes_bytes_of_the_size_asked_for(mode: str, channels: int, tmp_path: Path) -> None:
    file = tmp_path / f"image.{'tif' if mode == 'CMYK' else 'png'}"
    Image.new(mode, (50, 20)).save(file)
    pixels = decode(file, size=32, channels=channels)
    assert pixels.shape == (channels, 32, 32)
    assert pixels.dtype == np.uint8


def test_sixteen_bits_keep_their_range(tmp_path: Path) -> None:
    ramp = np.tile(np.linspace(0, 65535, 32).astype(np.uint16), (32, 1))
    Image.fromarray(ramp).save(tmp_path / "ramp.png")
    pixels = decode(tmp_path / "ramp.png", size=32, channels=1)[0, 0]
    assert pixels.tolist() == pytest.approx(np.linspace(0, 255, 32).tolist(), abs=1)


def test_a_truncated_file_is_bad_and_not_a_crash(tmp_path: Path) -> None:
    file = tmp_path / "cut.png"
    noise = np.random.default_rng(0).integers(0, 255, (64, 64), dtype=np.uint8)
    Image.fromarray(noise).save(file)
    file.write_bytes(file.read_bytes()[:600])
    with pytest.raises(BadImage):
        decode(file, size=32, channels=1)

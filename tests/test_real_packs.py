"""The whole way on real images: train, evaluate with intervals, compare, predict."""

import os
import zipfile
from pathlib import Path

import pandas as pd
import pytest

import acpl

pytestmark = pytest.mark.slow
QUICK = {
    "size": 32,
    "backbone": "small",
    "weights": "none",
    "batch_size": 64,
    "warmup_epochs": 2,
    "stages": 1,
    "stage_epochs": 1,
    "device": "cpu",
}


def pack(name: str) -> Path:
    root = os.environ.get("ACPL_DATA")
    if root is None or not (Path(root) / name).is_dir():
        pytest.skip(f"the real images of {name} are not here: ACPL_DATA names the folder that holds them")
    return Path(root) / name


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def test_ham10000_with_its_published_split(tmp_path: Path, cache: Path) -> None:
    folder = pack("ham10000")
    data = {"data": folder / "labels.csv", "images": folder / "images.zip", "cache": cache}
    run = acpl.train(**data, **QUICK, out=tmp_path / "ham", draw="order", labelled=1400, threshold=0.18)
    split = pd.read_csv(run / "split.csv")
    assert split["role"].value_counts().to_dict() == {"unlabelled": 5612, "labelled": 1400, "validation": 1000}
    table = pd.read_csv(folder / "labels.csv")
    published = table[(table["split"] == "train") & (table["order"] < 1400)]["image"]
    assert set(split[split["role"] == "labelled"]["image"]) == set(published)

    result = acpl.evaluate(run, resamples=100)
    assert result["images"] == 2003
    assert result["task"] == "multi-class"
    assert 0.6 < result["auroc"]["low"] < result["auroc"]["mean"] < result["auroc"]["high"] < 1
    assert result["rule"] == 0.18

    again = acpl.train(
        **data, **QUICK, out=tmp_path / "supervised", method="supervised", split=run / "split.csv", threshold=0.18
    )
    assert set(pd.read_csv(again / "split.csv").query("role == 'labelled'")["image"]) == set(published)
    against = acpl.evaluate(run, against=again, resamples=100)["against"]
    assert against["auroc"]["low"] <= against["auroc"]["mean"] <= against["auroc"]["high"]

    with zipfile.ZipFile(folder / "images.zip") as archive:
        archive.extract("ISIC_0024306.jpg", tmp_path / "new")
    predicted, unreadable = acpl.predict(run, [tmp_path / "new"])
    assert len(predicted) == 1
    assert not unreadable


def test_chest_x_rays_by_patient(tmp_path: Path, cache: Path) -> None:
    folder = pack("cxr14-subset")
    data = {"data": folder / "labels.csv", "images": folder / "images.zip", "cache": cache}
    run = acpl.train(**data, **QUICK, out=tmp_path / "chest", fraction=0.05, k=50)
    split = pd.read_csv(run / "split.csv")
    table = pd.read_csv(folder / "labels.csv").set_index("image")
    patients = split.set_index("image")["role"].to_frame().join(table["patient"])
    assert (patients.groupby("patient")["role"].nunique() == 1).all()
    assert (split["role"] == "labelled").sum() == round(0.05 * (split["role"] != "validation").sum())
    assert not set(split["image"]) & set(table[table["split"] == "test"].index)

    result = acpl.evaluate(run, resamples=100)
    assert (result["images"], result["groups"], result["task"]) == (2888, 176, "multi-label")
    assert result["auroc"]["low"] < result["auroc"]["mean"] < result["auroc"]["high"]
    assert len(result["thresholds"]) == 14

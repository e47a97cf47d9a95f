"""What is known beside the image, added to the answers of runs that had the images alone."""

import csv
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.noise import write_noise

import acpl
from acpl.engine.beside import Clinical
from acpl.errors import UserError

GIVEN: dict[str, Any] = {
    **{"backbone": "small", "weights": "none", "size": 32, "batch_size": 8, "warmup_epochs": 1, "stages": 1},
    **{"stage_epochs": 1, "device": "cpu", "draw": "images", "preset": "images", "threshold": 0.4},
    **{"fractions": [0.5], "seeds": 1, "steps": 2, "methods": ["supervised"], "resamples": 20},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Noise of 40 patients, two images each, whose site tells what they have but in every fifth."""
    folder = tmp_path_factory.mktemp("noise")
    rows = []
    for number, name in enumerate(write_noise(folder, 80)):
        patient = number // 2
        part = "train" if patient < 20 else "val" if patient < 26 else "test"
        kind = patient % 2 if patient % 5 else 1 - patient % 2
        rows.append(
            {
                **{"image": name, "patient": f"p{patient}", "split": part},
                **{"site": ("back", "face")[kind], "dx": "ab"[patient % 2]},
            }
        )
    pd.DataFrame(rows).to_csv(folder / "lesions.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def table3(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the runs that had the images alone are kept."""
    out = tmp_path_factory.mktemp("results")
    acpl.reproduce("table3", out, work=out.parent / "work", **GIVEN, data=str(place / "lesions.csv"), cache=place / "c")
    return out


def beside(place: Path, out: Path, **settings: Any) -> dict[tuple[str, str, str], dict[str, str]]:
    given = {**GIVEN, "data": str(place / "lesions.csv"), "cache": place / "c", **settings}
    target = acpl.reproduce("beside", out, work=out.parent / "work", run=False, **given)
    rows = list(csv.DictReader((target / "table.csv").open()))
    return {(row["row"], row["column"], row["measure"]): row for row in rows}


def test_no_run_is_made_and_each_way_is_a_column(place: Path, table3: Path) -> None:
    found = beside(place, table3, clinical="site", group_answers=1.0)
    columns = ["the image alone", "the patient's data", "the group's images", "both"]
    assert list(dict.fromkeys(column for _, column, _ in found)) == columns
    assert {row for row, _, _ in found} == {"supervised", "all labels"}
    for measure in ("auroc", "sensitivity", "f1"):
        alone = next(
            row["mean"]
            for row in csv.DictReader((table3 / "table3" / "table.csv").open())
            if (row["row"], row["measure"]) == ("supervised", measure)
        )
        assert found["supervised", "the image alone", measure]["mean"] == alone


def test_answers_are_those_of_a_run_that_knew_it_when_it_was_judged(place: Path, table3: Path, tmp_path: Path) -> None:
    # Supervised training hears labels alone: what is known beside the images changes its answers, not its weights.
    for settings, column in (
        ({"clinical": "site"}, "the patient's data"),
        ({"group_answers": 0.7}, "the group's images"),
        ({"clinical": "site", "group_answers": 0.7}, "both"),
    ):
        found = beside(place, table3, **settings)
        out = tmp_path / column
        names = ("fractions", "seeds", "methods", "resamples")
        given = {key: value for key, value in GIVEN.items() if key not in names}
        data = {"data": str(place / "lesions.csv"), "cache": place / "c"}
        acpl.train(out=out, method="supervised", fraction=0.5, **given, **data, **settings)
        known = acpl.evaluate(out, resamples=2)
        assert float(found["supervised", column, "auroc"]["mean"]) == pytest.approx(known["auroc"]["mean"], abs=1e-6)
        assert float(found["supervised", column, "f1"]["mean"]) == pytest.approx(known["f1"], abs=1e-6)
    difference = float(found["supervised", "both", "auroc"]["difference"])
    means = [float(found["supervised", name, "auroc"]["mean"]) for name in ("both", "the image alone")]
    assert difference == pytest.approx(means[0] - means[1])


def test_what_is_to_be_added_must_be_said_before_anything_is_trained(place: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="beside needs what is to be added"):
        acpl.reproduce("beside", tmp_path / "out", work=tmp_path / "work", **GIVEN, data=str(place / "lesions.csv"))
    assert not (tmp_path / "work").exists()


def test_it_is_learnt_from_the_images_that_were_labelled_for_the_run(
    place: Path, table3: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taught: list[int] = []
    before = Clinical.learnt

    def learnt(names: tuple[str, ...], manifest: Any, labelled: Any) -> Clinical:
        taught.append(int(labelled.sum()))
        return before(names, manifest, labelled)

    monkeypatch.setattr(Clinical, "learnt", learnt)
    beside(place, table3, clinical="site")
    assert taught == [20, 40]  # half of the training images, and all for the ceiling


def test_labels_that_a_run_did_not_have_teach_nothing(place: Path, table3: Path) -> None:
    split = next((table3 / "table3" / "runs").glob("supervised-0.5-*")) / "split.json"
    before = split.read_text()
    split.write_text(json.dumps({**json.loads(before), "checksum": "sha256:0"}))
    kept = table3 / "beside" / "runs"
    for copy in kept.glob("*/split.json"):
        copy.write_text(split.read_text() if "supervised-0.5" in copy.parent.name else copy.read_text())
    with pytest.raises(UserError, match="had other labels than this table gives it"):
        beside(place, table3, clinical="site")
    for changed in (split, *kept.glob("supervised-0.5-*/split.json")):
        changed.write_text(before)

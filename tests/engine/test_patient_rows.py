"""A model that knows the patient's data predicts with a table of them; the images themselves are noise."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.noise import write_noise
from typer.testing import CliRunner

import acpl
from acpl.cli import app
from acpl.engine.patient_rows import PatientRows
from acpl.engine.run_folder import RunFolder
from acpl.errors import UserError
from acpl.report.tables import sentences

SITES = ("back", "face")
TINY: dict[str, Any] = {
    **{"backbone": "small", "weights": "none", "size": 32, "batch_size": 8, "warmup_epochs": 1, "stages": 0},
    **{"device": "cpu", "fraction": 1.0, "method": "supervised", "steps": 2},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Noise of 30 patients, two images each, whose site tells what they have."""
    folder = tmp_path_factory.mktemp("noise")
    rows = []
    for number, name in enumerate(write_noise(folder / "scans", 60)):
        patient = number // 2
        part = "train" if patient < 20 else "val" if patient < 25 else "test"
        known = {"site": SITES[patient % 2], "age": 40 + patient % 3}
        rows.append({"image": name, "patient": f"p{patient}", "split": part, **known, "dx": "ab"[patient % 2]})
    pd.DataFrame(rows).to_csv(folder / "all.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def run(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "informed"
    settings = {"clinical": "site,age", "group_answers": 0.5, "cache": place / "cache", "images": place / "scans"}
    acpl.train(out=out, data=str(place / "all.csv"), **TINY, **settings)
    acpl.evaluate(out, resamples=2)
    return out


@pytest.fixture(scope="module")
def plain(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "plain"
    return acpl.train(out=out, data=str(place / "all.csv"), images=place / "scans", cache=place / "cache", **TINY)


def judged(run: Path) -> pd.DataFrame:
    table = pd.read_csv(run / "predictions.csv").set_index("image").sort_index()
    return table[["probability.a", "probability.b"]]


def test_a_table_gives_the_answers_that_judging_gave(run: Path, place: Path) -> None:
    table, bad = acpl.predict(run, [place / "scans"], table=place / "all.csv", device="cpu", say=pytest.fail)
    assert not bad
    found = table.set_index(table["id"].map(lambda name: Path(name).name)).loc[judged(run).index, ["a", "b"]]
    np.testing.assert_allclose(found.to_numpy(), judged(run).to_numpy(), atol=1e-6)


def test_names_may_lack_their_suffix_or_their_folder_and_hold_one_part_only(
    run: Path, place: Path, tmp_path: Path
) -> None:
    rows = pd.read_csv(place / "all.csv", dtype=str)
    rows = rows.assign(image=rows["image"].str.removesuffix(".png")).drop(columns=["dx", "split"])[::-1]
    rows.to_csv(tmp_path / "new.csv", index=False)
    files = [place / "scans" / name for name in judged(run).index]
    table, _ = acpl.predict(run, files, table=tmp_path / "new.csv", device="cpu", say=pytest.fail)
    np.testing.assert_allclose(table[["a", "b"]].to_numpy(), judged(run).to_numpy(), atol=1e-6)


@pytest.mark.parametrize("written", ["archive/scans/{}.png", ".\\scans\\{}.png", "{}.png", "scans/{}", "{}.PNG"])
def test_a_row_is_found_by_the_end_of_a_path(written: str, run: Path, place: Path, tmp_path: Path) -> None:
    rows = pd.read_csv(place / "all.csv", dtype=str)
    rows = rows.assign(image=[written.format(name.removesuffix(".png")) for name in rows["image"]])
    rows.to_csv(tmp_path / "new.csv", index=False)
    folder = tmp_path / "archive" / "scans"
    folder.mkdir(parents=True)
    for name in judged(run).index:
        (folder / name).write_bytes((place / "scans" / name).read_bytes())
    table, _ = acpl.predict(run, [folder.parent], table=tmp_path / "new.csv", device="cpu", say=pytest.fail)
    np.testing.assert_allclose(table[["a", "b"]].to_numpy(), judged(run).to_numpy(), atol=1e-6)


def rows_called(names: list[str], run: Path, tmp_path: Path) -> PatientRows:
    known = {"patient": [f"p{number}" for number in range(len(names))], "site": "back", "age": "40"}
    pd.DataFrame({"image": names, **known}).to_csv(tmp_path / "called.csv", index=False)
    folder = RunFolder.open(run)
    return PatientRows(tmp_path / "called.csv", folder.config(), folder.card())


def test_a_row_is_that_of_the_longest_name_and_never_of_another_file(run: Path, tmp_path: Path) -> None:
    rows = rows_called(["1", "1.png", "b/1.png", "2.tif", "Ä.png", "x.PNG", "X.png"], run, tmp_path)
    assert rows.of(["a/1.png", "b/1.png", "c/1.jpg"]).tolist() == [1, 2, 0]
    assert rows.of(["2.png", "22.tif", "a2.tif", "ä.png", "x.png"]).tolist() == [-1, -1, -1, 4, -1]


def test_two_files_never_have_one_patients_row(run: Path, tmp_path: Path) -> None:
    rows = rows_called(["1.png"], run, tmp_path)
    assert rows.of(["a/1.png", "a/2.png", "b/2.png"]).tolist() == [0, -1, -1]
    with pytest.raises(UserError, match=r"a/1\.png and b/1\.png would both have the row '1\.png'"):
        rows.of(["a/1.png", "b/1.png"])


def test_without_a_table_it_answers_by_the_images_alone_and_says_so(run: Path, plain: Path, place: Path) -> None:
    said: list[str] = []
    table, _ = acpl.predict(run, [place / "scans"], device="cpu", say=said.append)
    assert said == [
        "judged by the images alone: the model knows site, age and whose images they are as well, "
        "which a --table may say"
    ]
    alone, _ = acpl.predict(plain, [place / "scans"], device="cpu", say=pytest.fail)
    np.testing.assert_array_equal(table[["a", "b"]].to_numpy(), alone[["a", "b"]].to_numpy())


def test_images_without_a_row_are_judged_alone_and_counted(run: Path, place: Path, tmp_path: Path) -> None:
    rows = pd.read_csv(place / "all.csv", dtype=str)
    rows[~rows["image"].isin(["57.png", "59.png"])].to_csv(tmp_path / "some.csv", index=False)
    said: list[str] = []
    files = [place / "scans" / f"{number}.png" for number in (58, 59, 57)]
    table, _ = acpl.predict(run, files, table=tmp_path / "some.csv", device="cpu", say=said.append)
    assert len(said) == 1
    assert said[0].startswith("2 of 3 images have no row in")
    assert "59.png" in said[0]
    alone, _ = acpl.predict(run, files, device="cpu")
    np.testing.assert_array_equal(table[["a", "b"]].to_numpy()[1:], alone[["a", "b"]].to_numpy()[1:])
    assert abs(table["a"][0] - alone["a"][0]) > 0.1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"drop": "age"}, "the model needs the column 'age' beside the images"),
        ({"drop": "patient"}, "no column that says whose images they are"),
        ({"drop": "image"}, "no column that names the images"),
    ],
)
def test_what_a_table_lacks_is_said_before_any_image_is_read(
    change: dict[str, str], reason: str, run: Path, place: Path, tmp_path: Path
) -> None:
    pd.read_csv(place / "all.csv", dtype=str).drop(columns=change["drop"]).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(UserError, match=reason):
        acpl.predict(run, [tmp_path / "no such folder"], table=tmp_path / "t.csv", device="cpu")


def test_a_table_is_refused_where_the_model_could_not_use_it(plain: Path, place: Path) -> None:
    with pytest.raises(UserError, match="the model knows nothing beside the image"):
        acpl.predict(plain, [place / "scans"], table=place / "all.csv", device="cpu")


def test_a_loaded_model_takes_a_row_an_image(run: Path, place: Path) -> None:
    model = acpl.load(run, device="cpu")
    rows = pd.read_csv(place / "all.csv").set_index("image").loc[judged(run).index]
    files = [str(place / "scans" / name) for name in rows.index]
    found = model(files, patients=rows.rename(columns={"patient": "group"}))
    np.testing.assert_allclose(found[["a", "b"]].to_numpy(), judged(run).to_numpy(), atol=1e-6)
    apart = model(files, patients=rows)
    assert not np.allclose(apart[["a", "b"]].to_numpy(), judged(run).to_numpy(), atol=1e-4)
    with pytest.raises(UserError, match="patients should have a row an image, 10, but has 9"):
        model(files, patients=rows[:9])


def test_rows_are_not_guessed_where_an_image_cannot_be_read(run: Path, place: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_bytes(b"no picture")
    rows = pd.DataFrame({"site": ["back", "face"], "age": [40, 41]})
    with pytest.raises(UserError, match="rows of patients and images would not agree"):
        acpl.load(run, device="cpu")(
            [str(tmp_path / "bad.png"), str(place / "scans" / "00.png")], skip_bad=True, patients=rows
        )


def test_judging_says_what_the_answers_know(run: Path, plain: Path) -> None:
    judged_plain = acpl.evaluate(plain, resamples=2)
    for model, known in ((run, "site, age and whose images they are"), (plain, "")):
        result = judged_plain if model == plain else json.loads((model / "evaluation.json").read_text())
        assert result["beside"] == known
        said = f"The answers know more than the image: {known}."
        assert (said in sentences(result)) == bool(known)
        assert (said in acpl.make_report(model).read_text()) == bool(known)


def test_the_command_takes_the_table(run: Path, place: Path, tmp_path: Path) -> None:
    out = tmp_path / "answers.csv"
    asked = ["predict", str(run), str(place / "scans"), "--table", str(place / "all.csv"), "--out", str(out)]
    result = CliRunner().invoke(app, [*asked, "--device", "cpu"])
    assert result.exit_code == 0, result.output
    found = pd.read_csv(out)
    found.index = pd.Index(found["id"].map(lambda name: Path(name).name))
    np.testing.assert_allclose(found.loc[judged(run).index, ["a", "b"]].to_numpy(), judged(run).to_numpy(), atol=1e-6)


def test_an_exported_file_says_that_it_knows_the_image_alone(run: Path, plain: Path, tmp_path: Path) -> None:
    for number, (model, known) in enumerate(((run, True), (plain, False))):
        found = acpl.export(model, "safetensors", out=tmp_path / str(number))
        told = json.loads((found.folder / "model.json").read_text())["beside_the_image"]
        assert (told is not None) == known
        if told is not None:
            assert told["in_file"] is False
            assert [column["name"] for column in told["clinical"]["columns"]] == ["site", "age"]

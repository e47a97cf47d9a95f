"""Patients on both sides of a given split are counted and said, wherever the figures are."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from tests.shell import acpl_imported

import acpl
from acpl.engine.run_folder import RunFolder
from acpl.report.first_screen import Note, notes
from acpl.report.run_data import read_run

KNOWN = (
    "1 of the 9 judged groups (2 of 10 images) have other images in the train part, which was trained on: "
    "the figures are too good (`acpl data check` lists these groups)."
)
CHOSEN = (
    "1 of the 9 judged groups (1 of 10 images) have other images in the validation part, which choices are made on: "
    "the figures may be too good (`acpl data check` lists these groups)."
)
UNNAMED = "The data names no patients: another image of one who is judged may have been trained on"


@pytest.fixture(scope="module")
def torn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a table whose split tears a patient of train and one of validation; the table lies beside it."""
    place = tmp_path_factory.mktemp("torn")
    patients = {29: "p3", 30: "p3", 31: "p4", 32: "p22", 23: "p5"}  # 29 to 39 is test, 22 to 28 validation
    rows = []
    for number in range(40):
        pixels = np.random.default_rng(number).integers(0, 90, (32, 32), dtype=np.uint8)
        pixels[:16] += np.uint8(120 * (number % 2))
        Image.fromarray(pixels).save(place / f"{number:02d}.png")
        part = "train" if number < 22 else "validation" if number < 29 else "test"
        labels = {"Mass": str(number % 2), "Nodule": str(number // 2 % 2)}
        rows.append({"image": f"{number:02d}.png", "patient": patients.get(number, f"p{number}"), **labels,
                     "split": part})  # fmt: skip
    rows[31]["Mass"] = ""  # is not judged, so that its patient does not count
    pd.DataFrame(rows).to_csv(place / "labels.csv", index=False)
    return acpl.train(
        out=place / "run", data=place / "labels.csv", cache=place / "cache", backbone="small", weights="none", size=32,
        batch_size=8, warmup_epochs=1, stages=0, method="supervised", device="cpu",
    )  # fmt: skip


@pytest.fixture
def run(torn: Path, tmp_path: Path) -> Path:
    """A copy with a table of its own, both of which a test may change."""
    copy = Path(shutil.copytree(torn, tmp_path / "run"))
    shutil.copy(torn.parent / "labels.csv", tmp_path / "labels.csv")
    config = (copy / "config.yaml").read_text()
    config = config.replace(str(torn.parent / "labels.csv"), str(tmp_path / "labels.csv"))
    (copy / "config.yaml").write_text(config.replace("images: null", f"images: {torn.parent}"))
    return copy


def edit(run: Path, change: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    table = pd.read_csv(run.parent / "labels.csv", dtype=str, keep_default_na=False)
    change(table).to_csv(run.parent / "labels.csv", index=False)


def test_patients_whom_training_knew_are_counted_printed_and_on_the_page(run: Path) -> None:
    done = acpl_imported("evaluate", run, "--resamples", "20", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    found = json.loads((run / "evaluation.json").read_text())
    assert found["seen_in_training"] == {"train": {"groups": 1, "images": 2}, "validation": {"groups": 1, "images": 1}}
    assert (found["groups_known"], found["images"], found["groups"]) == (True, 10, 9)
    assert found["care"] == [KNOWN, CHOSEN]
    printed = " ".join(done.stdout.split())
    assert f"Care: {KNOWN}" in printed
    assert f"Care: {CHOSEN}" in printed
    page = (run / "report.html").read_text()
    assert {Note("care", KNOWN), Note("care", CHOSEN)} <= set(notes(read_run(run)))
    assert KNOWN in page
    assert "Judged on 10 images of 9 patients (or lesions)." in page
    assert "that training never opened" not in page


def test_judged_on_validation_only_what_was_trained_on_counts(run: Path) -> None:
    found = acpl.evaluate(run, part="validation", resamples=5)
    assert found["seen_in_training"] == {"train": {"groups": 1, "images": 1}}
    assert [sentence[:38] for sentence in found["care"]] == ["1 of the 7 judged groups (1 of 7 image"]
    assert Note("care", found["care"][0]) in notes(read_run(run, "validation"))


def test_where_no_patient_is_torn_there_is_nothing_to_be_careful_about(run: Path) -> None:
    edit(run, lambda table: table.assign(patient=[f"p{number // 2}" for number in range(40)]).drop(index=[28, 29]))
    found = acpl.evaluate(run, resamples=5)
    nobody = {"groups": 0, "images": 0}
    assert found["seen_in_training"] == {"train": nobody, "validation": nobody}
    assert found["care"] == []
    assert "patients (or lesions) that training never opened." in (run / "report.html").read_text()


def test_data_that_names_no_patients_says_so(run: Path) -> None:
    edit(run, lambda table: table.drop(columns="patient"))
    found = acpl.evaluate(run, resamples=5)
    assert found["groups_known"] is False
    assert [sentence.split(",")[0] for sentence in found["care"]] == [UNNAMED]
    page = (run / "report.html").read_text()
    assert found["care"][0] in page
    assert "Judged on 10 images that training never opened." in page
    assert "Only 10 images judged: the interval itself is rough." in page
    assert "10 patients" not in page


def test_pages_of_several_runs_say_each_thing_once(run: Path, tmp_path: Path) -> None:
    acpl.evaluate(run, resamples=5)
    other = Path(shutil.copytree(run, tmp_path / "other"))
    page = acpl.make_report(run, other, out=tmp_path / "two.html", resamples=5).read_text()
    assert page.count(f"Care: {KNOWN}") == 1
    folder = tmp_path / "compared"
    shutil.copytree(run, folder / "supervised-1.0-0")
    heading = "fraction,rank,method,auroc,low,high,spread,behind,behind_low,behind_high,p"
    row = "1.0,1,supervised,0.91,0.88,0.93,0.01,,,,,1,,3,160,4.2"
    (folder / "table.csv").write_text(f"{heading},finished,failed,steps,images,seconds\n{row}\n")
    (folder / "plan.json").write_text("{}")
    assert acpl.make_report(folder).read_text().count(f"Care: {KNOWN}") == 1


def test_an_image_that_moved_to_another_part_is_refused_by_name(run: Path) -> None:
    edit(run, lambda table: table.assign(split=["test" if n == 7 else part for n, part in enumerate(table["split"])]))
    with pytest.raises(acpl.UserError, match=r"1 images are in another part now, 07\.png among them; undo the change"):
        acpl.evaluate(run)


def test_a_split_that_cannot_be_read_is_named(run: Path) -> None:
    (run / "split.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(acpl.UserError, match=r"split\.csv is damaged"):
        acpl.evaluate(run)
    (run / "split.csv").unlink()
    with pytest.raises(acpl.UserError, match=r"split\.csv could not be read: No such file"):
        RunFolder(run).split()


def test_names_like_numbers_and_like_nothing_stay_names(tmp_path: Path) -> None:
    split = pd.DataFrame({"id": [0, 1, 2], "image": ["007", "NA", "nan"], "role": ["labelled"] * 3})
    RunFolder(tmp_path).write_split(split)
    assert RunFolder(tmp_path).split()["image"].tolist() == ["007", "NA", "nan"]

"""A run goes on with the settings and the data that it began with, and with no others."""

import json
import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from PIL import Image
from tests.engine.crews import in_crew

import acpl
from acpl.algorithms.supervised import Supervised
from acpl.config import Config
from acpl.data.store import ImageStore
from acpl.engine import beginning
from acpl.engine.beginning import FILE, SAME, Beginning
from acpl.engine.monitor import Quiet
from acpl.engine.roles import draw_split
from acpl.engine.run_folder import ElsewhereFolder, RunFolder
from acpl.engine.stopping import Stopped
from acpl.engine.training import source_of

SETTINGS = {"data": "labels.csv", "cache": "cache", "backbone": "small", "weights": "none", "size": 32,
            "batch_size": 4, "method": "supervised", "warmup_epochs": 2, "stages": 0, "fraction": 0.5,
            "draw": "images", "device": "cpu"}  # fmt: skip
RUN = Path("run")


class StopsAtOnce(Quiet):
    """Asks to stop after the first step."""

    def step(self, losses: Any) -> None:
        signal.raise_signal(signal.SIGTERM)


def picture(number: int) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 256, (32, 32), dtype=np.uint8)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of 24 images beside them, and a run on it that was stopped at its first step."""
    place = tmp_path_factory.mktemp("begun")
    rows = []
    for number in range(24):
        Image.fromarray(picture(number)).save(place / f"{number:02d}.png")
        part = "train" if number < 16 else "validation" if number < 20 else "test"
        labels = {"Mass": number % 2, "Nodule": number // 2 % 2, "Edema": number // 3 % 2}
        rows.append({"image": f"{number:02d}.png", "patient": f"p{number}", **labels, "split": part})
    pd.DataFrame(rows).to_csv(place / "labels.csv", index=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        with pytest.raises(Stopped):
            acpl.train(out=RUN, monitor=StopsAtOnce(), **SETTINGS)
    return place


@pytest.fixture
def here(begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy that a test may change, as if it had begun there; we are in it."""
    place = Path(shutil.copytree(begun, tmp_path / "place"))
    for name in ("config.yaml", FILE):
        file = place / RUN / name
        file.write_text(file.read_text().replace(str(begun), str(place)))
    monkeypatch.chdir(place)
    return place


def edit(change: Callable[[pd.DataFrame], pd.DataFrame | None]) -> None:
    table = pd.read_csv("labels.csv", dtype=str)
    changed = change(table)
    (table if changed is None else changed).to_csv("labels.csv", index=False)


def refused() -> str:
    """The one sentence, without what is the same in all of them; nothing is trained or written."""
    before = {file: file.read_bytes() for file in RUN.rglob("*") if file.is_file()}
    with pytest.raises(acpl.UserError) as error:
        acpl.train(resume=RUN)
    assert {file: file.read_bytes() for file in RUN.rglob("*") if file.is_file()} == before
    said, _, cure = str(error.value).rpartition("; ")
    assert cure == "undo that, or begin a new run with another --out"
    assert "\n" not in said
    return said.removeprefix(f"{Path.cwd()}/labels.csv has changed since this run began: ")


def test_what_has_not_changed_is_gone_on_with(here: Path) -> None:
    before = (RUN / FILE).read_bytes()
    edit(lambda table: table)  # written anew, with the same content
    acpl.train(resume=RUN)
    assert (RUN / "model.safetensors").exists()
    assert (RUN / FILE).read_bytes() == before


def test_another_edition_of_the_method_does_not_go_on_with_it(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Supervised, "edition", 2, raising=False)
    before = {file: file.read_bytes() for file in RUN.rglob("*") if file.is_file()}
    with pytest.raises(acpl.UserError, match=r"^run was begun with edition 1 of supervised, but this is edition 2, "):
        acpl.train(resume=RUN)
    assert {file: file.read_bytes() for file in RUN.rglob("*") if file.is_file()} == before


def test_the_edition_that_a_run_begins_with_is_kept(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Supervised, "edition", 2, raising=False)
    with pytest.raises(Stopped):
        acpl.train(out="second", monitor=StopsAtOnce(), **SETTINGS)
    kept = Beginning.kept_in(RunFolder(Path("second")))
    assert kept is not None
    assert kept.edition == 2
    acpl.train(resume="second")
    assert Path("second/model.safetensors").exists()


def test_a_run_that_was_begun_before_there_were_editions_is_of_the_first(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = json.loads((RUN / FILE).read_text())
    del kept["edition"]
    (RUN / FILE).write_text(json.dumps(kept))
    monkeypatch.setattr(Supervised, "edition", 2, raising=False)
    with pytest.raises(acpl.UserError, match="was begun with edition 1 of supervised"):
        acpl.train(resume=RUN)
    monkeypatch.undo()
    monkeypatch.chdir(here)
    acpl.train(resume=RUN)
    assert (RUN / "model.safetensors").exists()


def test_columns_that_are_swapped_are_refused(here: Path) -> None:
    edit(lambda table: table[["image", "patient", "Nodule", "Mass", "Edema", "split"]])
    assert refused() == "its classes come in another order, 'Nodule', 'Mass' where 'Mass', 'Nodule' were"


def test_labels_that_are_swapped_under_their_names_are_refused(here: Path) -> None:
    def swap(table: pd.DataFrame) -> None:
        table[["Mass", "Nodule"]] = table[["Nodule", "Mass"]].to_numpy()

    edit(swap)
    said = "of 20 images 10 have other labels of 'Mass', 'Nodule', each of which has the labels of the other now"
    assert refused() == said


def test_a_label_that_was_edited_is_refused_with_its_image(here: Path) -> None:
    def flip(table: pd.DataFrame) -> None:
        table.loc[5, "Edema"] = "1" if table.loc[5, "Edema"] == "0" else "0"

    edit(flip)
    assert refused() == "of 20 images 1 has other labels of 'Edema', 05.png among them"


def test_two_classes_that_were_edited_apart_are_not_called_swapped(here: Path) -> None:
    def flip(table: pd.DataFrame) -> None:
        table.loc[3, ["Mass", "Edema"]] = ["0", "0"]
        table.loc[7, "Mass"] = "0"

    edit(flip)
    assert refused() == "of 20 images 2 have other labels of 'Mass', 'Edema', 03.png among them"


def test_classes_that_are_gone_or_new_are_named(here: Path) -> None:
    edit(lambda table: table.rename(columns={"Edema": "Hernia"}))
    assert refused() == "of its classes 'Edema' is gone and 'Hernia' is new"
    edit(lambda table: table.drop(columns=["Hernia", "Nodule"]))
    assert refused() == "of its classes 'Nodule', 'Edema' are gone"


def test_a_row_more_or_less_is_refused(here: Path) -> None:
    Image.fromarray(picture(99)).save("99.png")
    new = {"image": "99.png", "patient": "p99", "Mass": "1", "Nodule": "0", "Edema": "0", "split": "train"}
    edit(lambda table: pd.concat([table, pd.DataFrame([new])]))
    assert refused() == "1 image is new, 99.png among them"
    edit(lambda table: table[~table["image"].isin(["02.png", "03.png"])])
    assert refused() == "2 images are gone, 02.png among them and 1 image is new, 99.png among them"


def test_rows_in_another_order_are_refused(here: Path) -> None:
    edit(lambda table: table.iloc[[1, 0, *range(2, 24)]])
    assert refused() == "2 images have another row, 01.png among them: 1 then, 0 now"


def test_an_image_in_another_part_is_refused(here: Path) -> None:
    def move(table: pd.DataFrame) -> None:
        table.loc[16, "split"] = "train"

    edit(move)
    said = refused()
    assert "another role" in said
    assert re.search(r"\.png among them: (labelled|unlabelled|validation) then, \w+ now$", said)


def test_rows_of_the_test_part_may_change(here: Path) -> None:
    """Training never opens them."""
    edit(lambda table: table.iloc[:22])
    acpl.train(resume=RUN)


def test_an_image_that_was_replaced_is_refused(here: Path) -> None:
    Image.fromarray(255 - picture(4)).save("04.png")
    assert refused() == "of 20 images that were looked at 1 is another, 04.png among them"


def store(pixels: np.ndarray) -> ImageStore:
    return ImageStore(torch.tensor([0]), torch.from_numpy(pixels)[None, None])


def test_an_image_that_is_decoded_a_little_differently_is_the_same() -> None:
    for off, fits in ((SAME, True), (SAME + 1, False)):
        dark = np.full((32, 32), 100, dtype=np.uint8)
        kept, now = (beginning._pictures(store(pixels), np.array([0])) for pixels in (dark, dark + np.uint8(off)))
        assert beginning._alike(kept["0"], now["0"]) is fits


def test_images_that_have_colours_now_are_refused(here: Path) -> None:
    for file in here.glob("*.png"):
        pixels = np.asarray(Image.open(file).convert("RGB")).copy()
        pixels[..., 0] //= 2
        Image.fromarray(pixels).save(file)
    assert refused() == "its images had 1 channels and have 3 now"


def test_settings_that_were_edited_in_the_run_s_own_file_are_refused_by_name(here: Path) -> None:
    config = yaml.safe_load((RUN / "config.yaml").read_text())
    (RUN / "config.yaml").write_text(yaml.safe_dump(config | {"learning_rate": 0.5, "seed": 7}))
    assert refused() == (
        "config.yaml is not what this run began with: learning_rate was 0.0003 and is 0.5 now, seed was 0 and is 7 now"
    )
    (RUN / "config.yaml").write_text(yaml.safe_dump(config | {"settings": config["settings"] | {"steps": 3}}))
    assert refused() == "config.yaml is not what this run began with: steps was None and is 3 now"
    many = {"learning_rate": 0.5, "seed": 7, "flip": False, "eps": 0.1, "dropout": 0.5, "batch_size": 8, "turns": True}
    (RUN / "config.yaml").write_text(yaml.safe_dump(config | many))
    assert refused().endswith(" and 2 more")


def test_where_and_how_fast_it_computes_may_be_edited(here: Path) -> None:
    config = yaml.safe_load((RUN / "config.yaml").read_text())
    free = {"cache": "elsewhere", "checkpoint_minutes": 1.0, "store_share": 0.3, "cuda_graphs": False}
    (RUN / "config.yaml").write_text(yaml.safe_dump(config | free))
    acpl.train(resume=RUN)
    assert Path("elsewhere").is_dir()


def test_a_run_of_an_older_version_goes_on_without_being_compared(here: Path) -> None:
    (RUN / FILE).unlink()

    def flip(table: pd.DataFrame) -> None:
        table.loc[5, "Edema"] = "1" if table.loc[5, "Edema"] == "0" else "0"

    edit(flip)
    acpl.train(resume=RUN)
    assert not (RUN / FILE).exists()  # what it began with is not known any more


def test_a_run_that_was_cut_before_its_beginning_was_kept_begins_with_what_is_there(here: Path) -> None:
    for file in RUN.iterdir():
        if file.name != "config.yaml":
            shutil.rmtree(file) if file.is_dir() else file.unlink()
    with pytest.raises(Stopped):
        acpl.train(resume=RUN, monitor=StopsAtOnce())
    kept = Beginning.kept_in(RunFolder(RUN))
    assert kept is not None
    assert kept.classes == ["Mass", "Nodule", "Edema"]


@pytest.mark.parametrize("content", ['{"settings', "[]", "{}", '{"labels": 1}', "whole with a field more", "no labels"])
def test_a_damaged_beginning_is_named(here: Path, content: str) -> None:
    whole = json.loads((RUN / FILE).read_text())
    changed = {"whole with a field more": whole | {"colour": 1}, "no labels": whole | {"labels": "A"}}
    (RUN / FILE).write_text(json.dumps(changed[content]) if content in changed else content)
    with pytest.raises(acpl.UserError, match=r"run/beginning\.json is damaged: "):
        acpl.train(resume=RUN)
    (RUN / FILE).unlink()
    acpl.train(resume=RUN)


def test_more_pictures_than_are_kept_are_looked_at_evenly(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acpl.engine.beginning.LOOKED_AT", 3)
    ids = np.arange(10, 20)
    images = np.zeros((10, 1, 32, 32), dtype=np.uint8)
    found = beginning._pictures(ImageStore(torch.from_numpy(ids), torch.from_numpy(images)), ids)
    assert list(found) == ["10", "14", "19"]
    acpl.train(resume=RUN)  # of the 20 that were kept when it began, these three are compared


def test_other_processes_read_and_keep_nothing(tmp_path: Path, here: Path) -> None:
    kept = Beginning.kept_in(RunFolder(RUN))
    assert kept is not None
    assert Beginning.kept_in(ElsewhereFolder(RUN)) is None
    kept.keep_in(ElsewhereFolder(tmp_path / "nowhere"))
    assert not (tmp_path / "nowhere").exists()


def resumed(place: Path) -> str:
    """What a process of several says when it goes on."""
    os.chdir(place)
    try:
        acpl.train(resume=RUN, devices=2)
    except acpl.UserError as error:
        return f"{type(error).__name__}: {error}"
    return "done"


@pytest.mark.slow
def test_several_processes_are_refused_with_one_sentence_or_go_on(here: Path) -> None:
    whole = Path("labels.csv").read_bytes()
    edit(lambda table: table[["image", "patient", "Nodule", "Mass", "Edema", "split"]])
    first, second = in_crew(2, resumed, here)
    assert first.startswith(f"UserError: {here}/labels.csv has changed since this run began: its classes come in")
    assert second == first.replace("UserError", "SaidElsewhereError")
    Path("labels.csv").write_bytes(whole)
    assert in_crew(2, resumed, here) == ["done", "done"]
    assert (RUN / "model.safetensors").exists()


def found_beside(**settings: Any) -> tuple[Beginning, pd.DataFrame]:
    """What a run with these settings would begin with now."""
    config = Config.parse(SETTINGS | settings)
    dataset = source_of(config).open(("train", "validation"))
    split = draw_split(dataset.manifest, config)
    return Beginning.of(config, dataset, split), split


def test_what_is_used_beside_the_images_is_compared_by_what_it_says(here: Path) -> None:
    def describe(table: pd.DataFrame) -> None:
        table["age"] = [str(30 + number) for number in range(24)]
        table["sex"] = ["f", "m"] * 12

    edit(describe)
    settings = {"clinical": "age,sex", "group_answers": 1.0}
    began, before = found_beside(**settings)
    assert set(began.beside) == {"age", "sex", "group"}
    assert set(found_beside()[0].beside) == set()
    assert set(found_beside(group_labels=2)[0].beside) == {"group"}

    def said() -> str:
        now, split = found_beside(**settings)
        try:
            began.refuse_other_data(now, before, split)
        except acpl.UserError as error:
            return str(error).split(" began: ")[1].split(";")[0]
        return "the same"

    def write_otherwise(table: pd.DataFrame) -> None:
        table["age"] += ".0"
        table["sex"] = table["sex"].str.upper()
        table["patient"] += " again"
        table.loc[table["split"] == "test", ["age", "sex"]] = ["unknown", "x"]

    edit(write_otherwise)
    assert said() == "the same"
    edit(lambda table: table.assign(age=table["age"].replace("33.0", "34.0")))
    assert said() == "its column 'age' says something else"
    edit(lambda table: table.assign(patient=table["patient"].replace("p3 again", "p4 again")))
    assert said() == "its columns 'age', 'group' say something else"


def test_a_beginning_that_knows_of_no_columns_beside_the_images_is_gone_on_with(here: Path) -> None:
    kept = json.loads((RUN / FILE).read_text())
    assert kept.pop("beside") == {}
    (RUN / FILE).write_text(json.dumps(kept))
    acpl.train(resume=RUN)

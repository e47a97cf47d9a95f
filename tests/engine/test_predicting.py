"""Prediction of files that a user names."""

import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import acpl
from acpl.data.phantoms import draw_chest
from acpl.engine import predicting
from acpl.engine.predicting import Predictor, find_files, prediction_table
from acpl.engine.run_folder import RunFolder


def save(path: Path, level: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (40, 30), level).save(path)
    return path


def test_predicting_a_saved_phantom_gives_the_test_parts_probabilities_and_decisions(
    chest_run: Path, tmp_path: Path
) -> None:
    drawn = draw_chest([7], size=32)
    for number, pixels in enumerate(drawn.images):
        Image.fromarray(pixels[0]).save(tmp_path / f"{number}.png")
    table, bad = acpl.predict(chest_run, [tmp_path])
    assert bad == []
    judged = pd.read_csv(chest_run / "predictions.csv", dtype={"group": str})
    judged = judged.loc[judged["group"] == "00007"]
    classes = RunFolder.open(chest_run).card().classes
    assert table[classes].to_numpy() == pytest.approx(judged.filter(regex="^probability").to_numpy(), abs=1e-5)
    called = [f"decision.{name}" for name in classes]
    assert list(table.columns) == ["id", *classes, *called]
    np.testing.assert_array_equal(table[called], judged[called])


def test_where_the_most_probable_class_is_called_it_is_named(lesions_run: Path, tmp_path: Path) -> None:
    Image.new("RGB", (40, 30)).save(tmp_path / "a.png")
    table, _ = acpl.predict(lesions_run, [tmp_path / "a.png"])
    classes = RunFolder.open(lesions_run).card().classes
    assert list(table.columns) == ["id", *classes, "decision"]
    assert table["decision"][0] == table[classes].iloc[0].astype(float).idxmax()


def test_multi_class_with_thresholds_may_call_none_or_several(lesions_run: Path) -> None:
    card = replace(RunFolder.open(lesions_run).card(), classes=["a", "b", "c"], thresholds=[0.18] * 3, threshold=0.18)
    table = prediction_table(["x", "y"], np.array([[0.4, 0.5, 0.1], [0.17, 0.13, 0.7]]), card)
    assert table.filter(regex=r"^decision\.").to_numpy().tolist() == [[1, 1, 0], [0, 0, 1]]


def test_files_folders_and_zips_are_found_once_each_by_the_name_the_user_knows(tmp_path: Path) -> None:
    one, two = save(tmp_path / "in" / "deep" / "1.png"), save(tmp_path / "in" / "2.png")
    (tmp_path / "in" / "notes.txt").write_text("no image")
    with zipfile.ZipFile(tmp_path / "scans.zip", "w") as archive:
        archive.write(one, "a/1.png")
    found = find_files([two, tmp_path / "in", tmp_path / "scans.zip"])
    assert [file.id for file in found] == [str(two), str(one), f"{tmp_path}/scans.zip/a/1.png"]


def test_a_zip_gives_what_its_files_give(chest_run: Path, tmp_path: Path) -> None:
    files = [save(tmp_path / "in" / f"{level}.png", level) for level in (10, 200)]
    with zipfile.ZipFile(tmp_path / "scans.zip", "w") as archive:
        for file in files:
            archive.write(file, file.name)
    loose, _ = acpl.predict(chest_run, files)
    zipped, _ = acpl.predict(chest_run, [tmp_path / "scans.zip"])
    pd.testing.assert_frame_equal(loose.drop(columns="id"), zipped.drop(columns="id"))


def test_a_dicom_file_without_a_suffix_gives_what_its_png_gives(chest_run: Path, tmp_path: Path) -> None:
    pydicom = pytest.importorskip("pydicom")
    pixels = draw_chest([3], size=32).images[0, 0]
    Image.fromarray(pixels).save(tmp_path / "scan.png")
    scan = pydicom.Dataset()
    scan.file_meta = pydicom.dataset.FileMetaDataset()
    scan.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    scan.SOPClassUID, scan.SOPInstanceUID = pydicom.uid.SecondaryCaptureImageStorage, pydicom.uid.generate_uid()
    scan.Rows, scan.Columns, scan.SamplesPerPixel, scan.PhotometricInterpretation = 32, 32, 1, "MONOCHROME2"
    scan.BitsAllocated, scan.BitsStored, scan.HighBit, scan.PixelRepresentation = 8, 8, 7, 0
    scan.WindowCenter, scan.WindowWidth = 128, 256
    scan.PixelData = pixels.tobytes()
    (tmp_path / "study").mkdir()
    scan.save_as(tmp_path / "study" / "IM0001", enforce_file_format=True)
    table, bad = acpl.predict(chest_run, [tmp_path / "scan.png", tmp_path / "study"])
    assert bad == []
    assert table["id"].tolist() == [str(tmp_path / "scan.png"), str(tmp_path / "study" / "IM0001")]
    plain, dicom = table.iloc[:, 1:9].to_numpy(dtype=float)
    np.testing.assert_allclose(dicom, plain, atol=0.01)


def test_a_link_that_the_user_names_is_followed(tmp_path: Path) -> None:
    file = save(tmp_path / "elsewhere" / "1.png")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "link.png").symlink_to(file)
    (found,) = find_files([tmp_path / "here" / "link.png"])
    assert found.id.endswith("link.png")
    assert found.files.read(found.name) == file.read_bytes()


def test_a_file_that_cannot_be_read_is_named_with_its_reason_and_the_rest_predicted(
    chest_run: Path, tmp_path: Path
) -> None:
    save(tmp_path / "good.png")
    (tmp_path / "bad.png").write_text("not an image")
    table, bad = acpl.predict(chest_run, [tmp_path])
    assert [Path(name).name for name in table["id"]] == ["good.png"]
    assert [Path(file.name).name for file in bad] == ["bad.png"]
    assert bad[0].reason


def test_no_image_no_file_and_nothing_readable_are_said(chest_run: Path, tmp_path: Path) -> None:
    with pytest.raises(acpl.UserError, match="no image was found"):
        acpl.predict(chest_run, [tmp_path])
    with pytest.raises(acpl.UserError, match="does not exist"):
        acpl.predict(chest_run, [tmp_path / "nothing.png"])
    (tmp_path / "bad.png").write_text("not an image")
    with pytest.raises(acpl.UserError, match=r"none of 1 files could be read:\n.*bad.png: "):
        acpl.predict(chest_run, [tmp_path])


def test_batches_do_not_matter_and_progress_is_told(
    chest_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for level in range(7):
        save(tmp_path / f"{level}.png", 30 * level)
    whole, _ = acpl.predict(chest_run, [tmp_path])
    monkeypatch.setattr(predicting, "BATCH", 3)
    told: list[tuple[str, int, int]] = []
    parts, _ = acpl.predict(chest_run, [tmp_path], progress=lambda *news: told.append(news))
    assert whole["id"].tolist() == parts["id"].tolist()
    np.testing.assert_allclose(whole.iloc[:, 1:9].to_numpy(), parts.iloc[:, 1:9].to_numpy(), atol=1e-6)
    assert told == [("predicting", 3, 7), ("predicting", 6, 7), ("predicting", 7, 7)]


def test_a_run_is_asked_in_the_precision_that_it_was_trained_in(chest_run: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(chest_run, tmp_path / "run"))
    assert not Predictor.load(RunFolder.open(run), device="cpu").device.mixed
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("precision: auto", "precision: bf16-mixed"))
    assert Predictor.load(RunFolder.open(run), device="cpu").device.mixed
    assert not Predictor.load(RunFolder.open(run), device="cpu", precision="32").device.mixed

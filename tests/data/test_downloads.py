"""Published data sets in the layout they are downloaded in."""

import os
import pickle
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from acpl.data import cache
from acpl.data.files import BadImage, ImageFiles
from acpl.data.npz import NpzShelf
from acpl.data.sources import SourceOptions, files, find_source
from acpl.data.sources.chestxray14 import FINDINGS
from acpl.data.workers import do_all
from acpl.errors import UserError
from acpl.task import Task


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, and no shared data."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ACPL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ACPL_DATA", raising=False)
    monkeypatch.setitem(sys.modules, "medmnist", None)
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def options(data: str, **given: object) -> SourceOptions:
    return SourceOptions(data, **{"size": 32, **given})  # type: ignore[arg-type]


def paint(file: Path, value: int, mode: str = "L") -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, (40, 30), value if mode == "L" else (value, 0, 0)).save(file)


# The header of NIH's file splits its own column names at their commas, and every row ends with one more.
NIH_HEADER = (
    "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,"
    "OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y],"
)


@pytest.fixture
def chest(tmp_path: Path) -> Path:
    """Forty patients with two images each; the last ten are the official test."""
    folder = tmp_path / "nih"
    rows, names = [], []
    findings = ["No Finding", "Cardiomegaly|Emphysema", "Pleural_Thickening", "Hernia"]
    for patient in range(1, 41):
        for visit in range(2):
            name = f"{patient:08d}_{visit:03d}.png"
            names.append(name)
            rows.append(f"{name},{findings[patient % 4]},{visit},{patient},058Y,M,PA,2682,2749,0.143,0.143,")
            paint(folder / f"images_{1 + patient % 2:03d}" / "images" / name, patient)
    (folder / "Data_Entry_2017.csv").write_text("\n".join([NIH_HEADER, *rows]) + "\n")
    (folder / "train_val_list.txt").write_text("\n".join(names[:60]) + "\n")
    (folder / "test_list.txt").write_text("\n".join(names[60:]))
    return folder


def test_chestxray14_has_the_official_split_and_validation_by_patient(chest: Path) -> None:
    source = find_source(options("chestxray14", images=chest))
    manifest = source.manifest()
    assert (manifest.task, manifest.classes) == (Task.MULTI_LABEL, FINDINGS)
    assert Counter(manifest.table["part"]) == {"train": 54, "validation": 6, "test": 20}
    assert set(manifest.table["group"][manifest.table["part"] == "test"]) == {str(n) for n in range(31, 41)}
    assert (manifest.table.groupby("group")["part"].nunique() == 1).all()
    positives = dict(zip(manifest.classes, manifest.labels.sum(axis=0), strict=True))
    assert {name: count for name, count in positives.items() if count} == {
        **{"Cardiomegaly": 20, "Emphysema": 20, "Pleural_Thickening": 20, "Hernia": 20}
    }
    assert list(manifest.table["View Position"].unique()) == ["PA"]
    test = source.open(("test",))
    assert test.images.images[:, 0, 0, 0].tolist() == [n for n in range(31, 41) for _ in range(2)]


def test_chestxray14_in_a_single_folder_of_images_is_the_same(chest: Path) -> None:
    parted = find_source(options("chestxray14", images=chest)).manifest()
    (chest / "images").mkdir()
    for image in sorted(chest.glob("images_*/images/*.png")):
        image.rename(chest / "images" / image.name)
    (chest / "Data_Entry_2017.csv").rename(chest / "Data_Entry_2017_v2020.csv")
    source = find_source(options("chestxray14", images=chest))
    assert source.manifest().table.equals(parted.table)
    assert len(source.open(("test",)).images.ids) == 20


def test_chestxray14_findings_can_be_chosen_and_a_split_file_decides(chest: Path, tmp_path: Path) -> None:
    manifest = find_source(options("chestxray14", images=chest, classes=("Hernia", "Mass"))).manifest()
    assert manifest.classes == ("Hernia", "Mass")
    assert manifest.labels.sum(axis=0).tolist() == [20, 0]
    with pytest.raises(UserError, match="did you mean 'Hernia'"):
        find_source(options("chestxray14", images=chest, classes=("Hernai",)))
    with pytest.raises(UserError, match="chestxray14 is multi-label"):
        find_source(options("chestxray14", images=chest, task=Task.MULTI_CLASS))
    (tmp_path / "mine.csv").write_text("image,split\n00000001_000,train\n00000002_000,val\n00000003_000,test\n")
    (chest / "test_list.txt").unlink()
    chosen = find_source(options("chestxray14", images=chest, split=tmp_path / "mine.csv")).manifest()
    assert chosen.table["part"].tolist() == ["train", "validation", "test"]


def test_chestxray14_says_what_is_missing(chest: Path, tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"chestxray14 needs 'images': a folder that holds Data_Entry_2017\*\.csv, train"
    ):
        find_source(options("chestxray14"))
    with pytest.raises(UserError, match="nowhere is not a folder; chestxray14 needs"):
        find_source(options("chestxray14", images=tmp_path / "nowhere"))
    (chest / "test_list.txt").unlink()
    with pytest.raises(UserError, match=r"nih lacks test_list\.txt; chestxray14 expects Data_Entry_2017"):
        find_source(options("chestxray14", images=chest))
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed" / "images_001.tar.gz").write_bytes(b"")
    with pytest.raises(UserError) as caught:
        find_source(options("chestxray14", images=tmp_path / "packed"))
    for name in ("Data_Entry_2017*.csv", "train_val_list.txt", "test_list.txt", "images_*/images/*.png"):
        assert name in str(caught.value).split(";")[0]
    assert "unpack images_001.tar.gz first" in str(caught.value)


def test_chestxray14_refuses_strange_findings_and_lists_that_overlap(chest: Path) -> None:
    table = chest / "Data_Entry_2017.csv"
    whole = table.read_text()
    table.write_text(whole.replace("No Finding", "Covid", 1))
    with pytest.raises(UserError, match=r"row \d+, column 'Finding Labels': 'Covid' is no label"):
        find_source(options("chestxray14", images=chest))
    table.write_text(whole)
    (chest / "test_list.txt").write_text("00000001_000.png\n")
    with pytest.raises(UserError, match=r"both name 00000001_000\.png"):
        find_source(options("chestxray14", images=chest))
    (chest / "test_list.txt").write_text("00000040_000.png\n")
    source = find_source(options("chestxray14", images=chest))
    assert "19 images that neither list names are left out" in source.said
    assert source.manifest().ids.max() == 78


ISIC_CLASSES = ("MEL", "NV", "BCC", "AKIEC", "BKL", "DF", "VASC")


@pytest.fixture
def isic(tmp_path: Path) -> Path:
    """A hundred lesions with two images each; the ground truth in the folder that its zip unpacks to."""
    folder = tmp_path / "isic"
    rows, lesions = [], []
    for number in range(200):
        name = f"ISIC_{24306 + number:07d}"
        one_hot = ["1.0" if number // 2 % 7 == c else "0.0" for c in range(7)]
        rows.append(",".join([name, *one_hot]))
        lesions.append(f"HAM_{number // 2:07d},{name},nv,histo,80.0,male,scalp")
        paint(folder / "ISIC2018_Task3_Training_Input" / f"{name}.jpg", number, "RGB")
    truth = folder / "ISIC2018_Task3_Training_GroundTruth" / "ISIC2018_Task3_Training_GroundTruth.csv"
    truth.parent.mkdir()
    truth.write_text("\n".join(["image," + ",".join(ISIC_CLASSES), *rows]))
    header = "lesion_id,image_id,dx,dx_type,age,sex,localization"
    (folder / "HAM10000_metadata.csv").write_text("\n".join([header, *lesions]))
    return folder


def test_isic2018_is_split_seven_one_two_by_lesion(isic: Path) -> None:
    source = find_source(options("isic2018", images=isic))
    manifest = source.manifest()
    assert (manifest.task, manifest.classes) == (Task.MULTI_CLASS, ISIC_CLASSES)
    assert Counter(manifest.table["part"]) == {"train": 140, "validation": 20, "test": 40}
    assert manifest.table["group"].nunique() == 100
    assert (manifest.table.groupby("group")["part"].nunique() == 1).all()
    for part in ("train", "validation", "test"):
        assert (manifest.only((part,)).labels.sum(axis=0) > 0).all()
    assert "lesions from HAM10000_metadata.csv" in source.said
    assert source.open(("validation",)).images.images.shape == (20, 3, 32, 32)


def test_isic2018_takes_the_published_split_from_a_table(isic: Path, tmp_path: Path) -> None:
    names = [f"ISIC_{24306 + number:07d}.jpg" for number in range(200)]
    parts = ["train"] * 100 + ["val"] * 20 + ["test"] * 60
    rows = [f"{name},{part},{order}" for order, (name, part) in enumerate(zip(names, parts, strict=False))]
    (tmp_path / "split.csv").write_text("\n".join(["image,split,order", *rows]))
    source = find_source(options("isic2018", images=isic, split=tmp_path / "split.csv"))
    assert Counter(source.manifest().table["part"]) == {"train": 100, "validation": 20, "test": 60}
    assert source.manifest().table["order"].tolist() == list(range(180))
    assert "20 images that it does not name are left out" in source.said


def test_isic2018_without_lesion_ids_says_so(isic: Path) -> None:
    (isic / "HAM10000_metadata.csv").unlink()
    source = find_source(options("isic2018", images=isic))
    assert source.manifest().table["group"].nunique() == 200
    assert any("images of one lesion may land in two parts" in sentence for sentence in source.said)
    lines = [f"ISIC_{24306 + number:07d},HAM_{number // 4:07d},x" for number in range(200)]
    groupings = isic / "ISIC2018_Task3_Training_LesionGroupings.csv"
    groupings.write_text("\n".join(["image,lesion_id,diagnosis_confirm_type", *lines]))
    assert find_source(options("isic2018", images=isic)).manifest().table["group"].nunique() == 50
    groupings.write_text("\n".join(["image,lesion_id,diagnosis_confirm_type", *lines[1:]]))
    with pytest.raises(UserError, match="no lesion id for 1 images, the first is ISIC_0024306"):
        find_source(options("isic2018", images=isic))


def test_isic2018_in_harvards_folders_and_with_something_missing(isic: Path, tmp_path: Path) -> None:
    images = isic / "ISIC2018_Task3_Training_Input"
    for number, image in enumerate(sorted(images.iterdir())):
        (isic / f"HAM10000_images_part_{1 + number % 2}").mkdir(exist_ok=True)
        image.rename(isic / f"HAM10000_images_part_{1 + number % 2}" / image.name)
    assert len(find_source(options("isic2018", images=isic)).open(("test",)).images.ids) == 40
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        UserError, match=r"lacks ISIC2018_Task3_Training_GroundTruth\.csv and ISIC2018_Task3_Training_Inp"
    ):
        find_source(options("isic2018", images=tmp_path / "empty"))
    with pytest.raises(UserError, match="classes should be all of MEL"):
        find_source(options("isic2018", images=isic, classes=("MEL", "NV")))
    with pytest.raises(UserError, match="isic2018 is multi-class"):
        find_source(options("isic2018", images=isic, task=Task.MULTI_LABEL))


def save_npz(file: Path, colour: bool = False, columns: int = 1, **changed: np.ndarray) -> dict[str, np.ndarray]:
    """A MedMNIST file of 30, 10 and 20 images."""
    rng = np.random.default_rng(0)
    arrays: dict[str, np.ndarray] = {}
    for part, count in (("train", 30), ("val", 10), ("test", 20)):
        shape = (count, 28, 28, 3) if colour else (count, 28, 28)
        arrays[f"{part}_images"] = rng.integers(0, 256, shape, dtype=np.uint8)
        top = 2 if columns > 1 else 4
        arrays[f"{part}_labels"] = rng.integers(0, top, (count, columns)).astype(np.uint8)
    arrays |= changed
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(file, **arrays)
    return arrays


@pytest.mark.parametrize("colour", [False, True])
def test_medmnist_gives_the_files_own_pixels_and_parts(home: Path, colour: bool) -> None:
    arrays = save_npz(home / ".medmnist" / "bloodmnist.npz", colour)
    source = find_source(options("medmnist:bloodmnist", size=28))
    manifest = source.manifest()
    assert (manifest.task, manifest.classes) == (Task.MULTI_CLASS, ("class 0", "class 1", "class 2", "class 3"))
    assert Counter(manifest.table["part"]) == {"train": 30, "validation": 10, "test": 20}
    assert manifest.labels.argmax(axis=1).tolist()[:30] == arrays["train_labels"][:, 0].tolist()
    for part, key in (("train", "train"), ("validation", "val"), ("test", "test")):
        pixels = source.open((part,)).images.images.numpy()  # type: ignore[arg-type]
        expected = arrays[f"{key}_images"]
        assert np.array_equal(pixels.transpose(0, 2, 3, 1) if colour else pixels[:, 0], expected)


def test_medmnist_is_resized_and_opens_only_the_parts_asked_for(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_npz(home / ".medmnist" / "bloodmnist.npz")
    read: set[str] = set()

    def watched(job: Any, *what: Any, **more: Any) -> list[Any]:
        read.update(name.split("/")[0] for name in job.names)
        return do_all(job, *what, **more)

    for module in (cache, files):
        monkeypatch.setattr(module, "do_all", watched)
    dataset = find_source(options("medmnist:bloodmnist", size=64)).open(("validation",))
    assert dataset.images.images.shape == (10, 1, 64, 64)
    assert dataset.manifest.ids.tolist() == list(range(30, 40))
    assert read == {"val"}


def test_medmnist_with_several_columns_is_multi_label(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = save_npz(tmp_path / "chestmnist.npz", columns=14)
    manifest = find_source(options("medmnist:chestmnist", images=tmp_path)).manifest()
    assert (manifest.task, len(manifest.classes)) == (Task.MULTI_LABEL, 14)
    assert np.array_equal(manifest.labels[:30], arrays["train_labels"])
    info = {"chestmnist": {"label": {str(n): f"finding {n}" for n in range(14)}}}
    monkeypatch.setitem(sys.modules, "medmnist", SimpleNamespace(INFO=info))
    named = find_source(options(f"medmnist:{tmp_path / 'chestmnist.npz'}", classes=("finding 3",))).manifest()
    assert named.classes == ("finding 3",)
    with pytest.raises(UserError, match="is multi-label, but task is multi-class"):
        find_source(options("medmnist:chestmnist", images=tmp_path, task=Task.MULTI_CLASS))


def test_medmnist_that_is_not_there_says_where_to_put_it(home: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        find_source(options("medmnist:bloodmnist_64"))
    assert str(caught.value) == (
        "medmnist:bloodmnist_64 is not here (the package medmnist, which could fetch it, is not installed): put "
        "bloodmnist_64.npz from https://zenodo.org/records/10519652/files/bloodmnist_64.npz to "
        f"{home}/.medmnist/bloodmnist_64.npz"
    )
    with pytest.raises(UserError, match=rf"to {tmp_path}/bloodmnist\.npz"):
        find_source(options("medmnist:bloodmnist", images=tmp_path))
    with pytest.raises(UserError, match="unknown MedMNIST data set 'bloodmist'; did you mean 'bloodmnist'"):
        find_source(options("medmnist:bloodmist"))


def test_medmnist_is_fetched_through_its_package(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(split: str, download: bool, root: str, size: int = 28) -> None:
        if size == 224:
            raise RuntimeError("no network")
        save_npz(Path(root) / f"bloodmnist{'' if size == 28 else f'_{size}'}.npz")

    info = {"bloodmnist": {"python_class": "BloodMNIST", "label": {"0": "basophil", "1": "eosinophil"}}}
    monkeypatch.setitem(sys.modules, "medmnist", SimpleNamespace(INFO=info, BloodMNIST=fetch))
    assert find_source(options("medmnist:bloodmnist_64")).manifest().classes[:3] == (
        "basophil",
        "eosinophil",
        "class 2",
    )
    with pytest.raises(UserError, match=r"is not here \(it could not be fetched: no network\): put bloodmnist_224"):
        find_source(options("medmnist:bloodmnist_224"))


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"val_labels": np.zeros((3, 1), dtype=np.uint8)}, r"val_labels should be \(10, columns\), but is \(3, 1\)"),
        ({"val_labels": np.zeros((10, 1))}, "labels should be whole numbers from 0"),
        ({"val_images": np.zeros((10, 28, 28))}, r"val_images should be uint8 \(n, h, w\)"),
        ({"val_images": np.zeros((10, 28, 28, 28), dtype=np.uint8)}, r"val_images should be uint8 \(n, h, w\)"),
        ({"val_labels": np.array([[None]] * 10)}, "is not a MedMNIST file: Object arrays cannot be loaded"),
    ],
)
def test_a_damaged_medmnist_file_is_refused(tmp_path: Path, changed: dict[str, np.ndarray], sentence: str) -> None:
    save_npz(tmp_path / "bloodmnist.npz", **changed)
    with pytest.raises(UserError, match=sentence):
        find_source(options("medmnist:bloodmnist", images=tmp_path))


def test_what_is_no_npz_at_all_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bloodmnist.npz").write_text("hello")
    with pytest.raises(UserError, match=r"bloodmnist\.npz is not a MedMNIST file: File is not a zip file"):
        find_source(options("medmnist:bloodmnist", images=tmp_path))
    np.savez(tmp_path / "bloodmnist.npz", other=np.zeros(3))
    with pytest.raises(UserError, match=r"bloodmnist\.npz is not a MedMNIST file: .*train_images"):
        find_source(options("medmnist:bloodmnist", images=tmp_path))
    with pytest.raises(UserError, match=r"nothing\.npz is not a MedMNIST file: .*No such file"):
        find_source(options(f"medmnist:{tmp_path}/nothing.npz"))


def test_an_npz_is_read_in_any_order_and_can_be_pickled(tmp_path: Path) -> None:
    arrays = save_npz(tmp_path / "x.npz")
    files: ImageFiles = ImageFiles(tmp_path / "x.npz", NpzShelf(tmp_path / "x.npz", ("train", "val", "test")))
    files.read("train/000007.pgm")
    copy = pickle.loads(pickle.dumps(files))
    for row in (7, 29, 0, 7):
        assert copy.read(f"train/{row:06d}.pgm").endswith(arrays["train_images"][row].tobytes())
    assert len(copy.names()) == 60
    assert copy.find("val/000009") == "val/000009.pgm"
    with pytest.raises(BadImage):
        copy.find("val/000010")


def test_the_official_medmnist_files_open(monkeypatch: pytest.MonkeyPatch, real_medmnist: Path) -> None:
    monkeypatch.setenv("ACPL_DATA", str(real_medmnist.parent))
    source = find_source(options("medmnist:breastmnist", size=28))
    assert Counter(source.manifest().table["part"]) == {"train": 546, "validation": 78, "test": 156}
    with np.load(real_medmnist / "breastmnist.npz", allow_pickle=False) as arrays:
        assert np.array_equal(source.open(("test",)).images.images[:, 0].numpy(), arrays["test_images"])


# Read before the variable is taken away for the other tests.
SHARED = os.environ.get("ACPL_DATA")


@pytest.fixture
def real_medmnist() -> Path:
    if not SHARED or not (Path(SHARED) / "medmnist").is_dir():
        pytest.skip("ACPL_DATA names no folder with medmnist")
    return Path(SHARED) / "medmnist"

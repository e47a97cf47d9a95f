"""Tables and folders of images, opened part by part."""

import os
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from acpl.data.sources import Dataset, SourceOptions, find_source
from acpl.data.sources.files import FileSource
from acpl.data.splits import draw_labelled
from acpl.errors import UserError
from acpl.task import Task


def paint(file: Path, value: int, mode: str = "L") -> None:
    """A plain image whose every pixel is ``value`` (red in colour)."""
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, (40, 30), value if mode == "L" else (value, 0, 0)).save(file)


def options(data: Path | str, **given: object) -> SourceOptions:
    cache = Path(os.environ["ACPL_CACHE"])
    return SourceOptions(str(data), **{"size": 32, "cache": cache, **given})  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACPL_CACHE", str(tmp_path_factory.mktemp("cache")))


PARTS = ["train", "train", "val", "test", "train", "test"]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Six images whose grey value is ten times their row, and a table of them."""
    for row in range(6):
        paint(tmp_path / "scans" / f"{row}.png", 10 * row)
    rows = [f"scans/{row}.png,p{row // 2},{part},{row % 2},1" for row, part in enumerate(PARTS)]
    (tmp_path / "labels.csv").write_text("\n".join(["image,patient,split,A,B", *rows]) + "\n")
    return tmp_path / "labels.csv"


def values(dataset: Dataset) -> list[int]:
    """What was painted, by row of the store."""
    return [int(image.float().mean().round()) for image in dataset.images.images]


def test_each_image_is_found_by_its_row_in_the_table(table: Path) -> None:
    source = find_source(options(table))
    assert len(source.manifest().table) == 6
    dataset = source.open(("train", "validation"))
    assert dataset.manifest.ids.tolist() == [0, 1, 2, 4]
    assert values(dataset) == [0, 10, 20, 40]
    assert dataset.images.channels == 1
    assert int(dataset.images.gather(torch.tensor([4]))[0, 0, 0, 0]) == 40
    assert dataset.bad == []


def test_no_file_of_another_part_is_touched(table: Path) -> None:
    for row in (3, 5):
        (table.parent / "scans" / f"{row}.png").write_text("not an image")
    assert len(find_source(options(table)).open(("train", "validation")).manifest.table) == 4
    (table.parent / "scans" / "3.png").unlink()
    assert len(find_source(options(table)).open(("train", "validation")).manifest.table) == 4


def test_a_zip_gives_what_its_folder_gives(table: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "images.zip", "w") as file:
        for row in range(6):
            file.write(tmp_path / "scans" / f"{row}.png", f"scans/{row}.png")
    packed = find_source(options(table, images=tmp_path / "images.zip")).open(("test",))
    plain = find_source(options(table)).open(("test",))
    assert torch.equal(packed.images.images, plain.images.images)
    assert values(packed) == [30, 50]


def test_a_second_opening_reads_no_image(table: Path) -> None:
    first = find_source(options(table)).open(("train",))
    for row in (0, 1, 4):
        file = table.parent / "scans" / f"{row}.png"
        state = file.stat()
        file.write_bytes(b"x" * state.st_size)
        os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    # The colour of a sample is looked at anew; told, nothing is.
    again = find_source(options(table, colour="grey")).open(("train",))
    assert torch.equal(first.images.images, again.images.images)


def test_grey_images_stay_grey_and_one_in_colour_makes_all_colour(table: Path, tmp_path: Path) -> None:
    paint(tmp_path / "scans" / "4.png", 200, "RGB")
    source = find_source(options(table))
    assert source.open(("test",)).images.channels == 1
    assert source.open(("train",)).images.channels == 3
    assert find_source(options(table, colour="grey")).open(("train",)).images.channels == 1
    assert find_source(options(table, colour="rgb")).open(("test",)).images.channels == 3


@pytest.fixture
def spoiled(table: Path, tmp_path: Path) -> Path:
    """The table with a missing, an empty and a false image."""
    (tmp_path / "scans" / "0.png").unlink()
    (tmp_path / "scans" / "1.png").write_bytes(b"")
    (tmp_path / "scans" / "2.png").write_text("hello")
    table.write_text(table.read_text() + "../outside.png,p9,train,1,0\nscans/4,p9,train,1,0\n")
    return table


def test_every_bad_file_is_named_once_with_its_reason(spoiled: Path) -> None:
    with pytest.raises(UserError) as caught:
        find_source(options(spoiled)).open(("train", "validation"))
    lines = str(caught.value).splitlines()
    assert lines[0] == "5 of 6 images cannot be used:"
    assert [line.split(":")[0].strip() for line in lines[1:-1]] == [
        *("scans/0.png", "scans/1.png", "scans/2.png", "../outside.png", "scans/4")
    ]
    assert len({line.split(":", 1)[1] for line in lines[1:-1]}) == 5
    assert lines[5] == "  scans/4: it is the same file as 'scans/4.png'"
    assert lines[-1].endswith("--skip-bad")


def test_with_skip_bad_the_rest_keeps_its_ids(spoiled: Path) -> None:
    dataset = find_source(options(spoiled, skip_bad=True)).open(("train", "validation"))
    assert dataset.manifest.ids.tolist() == [4]
    assert dataset.images.ids.tolist() == [4]
    assert values(dataset) == [40]
    assert [file.name for file in dataset.bad][:2] == ["scans/0.png", "scans/1.png"]
    assert len(dataset.bad) == 5
    with pytest.raises(UserError, match=r"none of the 1 images could be read; the first is scans/2\.png: "):
        find_source(options(spoiled, skip_bad=True)).open(("validation",))


def test_images_in_another_place_are_one_sentence_and_not_a_list(table: Path, tmp_path: Path) -> None:
    paint(tmp_path / "elsewhere" / "x.png", 0)
    with pytest.raises(UserError, match=r"none of the 3 images that .* names is in .*elsewhere; the first is"):
        find_source(options(table, images=tmp_path / "elsewhere")).open(("train",))


def test_a_part_without_rows_opens_empty(table: Path) -> None:
    table.write_text(table.read_text().replace(",val,", ",train,"))
    assert len(find_source(options(table, validation=0)).open(("validation",)).manifest.table) == 0


def many(tmp_path: Path, split: str | None = None, rows: int = 200) -> Path:
    """A table of patients with two images each; no image is there, for none is asked for."""
    lines = [
        f"{row:03d}.png,p{row // 2},{row % 7 == 0:d},{row % 2}" + (f",{split}" if split else "") for row in range(rows)
    ]
    (tmp_path / "many.csv").write_text("\n".join(["image,patient,A,B" + (",split" if split else ""), *lines]))
    return tmp_path / "many.csv"


def counts(source: object) -> dict[str, int]:
    return dict(Counter(source.manifest().table["part"]))  # type: ignore[attr-defined]


def test_without_a_split_parts_are_drawn_by_group(tmp_path: Path) -> None:
    source = find_source(options(many(tmp_path)))
    assert counts(source) == {"train": 140, "validation": 20, "test": 40}
    assert (source.manifest().table.groupby("group")["part"].nunique() == 1).all()
    assert "parts drawn by group with seed 0: 140 train, 20 validation, 40 test" in source.said
    again, other = find_source(options(many(tmp_path))), find_source(options(many(tmp_path), split_seed=1))
    assert source.manifest().table.equals(again.manifest().table)
    assert not source.manifest().table.equals(other.manifest().table)
    assert counts(find_source(options(many(tmp_path), parts=(0.5, 0, 0.5)))) == {"train": 100, "test": 100}


def test_validation_is_taken_from_train_by_group_where_it_is_missing(tmp_path: Path) -> None:
    source = find_source(options(many(tmp_path, "train")))
    assert counts(source) == {"train": 180, "validation": 20}
    assert (source.manifest().table.groupby("group")["part"].nunique() == 1).all()
    assert "no validation part: 20 of 200 training images become one, by group with seed 0" in source.said
    without = find_source(options(many(tmp_path, "train"), validation=0))
    assert counts(without) == {"train": 200}
    assert without.said[-1] == "parts: 200 train, 0 validation, 0 test"
    assert not any("no validation part" in sentence for sentence in without.said)


def test_a_split_that_is_there_is_not_changed_even_with_groups_on_two_sides_but_that_is_said(table: Path) -> None:
    source = find_source(options(table))
    assert source.manifest().table["part"].tolist() == [*("train", "train", "validation", "test", "train", "test")]
    assert any(
        sentence.startswith("care: 2 of 3 groups have images in more than one part, 'p1' among them")
        for sentence in source.said
    )


def test_nothing_is_said_of_groups_that_stay_together(tmp_path: Path) -> None:
    source = find_source(options(many(tmp_path)))
    assert not any(sentence.startswith("care") for sentence in source.said)


@pytest.mark.parametrize("given", [{"parts": (0.7, 0.2, 0.2)}, {"parts": (0.0, 0.5, 0.5)}, {"validation": 1.0}])
def test_impossible_shares_are_refused(tmp_path: Path, given: dict[str, object]) -> None:
    with pytest.raises(UserError, match="should be"):
        find_source(options(many(tmp_path), **given))


def test_a_split_file_decides_with_or_without_suffixes(tmp_path: Path) -> None:
    rows = [f"{row:03d},{part}" for row, part in enumerate(["Train"] * 100 + ["valid"] * 20 + ["TEST"] * 30)]
    (tmp_path / "split.csv").write_text("\n".join(["image_id,split", *rows, "stranger,test"]))
    source = find_source(options(many(tmp_path, "train"), split=tmp_path / "split.csv"))
    assert counts(source) == {"train": 100, "validation": 20, "test": 30}
    assert source.manifest().ids.tolist() == list(range(150))
    assert "50 images that it does not name are left out" in source.said
    assert "1 images that it names are not in the data set" in source.said


def test_a_former_runs_split_keeps_what_it_left_for_the_test(tmp_path: Path) -> None:
    before = find_source(options(many(tmp_path))).manifest()
    shown = before.only(("train", "validation"))
    roles = np.where(shown.table["part"] == "validation", "validation", "unlabelled").astype(object)
    roles[np.flatnonzero(roles == "unlabelled")[:7]] = "labelled"
    run = pd.DataFrame({"id": shown.ids, "image": shown.table["image"], "role": roles})
    run.to_csv(tmp_path / "split.csv", index=False)
    source = find_source(options(many(tmp_path), split=tmp_path / "split.csv"))
    after = source.manifest().table
    assert after["part"].tolist() == before.table["part"].tolist()
    assert (after["role"] == "labelled").sum() == 7
    assert any("40 that it does not name are the test part" in sentence for sentence in source.said)


def test_a_split_files_order_is_kept_for_the_draw(tmp_path: Path) -> None:
    rows = [f"{row:03d}.png,train,{200 - row}" for row in range(200)]
    (tmp_path / "split.csv").write_text("\n".join(["image,split,order", *rows]))
    manifest = find_source(options(many(tmp_path), split=tmp_path / "split.csv", validation=0)).manifest()
    order = manifest.table["order"].to_numpy(dtype=np.float64)
    drawn = draw_labelled(manifest.labels, manifest.groups, count=3, seed=0, draw="order", order=order)
    assert drawn.tolist() == [197, 198, 199]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("image,split\n000.png,train\n001.png,holdout\n", r"split .* row 3, column 'split': 'holdout' is no part"),
        ("image,split\n000.png,train\n000.png,test\n", r"names images twice: '000.png' \(row 3\)"),
        ("image,split\n000.png,train\n000.jpg,test\n001.jpg,test\n001.tif,test\n", "differs in its suffix only"),
        ("image,split\nx,train\n", "names none of the data set's images; its first is 'x'"),
        ("image,when\n000.png,train\n", "should have the columns 'image' and 'split', but has image, when"),
    ],
)
def test_a_hostile_split_file_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "split.csv").write_text(text)
    with pytest.raises(UserError, match=sentence):
        find_source(options(many(tmp_path), split=tmp_path / "split.csv"))


def test_unlabelled_rows_are_for_training(tmp_path: Path) -> None:
    lines = [f"{row}.png,{row % 2},{1 - row % 2}" if row < 50 else f"{row}.png,," for row in range(500)]
    (tmp_path / "few.csv").write_text("\n".join(["image,A,B", *lines]))
    manifest = find_source(options(tmp_path / "few.csv")).manifest()
    assert dict(Counter(manifest.table["part"][:50])) == {"train": 35, "validation": 5, "test": 10}
    assert set(manifest.table["part"][50:]) == {"train"}
    assert int(manifest.known.sum()) == 50


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """Ten cats, ten dogs and four images that nobody has looked at."""
    for kind, count in (("cat", 10), ("dog", 10), ("Unlabelled", 4)):
        for number in range(count):
            paint(tmp_path / "pets" / kind / f"{number}.png", 100)
    return tmp_path / "pets"


def test_a_subfolder_is_a_class(folders: Path) -> None:
    source = find_source(options(folders))
    manifest = source.manifest()
    assert (manifest.task, manifest.classes) == (Task.MULTI_CLASS, ("cat", "dog"))
    assert np.nansum(manifest.labels, axis=0).tolist() == [10, 10]
    assert int((~manifest.known).sum()) == 4
    assert set(manifest.table["part"][~manifest.known]) == {"train"}
    assert counts(source) == {"train": 18, "validation": 2, "test": 4}
    assert len(source.open(("train",)).images.ids) == 18
    assert source.said[0] == "2 class folders: cat, dog; each image is its own group"


def test_top_folders_may_be_parts(folders: Path, tmp_path: Path) -> None:
    for part in ("train", "Val", "test"):
        for kind in ("cat", "dog"):
            paint(tmp_path / "parted" / part / kind / "deep" / "x.png", 100)
    paint(tmp_path / "parted" / "train" / "unlabeled" / "y.png", 100)
    paint(tmp_path / "parted" / "unlabelled" / "z.png", 100)
    paint(tmp_path / "parted" / "stray.png", 100)
    source = find_source(options(tmp_path / "parted"))
    assert counts(source) == {"train": 4, "validation": 2, "test": 2}
    assert source.manifest().classes == ("cat", "dog")
    assert "1 images outside of the class folders are left out, the first is stray.png" in source.said
    paint(tmp_path / "parted" / "horse" / "x.png", 100)
    with pytest.raises(UserError, match=r"mixes parts \(Val, test, train\) with other folders, like horse"):
        find_source(options(tmp_path / "parted"))


def test_class_folders_can_be_chosen(folders: Path) -> None:
    paint(folders / "fish" / "0.png", 1)
    assert find_source(options(folders)).manifest().classes == ("cat", "dog", "fish")
    source = find_source(options(folders, classes=("dog", "cat")))
    assert source.manifest().classes == ("dog", "cat")
    assert "folders left out: fish" in source.said
    with pytest.raises(UserError, match="did you mean 'dog'"):
        find_source(options(folders, classes=("dogs", "cat")))
    with pytest.raises(UserError, match="multi-label needs a CSV table"):
        find_source(options(folders, task=Task.MULTI_LABEL))


def test_a_zip_of_class_folders_is_a_folder_of_them(folders: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "pets.zip", "w") as file:
        for image in sorted(folders.rglob("*.png")):
            file.write(image, image.relative_to(folders))
    packed, plain = (find_source(options(path)).manifest() for path in (tmp_path / "pets.zip", folders))
    assert packed.table.equals(plain.table)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ("phantom-ches", "unknown data 'phantom-ches'; did you mean 'phantom-chest'"),
        ("chestxray", "unknown data 'chestxray'; did you mean 'chestxray14'"),
        (
            "zzz",
            "unknown data 'zzz'; there are: a .csv file, a .tar, a folder, chestxray14, isic2018, medmnist:NAME, ph",
        ),
        ("no/such/folder", "data no/such/folder does not exist"),
        ("missing.csv", "missing.csv could not be read: No such file"),
        ("missing.zip", "missing.zip does not exist"),
    ],
)
def test_data_that_is_not_there_is_said(data: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence.replace(".", r"\.")):
        find_source(options(data))


def test_a_split_file_is_not_passed_over_in_silence_by_phantoms(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="phantom-chest has parts of its own"):
        find_source(options("phantom-chest", split=tmp_path / "split.csv"))


def test_a_folder_without_classes_says_what_it_might_be(tmp_path: Path) -> None:
    paint(tmp_path / "x.png", 1)
    with pytest.raises(UserError, match="should have one subfolder of images a class, at least two, but it has none"):
        find_source(options(tmp_path))
    (tmp_path / "labels.csv").write_text("image,A\nx.png,1\n")
    with pytest.raises(UserError, match=r"did you mean its table, .*labels\.csv"):
        find_source(options(tmp_path))
    for folder in ("images_001", "images_002"):
        paint(tmp_path / folder / "images" / "x.png", 1)
    (tmp_path / "Data_Entry_2017.csv").write_text("")
    with pytest.raises(UserError, match="looks like a download: data should be chestxray14, and images"):
        find_source(options(tmp_path))
    (tmp_path / "note.md").write_text("")
    with pytest.raises(UserError, match=r"neither a \.csv table, a folder"):
        find_source(options(tmp_path / "note.md"))


def pack(name: str) -> Path:
    """A folder of real images, or a skip that says why."""
    root = os.environ.get("ACPL_DATA")
    if not root or not (Path(root) / name).is_dir():
        pytest.skip(f"ACPL_DATA names no folder with {name}")
    return Path(root) / name


def test_the_published_ham10000_split_opens() -> None:
    folder = pack("ham10000")
    source = find_source(options(folder / "labels.csv", images=folder / "images.zip"))
    assert isinstance(source, FileSource)
    manifest = source.manifest()
    assert counts(source) == {"train": 7012, "validation": 1000, "test": 2003}
    assert (manifest.task, manifest.classes) == (Task.MULTI_CLASS, ("MEL", "NV", "BCC", "AKIEC", "BKL", "DF", "VASC"))
    train = manifest.only(("train",))
    order = train.table["order"].to_numpy(dtype=np.float64)
    drawn = draw_labelled(train.labels, train.groups, count=1400, seed=0, draw="order", order=order)
    # The classes of the first 1400 training rows, as the published files have them.
    assert train.labels[drawn].sum(axis=0).tolist() == [154, 937, 71, 46, 157, 16, 19]
    dataset = source.open(("validation",))
    assert dataset.images.images.shape == (1000, 3, 32, 32)
    assert dataset.bad == []


def test_the_chest_pack_opens_by_patient() -> None:
    folder = pack("cxr14-subset")
    source = find_source(options(folder / "labels.csv", images=folder / "images.zip"))
    manifest = source.manifest()
    assert (manifest.task, len(manifest.classes)) == (Task.MULTI_LABEL, 14)
    assert counts(source) == {"train": 12755, "validation": 1417, "test": 2888}
    assert (manifest.table.groupby("group")["part"].nunique() == 1).all()
    drawn = draw_labelled(manifest.labels, manifest.groups, 0.02, seed=0)
    assert len(drawn) == round(0.02 * 17060)
    assert (manifest.labels[drawn].sum(axis=0) > 0).all()
    dataset = source.open(("validation",))
    assert dataset.images.images.shape == (1417, 1, 32, 32)

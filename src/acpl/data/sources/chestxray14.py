"""NIH Chest X-ray14 as it is shipped: 112,120 chest X-rays of 30,805 patients, the official split, 14 findings."""

from pathlib import Path

import numpy as np

from acpl.data.files import ImageFiles
from acpl.data.sources import SourceOptions
from acpl.data.sources.downloads import choose_classes, downloaded_folder, find_below, refuse_missing
from acpl.data.sources.files import FileSource
from acpl.data.sources.parts import settle_parts
from acpl.data.tables import Columns, read_table
from acpl.errors import UserError
from acpl.task import Task

FINDINGS = (
    *("Atelectasis", "Cardiomegaly", "Effusion", "Infiltration", "Mass", "Nodule", "Pneumonia"),
    *("Pneumothorax", "Consolidation", "Edema", "Emphysema", "Fibrosis", "Pleural_Thickening", "Hernia"),
)
TABLE = "Data_Entry_2017*.csv"
TRAIN_LIST, TEST_LIST = "train_val_list.txt", "test_list.txt"
IMAGES = "images_*/images/*.png (or images/*.png)"
EXPECTED = (TABLE, TRAIN_LIST, TEST_LIST, IMAGES)


def open_chestxray14(options: SourceOptions) -> FileSource:
    """The official train_val and test lists; validation is taken from train_val by patient."""
    folder = downloaded_folder(options, EXPECTED)
    found = {name: find_below(folder, name) for name in (TABLE, TRAIN_LIST, TEST_LIST)}
    needless = () if options.split is None else (TRAIN_LIST, TEST_LIST)
    missing = [name for name, path in found.items() if path is None and name not in needless]
    files = ImageFiles.open(folder)
    if not any(name.endswith(".png") for name in files.names()):
        missing.append(IMAGES)
    refuse_missing(options, folder, missing, EXPECTED)
    if options.task is Task.MULTI_CLASS:
        raise UserError("chestxray14 is multi-label: an image may have several of its findings, or none")

    table = found[TABLE]
    assert table is not None
    columns = Columns("Image Index", "Patient ID", None, "Finding Labels", FINDINGS, Task.MULTI_LABEL, closed=True)
    reading = choose_classes(read_table(table, columns), options.classes)
    said = [f"findings from {table.name}"]
    train, test = found[TRAIN_LIST], found[TEST_LIST]
    if train is not None and test is not None:
        parts = _official_parts(list(reading.table["image"]), train, test)
        listed = parts != None  # noqa: E711 — element by element
        if not listed.all() and options.split is None:
            said.append(f"{int((~listed).sum())} images that neither list names are left out")
        reading = reading._replace(parts=parts)
    manifest, more = settle_parts(reading, options)
    return FileSource(manifest, files, options, [*said, *more])


def _official_parts(images: list[str], train: Path, test: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.object_]]:
    named = {part: set(_lines(file)) for part, file in (("train", train), ("test", test))}
    if both := named["train"] & named["test"]:
        raise UserError(f"{train} and {test} both name {min(both)}; an image is in one of them")
    parts = ["train" if image in named["train"] else "test" if image in named["test"] else None for image in images]
    if not any(parts):
        raise UserError(f"{train} and {test} name none of the images in the table; the first there is {images[0]}")
    return np.array(parts, dtype=object)


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8-sig").split()
    except (OSError, UnicodeDecodeError):
        raise UserError(f"{file} could not be read as text") from None

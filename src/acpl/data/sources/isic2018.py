"""ISIC 2018 Task 3 (HAM10000) as it is shipped: 10,015 dermoscopy images of 7,470 lesions, 7 classes."""

from pathlib import Path

from acpl.data.files import ImageFiles
from acpl.data.sources import SourceOptions
from acpl.data.sources.downloads import choose_classes, downloaded_folder, find_below, refuse_missing
from acpl.data.sources.files import FileSource
from acpl.data.sources.parts import settle_parts
from acpl.data.tables import GROUP_NAMES, IMAGE_NAMES, Columns, Reading, find_column, read_cells, read_table
from acpl.errors import UserError
from acpl.task import Task

CLASSES = ("MEL", "NV", "BCC", "AKIEC", "BKL", "DF", "VASC")
TABLE = "ISIC2018_Task3_Training_GroundTruth.csv"
IMAGES = "ISIC2018_Task3_Training_Input/*.jpg (or HAM10000_images_part_1 and 2)"
EXPECTED = (TABLE, IMAGES)
LESIONS = ("HAM10000_metadata*", "ISIC2018_Task3_Training_LesionGroupings.csv")


def open_isic2018(options: SourceOptions) -> FileSource:
    """Parts drawn by lesion, 7 : 1 : 2 unless said otherwise, or as ``options.split`` names them."""
    folder = downloaded_folder(options, EXPECTED)
    table = find_below(folder, TABLE)
    files = ImageFiles.open(folder)
    missing = [] if table is not None else [TABLE]
    if not files.names():
        missing.append(IMAGES)
    refuse_missing(options, folder, missing, EXPECTED)
    assert table is not None
    if options.task is Task.MULTI_LABEL:
        raise UserError("isic2018 is multi-class: every image is one of its classes")
    reading = read_table(table, Columns("image", classes=CLASSES, task=Task.MULTI_CLASS))
    reading, said = _with_lesions(choose_classes(reading, options.classes), folder)
    manifest, more = settle_parts(reading, options)
    return FileSource(manifest, files, options, [f"classes from {table.name}", said, *more])


def _with_lesions(reading: Reading, folder: Path) -> tuple[Reading, str]:
    file = next((found for name in LESIONS if (found := find_below(folder, name)) and found.is_file()), None)
    if file is None:
        return reading, (
            f"no lesion ids: images of one lesion may land in two parts; put {LESIONS[0].rstrip('*')}.csv "
            f"or {LESIONS[1]} into {folder}"
        )
    cells = read_cells(file)
    image = find_column(cells, None, IMAGE_NAMES, file, "image_column")
    lesion = find_column(cells, None, ("lesion_id", *GROUP_NAMES), file, "group_column")
    if image is None or lesion is None:
        raise UserError(f"{file} should have the columns image_id and lesion_id, but has {', '.join(cells.columns)}")
    lesions = dict(zip(cells[image], cells[lesion], strict=True))
    without = [name for name in reading.table["image"] if not lesions.get(name)]
    if without:
        raise UserError(f"{file} has no lesion id for {len(without)} images, the first is {without[0]}")
    grouped = reading.table.assign(group=[lesions[name] for name in reading.table["image"]])
    return reading._replace(table=grouped.astype({"group": object})), f"lesions from {file.name}"

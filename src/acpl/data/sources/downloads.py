"""What the sources for downloaded data sets share: the folder, and a plain word on what is missing in it."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from acpl.data.sources import SourceOptions
from acpl.data.tables import Reading
from acpl.errors import UserError
from acpl.settings import unknown
from acpl.task import Task


def downloaded_folder(options: SourceOptions, expected: Sequence[str]) -> Path:
    """The folder in ``options.images``; a UserError says what it should hold."""
    holds = f"a folder that holds {', '.join(expected)}"
    if options.images is None:
        raise UserError(f"{options.data} needs 'images': {holds}")
    folder = Path(options.images).expanduser()
    if not folder.is_dir():
        raise UserError(f"images {folder} is not a folder; {options.data} needs {holds}")
    return folder


def find_below(folder: Path, pattern: str) -> Path | None:
    """The file of this name or pattern in the folder or one below; the last by name where there are several."""
    found = sorted(folder.glob(pattern)) or sorted(folder.glob(f"*/{pattern}"))
    return found[-1] if found else None


def refuse_missing(options: SourceOptions, folder: Path, missing: Iterable[str], expected: Sequence[str]) -> None:
    """UserError with everything that is missing, if anything is."""
    if missing := list(missing):
        packed = sorted(file.name for ending in ("*.tar.gz", "*.zip") for file in folder.glob(ending))
        hint = f"; unpack {', '.join(packed[:3])}{' …' if len(packed) > 3 else ''} first" if packed else ""
        raise UserError(f"{folder} lacks {' and '.join(missing)}; {options.data} expects {', '.join(expected)}{hint}")


def choose_classes(reading: Reading, classes: tuple[str, ...]) -> Reading:
    """Only these of the findings, in this order; the classes of a multi-class data set can only all be used."""
    for name in classes:
        if name not in reading.classes:
            raise unknown("class", name, reading.classes)
    if classes and reading.task is Task.MULTI_CLASS and set(classes) != set(reading.classes):
        raise UserError(f"classes should be all of {', '.join(reading.classes)}, for every image is one of them")
    chosen = [reading.classes.index(name) for name in classes or reading.classes]
    return reading._replace(classes=classes or reading.classes, labels=reading.labels[:, chosen])

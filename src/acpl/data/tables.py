"""CSV tables to manifests: which column is what, and what each row says."""

import csv
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from acpl.data.files import CONTROL, printable
from acpl.data.label_cells import (
    LabelCells,
    almost_holds_labels,
    decide_task,
    holds_labels,
    is_blank,
    read_columns,
    read_words,
    says_labels,
)
from acpl.data.manifest import PART_WORDS_HINT, Labels, part_of
from acpl.errors import UserError
from acpl.settings import unknown
from acpl.task import Task

OWN_COLUMNS = ("image", "group", "part", "role")
"""What a manifest calls its own columns; 'role' is a split file's word for who is labelled."""
MAX_TABLE_BYTES = 2**28
"""Several million rows; a table is held in memory as a whole, at about sixteen times its length."""
MAX_COLUMNS = 10_000
# Names are compared in lower case with everything but letters and digits as "_"; the first that is there is taken.
IMAGE_NAMES = (
    *("image", "image_index", "image_path", "image_file", "image_name", "image_id"),
    *("path", "file_path", "filepath", "file", "filename", "file_name"),
)
GROUP_NAMES = ("group", "patient", "patient_id", "patientid", "lesion", "lesion_id", "subject", "subject_id", "case_id")
SPLIT_NAMES = ("split", "part", "subset", "set", "partition")
LABELS_NAMES = ("labels", "label", "finding_labels")
# Taken for the labels only where no column holds 0 and 1.
OTHER_LABELS_NAMES = ("findings", "finding", "class", "cls", "diagnosis", "dx", "target")
# Never taken for a label unless it is named, even where it holds only 0 and 1.
DESCRIPTIONS = {
    *("order", "fold", "id", "index", "row", "role", "age", "sex", "gender", "male", "female"),
    *("site", "source", "view", "view_position", "follow_up", "visit"),
}


@dataclass(frozen=True)
class Columns:
    """Which column is what; None and () mean that it is to be found."""

    image: str | None = None
    group: str | None = None
    split: str | None = None
    labels: str | None = None
    classes: tuple[str, ...] = ()
    task: Task | None = None
    closed: bool = False
    """No other class than these is right, and not all need occur."""


class Reading(NamedTuple):
    """What a table says: ``table`` has image, group and what else is there; ``parts`` is None where it names none."""

    task: Task
    classes: tuple[str, ...]
    table: pd.DataFrame
    labels: Labels
    parts: npt.NDArray[np.object_] | None
    said: list[str]


def read_table(file: Path, columns: Columns) -> Reading:
    """The whole table; a UserError names the row (the header is 1) and the column of what is wrong."""
    return reading_of(read_cells(file), columns, file)


def reading_of(cells: pd.DataFrame, columns: Columns, file: Path | str) -> Reading:
    """What these cells say; ``file`` is where they are from, their index what a row is called there."""
    image = find_column(cells, columns.image, IMAGE_NAMES, file, "image_column")
    if image is None:
        raise UserError(
            f"{file} has no column that names the images, like 'image'; "
            f"say which with image_column: {', '.join(cells.columns)}"
        )
    group = find_column(cells, columns.group, GROUP_NAMES, file, "group_column")
    split = find_column(cells, columns.split, split_names(cells), file, "split_column")
    refuse_blank(cells, image, file)
    if group is not None:
        _refuse_unnamed_groups(cells, group, file)
    for column in (image, group):
        if column is not None:
            _refuse_control_characters(cells, column, file)
    refuse_duplicates(cells[image], file)
    parts = read_parts(cells, split, file) if split is not None else None

    taken = [name for name in (image, group, split) if name is not None]
    labels, label_columns, said = _read_labels(cells, columns, taken, file)
    task, reason = decide_task(labels, columns.task or labels.task, cells.index, file)
    if columns.task is None and labels.task is not None:
        reason = {
            Task.MULTI_CLASS: "multi-class, for each label is one word",
            Task.MULTI_LABEL: "multi-label, for labels are joined by '|' or say 'No Finding'",
        }[task]

    own = pd.DataFrame({"image": cells[image].astype(object)})
    own["group"] = cells[group].astype(object) if group is not None else own["image"]
    rest = cells.drop(columns=[*taken, *label_columns])
    clashes = {name: _free_name(name, cells.columns) for name in rest.columns if name in OWN_COLUMNS}
    table = pd.concat([own, rest.rename(columns=clashes).apply(_numbers)], axis=1)

    used = f"images from column '{image}'"
    used += f", groups from '{group}'" if group is not None else ", no group column: each image is its own group"
    used += f", parts from '{split}'" if split is not None else ""
    said = [used, *said, *labels.said, f"task: {reason}", *_unlabelled(labels.values)]
    said += [f"the column '{name}' is kept as '{other}'" for name, other in clashes.items()]
    return Reading(task, labels.classes, table.reset_index(drop=True), labels.values, parts, said)


def read_cells(file: Path) -> pd.DataFrame:
    """Every cell as text without the space around it; the index is the row in the file, where the header is 1."""
    separator = _separator(file)
    numbers: list[int] = []
    rows: list[list[str]] = []
    number = 0
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            for number, row in enumerate(
                csv.reader(stream, delimiter=separator, skipinitialspace=True, strict=True), 1
            ):
                cells = [cell.strip() for cell in row]
                if not any(cells) or (not rows and _is_hint("".join(row))):
                    continue
                numbers.append(number)
                rows.append(cells)
    except UnicodeDecodeError:
        raise UserError(f"{file} is not UTF-8 text; save it as 'CSV UTF-8'") from None
    except csv.Error as error:
        raise UserError(f"{file}, row {number + 1} {_parser_words(str(error))}") from None
    except OSError as error:
        raise UserError(f"{file} could not be read: {error.strerror}") from None
    if not rows:
        raise UserError(f"{file} is empty")
    header = rows[0]
    if len(header) > MAX_COLUMNS:
        raise UserError(f"{file} has {len(header)} columns; at most {MAX_COLUMNS:,} are read")
    _refuse_twice(header, file)
    if len(rows) == 1:
        raise UserError(f"{file} has no rows below its header")
    for number, row in zip(numbers, rows, strict=True):
        if len(row) != len(header):
            raise UserError(f"{file}, row {number} has {len(row)} fields, but the header has {len(header)}")
    columns = zip(header, zip(*rows[1:], strict=True), strict=True)
    # A column without a name is an index that was written along, or what follows a last comma.
    return pd.DataFrame({name: list(cells) for name, cells in columns if name}, index=numbers[1:], dtype=str)


def find_column(
    cells: pd.DataFrame, given: str | None, common: Iterable[str], file: Path | str, setting: str
) -> str | None:
    """The column that was named, or else the first of the common names that is there."""
    if given is not None:
        if given not in cells.columns:
            raise unknown(f"{setting} in {file}:", given, cells.columns)
        return given
    names = {_plain(name): name for name in reversed(cells.columns)}
    return next((names[name] for name in common if name in names), None)


def read_parts(cells: pd.DataFrame, column: str, file: Path | str) -> npt.NDArray[np.object_]:
    """Each row's part; a word that means none is refused by its row."""
    codes, words = pd.factorize(cells[column])
    parts = np.array([part_of(str(word)) for word in words], dtype=object)[codes]
    for row in np.flatnonzero(parts == None)[:1]:  # noqa: E711 — element by element
        raise UserError(
            f"{file}, row {cells.index[row]}, column '{column}': "
            f"'{cells[column].iloc[row]}' is no part; {PART_WORDS_HINT} are"
        )
    return parts


def refuse_blank(cells: pd.DataFrame, column: str, file: Path | str) -> None:
    """UserError with the first row where this column is blank."""
    blank = np.flatnonzero((cells[column] == "").to_numpy(dtype=bool))
    if len(blank):
        raise UserError(f"{file}, row {cells.index[blank[0]]}: column '{column}' is blank")


def _refuse_unnamed_groups(cells: pd.DataFrame, column: str, file: Path | str) -> None:
    """Rows without a patient would all be one."""
    blank = np.flatnonzero(is_blank(cells[column]))
    if len(blank):
        more = f" (and in {len(blank) - 1} more rows)" if len(blank) > 1 else ""
        raise UserError(
            f"{file}, row {cells.index[blank[0]]}: column '{column}' is blank{more}; write there whose image it is, "
            "such as the image's own name where it is the only one"
        )


def _refuse_control_characters(cells: pd.DataFrame, column: str, file: Path | str) -> None:
    """Names are shown to people: none may move a terminal or break a line."""
    wrong = np.flatnonzero(cells[column].str.contains(CONTROL).to_numpy(dtype=bool))
    if len(wrong):
        shown = printable(str(cells[column].iloc[wrong[0]]))[:200]
        raise UserError(f"{file}, row {cells.index[wrong[0]]}, column '{column}': '{shown}' holds control characters")


def refuse_duplicates(images: "pd.Series[str]", file: Path | str) -> None:
    """UserError with up to five of the names that stand in more than one row."""
    again = images[images.duplicated()]
    if len(again):
        shown = [f"'{name}' (row {row})" for row, name in again.items()][:5]
        more = f" and {len(again) - 5} more" if len(again) > 5 else ""
        raise UserError(f"{file} names images twice: {', '.join(shown)}{more}; each image is one row")


def _read_labels(
    cells: pd.DataFrame, columns: Columns, taken: Sequence[str], file: Path | str
) -> tuple[LabelCells, list[str], list[str]]:
    """The labels, the columns they are read from, and what is to be said of the choice."""
    free = cells.drop(columns=list(dict.fromkeys(taken)))
    words = find_column(free, columns.labels, LABELS_NAMES, file, "labels_column")
    if columns.classes and columns.labels is None and set(columns.classes) <= set(free.columns):
        return read_columns(cells, columns.classes, file), list(columns.classes), [_labels_said(columns.classes)]
    binary = [name for name in free.columns if name != words and holds_labels(free[name])]
    described = [name for name in binary if _plain(name) in DESCRIPTIONS]
    binary = [name for name in binary if name not in described]
    other = find_column(free.drop(columns=binary), None, OTHER_LABELS_NAMES, file, "labels_column")
    if words is None and not binary:
        words = other
    if words is None and not binary:
        binary = [name for name in free.columns if says_labels(free[name]) and _plain(name) not in DESCRIPTIONS]
    if words is not None:
        labels = read_words(cells[words], columns.classes, columns.task, file, closed=columns.closed)
        said = [f"labels from column '{words}': {', '.join(labels.classes)}"]
        if binary:
            said.append(f"not taken for labels: {', '.join(binary)} (to use them instead, name them in classes)")
        return labels, [words], said
    for name in columns.classes:
        if name not in free.columns:
            raise unknown(f"class in {file}:", name, free.columns)
    if not binary:
        raise UserError(
            f"{file} has no labels: neither a column that holds only 0, 1 (or yes, no; true, false) and blanks, "
            "nor one called 'labels'"
        )
    said = [_labels_said(binary)]
    if described:
        said.append(f"not taken for labels: {', '.join(described)} (to use one, name it in classes)")
    if other is not None:
        said.append(f"not taken for labels: {other} (to use it instead, name it as labels_column)")
    for name in free.columns:
        if name in binary or name == other or _plain(name) in DESCRIPTIONS:
            continue
        if (found := almost_holds_labels(free[name])) is not None:
            said.append(
                f"not taken for a label: '{name}', for it holds '{found[1]}' in row {found[0]} "
                "(write 0, 1 or nothing, or name all label columns in classes)"
            )
    return read_columns(cells, binary, file), binary, said


def _labels_said(names: Sequence[str]) -> str:
    return f"{len(names)} label column{'s' * (len(names) != 1)}: {', '.join(names)}"


def _unlabelled(labels: Labels) -> list[str]:
    missing = np.isnan(labels)
    unlabelled, partly = int(missing.any(axis=1).sum()), int((missing.any(axis=1) & ~missing.all(axis=1)).sum())
    if unlabelled == 0:
        return []
    some = f"; {partly} of them have some labels, which are not used" if partly else ""
    return [f"{unlabelled} of {len(labels)} rows have blank labels and count as unlabelled{some}"]


def split_names(cells: pd.DataFrame) -> list[str]:
    """What names the parts: 'split' always, the more common words only where the column holds nothing else."""
    meant = {
        _plain(name) for name in cells.columns if all(part_of(str(word)) is not None for word in cells[name].unique())
    }
    return [name for name in SPLIT_NAMES if name == "split" or name in meant]


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def _numbers(cells: "pd.Series[str]") -> "pd.Series[float] | pd.Series[str]":
    """Numbers where every cell that is not blank is one; otherwise the text."""
    blank = is_blank(cells)
    if blank.all():
        return cells
    numbers = pd.to_numeric(cells.mask(blank), errors="coerce")
    return cells if (numbers.isna().to_numpy() & ~blank).any() else numbers


def _refuse_twice(names: Sequence[str], file: Path) -> None:
    for name, times in Counter(names).items():
        if name and times > 1:
            raise UserError(f"{file} has the column '{name}' {times} times; each name may stand once")


def _free_name(name: str, taken: Iterable[str]) -> str:
    """Another name for a column that is called like one of ours."""
    names = set(taken)
    while name in names:
        name += " (table)"
    return name


def _separator(file: Path) -> str:
    """What stands most often in the header, outside of quotes: comma, semicolon or tab."""
    if file.exists() and not file.is_file():  # a pipe would be waited on for ever
        raise UserError(f"{file} is not a plain file")
    try:
        with file.open("rb") as stream:
            if os.fstat(stream.fileno()).st_size > MAX_TABLE_BYTES:
                raise UserError(f"{file} is longer than the {MAX_TABLE_BYTES:,} bytes of a table that are read")
            start = stream.read(1 << 16)
    except OSError as error:
        raise UserError(f"{file} could not be read: {error.strerror}") from None
    if start.startswith(b"PK"):
        raise UserError(f"{file} is a workbook or a zip, not a CSV table; save it as 'CSV UTF-8'")
    if b"\0" in start:
        raise UserError(f"{file} is not UTF-8 text; save it as 'CSV UTF-8'")
    lines = (line for line in start.decode("utf-8-sig", errors="replace").splitlines() if line.strip())
    header = next((line for line in lines if not _is_hint(line)), None)
    if header is None:
        raise UserError(f"{file} is empty")
    header = re.sub(r'"[^"]*"', "", header)
    return "\t" if file.suffix.lower() == ".tsv" else max(",;\t", key=header.count)


def _is_hint(line: str) -> bool:
    """A first line for spreadsheets, that says what stands between the cells: ``sep=;``."""
    return re.fullmatch(r'"?sep=.?"?', line.strip()) is not None


def _parser_words(message: str) -> str:
    """What Python's parser says, in our words."""
    if "unexpected end of data" in message:
        return "opens a quotation mark that is never closed"
    if "field larger" in message:
        return "has a field without end; is a quotation mark open?"
    return f"cannot be read: {message}"

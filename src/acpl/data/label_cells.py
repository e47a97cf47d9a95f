"""Cells of a table to labels: 0/1 columns, or one column of words; and which task they make."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from acpl.data.files import CONTROL, printable
from acpl.data.manifest import Labels, rows_known
from acpl.errors import UserError
from acpl.settings import unknown
from acpl.task import Task

BLANK = frozenset({"", "nan", "na", "n/a", "#n/a", "<na>", "null"})
NO_FINDING = frozenset({"no finding", "no findings"})
SEPARATOR = "|"
MAX_CLASSES = 1000
LONGEST_NAME = 200
TAKEN_NAMES = frozenset({"id", "decision"})
UNSURE = frozenset({"-1", "-1.0", "-1,0", "?", "unknown", "uncertain", "unclear"})
"""What tables write where nobody knows; whether it is a class, a no or a blank is for their owner to say."""
_NUMBERS = {"0": 0.0, "0.0": 0.0, "0,0": 0.0, "1": 1.0, "1.0": 1.0, "1,0": 1.0}
_WORDS = {"no": 0.0, "false": 0.0, "yes": 1.0, "true": 1.0}
_VALUES = {**_NUMBERS, **_WORDS}
_JOINTS = re.compile(r"[,;/+&]")


class LabelCells(NamedTuple):
    """``values`` is (rows, classes), NaN where unknown; ``task`` is None where the values are to decide it."""

    classes: tuple[str, ...]
    values: Labels
    task: Task | None = None
    said: tuple[str, ...] = ()


def is_blank(cells: "pd.Series[str]") -> npt.NDArray[np.bool_]:
    """Where nothing is written, or only a word for nothing (nan, NA)."""
    return cells.str.lower().isin(list(BLANK)).to_numpy(dtype=bool)


def holds_labels(cells: "pd.Series[str]") -> bool:
    """Whether all that is written is 0 or 1, and something is."""
    return _holds(cells, frozenset(_NUMBERS))


def says_labels(cells: "pd.Series[str]") -> bool:
    """The same in words: yes and no, true and false."""
    return _holds(cells, frozenset(_WORDS))


def almost_holds_labels(cells: "pd.Series[str]") -> tuple[object, str] | None:
    """Row and value of the first cell that is neither 0, 1 nor blank, where at most one in ten is, or a single one
    among zeros and ones, or where all the others are words for yes, no or not sure."""
    written = cells[~is_blank(cells)].str.lower()
    numbers = written.isin(list(_NUMBERS))
    strange = written[~numbers]
    if len(strange) == 0:
        return None
    single = len(strange) == 1 and len({_NUMBERS[cell] for cell in written[numbers]}) == 2
    meant = bool(strange.isin([*_WORDS, *UNSURE]).all())
    if 10 * len(strange) > len(written) and not single and not meant:
        return None
    return strange.index[0], str(cells[strange.index[0]])


def _holds(cells: "pd.Series[str]", meant: frozenset[str]) -> bool:
    words = {word for word in (str(word).lower() for word in cells.unique()) if word not in BLANK}
    return bool(words) and words <= meant


def check_classes(classes: Sequence[str], file: Path | str) -> None:
    """UserError where there are more than can be learnt, or a name could be taken for something else."""
    if len(classes) > MAX_CLASSES:
        raise UserError(f"{file} has {len(classes)} classes; at most {MAX_CLASSES:,} are learnt")
    for name in classes:
        if name in TAKEN_NAMES:
            raise UserError(f"{file}: a class cannot be called '{name}', for predictions have a column of that name")
        if CONTROL.search(name) or len(name) > LONGEST_NAME:
            shown = printable(name)[:LONGEST_NAME]
            raise UserError(f"{file}: '{shown}' is no class, for it is too long or holds control characters")


def read_columns(table: pd.DataFrame, columns: Sequence[str], file: Path | str) -> LabelCells:
    """One 0/1 column a class; another value is refused by its row."""
    check_classes(columns, file)
    values = np.empty((len(table), len(columns)), dtype=np.float32)
    for position, name in enumerate(columns):
        codes, words = pd.factorize(table[name])
        meaning = [np.nan if word.lower() in BLANK else _VALUES.get(word.lower(), -1.0) for word in map(str, words)]
        values[:, position] = np.array(meaning, dtype=np.float32)[codes]
        wrong = np.flatnonzero(values[:, position] < 0)
        if len(wrong):
            raise UserError(
                f"{file}, row {table.index[wrong[0]]}, column '{name}': "
                f"'{table[name].iloc[wrong[0]]}' is no label; 0, 1 or blank is (blank where nobody knows)"
            )
    return LabelCells(tuple(columns), values)


def read_words(
    cells: "pd.Series[str]", classes: Sequence[str], task: Task | None, file: Path | str, *, closed: bool = False
) -> LabelCells:
    """One column of class names, or of several joined by ``|``; "No Finding" is none of them, blank is unknown.

    Without a ``|`` or a "No Finding" anywhere the words are classes that exclude each other. ``classes`` names
    those to use, in this order: other findings are left out of account, but another class of a multi-class column
    is refused, and so is any other word where the classes are ``closed``, which need then not all occur.
    """
    codes, words = pd.factorize(cells)
    texts = ["" if word.lower() in BLANK else word for word in map(str, words)]
    if task is None:
        several = any(SEPARATOR in text or text.lower() in NO_FINDING for text in texts)
        task = Task.MULTI_LABEL if several else Task.MULTI_CLASS
    parts = [_parts(text, task) for text in texts]
    for text, names in zip(texts, parts, strict=True):
        if names is None:
            raise _refused(cells, text, file, "'No Finding' excludes every other, and none between two '|' is blank")
    found = sorted({name for names in parts for name in names or ()}, key=_number_first)
    for name in found:
        if len(joined := [part.strip() for part in _JOINTS.split(name)]) > 1 and set(joined) <= set(found):
            raise _refused(cells, name, file, f"it is several classes; they are joined by '{SEPARATOR}'", within=True)
    said = [
        f"'{name}' is taken for a class; leave the cell blank where nobody knows"
        for name in found
        if name.lower() in UNSURE and (not classes or name in classes)
    ]
    for name in classes:
        if name not in found and not closed:
            raise unknown(f"class in {file}, column '{cells.name}',", name, found)
    used = tuple(classes) or tuple(found)
    _refuse_free_text(cells, codes, texts, found, file)
    check_classes(used, file)
    for text, names in zip(texts, parts, strict=True):
        strange = [name for name in names or () if name not in used]
        if strange and (closed or task is Task.MULTI_CLASS):
            raise _refused(cells, text, file, f"'{strange[0]}' is none of the classes {', '.join(used)}")
    if set(found) - set(used):
        said.append(f"findings left out of account: {', '.join(name for name in found if name not in used)}")

    column = {name: position for position, name in enumerate(used)}
    meaning = np.zeros((len(texts), len(used)), dtype=np.float32)
    for row, (text, names) in enumerate(zip(texts, parts, strict=True)):
        meaning[row] = np.nan if text == "" else 0
        meaning[row, [column[name] for name in names or () if name in column]] = 1
    return LabelCells(used, meaning[codes], task, tuple(said))


def decide_task(labels: LabelCells, asked: Task | None, rows: pd.Index, file: Path | str) -> tuple[Task, str]:
    """The task, and a sentence on where it comes from; labels that contradict a task asked for are refused."""
    known = rows_known(labels.values)
    if not known.any():
        raise UserError(f"{file} has no row with all of its labels, so there is nothing to learn from")
    positives = labels.values.sum(axis=1)
    single = positives == 1
    one_each = bool(single[known].all()) and len(labels.classes) > 1
    if asked is Task.MULTI_CLASS and not one_each:
        if len(labels.classes) < 2:
            raise UserError(f"{file} has one class, {labels.classes[0]}, but multi-class needs at least two")
        row = int(np.flatnonzero(known & ~single)[0])
        raise UserError(
            f"{file}, row {rows[row]}: {int(positives[row])} classes are positive, but multi-class needs exactly one"
        )
    if asked is not None:
        return asked, f"{asked}, as asked"
    if one_each:
        return Task.MULTI_CLASS, "multi-class, for every labelled row has exactly one of the classes"
    if len(labels.classes) == 1:
        if labels.task is Task.MULTI_CLASS:
            raise UserError(f"{file} has one class, {labels.classes[0]}; a second is needed to tell it from")
        return Task.MULTI_LABEL, "multi-label, for there is one label column"
    count = int((known & ~single).sum())
    return Task.MULTI_LABEL, f"multi-label, for {count} of {int(known.sum())} labelled rows have none or several"


def _parts(text: str, task: Task) -> list[str] | None:
    """The classes that a cell names; None where it contradicts itself."""
    if text == "":
        return []
    names = [name.strip() for name in text.split(SEPARATOR)] if task is Task.MULTI_LABEL else [text]
    if task is Task.MULTI_LABEL and len(names) == 1 and text.lower() in NO_FINDING:
        return []
    if task is Task.MULTI_LABEL and any(name == "" or name.lower() in NO_FINDING for name in names):
        return None
    return names


def _refused(cells: "pd.Series[str]", text: str, file: Path | str, why: str, *, within: bool = False) -> UserError:
    there = cells.str.contains(text, regex=False) if within else cells == text
    row = cells.index[np.flatnonzero(there.to_numpy(dtype=bool))[0]]
    return UserError(f"{file}, row {row}, column '{cells.name}': '{text}' is no label, for {why}")


def _refuse_free_text(
    cells: "pd.Series[str]", codes: npt.NDArray[np.int64], texts: list[str], found: list[str], file: Path | str
) -> None:
    known = int(sum(texts[code] != "" for code in codes))
    if known >= 20 and len(found) > known / 2:
        raise UserError(
            f"{file}, column '{cells.name}': {len(found)} different classes in {known} rows are no classes; "
            "name another labels_column, or the 0/1 columns in classes"
        )


def _number_first(name: str) -> tuple[int, str]:
    return (int(name), "") if name.isdecimal() else (1 << 62, name)

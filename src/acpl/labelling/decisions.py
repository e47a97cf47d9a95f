"""What a person decided: saved at once, undone on request, taken up again by the next session."""

import csv
import json
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import IO, Any, NamedTuple

from acpl.engine.writing import append_line
from acpl.errors import UserError
from acpl.labelling.label_table import LabelTable
from acpl.task import Task

HEADER = ("time", "id", "image", "action", "labels")
UNDONE, ACCEPTED, CORRECTED = "undone", "accepted", "corrected"


class Decided(NamedTuple):
    """The classes that a person saw in an image, and whether this was proposed."""

    labels: tuple[str, ...]
    action: str


@dataclass(frozen=True)
class Question:
    """An image that may be decided, and what is proposed for it."""

    image: str
    proposal: tuple[str, ...]


class Decisions:
    """Every decision in one log, which only grows, and the table of labels that follows from it.

    The log has each decision on disk before it is answered; the table is written whole beside and renamed. Another
    session with the same files goes on where this one stopped.
    """

    def __init__(
        self,
        log: Path,
        table: LabelTable,
        questions: Mapping[int, Question],
        *,
        task: Task,
        classes: Sequence[str],
    ) -> None:
        self.log = log
        self.table = table
        self.task = task
        self.classes = tuple(classes)
        self._questions = questions
        self._lock = threading.Lock()
        self._made: list[tuple[int, Decided]] = []
        self._held = _hold(log)
        try:
            self._replay()
        except UserError:
            self.close()
            raise
        self.table.write()

    def close(self) -> None:
        """Let another session have the files."""
        self._held.close()

    @property
    def current(self) -> dict[int, Decided]:
        """The decision that stands, by id."""
        return dict(self._made)

    def decide(self, sample: int, labels: Collection[str]) -> Decided:
        """These classes, and no others, are in this image; ValueError where that cannot be."""
        question = self._questions.get(sample)
        if question is None:
            raise ValueError(f"{sample} is no image of this review")
        strange = [name for name in labels if name not in self.classes]
        if strange:
            raise ValueError(f"{strange[0]} is no class")
        if self.task is Task.MULTI_CLASS and len(set(labels)) != 1:
            raise ValueError(f"an image has exactly one class, but {len(set(labels))} were given")
        ordered = tuple(name for name in self.classes if name in labels)
        decided = Decided(ordered, ACCEPTED if ordered == question.proposal else CORRECTED)
        with self._lock:
            self._append(sample, question.image, decided.action, ordered)
            self._made.append((sample, decided))
            self.table.set(sample, ordered)
            self.table.write()
        return decided

    def undo(self) -> int | None:
        """Take the last decision back, and say which image it was about; what was decided of it before stands again."""
        with self._lock:
            if not self._made:
                return None
            sample, _ = self._made[-1]
            self._append(sample, self._image(sample), UNDONE, ())
            self._take_back()
            self.table.write()
        return sample

    def _take_back(self) -> None:
        sample, _ = self._made.pop()
        before = self.current.get(sample)
        self.table.set(sample, None if before is None else before.labels)

    def _image(self, sample: int) -> str:
        return self.table.image(sample)

    def _append(self, sample: int, image: str, action: str, labels: Sequence[str]) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self._append_row([now, sample, image, action, json.dumps(list(labels))])

    def _append_row(self, row: Sequence[Any]) -> None:
        """A whole row or none; a line that a crash cut off is taken away first."""
        stream = StringIO()
        csv.writer(stream, lineterminator="").writerow(row)
        append_line(self.log, stream.getvalue(), sync=True)

    def _replay(self) -> None:
        if self.log.stat().st_size == 0:
            self._append_row(HEADER)
        content = self.log.read_bytes()
        content = content[: content.rfind(b"\n") + 1]  # a torn last line is no decision; the next one takes its place
        try:
            rows = list(csv.reader(StringIO(content.decode())))
        except UnicodeDecodeError:
            raise UserError(f"{self.log} is no log of decisions; choose another --out") from None
        before = self.table.text()
        for number, row in enumerate(rows, 1):
            if number == len(rows):
                before = self.table.text()
            if tuple(row) == HEADER:
                continue
            try:
                sample, image, action, labels = int(row[1]), row[2], row[3], tuple(json.loads(row[4]))
                if self._image(sample) != image:
                    raise ValueError(f"{sample} is another image")
            except (IndexError, ValueError, KeyError) as error:
                raise UserError(
                    f"{self.log}, row {number} is no decision about this run ({error}); choose another --out"
                ) from None
            if action == UNDONE:
                if self._made:
                    self._take_back()
            else:
                self._made.append((sample, Decided(labels, action)))
                self.table.set(sample, labels)
        self._refuse_edited(before)

    def _refuse_edited(self, before: str) -> None:
        """The table is written anew, and must be as we left it: with all decisions, or short of the last by a crash."""
        if not self.table.path.exists():
            return
        found = _cells(self.table.path.read_bytes().decode(errors="replace"))
        if found not in (_cells(self.table.text()), _cells(before)):
            raise UserError(
                f"{self.table.path} is not as this review left it: it or the data set's own table was changed since; "
                "keep it under another name, or choose another --out, nothing is ever written over"
            )


def _cells(table: str) -> list[list[str]]:
    return list(csv.reader(StringIO(table)))


def _hold(log: Path) -> IO[bytes]:
    """The log, open and locked: two sessions that write to the same files would undo each other's work."""
    held = log.open("ab")
    try:
        import fcntl

        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:  # Windows: nothing holds a second session off there
        pass
    except OSError:
        held.close()
        raise UserError(f"another review is writing to {log}; end it first, or choose another --out") from None
    return held

"""Shards as work for several processes: each is read once, as a stream, and kept whole or not at all.

A process that dies over an image leaves a journal behind, in which the image was begun and not ended: the next one
goes on behind it. What is kept of a shard is appended to one file that all shards of a data set share.
"""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple

import numpy as np

from acpl.data.addresses import Shard
from acpl.data.decode import Decoding, decode, is_grey
from acpl.data.files import BadImage, printable, without_suffix
from acpl.data.limits import Limits
from acpl.data.streams import Stream, Unreachable
from acpl.data.tars import BadShard, Member, members

IMAGES, JOURNAL, INDEX, END, LOCK = "images.u8", "journal", ".jsonl", "end", "lock"
MAX_SIDECAR_BYTES = 2**20
LONGEST_COLUMN = 200
LABELS = ("labels", "label", "finding_labels", "findings")
"""Columns in which an empty list says that there is nothing, rather than that nothing is known."""
Record = dict[str, Any]


class Kept(NamedTuple):
    """What became of a shard: None is well, else why it could not be fetched now."""

    reason: str | None = None


class ShardJob(NamedTuple):
    """Every shard's images decoded, or with ``how`` None only looked at, into ``folder``."""

    shards: Sequence[Shard]
    folder: Path
    how: Decoding | None
    wanted: Path | None
    """Sorted hashes of the names that are asked for (``name_hash``); None asks for all."""
    mark: str
    """Ends the names of what is not whole yet."""

    @property
    def names(self) -> list[str]:
        """The shards' names."""
        return [shard.name for shard in self.shards]

    def do(self, rows: range) -> list[Kept]:
        """These shards read and kept."""
        return [self._keep(self.shards[row]) for row in rows]

    def failed(self, reason: str) -> Kept:
        """A shard that ends its process before or behind its images."""
        return Kept(reason)

    def again(self, row: int, reason: str) -> bool:
        """After a process has died over this shard: whether the image it died over is known, and blamed."""
        path = self._part(self.shards[row]) / JOURNAL
        if not path.exists():
            return False
        with closing(Journal(path)) as journal:
            if journal.begun is None:
                return False
            journal.end({"image": journal.begun["begin"], "digest": None, "reason": reason, "row": None})
        return True

    def _part(self, shard: Shard) -> Path:
        return self.folder / f"{shard.key}{self.mark}"

    def _keep(self, shard: Shard) -> Kept:
        if (self.folder / f"{shard.key}{INDEX}").exists():
            return Kept()
        part = self._part(shard)
        part.mkdir(exist_ok=True)
        try:
            with closing(Journal(part / JOURNAL)) as journal:
                summary = self._read(shard, part, journal)
        except Unreachable as error:
            shutil.rmtree(part, ignore_errors=True)
            return Kept(str(error))
        self._publish(shard, part, summary, journal.records)
        shutil.rmtree(part, ignore_errors=True)
        return Kept()

    def _read(self, shard: Shard, part: Path, journal: "Journal") -> Record:
        """All members; what is to be said of the shard itself."""
        limits = Limits.chosen()
        wanted = _Wanted(self.wanted)
        fault = None
        with (
            closing(Stream(shard.copy or shard.address, journal.place)) as stream,
            _pixels_file(part, journal, self.how) as pixels,
        ):
            try:
                for member in members(stream):
                    if not wanted(member):
                        continue
                    journal.begin(member)
                    with limits.bound_time():  # from the first byte read to the last pixel
                        record = self._record(member, journal, pixels, limits)
                    journal.end(record)
            except BadShard as bad:
                fault = str(bad)
        others = sorted({record["other"] for record in journal.records if "other" in record})
        return {"shard": shard.name, "images": journal.good, "fault": fault, "others": others}

    def _record(self, member: Member, journal: "Journal", pixels: IO[bytes], limits: Limits) -> Record:
        if member.is_sidecar:
            return _sidecar(member)
        digest = None
        try:
            content = member.read()
            if content is None:
                return {"other": member.suffix}
            digest = hashlib.blake2b(content, digest_size=16).hexdigest()
            kept: Record = {"image": member.name, "digest": digest, "reason": None, "row": journal.good}
            if self.how is None:
                from acpl.data.check.scan import look_at_content

                return kept | {"seen": list(look_at_content(content))}
            pixels.write(decode(content, self.how).data)
            return kept
        except BadImage as bad:
            reason = str(bad)
        except MemoryError:
            reason = limits.too_large
        return {"image": member.name, "digest": digest, "reason": reason, "row": None}

    def _publish(self, shard: Shard, part: Path, summary: Record, records: Sequence[Record]) -> None:
        """Append the pixels to those of all shards, then name the index: without it they do not count."""
        index = self.folder / f"{shard.key}{INDEX}"
        bytes_each = self.how.channels * self.how.size**2 if self.how is not None else 0
        with _locked(self.folder):
            if index.exists():
                return
            start = read_end(self.folder)
            with (self.folder / IMAGES).open("ab") as all_pixels, (part / IMAGES).open("rb") as pixels:
                all_pixels.truncate(start * bytes_each)  # what a process appended that was killed before the end
                all_pixels.seek(0, os.SEEK_END)
                shutil.copyfileobj(pixels, all_pixels, 2**23)
                _sync(all_pixels)
            new_end = part / END
            new_end.write_text(str(start + summary["images"]), encoding="ascii")
            new_end.replace(self.folder / END)
            new_index = part / INDEX
            with new_index.open("w", encoding="ascii") as file:
                for record in records:
                    if "other" not in record:
                        file.write(json.dumps(record) + "\n")
                file.write(json.dumps(summary | {"start": start}) + "\n")
                _sync(file)
            new_index.replace(index)


class Journal:
    """What has been done of a shard, a line a member, so that another process can go on."""

    def __init__(self, path: Path) -> None:
        self.records: list[Record] = []
        self.begun: Record | None = None
        """What the last process had in hand."""
        self.place = 0
        """Where the next member begins."""
        for line in path.read_bytes().splitlines() if path.exists() else ():
            record = json.loads(line)
            if "begin" in record:
                self.begun, self.place = record, record["following"]
            else:
                self.records.append(record)
                self.begun = None
        self.good = sum(record.get("row") is not None for record in self.records)
        """How many images are decoded."""
        self._file = path.open("ab", buffering=0)  # what is written is there, however this process ends

    def begin(self, member: Member) -> None:
        """This member is in hand."""
        self._write({"begin": member.name, "following": member.following})

    def end(self, record: Record) -> None:
        """It is done."""
        self._write(record)
        self.records.append(record)
        self.good += record.get("row") is not None

    def close(self) -> None:
        """Nothing more is to be noted."""
        self._file.close()

    def _write(self, record: Record) -> None:
        self._file.write(json.dumps(record).encode() + b"\n")


class ShardGreyJob(NamedTuple):
    """Whether the first images of each of these shards are grey; None where none can be read."""

    shards: Sequence[Shard]
    images: int

    @property
    def names(self) -> list[str]:
        """The shards' names."""
        return [shard.name for shard in self.shards]

    def do(self, rows: range) -> list[bool | None]:
        """A look at the beginning of these shards."""
        return [self._grey(self.shards[row]) for row in rows]

    def failed(self, reason: str) -> bool | None:
        """What cannot be read has no colour."""
        return None

    def _grey(self, shard: Shard) -> bool | None:
        found: list[bool] = []
        try:
            with closing(Stream(shard.copy or shard.address)) as stream:
                for member in members(stream):
                    try:
                        content = None if member.is_sidecar else member.read()
                        if content is not None:
                            found.append(is_grey(content))
                    except BadImage:
                        continue
                    if len(found) == self.images:
                        break
        except (BadShard, Unreachable):
            pass
        return all(found) if found else None


def name_hash(name: str) -> int:
    """Of what tables and shards have in common of an image's name: neither its folders nor its suffix."""
    base = without_suffix(name.replace("\\", "/").rpartition("/")[2])
    return int.from_bytes(hashlib.blake2b(base.encode(errors="surrogatepass"), digest_size=8).digest(), "little")


def read_end(folder: Path) -> int:
    """How many images the shards that are kept have together."""
    try:
        return int((folder / END).read_text(encoding="ascii"))
    except FileNotFoundError:
        return 0


class _Wanted:
    def __init__(self, file: Path | None) -> None:
        self._hashes = None if file is None else np.memmap(file, np.uint64, "r") if file.stat().st_size else np.empty(0)

    def __call__(self, member: Member) -> bool:
        if self._hashes is None:
            return True
        if member.is_sidecar:  # a table has the labels
            return False
        wanted = np.uint64(name_hash(member.name))
        place = int(np.searchsorted(self._hashes, wanted))
        return place < len(self._hashes) and bool(self._hashes[place] == wanted)


def _sidecar(member: Member) -> Record:
    """What stands beside an image, as the cells of a table's row; or why it cannot be read."""
    record: Record = {"of": member.name.removesuffix(PurePosixPath(member.name).suffix), "name": member.name}
    try:
        content = member.read() or b""
        if len(content) > MAX_SIDECAR_BYTES:
            raise BadImage(f"it is longer than the {MAX_SIDECAR_BYTES:,} bytes that are read beside an image")
        text = content.decode("utf-8-sig")
        cells = {"cls": text.strip()} if member.suffix == ".cls" else _cells(json.loads(text))
        return record | {"cells": cells}
    except BadImage as bad:
        reason = str(bad)
    except UnicodeDecodeError:
        reason = "it is not UTF-8 text"
    except (ValueError, RecursionError):
        reason = "it is not JSON"
    return record | {"reason": reason}


def _cells(values: Any) -> dict[str, str]:
    if not isinstance(values, dict):
        raise BadImage('it should be a JSON object, like {"labels": "Mass"}')
    named = {printable(name.strip())[:LONGEST_COLUMN]: value for name, value in values.items()}
    return {name: cell for name, value in named.items() if name and (cell := _cell(name, value)) is not None}


def _cell(name: str, value: Any) -> str | None:
    """A value as a table has it; lists of words are joined as labels are; what is nested deeper is left out."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, str | int | float):
        return str(value).strip()
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        nothing = "No Finding" if name.lower() in LABELS else ""
        return "|".join(part.strip() for part in value) or nothing
    return None


@contextmanager
def _pixels_file(part: Path, journal: Journal, how: Decoding | None) -> Iterator[IO[bytes]]:
    """The shard's own pixels, cut to what the journal knows of."""
    with (part / IMAGES).open("ab", buffering=0) as file:
        file.truncate(journal.good * how.channels * how.size**2 if how is not None else 0)
        yield file


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _sync(file: IO[Any]) -> None:
    file.flush()
    os.fsync(file.fileno())

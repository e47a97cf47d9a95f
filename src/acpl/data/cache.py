"""Decoded images on disk: each file is decoded once for each setting, however many runs follow."""

import errno
import hashlib
import importlib.metadata
import json
import mmap
import os
import shutil
import socket
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from acpl.data.decode import Decoding
from acpl.data.decode_job import DecodeJob, Outcome
from acpl.data.files import BadImage, ImageFiles
from acpl.data.journal import NAME as JOURNAL
from acpl.data.journal import Journal
from acpl.data.workers import Progress, do_all, nothing
from acpl.errors import UserError

VERSION = 2
"""Of how files are read: raised whenever the same file comes to other pixels."""
DECODERS = ("pillow", "pydicom", "python-gdcm", "pylibjpeg", "pylibjpeg-libjpeg", "pylibjpeg-openjpeg", "pyjpegls")
"""A store made by other versions is not used: what they read, and how, may differ."""
IMAGES, INDEX = "images.u8", "index.json"
PART = ".part-"
LEFT = "left"
"""In the place of a process: who began this store was stopped."""
FORGOTTEN = 24 * 3600
"""Seconds after which an unfinished store of another machine is taken for dead, and nobody will go on with one."""


class BadFile(NamedTuple):
    """A file that could not be read, by its name in the table."""

    name: str
    reason: str


class Stored(NamedTuple):
    """The images that could be read, and what is known of the others."""

    images: npt.NDArray[np.uint8]
    """(images, channels, size, size), mapped from disk; what is written to it stays in this process."""
    rows: npt.NDArray[np.int64]
    """Which of the names each image belongs to, ascending."""
    bad: list[BadFile]
    digests: list[str]
    """Of each image's file content: equal digests, equal files."""


def build_store(
    files: ImageFiles,
    names: Sequence[str],
    how: Decoding,
    *,
    cache: Path,
    workers: int | None = None,
    progress: Progress = nothing,
) -> Stored:
    """The images of these names, decoded now or found in ``cache``.

    ``names`` are as a table has them and are looked up with ``files.find``. The store is keyed by settings, stored
    names and fingerprints, so that finding it reads no image. It is built beside and renamed: what bears the key's
    name is whole. A build that was cut short is gone on with, and of a store with files that no process got to read
    (one that crashed its reader, a disk that was away) only those are tried again.
    """
    bad: dict[int, str] = {}
    rows: list[int] = []
    stored_names: list[str] = []
    key = key_of(how, files.origin)
    files.ask(names)
    for row, name in enumerate(names):
        try:
            stored_names.append(files.find(name))
            size, mark = files.fingerprint(stored_names[-1])
        except BadImage as reason:
            del stored_names[len(rows) :]
            bad[row] = str(reason)
        else:
            rows.append(row)
            key.update(f"{stored_names[-1]}\0{size}\0{mark}\0".encode(errors="surrogateescape"))
    folder = cache / key.hexdigest()
    index = _read_index(folder, how)
    if index is None or _unread(index):
        try:
            index = _build(folder, DecodeJob(files, stored_names, how, folder), index, workers, progress)
        except BrokenPipeError:  # whoever was shown the progress has gone
            raise
        except OSError as error:
            raise UserError(no_room(cache, error)) from error
    places = np.asarray(rows, dtype=np.int64)
    bad |= {rows[place]: reason for place, reason in index["bad"]}
    return Stored(
        images=mapped(folder / IMAGES, how, len(index["good"])),
        rows=places[np.asarray(index["good"], dtype=np.int64)],
        bad=[BadFile(names[row], bad[row]) for row in sorted(bad)],
        digests=index["digests"],
    )


def key_of(how: Decoding, *more: str) -> "hashlib.blake2b":
    """Of all that decides what comes of a file, whichever it is; and of ``more``."""
    versions = [_version(package) for package in DECODERS]
    settings = [VERSION, versions, how.size, how.channels, how.aspect, *more]
    return hashlib.blake2b(json.dumps(settings).encode(), digest_size=16)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _read_index(folder: Path, how: Decoding) -> dict[str, Any] | None:
    """What a finished store holds; None where there is none or it is damaged."""
    try:
        index: dict[str, Any] = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        whole = (folder / IMAGES).stat().st_size == len(index["good"]) * _bytes_each(how)
    except (OSError, ValueError, KeyError):
        return None
    return index if whole else None


def _unread(index: dict[str, Any]) -> set[int]:
    """The rows that no process got to read."""
    retry = index["retry"]  # stores made before only said whether there are any
    return {row for row, _ in index["bad"]} if retry is True else set(retry or ())


def _build(
    folder: Path, job: DecodeJob, before: dict[str, Any] | None, workers: int | None, progress: Progress
) -> dict[str, Any]:
    cache = folder.parent
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)  # what is decoded here may be of patients
    part = cache / f"{folder.name}{part_mark()}"
    job = job._replace(target=part / IMAGES)
    journal = Journal(part, job.target)
    try:
        known = _known(before) | _taken_over(folder, part, journal)
        part.mkdir(exist_ok=True)
        job.target.touch()
        left = [row for row in range(len(job.names)) if row not in known]
        _make_room(cache, len(left) * _bytes_each(job.how))

        def told(what: str, done: int, total: int) -> None:
            journal.keep_now_and_then()
            progress(what, len(known) + done, len(known) + total)

        found = dict(
            zip(
                left,
                do_all(job, "decoding", rows=left, workers=workers, progress=told, heard=journal.note),
                strict=True,
            )
        )
        if before is not None:
            if _unread(before) == {row for row, outcome in found.items() if outcome.digest is None}:
                return before | {
                    "bad": [[row, found[row].reason if row in found else why] for row, why in before["bad"]]
                }
            _copy_images(folder, job, before["good"])
        known |= found
        journal.forget()
        _finish(part, job, [known[row] for row in range(len(job.names))])
        _publish(part, folder, job.how)
    except KeyboardInterrupt:
        journal.keep()
        with suppress(OSError):
            part.rename(cache / f"{folder.name}{PART}{LEFT}@{socket.gethostname()}")
        raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
    index = _read_index(folder, job.how)
    if index is None:
        raise OSError(f"{folder.name} was removed as soon as it was made")
    return index


def _known(before: dict[str, Any] | None) -> dict[int, Outcome]:
    """What a store says of the rows that were read. A bad file's digest is not kept: that it has one is what counts."""
    if before is None:
        return {}
    unread = _unread(before)
    good = {row: Outcome(digest, None) for row, digest in zip(before["good"], before["digests"], strict=True)}
    return good | {row: Outcome("", reason) for row, reason in before["bad"] if row not in unread}


def _taken_over(folder: Path, part: Path, journal: Journal) -> dict[int, Outcome]:
    """What a build of the same store, whose process is dead, was done with; its images are ours now."""
    for other in folder.parent.glob(f"{folder.name}{PART}*"):
        if _dead(other):
            with suppress(OSError):
                other.rename(part)
                known = journal.read()
                if known:
                    return known
                shutil.rmtree(part)
    return {}


def _copy_images(folder: Path, job: DecodeJob, good: Sequence[int]) -> None:
    """The images of the store that is there, each to its row."""
    bytes_each = _bytes_each(job.how)
    with (folder / IMAGES).open("rb") as old, job.target.open("r+b") as new:
        for row in good:
            new.seek(row * bytes_each)
            new.write(old.read(bytes_each))


def _make_room(cache: Path, needed: int) -> None:
    """Remove what nobody will go on with; where room is short, whatever dead builds have left."""
    sweep(cache)
    if needed > shutil.disk_usage(cache).free:
        sweep(cache, 0)
    free = shutil.disk_usage(cache).free
    if needed > free:
        raise OSError(errno.ENOSPC, f"{needed / 1e9:.1f} GB are needed and {free / 1e9:.1f} GB are free")


def _finish(part: Path, job: DecodeJob, outcomes: list[Outcome]) -> None:
    good = [row for row, outcome in enumerate(outcomes) if outcome.reason is None]
    _close_gaps(part / IMAGES, good, _bytes_each(job.how))
    index = {
        "good": good,
        "digests": [outcomes[row].digest for row in good],
        "bad": [[row, outcome.reason] for row, outcome in enumerate(outcomes) if outcome.reason is not None],
        # Not the file's fault: it may be read next time.
        "retry": [row for row, outcome in enumerate(outcomes) if outcome.digest is None],
    }
    with (part / INDEX).open("w", encoding="utf-8") as file:
        json.dump(index, file)
        file.flush()
        os.fsync(file.fileno())


def _close_gaps(path: Path, good: list[int], bytes_each: int) -> None:
    """Move the images that are there up to where the bad ones would have been."""
    with path.open("r+b") as file:
        for place, row in enumerate(good):
            if place != row:
                file.seek(row * bytes_each)
                image = file.read(bytes_each)
                file.seek(place * bytes_each)
                file.write(image)
        file.truncate(len(good) * bytes_each)
        file.flush()
        os.fsync(file.fileno())


def _publish(part: Path, folder: Path, how: Decoding) -> None:
    """Rename; where another process was faster, its store is as good."""
    try:
        part.rename(folder)
    except OSError:
        if not folder.exists():
            raise
        other = _read_index(folder, how)
        if other is None or _unread(other):
            shutil.rmtree(folder)
            part.rename(folder)


def part_mark() -> str:
    """Ends the name of what this thread builds, so that another can tell when nobody does any more."""
    return f"{PART}{os.getpid()}-{threading.get_ident()}@{socket.gethostname()}"


def sweep(cache: Path, age: float = FORGOTTEN) -> None:
    """Remove what builds that are dead have left and not touched for so many seconds."""
    for part in cache.glob(f"*{PART}*"):
        if _dead(part) and (_age(part) >= age or not (part / JOURNAL).exists()):
            shutil.rmtree(part, ignore_errors=True)


def _dead(part: Path) -> bool:
    """Whether whoever began this store will not end it."""
    owner, _, host = part.name.partition(PART)[2].partition("@")
    pid = owner.partition("-")[0]
    if host != socket.gethostname():
        return _age(part) > FORGOTTEN
    return owner == LEFT or (pid.isdigit() and not _alive(int(pid)))


def _alive(pid: int) -> bool:
    if os.name == "nt":  # there, asking is killing
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _age(part: Path) -> float:
    try:
        return time.time() - max(entry.stat().st_mtime for entry in (part, *part.iterdir()))
    except OSError:
        return 0.0


def mapped(path: Path, how: Decoding, count: int) -> npt.NDArray[np.uint8]:
    """(count, channels, size, size) of a file; no memory is set aside for it, however large it is."""
    shape = (count, how.channels, how.size, how.size)
    if count == 0:
        return np.zeros(shape, dtype=np.uint8)
    if not hasattr(mmap, "MAP_PRIVATE"):
        return np.memmap(path, np.uint8, "c", shape=shape)
    # A private map that may be written to is counted as memory, and refused when there is less, unless it is said
    # that it need not be.
    unreserved = mmap.MAP_PRIVATE | getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)
    with path.open("rb") as file:
        length = count * _bytes_each(how)
        view = mmap.mmap(file.fileno(), length, flags=unreserved, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    return np.frombuffer(view, np.uint8).reshape(shape)


def _bytes_each(how: Decoding) -> int:
    return how.channels * how.size**2


def no_room(cache: Path, error: OSError) -> str:
    """Why nothing can be kept there, and what would help."""
    why = " ".join((error.strerror or str(error)).split())
    return f"decoded images cannot be kept in {cache}: {why}; name a folder that can hold them in ACPL_CACHE"

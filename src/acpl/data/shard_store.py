"""What shards hold: decoded once into one file for all of them, with an index for each."""

import fcntl
import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from acpl.data.addresses import Shard, filesystem
from acpl.data.cache import BadFile, key_of, mapped, no_room, part_mark, sweep
from acpl.data.decode import Decoding
from acpl.data.files import printable, without_suffix
from acpl.data.shard_job import IMAGES, INDEX, Record, ShardGreyJob, ShardJob, name_hash, read_end
from acpl.data.workers import Progress, do_all, nothing
from acpl.errors import UserError

GLANCE = Decoding(size=64, channels=3)
COLOUR_SAMPLE = 64
MAX_SHARED = 100_000
"""Different cells that are kept once; labels and parts are few, patients are not."""
ONLY_HERE = ("memory://",)
"""Stores that no other process can see."""


class ShardContent(NamedTuple):
    """What shards hold, in their order; by column, for there may be many millions of images."""

    shards: list[str]
    """Names."""
    names: list[str]
    """Of the images, as they are called in their tars."""
    shard: npt.NDArray[np.int32]
    """(images,): the place of each image's shard in ``shards``."""
    rows: npt.NDArray[np.int64]
    """(images,): where its pixels are; -1 for one that could not be read."""
    reasons: dict[int, str]
    """Why some could not, by their places in ``names``."""
    seen: dict[int, list[Any]]
    """What one look gave, where images were only looked at."""
    cells: dict[str, list[str]]
    """What stands beside the images, as the columns of a table; blank where nothing does."""
    alone: npt.NDArray[np.bool_]
    """(images,): nothing that can be read stands beside it."""
    bad_beside: dict[int, BadFile]
    """What stands beside an image and cannot be read."""
    faults: list[BadFile]
    """Shards that are damaged; what could be read of them is among the images."""
    others: list[str]
    """Suffixes of members that are neither images nor beside one."""
    pixels: npt.NDArray[np.uint8]
    """(images of all shards that were ever decoded here, channels, size, size)"""

    def shown(self, place: int) -> str:
        """An image's name for people."""
        return f"{self.shards[self.shard[place]]}/{printable(self.names[place])}"


def read_shards(
    shards: Sequence[Shard],
    how: Decoding | None,
    *,
    cache: Path,
    wanted: Sequence[str] | None = None,
    workers: int | None = None,
    progress: Progress = nothing,
) -> ShardContent:
    """The shards' images, decoded now or found in ``cache``; with ``how`` None they are only looked at.

    Shards that are done are not fetched again, whatever becomes of the others. With ``wanted`` only images that could
    be meant by one of these names are decoded.
    """
    hashes = None if wanted is None else np.unique(np.array([name_hash(name) for name in wanted], dtype=np.uint64))
    folder = cache / f"shards-{_family(shards, how, hashes)}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # what is decoded here may be of patients
        with _alone(folder, progress):
            sweep(folder)
            asked = None if hashes is None else _write_once(folder / "wanted.u64", hashes)
            mark = part_mark()
            try:
                _read_missing(shards, ShardJob(shards, folder, how, asked, mark), workers, progress)
            finally:
                for part in folder.glob(f"*{mark}"):
                    shutil.rmtree(part, ignore_errors=True)
    except BrokenPipeError:  # whoever was shown the progress has gone
        raise
    except OSError as error:
        raise UserError(no_room(cache, error)) from error
    return _content(shards, folder, how)


def first_are_grey(shards: Sequence[Shard], workers: int | None = None) -> bool:
    """Whether some 64 images, the first of shards spread over all, are grey; bad ones do not count."""
    chosen = np.unique(np.linspace(0, len(shards) - 1, min(COLOUR_SAMPLE, len(shards))).astype(int))
    with _reachable([shards[place] for place in chosen]) as sample:
        job = ShardGreyJob(sample, -(-COLOUR_SAMPLE // len(chosen)))
        seen = do_all(job, "looking for colour", workers=workers, chunk=1)
    known = [grey for grey in seen if grey is not None]
    return bool(known) and all(known)


def _family(shards: Sequence[Shard], how: Decoding | None, hashes: npt.NDArray[np.uint64] | None) -> str:
    """One for all shards that lie together, so that those added later join the ones that are decoded."""
    asked = "all" if hashes is None else hashlib.blake2b(hashes.tobytes(), digest_size=16).hexdigest()
    purpose = "decoded" if how is not None else "seen"
    place = shards[0].address.rpartition("/")[0]
    return key_of(how or GLANCE, "shards", purpose, place, asked).hexdigest()


def _read_missing(shards: Sequence[Shard], job: ShardJob, workers: int | None, progress: Progress) -> None:
    missing = [shard for shard in shards if not _index_of(shard, job.folder).exists()]
    what = "decoding shards" if job.how is not None else "reading shards"
    if not missing:
        progress(what, len(shards), len(shards))
        return
    with _reachable(missing) as within_reach:
        results = do_all(job._replace(shards=within_reach), what, workers=workers, progress=progress, chunk=1)
    failed = [(shard, kept.reason) for shard, kept in zip(missing, results, strict=True) if kept.reason is not None]
    if failed:
        shard, reason = failed[0]
        done = len(shards) - len(failed)
        rest = f"; {done} of {len(shards)} shards are done and will not be read again" if done else ""
        raise UserError(f"{shard.name}: {reason}{rest}")


@contextmanager
def _alone(folder: Path, progress: Progress) -> Iterator[None]:
    """One process at a time, so that those that want the same wait for the first to have read it."""
    with (folder / "reading").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting for another process that reads the same shards", 0, 0)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _reachable(shards: Sequence[Shard]) -> Iterator[list[Shard]]:
    """The shards where other processes can read them; those of this process's own memory are written out first."""
    with tempfile.TemporaryDirectory(prefix="acpl-") as folder:
        yield [_written_out(shard, Path(folder)) if shard.address.startswith(ONLY_HERE) else shard for shard in shards]


def _written_out(shard: Shard, folder: Path) -> Shard:
    """A copy under the same key."""
    system, path = filesystem(shard.address)
    copy = folder / f"{shard.key}.tar"
    system.get_file(path, str(copy))
    return shard._replace(copy=str(copy))


def _write_once(path: Path, hashes: npt.NDArray[np.uint64]) -> Path:
    """Another process may have mapped it: it is never written over."""
    if not path.exists():
        part = path.with_name(path.name + part_mark())
        hashes.tofile(part)
        part.replace(path)
    return path


def _index_of(shard: Shard, folder: Path) -> Path:
    return folder / f"{shard.key}{INDEX}"


def _content(shards: Sequence[Shard], folder: Path, how: Decoding | None) -> ShardContent:
    content = ShardContent(
        *([shard.name for shard in shards], [], np.empty(0, np.int32), np.empty(0, np.int64), {}, {}, {}),
        *(np.empty(0, bool), {}, [], [], np.zeros((0, 1, 1, 1), np.uint8)),
    )
    counts: list[int] = []
    rows: list[npt.NDArray[np.int64]] = []
    alone: list[npt.NDArray[np.bool_]] = []
    others: set[str] = set()
    shared: dict[str, str] = {}
    for shard in shards:
        *records, summary = _records(_index_of(shard, folder))
        images = [record for record in records if "image" in record]
        beside: dict[str, list[Record]] = {}
        for record in records:
            if "of" in record:
                beside.setdefault(record["of"], []).append(record)
        start = len(content.names)
        for place, image in enumerate(images, start):
            content.names.append(image["image"])
            if image["reason"] is not None:
                content.reasons[place] = image["reason"]
            if "seen" in image:
                content.seen[place] = image["seen"]
        there = [-1 if image["row"] is None else summary["start"] + image["row"] for image in images]
        rows.append(np.array(there, dtype=np.int64))
        alone.append(_take_cells(content, images, beside, start, shard.name, shared))
        counts.append(len(images))
        others.update(summary["others"])
        if summary["fault"] is not None:
            content.faults.append(BadFile(shard.name, summary["fault"]))
    return content._replace(
        shard=np.repeat(np.arange(len(shards), dtype=np.int32), counts),
        rows=np.concatenate(rows),
        alone=np.concatenate(alone),
        others=sorted(others),
        pixels=content.pixels if how is None else mapped(folder / IMAGES, how, read_end(folder)),
    )


def _take_cells(
    content: ShardContent,
    images: Sequence[Record],
    beside: dict[str, list[Record]],
    start: int,
    shard: str,
    shared: dict[str, str],
) -> npt.NDArray[np.bool_]:
    """Each image's cells at the ends of their columns; which images have none. Equal cells are kept once."""
    columns: dict[str, list[str]] = {}
    alone = np.ones(len(images), dtype=bool)
    for place, image in enumerate(images):
        for record in beside.get(without_suffix(image["image"]), ()):
            if "reason" in record:
                content.bad_beside[start + place] = BadFile(f"{shard}/{printable(record['name'])}", record["reason"])
                continue
            alone[place] = False
            for name, cell in record["cells"].items():
                if len(shared) < MAX_SHARED:
                    shared.setdefault(cell, cell)
                if name not in columns:
                    columns[name] = [""] * len(images)
                columns[name][place] = shared.get(cell, cell)
    for name in {**content.cells, **columns}:
        content.cells.setdefault(name, [""] * start).extend(columns.get(name) or [""] * len(images))
    return alone


def _records(path: Path) -> list[Record]:
    try:
        with path.open("rb") as file:
            return [json.loads(line) for line in file]
    except (OSError, ValueError) as error:
        raise UserError(f"the cache of decoded images is damaged: {path} ({error}); delete {path.parent}") from None

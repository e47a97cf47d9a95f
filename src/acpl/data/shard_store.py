"""What shards hold: decoded once into one file for all of them, with an index for each."""

import fcntl
import hashlib
import json
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
from acpl.data.files import printable
from acpl.data.shard_job import IMAGES, INDEX, Record, ShardGreyJob, ShardJob, name_hash, read_end
from acpl.data.workers import Progress, do_all, nothing
from acpl.errors import UserError

GLANCE = Decoding(size=64, channels=3)
COLOUR_SAMPLE = 64
ONLY_HERE = ("memory://",)
"""Stores that no other process can see."""


class ShardImage(NamedTuple):
    """An image in a shard."""

    name: str
    """As it is called in the tar."""
    shard: str
    row: int
    """Its place among all decoded images; -1 for one that could not be read."""
    reason: str | None
    seen: list[Any] | None
    """What one look gave, where it was only looked at."""

    @property
    def shown(self) -> str:
        """Its name for people."""
        return f"{self.shard}/{printable(self.name)}"


class Beside(NamedTuple):
    """What stands beside an image in a shard: cells of a row, or why they cannot be read."""

    name: str
    cells: dict[str, str]
    reason: str | None


class ShardContent(NamedTuple):
    """What shards hold, in their order."""

    images: list[ShardImage]
    beside: dict[tuple[str, str], list[Beside]]
    """By shard and name without suffix."""
    faults: list[BadFile]
    """Shards that are damaged; what could be read of them is among the images."""
    others: list[str]
    """Suffixes of members that are neither images nor beside one."""
    pixels: npt.NDArray[np.uint8]
    """(images of all shards that were ever decoded here, channels, size, size)"""


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
            _read_missing(shards, ShardJob(shards, folder, how, asked, part_mark()), workers, progress)
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
    images: list[ShardImage] = []
    beside: dict[tuple[str, str], list[Beside]] = {}
    faults: list[BadFile] = []
    others: set[str] = set()
    for shard in shards:
        *records, summary = _records(_index_of(shard, folder))
        for record in records:
            if "of" in record:
                found = Beside(record["name"], record.get("cells", {}), record.get("reason"))
                beside.setdefault((shard.name, record["of"]), []).append(found)
            else:
                row = -1 if record["row"] is None else summary["start"] + record["row"]
                images.append(ShardImage(record["image"], shard.name, row, record["reason"], record.get("seen")))
        others.update(summary["others"])
        if summary["fault"] is not None:
            faults.append(BadFile(shard.name, summary["fault"]))
    pixels = np.zeros((0, 1, 1, 1), np.uint8) if how is None else mapped(folder / IMAGES, how, read_end(folder))
    return ShardContent(images, beside, faults, sorted(others), pixels)


def _records(path: Path) -> list[Record]:
    try:
        with path.open("rb") as file:
            return [json.loads(line) for line in file]
    except (OSError, ValueError) as error:
        raise UserError(f"the cache of decoded images is damaged: {path} ({error}); delete {path.parent}") from None

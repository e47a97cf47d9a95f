"""Building the image store against plain Pillow in a process pool, and from tars against a folder: ratios.

python benchmarks/data.py [--data $ACPL_DATA] [--size 128] [--repeats 5] [--json FILE]

Plain Pillow opens, converts and resizes each image and throws it away; the store also checks, orients, digests and
writes it to disk. Both times include the start of their processes. Each ratio is of two medians, runs alternating:
that of processor time holds on a machine that others use, too. The floor: the bytes of the zip read and those of the
store written, as fast as memory is copied here; what lies between is decoding.

The second table takes the same images from a folder of files and from 16 tar shards on the same disk.
"""

import argparse
import json
import multiprocessing
import os
import platform
import statistics
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import torch
from PIL import Image
from timing import ceilings

from acpl.data.addresses import find_shards
from acpl.data.cache import build_store
from acpl.data.decode import Decoding
from acpl.data.files import ImageFiles
from acpl.data.shard_store import read_shards

PACKS = {"cxr14-subset": 1, "ham10000": 3}
SHARDS = 16
opened: dict[str, zipfile.ZipFile] = {}


def open_zip(path: Path) -> None:
    """Each process of the plain pool opens the zip once."""
    opened["zip"] = zipfile.ZipFile(path)


def plain(task: tuple[str, int, int]) -> None:
    """What everybody writes first."""
    name, size, channels = task
    with Image.open(BytesIO(opened["zip"].read(name))) as image:
        image.convert("L" if channels == 1 else "RGB").resize((size, size), Image.Resampling.BICUBIC)


def plain_pool(path: Path, names: list[str], how: Decoding, workers: int) -> None:
    """All names through ``plain``."""
    tasks = [(name, how.size, how.channels) for name in names]
    with multiprocessing.get_context("fork").Pool(workers, open_zip, (path,)) as pool:
        for _ in pool.imap_unordered(plain, tasks, chunksize=64):
            pass


def store(path: Path, names: list[str], how: Decoding, workers: int, cache: str) -> None:
    """All names into a store."""
    stored = build_store(ImageFiles.open(path), names, how, cache=Path(cache), workers=workers)
    assert len(stored.rows) == len(names), stored.bad[:3]


def unpack(path: Path, names: list[str], folder: Path) -> None:
    """The zip's images as files in ``folder/files``, and as tars beside it."""
    (folder / "files").mkdir()
    with zipfile.ZipFile(path) as packed:
        for shard in range(SHARDS):
            with tarfile.open(folder / f"scans-{shard:03d}.tar", "w") as tar:
                for name in names[shard::SHARDS]:
                    content = packed.read(name)
                    (folder / "files" / Path(name).name).write_bytes(content)
                    info = tarfile.TarInfo(Path(name).name)
                    info.size = len(content)
                    tar.addfile(info, BytesIO(content))


def shards(folder: Path, count: int, how: Decoding, workers: int, cache: str) -> None:
    """All shards decoded and kept."""
    content = read_shards(find_shards(f"{folder}/scans-*.tar"), how, cache=Path(cache), workers=workers)
    assert len(content.pixels) == count, content.faults[:3]


def against_a_folder(path: Path, how: Decoding, workers: int, repeats: int) -> dict[str, float]:
    """Images a second from a folder and from shards, by turns."""
    names = ImageFiles.open(path).names()
    runs = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        unpack(path, names, folder)
        files = [Path(name).name for name in names]
        for _ in range(repeats):
            with tempfile.TemporaryDirectory() as cache:
                in_files = seconds(store, folder / "files", files, how, workers, cache)
                in_shards = seconds(shards, folder, len(names), how, workers, cache)
                again = seconds(shards, folder, len(names), how, workers, cache)[0]
                runs.append((*in_files, *in_shards, again))
    files_time, files_cpu, shards_time, shards_cpu, again = map(statistics.median, zip(*runs, strict=True))
    return {
        "images": len(names),
        "folder images/s": len(names) / files_time,
        "shards images/s": len(names) / shards_time,
        "ratio": files_time / shards_time,
        "ratio of CPU time": files_cpu / shards_cpu,
        "seconds found again": again,
    }


def seconds(work: Callable[..., object], *arguments: object, **more: object) -> tuple[float, float]:
    """How long one call takes, and what the processor spends on it in this process and those it starts."""
    start, spent = time.perf_counter(), sum(os.times()[:4])
    work(*arguments, **more)
    return time.perf_counter() - start, sum(os.times()[:4]) - spent


def main() -> None:
    """Measure, print a table, write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("ACPL_DATA"))
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    if asked.data is None:
        parser.error("set ACPL_DATA or --data to the folder of cxr14-subset and ham10000")
    print(f"{asked.size} pixels, {asked.workers} processes, {os.cpu_count()} cores, {platform.machine()}")
    print(f"{'':<14}{'images':>8}{'plain Pillow':>16}{'store':>12}{'ratio':>8}{'of CPU time':>14}{'found again':>14}")
    rows = {}
    copies = ceilings(torch.device("cpu"), torch.float32)[1]
    for pack, channels in PACKS.items():
        path, how = asked.data / pack / "images.zip", Decoding(asked.size, channels)
        names = ImageFiles.open(path).names()
        runs = []
        for _ in range(asked.repeats):
            with tempfile.TemporaryDirectory() as cache:
                by_pillow = seconds(plain_pool, path, names, how, asked.workers)
                by_store = seconds(store, path, names, how, asked.workers, cache)
                again = seconds(store, path, names, how, asked.workers, cache)[0]
                runs.append((*by_pillow, *by_store, again))
        plain_time, plain_cpu, store_time, store_cpu, again = map(statistics.median, zip(*runs, strict=True))
        read, written = path.stat().st_size, len(names) * channels * asked.size**2
        rows[pack] = {
            "images": len(names),
            "plain images/s": len(names) / plain_time,
            "store images/s": len(names) / store_time,
            "ratio": plain_time / store_time,
            "ratio of CPU time": plain_cpu / store_cpu,
            "seconds found again": again,
            "floor bytes": read + written,
            "floor seconds": (read + written) / copies,
        }
        print(
            f"{pack:<14}{len(names):>8}{len(names) / plain_time:>14,.0f}/s{len(names) / store_time:>10,.0f}/s"
            f"{plain_time / store_time:>8.2f}{plain_cpu / store_cpu:>14.2f}{again:>12.2f} s\n"
            f"{'':<14}floor: {read / 2**20:,.0f} MiB read, {written / 2**20:,.0f} MiB written, "
            f"{(read + written) / copies:.2f} s of the store's {store_time:.2f}",
            flush=True,
        )
    print(f"\n{'':<14}{'images':>8}{'folder':>16}{'16 shards':>12}{'ratio':>8}{'of CPU time':>14}{'found again':>14}")
    in_shards = {}
    for pack, channels in PACKS.items():
        path = asked.data / pack / "images.zip"
        found = against_a_folder(path, Decoding(asked.size, channels), asked.workers, asked.repeats)
        in_shards[pack] = found
        print(
            f"{pack:<14}{found['images']:>8}{found['folder images/s']:>14,.0f}/s{found['shards images/s']:>10,.0f}/s"
            f"{found['ratio']:>8.2f}{found['ratio of CPU time']:>14.2f}{found['seconds found again']:>12.2f} s",
            flush=True,
        )
    if asked.json:
        told = {"cores": os.cpu_count(), "size": asked.size, "packs": rows, "shards": in_shards}
        asked.json.write_text(json.dumps(told, indent=2))


if __name__ == "__main__":
    main()

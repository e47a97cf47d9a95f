"""Building the image store against plain Pillow in a process pool, on the same files and cores: a ratio.

python benchmarks/data.py [--data $ACPL_DATA] [--size 128] [--repeats 5] [--json FILE]

Plain Pillow opens, converts and resizes each image and throws it away; the store also checks, orients, digests and
writes it to disk. Both times include the start of their processes. Each ratio is of two medians, runs alternating:
that of processor time holds on a machine that others use, too. The floor: the bytes of the zip read and those of the
store written, as fast as memory is copied here; what lies between is decoding.
"""

import argparse
import json
import multiprocessing
import os
import platform
import statistics
import tempfile
import time
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import torch
from PIL import Image
from timing import ceilings

from acpl.data.cache import build_store
from acpl.data.decode import Decoding
from acpl.data.files import ImageFiles

PACKS = {"cxr14-subset": 1, "ham10000": 3}
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
    if asked.json:
        asked.json.write_text(json.dumps({"cores": os.cpu_count(), "size": asked.size, "packs": rows}, indent=2))


if __name__ == "__main__":
    main()

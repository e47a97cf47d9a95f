"""A stage over up to ten million features on disk: time and memory, and the line through them.

OMP_NUM_THREADS=2 python benchmarks/scale.py [--largest 10000000] [--k 20] [--folder DIR] [--json FILE]
OMP_NUM_THREADS=2 python benchmarks/scale.py --approximate [--json FILE]

Made-up features (a few findings a sample, mixed into non-negative features as pooled activations are) are written in
shards, 256 float32 a sample, and deleted afterwards. Each size is measured in a process of its own, whose data segment
is limited to 4 GiB; what it reports is its wall clock, its processor time, which also holds on a machine that others
use, and its peak of resident memory, libraries included. A stage is everything from features to who joins the anchors:
neighbours both ways, density, mixture, neighbours' labels, connections, purification.

With --approximate, an inverted file (Faiss) against exact neighbours, in memory.
"""

import argparse
import json
import os
import platform
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from acpl import functional
from acpl.algorithms.surroundings import surroundings
from acpl.engine.feature_shards import SHARD_BYTES, RowsWriter, ShardedRows
from acpl.functional.group import ALONE

WIDTH, CLASSES, LIMIT, STEP = 256, 14, 4 * 2**30, 2**16
Row = dict[str, float]


def features(rows: int, seed: int) -> Tensor:
    """Made-up features, float32 ``(rows, 256)``."""
    generator = torch.Generator().manual_seed(seed)
    findings = torch.randn(24, WIDTH, generator=torch.Generator().manual_seed(0)) / 2
    present = torch.rand(rows, 24, generator=generator).pow_(4)
    noise = torch.randn(rows, WIDTH, generator=generator).mul_(0.5)
    return noise.addmm_(present, findings).add_(0.2).relu_()


def write(rows: int, folder: Path) -> None:
    """Features in shards, a block at a time."""
    writer = RowsWriter(folder, "features", WIDTH)
    for start in range(0, rows, STEP):
        writer.add(features(min(STEP, rows - start), seed=start + 1))


def opened(rows: int, folder: Path) -> ShardedRows:
    """The first ``rows`` of what was written."""
    most = SHARD_BYTES // (4 * WIDTH)
    files = sorted(folder.glob("features-*.f32"))[: -(-rows // most)]
    return ShardedRows(files, [min(most, rows - number * most) for number in range(len(files))], WIDTH)


def measure(rows: int, anchors: int, k: int, folder: Path) -> Row:
    """One stage in this process: what it took."""
    resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))
    unlabelled, near = opened(rows, folder), features(anchors, seed=0)
    labels = (torch.rand(anchors, CLASSES, generator=torch.Generator().manual_seed(2)) < 0.1).float()
    before = status("VmRSS")
    wall, spent = time.perf_counter(), time.process_time()
    found = surroundings(unlabelled, near, labels, k, ALONE)
    surveyed = time.perf_counter()
    chosen = functional.select(functional.information(found.density).level, 3, "high").nonzero().flatten()
    fitted = time.perf_counter()
    joins = functional.purify(found.connections(chosen))
    done = time.perf_counter()
    return {
        "unlabelled": rows,
        "anchors": anchors,
        "k": k,
        "seconds": done - wall,
        "neighbours_seconds": surveyed - wall,
        "mixture_seconds": fitted - surveyed,
        "purification_seconds": done - fitted,
        "cpu_seconds": time.process_time() - spent,
        "peak_bytes": status("VmHWM"),
        "at_start_bytes": before,
        "selected": len(chosen),
        "joined": int(joins.sum()),
    }


def status(what: str) -> int:
    """A figure of this process, in bytes."""
    found = re.search(rf"{what}:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
    assert found is not None
    return 1024 * int(found[1])


def apart(rows: int, anchors: int, k: int, folder: Path) -> Row:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--folder", str(folder), "--one", str(rows), str(anchors), "--k", str(k)]
    # Threads that wait would spend processor time on a machine that others use, too.
    quiet = {**os.environ, "OMP_WAIT_POLICY": "passive"}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=quiet)
    row: Row = json.loads(done.stdout.splitlines()[-1])
    return row


def fit(rows: list[Row]) -> dict[str, float]:
    """Processor seconds as a · unlabelled + b · unlabelled · anchors; peak memory as c + d · unlabelled."""
    names = ("unlabelled", "anchors", "cpu_seconds", "peak_bytes")
    n, a, spent, peak = (np.array([row[name] for row in rows]) for name in names)
    terms = np.stack([n, n * a], axis=1)
    cost, *_ = np.linalg.lstsq(terms / spent[:, None], np.ones(len(rows)), rcond=None)  # relative errors
    memory = np.polyfit(n, peak, 1)
    same = [row for row in rows if row["anchors"] == rows[0]["anchors"]]
    exponent = np.polyfit(np.log([r["unlabelled"] for r in same]), np.log([r["cpu_seconds"] for r in same]), 1)[0]
    return {
        "seconds_per_sample": float(cost[0]),
        "seconds_per_pair": float(cost[1]),
        "worst_relative_error": float(np.abs(terms @ cost / spent - 1).max()),
        "exponent_of_unlabelled": float(exponent),
        "bytes_per_sample": float(memory[0]),
        "bytes_at_none": float(memory[1]),
    }


def grow(asked: argparse.Namespace) -> dict[str, Any]:
    """All sizes, a table and the fitted line."""
    largest = asked.largest
    sizes = [(largest // 10**place, 1000) for place in (2, 1, 0)]
    sizes += [(count, 2000) for count, _ in sizes[:2]]
    rows = []
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        folder = Path(name)
        started = time.perf_counter()
        write(largest, folder)
        print(f"{largest:,} features of {WIDTH} written in {time.perf_counter() - started:.0f} s")
        print(
            "| unlabelled | anchors | on disk | wall clock | processor | ns a pair | peak memory | joined / selected |"
        )
        print("|---|---|---|---|---|---|---|---|", flush=True)
        for count, anchors in sizes:
            row = apart(count, anchors, asked.k, folder)
            rows.append(row)
            print(
                f"| {count:,} | {anchors:,} | {4 * WIDTH * count / 2**30:.2f} GiB | {row['seconds']:.1f} s "
                f"| {row['cpu_seconds']:.1f} s | {1e9 * row['cpu_seconds'] / (count * anchors):.1f} "
                f"| {row['peak_bytes'] / 2**20:,.0f} MiB | {row['joined']:,.0f} of {row['selected']:,.0f} |",
                flush=True,
            )
    line = fit(rows)
    print(
        f"processor seconds = {line['seconds_per_sample']:.2e} · unlabelled + {line['seconds_per_pair']:.2e} · "
        f"unlabelled · anchors, off by {line['worst_relative_error']:.0%} at most; with unlabelled alone they grow "
        f"to the power {line['exponent_of_unlabelled']:.2f}\n"
        f"peak memory = {line['bytes_at_none'] / 2**20:,.0f} MiB + {line['bytes_per_sample']:.0f} bytes a sample, "
        f"whose features take {4 * WIDTH:,}"
    )
    return {"rows": rows, "fit": line}


def approximate(asked: argparse.Namespace) -> dict[str, Any]:
    """An inverted file against exact neighbours: time, recall and how many selections change."""
    count, rows = 20_000, []
    unlabelled = torch.cat([features(STEP, seed=start + 1) for start in range(0, count, STEP)])[:count]
    print("| unlabelled | anchors | exact | inverted file | ratio | recall | other selections |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for anchors in (2_000, 8_000, 32_000):
        near, labels = torch.cat([features(min(STEP, anchors), seed=0)])[:anchors], torch.zeros(anchors, 1)
        took, chosen = [], []
        for ivf in (False, True):
            spent = time.process_time()
            found = surroundings(unlabelled, near, labels, asked.k, ALONE, approximate=ivf)
            took.append(time.process_time() - spent)
            chosen.append(functional.select(functional.information(found.density).level, 3, "high"))
        _, recall = found.against_exact(found.sample(), near, asked.k)
        changed = float((chosen[0] != chosen[1]).double().mean())
        selected = float(chosen[0].double().mean())
        rows.append({"unlabelled": count, "anchors": anchors, "exact": took[0], "ivf": took[1], "recall": recall})
        rows[-1] |= {"changed": changed, "selected": selected}
        print(
            f"| {count:,} | {anchors:,} | {took[0]:.1f} s | {took[1]:.1f} s | {took[0] / took[1]:.1f} × | {recall:.1%} "
            f"| {changed:.2%} of all samples ({selected:.1%} are selected) |",
            flush=True,
        )
    return {"rows": rows}


def main() -> None:
    """Measure, print a table, write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=int, default=10_000_000, help="the most unlabelled features")
    parser.add_argument("--k", type=int, default=20)
    parser.add_argument("--folder", type=Path, help="where features are written; the system's temporary folder")
    parser.add_argument("--approximate", action="store_true", help="an inverted file against exact neighbours")
    parser.add_argument("--one", type=int, nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measure(*asked.one, asked.k, asked.folder)))
        return
    machine = (
        f"{torch.get_num_threads()} threads, {os.cpu_count()} cores, {platform.machine()}, torch {torch.__version__}"
    )
    print(f"K = {asked.k}; {machine}")
    report = approximate(asked) if asked.approximate else grow(asked)
    if asked.json:
        asked.json.write_text(json.dumps({"machine": machine, "k": asked.k, **report}, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()

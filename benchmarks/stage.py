"""One stage, from features to connections: this project and the published way, in one process.

python benchmarks/stage.py [--device cpu|cuda] [--small] [--grow 10] [--threads 2] [--json FILE]

The default is Chest X-ray14's 2 % scale. Features are made up: a few findings a sample, mixed into non-negative
features as pooled activations are, or, with --random, uniform numbers, whose cosines lie so close together that low
precision can prove least. Times are wall clock and, on the CPU, processor time, which also holds on a machine that
others use; ours are the best of a few runs on the CPU and the median on a GPU. Peak memory is what the run adds to
the features, its results included. With --grow the queries are multiplied, for this project alone.
"""

import argparse
import json
import os
import platform
import re
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import published_stage as published
import torch
from torch import Tensor

from acpl import functional

FULL = {"queries": 84_807, "anchors": 1_717, "features": 1_024, "k": 200}
SMALL = {"queries": 10_000, "anchors": 600, "features": 512, "k": 60}
Row = dict[str, float]


def features(rows: int, width: int, seed: int, device: str, random: bool) -> Tensor:
    """Made-up features, float32 ``(rows, width)``."""
    generator = torch.Generator().manual_seed(seed)
    if random:
        return torch.rand(rows, width, generator=generator).to(device)
    findings = torch.randn(24, width, generator=torch.Generator().manual_seed(0)) / 2
    made = torch.empty(rows, width)
    for start in range(0, rows, 8192):
        part = made[start : start + 8192]
        present = torch.rand(len(part), 24, generator=generator).pow_(4)
        torch.randn(part.shape, generator=generator, out=part).mul_(0.5).addmm_(present, findings).add_(0.2).relu_()
    return made.to(device)


class Meter:
    """Seconds, processor seconds and peak memory of calls."""

    def __init__(self, device: str, repeats: int) -> None:
        self.cuda, self.repeats = device == "cuda", repeats

    def __call__(self, work: Callable[[], Any], repeats: int | None = None) -> tuple[Any, Row]:
        """What the work returns, and what it took."""
        runs, peaks, result = [], [], None
        for _ in range(self.repeats if repeats is None else repeats):
            result = None  # not to be counted as what was there before
            before = self._start()
            wall, spent = time.perf_counter(), time.process_time()
            result = work()
            if self.cuda:
                torch.cuda.synchronize()
            runs.append((time.perf_counter() - wall, time.process_time() - spent))
            peaks.append(self._peak() - before)
        pick = statistics.median if self.cuda else min
        wall, spent = (pick(each) for each in zip(*runs, strict=True))
        return result, {"seconds": wall, "cpu_seconds": spent, "peak_bytes": max(peaks)}

    def _start(self) -> int:
        if self.cuda:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            return torch.cuda.memory_allocated()
        reset = Path("/proc/self/clear_refs")
        if reset.exists():
            reset.write_text("5", encoding="ascii")  # the peak starts again from what is held now
        return self._status("VmRSS")

    def _peak(self) -> int:
        return torch.cuda.max_memory_allocated() if self.cuda else self._status("VmHWM")

    @staticmethod
    def _status(what: str) -> int:
        status = Path("/proc/self/status")
        found = re.search(rf"{what}:\s+(\d+) kB", status.read_text(encoding="ascii")) if status.exists() else None
        return 1024 * int(found[1]) if found else 0


def total(rows: dict[str, Row]) -> Row:
    """The whole of the parts."""
    summed = {name: sum(row[name] for row in rows.values()) for name in ("seconds", "cpu_seconds")}
    return {**summed, "peak_bytes": max(row["peak_bytes"] for row in rows.values())}


def ours(queries: Tensor, anchors: Tensor, k: int, meter: Meter) -> tuple[dict[str, Row], Tensor]:
    """This project's stage by parts, and which samples it selected."""
    found, searched = meter(lambda: functional.mutual_nearest(queries, anchors, k))
    levels, fitted = meter(lambda: functional.information(functional.density(found.similarity)))
    selected = functional.select(levels.level, 3, "high").nonzero().flatten()
    near = found.forward[selected]
    purify = functional.purify
    _, purified = meter(lambda: purify(functional.connections(near, found.backward, selected)))
    return {"neighbours, both ways": searched, "density, mixture": fitted, "purification": purified}, selected


def whole(queries: Tensor, anchors: Tensor, k: int) -> Tensor:
    """This project's stage in one go, as training calls it."""
    found = functional.mutual_nearest(queries, anchors, k)
    level = functional.information(functional.density(found.similarity)).level
    selected = functional.select(level, 3, "high").nonzero().flatten()
    return functional.purify(functional.connections(found.forward[selected], found.backward, selected))


def theirs(queries: Tensor, anchors: Tensor, k: int, selected: Tensor, meter: Meter) -> dict[str, Row]:
    """The published way by parts; its loop over the samples that this project selected, so that both do one work."""
    (similarity, forward, backward), searched = meter(lambda: published.neighbours(queries, anchors, k), 1)
    _, fitted = meter(lambda: published.mixture(similarity), 1)
    _, purified = meter(lambda: published.purification(forward, backward, selected), 1)
    return {"neighbours, both ways": searched, "density, mixture": fitted, "purification": purified}


def floor(size: dict[str, int], device: str) -> dict[str, float]:
    """What the stage cannot do without, and how fast this machine does it."""
    n, a, d, k = size["queries"], size["anchors"], size["features"], size["k"]
    sample = min(n, 8192)
    meter = Meter(device, 5)
    left, right = torch.rand(sample, d, device=device), torch.rand(a, d, device=device)
    left_low, right_low = left.bfloat16(), right.bfloat16()
    for work in (lambda: left @ right.T, lambda: left_low @ right_low.T):
        work()
    single = meter(lambda: left @ right.T)[1]["seconds"] / sample * n
    low = meter(lambda: left_low @ right_low.T)[1]["seconds"] / sample * n
    copy = meter(lambda: left + 1)[1]["seconds"] / (2 * left.nbytes)
    read, written = 4 * d * (n + a), n * k * 12 + a * k * 8
    return {
        "operations": 2.0 * n * a * d,
        "bytes": float(read + written),
        "float32_product_seconds": single,
        "bfloat16_product_seconds": low,
        "bytes_seconds": (read + written) * copy,
    }


def table(mine: dict[str, Row], other: dict[str, Row]) -> None:
    """Print both ways side by side."""
    print(f"{'':<24}{'published way':>22}{'here':>20}{'ratio':>8}{'of CPU time':>13}")
    for name in mine:
        a, b = other[name], mine[name]
        print(
            f"{name:<24}{a['seconds']:>10.3f} s {a['peak_bytes'] / 2**20:>6.0f} MiB"
            f"{b['seconds']:>8.3f} s {b['peak_bytes'] / 2**20:>6.0f} MiB"
            f"{a['seconds'] / b['seconds']:>8.1f}{a['cpu_seconds'] / b['cpu_seconds']:>13.1f}"
        )


def main() -> None:
    """Measure, print a table, write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--small", action="store_true", help="a size that takes seconds")
    parser.add_argument("--random", action="store_true", help="uniform random features")
    parser.add_argument("--grow", type=int, help="measure this project alone with so many times the queries")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    for name, value in FULL.items():
        parser.add_argument(f"--{name}", type=int, help=f"{value:,} unless told")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    size = {name: getattr(asked, name) or value for name, value in (SMALL if asked.small else FULL).items()}
    k = size["k"]
    where = torch.cuda.get_device_name() if asked.device == "cuda" else f"{asked.threads} threads"
    print(
        f"{size['queries']:,} unlabelled × {size['anchors']:,} anchors × {size['features']:,} features, K = {k}; "
        f"{where}, {os.cpu_count()} cores, {platform.machine()}, torch {torch.__version__}"
    )
    queries = features(size["queries"] * (asked.grow or 1), size["features"], 1, asked.device, asked.random)
    anchors = features(size["anchors"], size["features"], 2, asked.device, asked.random)
    meter = Meter(asked.device, asked.repeats)
    for _ in range(2):
        whole(queries[: size["queries"] // 10], anchors, k)
    report: dict[str, Any] = {"size": size, "device": where, "torch": torch.__version__, "random": asked.random}
    if asked.grow:
        report["growth"] = {}
        for count in (size["queries"], size["queries"] * asked.grow):
            _, row = meter(lambda count=count: whole(queries[:count], anchors, k))
            results = count * min(k, len(anchors)) * 12 + len(anchors) * k * 8
            report["growth"][count] = {**row, "result_bytes": results}
            print(
                f"{count:>12,} queries {row['seconds']:>9.3f} s, processor {row['cpu_seconds']:>9.3f} s, peak "
                f"{row['peak_bytes'] / 2**20:>7.0f} MiB, of which results {results / 2**20:>7.0f} MiB"
            )
        first, last = report["growth"].values()
        for name in ("seconds", "cpu_seconds"):
            print(f"{name} grow {last[name] / first[name]:.2f} × for {asked.grow} × the queries")
    else:
        whole(queries, anchors, k)
        mine, selected = ours(queries, anchors, k, meter)
        mine["whole stage"] = meter(lambda: whole(queries, anchors, k))[1]
        other = theirs(queries, anchors, k, selected, meter)
        other["whole stage"] = total(other)
        table(mine, other)
        rest = other["whole stage"]["seconds"] - other["purification"]["seconds"]
        print(f"without the published purification: {rest / mine['whole stage']['seconds']:.1f} ×")
        bottom = floor(size, asked.device)
        print(
            f"published way: {published.index_name(asked.device)}; {len(selected):,} samples selected\n"
            f"floor: {bottom['operations'] / 1e9:,.0f} G operations, one product in float32 "
            f"{bottom['float32_product_seconds']:.3f} s, in bfloat16 {bottom['bfloat16_product_seconds']:.3f} s; "
            f"{bottom['bytes'] / 2**30:.2f} GiB read and written, {bottom['bytes_seconds']:.3f} s. "
            f"The stage takes {mine['whole stage']['seconds'] / bottom['float32_product_seconds']:.2f} float32 products"
        )
        report.update({"here": mine, "published": other, "floor": bottom, "selected": len(selected)})
    if asked.json:
        asked.json.write_text(json.dumps(report, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()

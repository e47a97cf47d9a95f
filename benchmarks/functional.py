"""The stage's functions against a dense float32 product with top-k, in one process: a ratio, and peak memory.

python benchmarks/functional.py [--queries 20000 --anchors 1717 --features 1024 --k 200]
"""

import argparse
import json
import os
import platform
import resource
import time
from collections.abc import Callable
from pathlib import Path

import torch

from acpl import functional


def seconds(work: Callable[[], object], repeats: int = 3) -> float:
    """The best of a few runs."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    """Measure, print a table, write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in {"queries": 20_000, "anchors": 1_717, "features": 1_024, "k": 200}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--json")
    size = parser.parse_args()
    generator = torch.Generator().manual_seed(0)
    queries = torch.rand(size.queries, size.features, generator=generator)
    anchors = torch.rand(size.anchors, size.features, generator=generator)

    def dense() -> None:
        product = torch.nn.functional.normalize(queries) @ torch.nn.functional.normalize(anchors).T
        product.topk(size.k, dim=1)
        product.topk(min(size.k, size.queries), dim=0)

    found = functional.mutual_nearest(queries, anchors, size.k)
    density = functional.density(found.similarity)
    candidates = torch.arange(0, size.queries, 3)
    rows = {
        "dense float32 product, top-k both ways": seconds(dense),
        "mutual_nearest": seconds(lambda: functional.mutual_nearest(queries, anchors, size.k)),
        "information": seconds(lambda: functional.information(density)),
        "connections": seconds(lambda: functional.connections(found.forward[candidates], found.backward, candidates)),
    }
    base = next(iter(rows.values()))
    print(
        f"{size.queries} x {size.anchors} x {size.features}, K = {size.k}; {os.cpu_count()} cores, {platform.machine()}"
    )
    for name, value in rows.items():
        print(f"{name:<42} {value:8.3f} s  {value / base:6.2f} x")
    print(f"peak memory of the process {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")
    if size.json:
        text = json.dumps({"size": vars(size), "seconds": rows, "cores": os.cpu_count()}, indent=2)
        Path(size.json).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

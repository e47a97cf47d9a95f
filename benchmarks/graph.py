"""Label propagation over a graph of all images: time, and memory beyond the features, against the dense n × n.

python benchmarks/graph.py [--images 100000 --features 256 --k 10 --columns 28] [--threads 1] [--json FILE]

Memory is the process's peak beyond what it held before each function, as the system counts it. The dense matrix is not
made: its size is arithmetic. Features lie around as many centres as there are columns, so that labels have a way to go.
"""

import argparse
import json
import os
import platform
import resource
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from acpl import functional

MIB = 2**20


class PeakMemory:
    """The greatest resident size within a ``with``, sampled, and what it was before."""

    def __enter__(self) -> "PeakMemory":
        self.before = self.peak = resident()
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._sample)
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._watch.join()

    def _sample(self) -> None:
        while not self._over.wait(0.02):
            self.peak = max(self.peak, resident())

    @property
    def extra(self) -> int:
        """Bytes beyond what was held before."""
        return self.peak - self.before


def resident() -> int:
    """Bytes of this process in memory now; its peak so far where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def measured(work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """What ``work`` gives, and its time and memory."""
    start, spent = time.perf_counter(), time.process_time()
    with PeakMemory() as memory:
        result = work()
    return result, {
        "seconds": time.perf_counter() - start,
        "processor seconds": time.process_time() - spent,
        "extra bytes": memory.extra,
    }


def main() -> None:
    """Measure, print a table, write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in {"images": 100_000, "features": 256, "k": 10, "columns": 28, "threads": 1}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(asked.columns, asked.features, generator=generator)
    belongs = torch.randint(asked.columns, (asked.images,), generator=generator)
    features = centres[belongs] + 2 * torch.randn(asked.images, asked.features, generator=generator)
    seeds = torch.zeros(asked.images, asked.columns)
    known = torch.arange(0, asked.images, 50)  # 2 % of the labels
    seeds[known, belongs[known]] = 1
    functional.spread(functional.affinity(features[:100], 2), seeds[:100])  # what the first call sets up

    graph, building = measured(lambda: functional.affinity(features, asked.k))
    reached, spreading = measured(lambda: functional.spread(graph, seeds))
    right = float((reached.argmax(dim=1) == belongs).float().mean())
    dense = 4 * asked.images**2
    rows = {"affinity": building, "spread": spreading}
    print(
        f"{asked.images:,} images × {asked.features} features, k = {asked.k}, {asked.columns} columns; "
        f"{asked.threads} thread(s) of {os.cpu_count()} cores, {platform.machine()}"
    )
    print(f"{'':<12}{'seconds':>12}{'processor':>12}{'extra memory':>16}")
    for name, row in rows.items():
        extra = f"{row['extra bytes'] / MIB:,.0f} MiB"
        print(f"{name:<12}{row['seconds']:>10.1f} s{row['processor seconds']:>10.1f} s{extra:>16}")
    print(f"dense float32 n × n, not made: {dense / MIB:,.0f} MiB; the graph has {graph._nnz():,} entries")
    print(f"labels that reached their own: {right:.1%}")
    if asked.json:
        report = {"size": {k: v for k, v in vars(asked).items() if k != "json"}, "dense bytes": dense, **rows}
        asked.json.write_text(json.dumps({**report, "cores": os.cpu_count(), "right": right}, indent=2) + "\n")


if __name__ == "__main__":
    main()

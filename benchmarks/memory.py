"""Steps on a CPU with freed memory kept and given back, by turns in one process.

OMP_NUM_THREADS=2 python benchmarks/memory.py [--backbone efficientnet-lite0 --sizes 128x64,224x32 --json memory.json]

*Given back* is what glibc does by itself once large blocks have been freed: those above 32 MiB lie apart from its heap,
and what is free at the heap's end goes back from 64 MiB on. *Kept* is what ``acpl`` asks it for (``engine/memory.py``).
"""

import argparse
import ctypes
import resource
import statistics
import time

import torch
from step import our_step
from timing import machine, table, write_json

from acpl.engine.device import Device
from acpl.engine.memory import MMAP_THRESHOLD, TOP_PAD, TRIM_THRESHOLD, give_back_memory, keep_freed_memory


def give_back() -> None:
    """As glibc has it when it was left alone."""
    libc = ctypes.CDLL(None)
    for parameter, value in ((MMAP_THRESHOLD, 2**25), (TRIM_THRESHOLD, 2**26), (TOP_PAD, 2**17)):
        libc.mallopt(parameter, value)
    give_back_memory()


def main() -> None:
    """Measure, print a table, write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="efficientnet-lite0")
    parser.add_argument("--sizes", default="128x64,224x32")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json")
    asked = parser.parse_args()
    device = Device.choose("cpu", "32")
    if not keep_freed_memory():
        raise SystemExit("there is no glibc here, or its MALLOC_ settings are in the environment")
    rows, numbers = [], []
    for text in asked.sizes.split(","):
        size, batch = map(int, text.split("x"))
        some, steps = our_step(asked.backbone, size, batch, device, graphs=False)
        ways = {"given back": give_back, "kept": keep_freed_memory}
        times: dict[str, list[float]] = {name: [] for name in ways}
        faults: dict[str, int] = {}
        for _ in range(asked.repeats):
            for name, way in ways.items():
                way()
                some()  # the heap grows once; that does not count
                before, start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.perf_counter()
                some()
                times[name].append((time.perf_counter() - start) / steps)
                faults[name] = (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // steps
        median = {name: statistics.median(values) for name, values in times.items()}
        rows.append(
            [
                f"{asked.backbone}, {size} px, batch {batch}",
                *(f"{1e3 * median[name]:,.0f} ms, {faults[name]:,} page faults" for name in ways),
                f"{median['given back'] / median['kept']:.2f} ×",
            ]
        )
        numbers.append({"size": size, "batch": batch, "seconds": times, "faults": faults})
        print(rows[-1], flush=True)
    print(f"\na step; {machine(torch.device('cpu'))}\n")
    print(table(["step", *ways, "kept is faster by"], rows))
    write_json(asked.json, {"machine": machine(torch.device("cpu")), "backbone": asked.backbone, "rows": numbers})


if __name__ == "__main__":
    main()

"""What the benchmarks share: clocks, ceilings of the machine, tables."""

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch


def wait(device: torch.device) -> None:
    """Until the device has done all it was asked to."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds(work: Callable[[], object], device: torch.device, *, warm: int = 3, repeats: int = 5) -> float:
    """The median of some runs, after some that do not count."""
    for _ in range(warm):
        work()
    times = []
    for _ in range(repeats):
        wait(device)
        start = time.perf_counter()
        work()
        wait(device)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def ceilings(device: torch.device, dtype: torch.dtype) -> tuple[float, float]:
    """Operations a second of a matrix product of random numbers, and bytes a second of a copy, both measured."""
    side = 8192 if device.type == "cuda" else 1024
    a, b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    product = 2 * side**3 / seconds(lambda: a @ b, device)
    source = torch.randint(255, (2**30 if device.type == "cuda" else 2**27,), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return product, 2 * source.nbytes / seconds(lambda: target.copy_(source), device)


def machine(device: torch.device) -> str:
    """What was measured on."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    return f"{name}, {os.cpu_count()} cores, {torch.get_num_threads()} threads, torch {torch.__version__}"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [f"| {' | '.join(headings)} |", "|" + "---|" * len(headings)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def write_json(file: str | None, value: Mapping[str, Any]) -> None:
    """Every number, where a file is named."""
    if file:
        Path(file).write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")

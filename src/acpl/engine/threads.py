"""As many threads as this process may use processors.

Torch counts the cores that it sees and is allowed on, one thread a core. It does not see a container's quota: with
two processors' worth of time on a host of 64 cores, 64 threads would wait for each other most of the time.
"""

import math
import os
from pathlib import Path

import torch

CGROUPS = Path("/sys/fs/cgroup")


def fit_threads(cgroups: Path = CGROUPS) -> None:
    """Lower torch's threads to the quota, unless someone has said how many."""
    quota = processor_quota(cgroups)
    if quota is not None and "OMP_NUM_THREADS" not in os.environ and quota < torch.get_num_threads():
        torch.set_num_threads(quota)


def processor_quota(cgroups: Path = CGROUPS) -> int | None:
    """How many processors' time a container may use, rounded up; None where nothing limits it."""
    quota, period = _numbers(cgroups / "cpu.max")
    if period is None:  # the first version of control groups
        quota = _numbers(cgroups / "cpu/cpu.cfs_quota_us")[0]
        period = _numbers(cgroups / "cpu/cpu.cfs_period_us")[0]
    if quota is None or period is None or quota <= 0 or period <= 0:
        return None
    return math.ceil(quota / period)


def _numbers(file: Path) -> tuple[int | None, int | None]:
    """The first two words of a file as numbers, where there are any."""
    try:
        words = file.read_text(encoding="ascii").split()
    except (OSError, UnicodeDecodeError):
        return None, None
    first, second = [int(word) if word.lstrip("-").isdigit() else None for word in [*words, "", ""][:2]]
    return first, second

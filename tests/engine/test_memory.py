import os
import subprocess
import sys

import pytest

from acpl.engine import memory
from acpl.engine.memory import keep_freed_memory

glibc = pytest.mark.skipif(sys.platform != "linux" or memory._of_libc("mallopt") is None, reason="glibc alone is asked")
_FAULTS = """
import resource, sys, torch
from acpl.engine.device import Device

if sys.argv[1] == "kept":
    Device.choose("cpu", "32")
for turn in range(20):
    if turn == 10:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [torch.ones(12 * 2**20) for _ in range(4)]  # 48 MiB each
    del blocks
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


_HELD = """
import torch
from pathlib import Path
from acpl.engine.memory import give_back_memory, keep_freed_memory

def held():  # MiB
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 // 2**20

assert keep_freed_memory()
torch.ones(1)
before = held()
blocks = [torch.ones(12 * 2**20) for _ in range(10)]  # 48 MiB each
last = torch.ones(2**20)  # above them in the heap
del blocks
kept = held() - before
give_back_memory()
print(kept, held() - before)
"""


def in_a_process(script: str, *arguments: str) -> list[int]:
    """The numbers that it prints; the allocator of this process is not ours to change back."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    asked = [sys.executable, "-c", script, *arguments]
    printed = subprocess.run(asked, env=environment, check=True, capture_output=True, text=True).stdout
    return [int(word) for word in printed.split()]


def faults(way: str) -> int:
    """Page faults of ten rounds that ask for the same memory."""
    (number,) = in_a_process(_FAULTS, way)
    return number


@glibc
def test_what_is_freed_is_there_when_it_is_asked_for_again() -> None:
    kept, given_back = faults("kept"), faults("left alone")
    assert kept < 2_000  # of 480 MiB in all, four KiB a page at the most
    assert given_back > 10 * max(kept, 1) or given_back < 2_000  # where pages are huge, there is nothing to save


@glibc
def test_what_is_kept_is_given_back_when_asked() -> None:
    kept, held = in_a_process(_HELD)
    assert kept > 400
    assert held < 50


@pytest.mark.parametrize(
    "environment",
    [{"MALLOC_TRIM_THRESHOLD_": "1"}, {"MALLOC_ARENA_MAX_": "2"}, {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}],
)
def test_someone_else_has_the_last_word(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_of_libc", lambda name: pytest.fail)
    assert not keep_freed_memory(environment)


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_of_libc", lambda name: None)
    assert not keep_freed_memory({})


@pytest.mark.parametrize(("most", "threshold"), [(2**31, 2**27), (2**25, 2**25)])
def test_an_older_glibc_is_asked_for_what_it_takes(most: int, threshold: int, monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[int, int] = {}

    def mallopt(parameter: int, value: int) -> int:
        if parameter == memory.MMAP_THRESHOLD and value > most:
            return 0
        told[parameter] = value
        return 1

    monkeypatch.setattr(memory, "_of_libc", lambda name: mallopt)
    assert keep_freed_memory({"MALLOCATED": "1"})
    assert told == {memory.MMAP_THRESHOLD: threshold, memory.TRIM_THRESHOLD: 2**31 - 1, memory.TOP_PAD: 2**26}

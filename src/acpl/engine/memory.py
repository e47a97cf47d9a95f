"""Memory that a step frees stays with the process, for the next step asks for as much again.

glibc gives large blocks, and from 64 MiB on what is free at its heap's end, back to the system at once, and the system
clears each page when the next step asks for it: almost half of the time where network and images are of some size.
"""

import ctypes
import os
import sys
from collections.abc import Mapping

# mallopt's parameters (malloc.h), and what it is told; its numbers are C ints.
TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3
_KEPT = 2**31 - 1  # free at the heap's end before any of it is given back
_AT_ONCE = 2**26  # by which the heap grows
_APART = 2**27  # blocks from here on are apart from the heap, and given back when they are freed
_APART_AT_MOST = 2**25  # all that an older glibc takes


def keep_freed_memory(environment: Mapping[str, str] = os.environ) -> bool:
    """Ask glibc for that, for good; False where there is another C library, or where someone has set it otherwise."""
    mallopt = _of_libc("mallopt")
    if mallopt is None or _is_set(environment):
        return False
    if not mallopt(MMAP_THRESHOLD, _APART):
        mallopt(MMAP_THRESHOLD, _APART_AT_MOST)
    return bool(mallopt(TRIM_THRESHOLD, _KEPT) and mallopt(TOP_PAD, _AT_ONCE))


def give_back_memory() -> None:
    """Let the system have what is free by now: work of another kind asks for blocks of other sizes."""
    if trim := _of_libc("malloc_trim"):
        trim(0)


def _of_libc(name: str) -> "ctypes._NamedFuncPointer | None":
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None


def _is_set(environment: Mapping[str, str]) -> bool:
    own = any(name.startswith("MALLOC_") and name.endswith("_") for name in environment)
    return own or "glibc.malloc" in environment.get("GLIBC_TUNABLES", "")

"""A shard's bytes, in order, from a disk or a store."""

import time
from pathlib import Path
from typing import Any

from acpl.data.addresses import filesystem, is_address, why

BLOCK = 2**23
"""Bytes that are asked of a store at a time."""
WAITS = (0.5, 2.0)
"""Seconds before the second and the third try."""


class Unreachable(Exception):  # noqa: N818 — named for what it is about
    """A shard that cannot be fetched now, though there may be nothing wrong with it."""


class Stream:
    """What is read is read once: a try that fails goes on where the last good one ended."""

    def __init__(self, address: str, start: int = 0) -> None:
        self.address = address
        self.position = start
        self._file: Any = None
        self._plain = False
        """The store gives no parts: everything comes as one, from the beginning."""

    def read(self, count: int) -> bytes:
        """The next ``count`` bytes; fewer only at the end."""
        pieces: list[bytes] = []
        while count > 0:
            piece = self._piece(min(count, BLOCK))
            if not piece:
                break
            pieces.append(piece)
            count -= len(piece)
            self.position += len(piece)
        return b"".join(pieces)

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _piece(self, count: int) -> bytes:
        for wait in (*WAITS, None):
            try:
                if self._file is None:
                    self._open()
                piece: bytes = self._file.read(count)
                return piece
            except MemoryError:
                raise
            except Exception as error:  # every store has its own
                self._file = None
                if isinstance(error, ValueError) and not self._plain:
                    self._plain = True
                    continue
                if wait is None or isinstance(error, FileNotFoundError):
                    raise Unreachable(why(error)) from None
                time.sleep(wait)
        raise Unreachable("the store gives no parts of it, and the whole broke off")

    def _open(self) -> None:
        if not is_address(self.address):
            self._file = Path(self.address).open("rb")  # noqa: SIM115 — closed by close
            self._file.seek(self.position)
            return
        system, path = filesystem(self.address)
        if self._plain:
            self._file = system.open(path, "rb", block_size=0)
            self._pass_over(self.position)
            return
        self._file = system.open(path, "rb", block_size=BLOCK, cache_type="readahead")
        try:
            self._file.seek(self.position)
        except (OSError, ValueError, NotImplementedError):
            self._pass_over(self.position)

    def _pass_over(self, count: int) -> None:
        while count > 0:
            passed = len(self._file.read(min(count, BLOCK)))
            if passed == 0:
                raise OSError("it has become shorter")
            count -= passed

"""Images one by one in an object store or on a web server, by the names that a table has for them.

Nothing is listed: a name is taken as it stands, and one that is not there is found out when it is asked for.
"""

import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from typing import Any

from acpl.data.addresses import ASKED_AT_ONCE, filesystem, mark_of, shown, why
from acpl.data.files import BadImage, Fingerprint, ImageFiles, refuse_too_long
from acpl.data.workers import Progress, nothing
from acpl.errors import UserError

ASKED_FOR = 512
"""Names between two words of progress."""
ONLY_HERE = "memory://"


def open_address(address: str, progress: Progress = nothing) -> ImageFiles:
    """The images below this address."""
    if address.startswith(("http://", "https://")) and "?" in address:
        raise UserError(f"images {shown(address)} should end before the question mark; names are appended to it")
    if re.search(r"[*\[{]", address):
        raise UserError(f"images {shown(address)} should be one place, or shards that end in .tar")
    filesystem(address)
    return ImageFiles(address.rstrip("/"), RemoteShelf(address.rstrip("/"), progress))


class RemoteShelf:
    """Names below an address; what the store says of each is asked once, of many at a time."""

    def __init__(self, address: str, progress: Progress = nothing) -> None:
        self.address = address
        self.origin = address
        self._progress = progress
        self._known: dict[str, Fingerprint | str] = {}
        self._contents: dict[str, bytes] = {}
        """Of a store in another process's memory, which this one cannot see."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_progress": nothing, "_known": {}, "_contents": self._only_here()}

    def names(self) -> list[str]:
        """None: a store is not listed."""
        return []

    def holds(self, name: str) -> bool:
        """Taken to be there, under the very name."""
        return True

    def check(self, name: str) -> None:
        """Found out when it is read."""

    def ask(self, names: Sequence[str]) -> None:
        """Size and version of these files, from the store."""
        unknown = [name for name in dict.fromkeys(names) if name not in self._known]
        with ThreadPoolExecutor(ASKED_AT_ONCE) as threads:
            for start in range(0, len(unknown), ASKED_FOR):
                some = unknown[start : start + ASKED_FOR]
                self._known.update(zip(some, threads.map(self._ask, some), strict=True))
                self._progress("asking", start + len(some), len(unknown))

    def fingerprint(self, name: str) -> Fingerprint:
        """As the store has told; one that tells neither a checksum nor a time is never taken for unchanged."""
        if name not in self._known:
            self._known[name] = self._ask(name)
        known = self._known[name]
        if isinstance(known, str):
            raise BadImage(known)
        refuse_too_long(known.size)
        return known

    def head(self, name: str, count: int) -> bytes:
        """The first bytes."""
        try:
            return self.read(name)[:count]
        except BadImage:
            return b""

    def read(self, name: str) -> bytes:
        """The whole file."""
        if name in self._contents:
            return self._contents[name]
        try:
            system, path = filesystem(f"{self.address}/{name}")
            content: bytes = system.cat_file(path)
        except UserError as error:
            raise BadImage(str(error)) from None
        except MemoryError:
            raise
        except Exception as error:  # every store has its own
            raise BadImage(why(error)) from None
        refuse_too_long(len(content))
        return content

    def _only_here(self) -> dict[str, bytes]:
        if not self.address.startswith(ONLY_HERE):
            return {}
        system, path = filesystem(self.address)
        return {name.removeprefix(f"{path}/"): system.cat_file(name) for name in system.find(path)}

    def _ask(self, name: str) -> Fingerprint | str:
        try:
            system, path = filesystem(f"{self.address}/{name}")
            info = system.info(path)
        except UserError as error:
            return str(error)
        except Exception as error:
            return why(error)
        if info.get("type") == "directory":
            return "it is a folder"
        mark = mark_of(info) or f"unknown {time.time_ns()}"
        number = int.from_bytes(blake2b(mark.encode(), digest_size=8).digest(), "little")
        return Fingerprint(int(info.get("size") or 0), number)

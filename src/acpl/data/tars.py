"""The members of a tar, in the order they lie in it; nothing is unpacked to disk, no link is followed."""

import tarfile
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import IO, NamedTuple, Protocol, cast

from acpl.data.dicom_signs import DICOM_HEADER, looks_like_dicom
from acpl.data.files import (
    MAX_FILE_BYTES,
    SUFFIXES,
    BadImage,
    inside,
    is_shown,
    printable,
    refuse_too_long,
)
from acpl.data.streams import Unreachable

SIDECARS = (".json", ".cls")
BLOCK = tarfile.BLOCKSIZE
MAGIC = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
}


class BadShard(Exception):  # noqa: N818 — named for what it is about
    """A tar that cannot be read, or not to its end, and why, in one line."""


class Bytes(Protocol):
    """What a tar is read from."""

    position: int

    def read(self, count: int) -> bytes:
        """The next bytes, fewer only at the end."""
        ...


class Member(NamedTuple):
    """A file in a tar: its name as it is found by, and how to read it before the next one is asked for."""

    name: str
    suffix: str
    following: int
    """Where the next member begins."""
    is_sidecar: bool
    read: Callable[[], bytes | None]
    """The content; None for what is neither an image nor beside one; BadImage says why it cannot be had."""


def members(stream: Bytes) -> Iterator[Member]:
    """Every file from where the stream stands; BadShard where the tar is damaged or is none."""
    start = stream.position
    first = stream.read(BLOCK)
    packing = next((name for magic, name in MAGIC.items() if first.startswith(magic)), None)
    if start == 0 and packing is not None:
        raise BadShard(f"it is packed with {packing}; a shard is a plain .tar, for images are compressed already")
    if start == 0 and not first:
        raise BadShard("it is empty")
    counted = _Counted(stream, first)
    try:
        # A stream of blocks: members are passed over by reading, never by going back.
        with tarfile.open(fileobj=cast(IO[bytes], counted), mode="r|", bufsize=2**16) as tar:
            while (member := tar.next()) is not None:
                tar.members = []  # type: ignore[attr-defined]  # else they are all kept
                if not member.isdir() and is_shown(member.name):
                    yield _member(tar, member, start + tar.offset)
            if counted.given < tar.offset + BLOCK:
                raise BadShard("it is truncated: the empty blocks that close a tar are missing")
    except (BadShard, Unreachable, MemoryError, GeneratorExit):
        raise
    except tarfile.ReadError as error:
        if any(words in str(error) for words in ("end of data", "truncated", "empty")):
            raise BadShard("it is truncated") from None
        raise BadShard(f"it is damaged, or no tar: {_words(error)}") from None
    except (tarfile.TarError, ValueError, OverflowError, RecursionError, EOFError, OSError) as error:
        raise BadShard(f"it is damaged: {_words(error)}") from None


def _member(tar: tarfile.TarFile, member: tarfile.TarInfo, following: int) -> Member:
    name, refusal = _name(member.name)
    suffix = PurePosixPath(name).suffix.lower()
    is_sidecar = suffix in SIDECARS
    by_content = not is_sidecar and suffix not in SUFFIXES
    """A DICOM file is one whatever it is called."""

    def read() -> bytes | None:
        if by_content and (refusal is not None or not member.isreg()):
            return None
        if refusal is not None:
            raise BadImage(refusal)
        if member.issym() or member.islnk():
            raise BadImage("it is a link, and links in a tar are not followed")
        if not member.isreg():
            raise BadImage("it is not a plain file")
        refuse_too_long(member.size)
        try:
            file = tar.extractfile(member)
            assert file is not None
            head = file.read(min(member.size, DICOM_HEADER))
            if by_content and (not looks_like_dicom(head) or name.endswith("DICOMDIR")):
                return None
            return head + file.read(MAX_FILE_BYTES)
        except tarfile.TarError:
            raise BadShard(f"it is truncated, in {printable(name)}") from None

    return Member(name, suffix, following, is_sidecar, read)


def _name(name: str) -> tuple[str, str | None]:
    """A member's name as it is found by, and why it is refused."""
    try:
        name.encode()
        return inside(name), None
    except UnicodeEncodeError:
        return name.encode(errors="backslashreplace").decode(), "the name is not UTF-8"
    except BadImage as bad:
        return printable(name), str(bad)


class _Counted:
    """The stream, with the block that was looked at put back, and a count of what it gave."""

    def __init__(self, stream: Bytes, first: bytes) -> None:
        self._stream = stream
        self._first = first
        self.given = 0

    def read(self, count: int) -> bytes:
        piece = self._first[:count]
        self._first = self._first[count:]
        if len(piece) < count:
            piece += self._stream.read(count - len(piece))
        self.given += len(piece)
        return piece


def _words(error: BaseException) -> str:
    return printable(" ".join(str(error).split()))[:200] or type(error).__name__

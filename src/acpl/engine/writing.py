"""Files that are there whole or not at all, and a plain sentence when the disk will not have them."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from acpl.errors import UserError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = {errno.EROFS, errno.EACCES, errno.EPERM}
_GONE = {errno.ENOENT, errno.ENOTDIR, errno.ESTALE}
_SAFE = "everything written before is whole"
BLOCK = 4096


def write_whole(path: Path, content: bytes) -> None:
    """A file that is there whole or not at all: written beside, synced, renamed; UserError says why it is not."""
    beside = path.with_name(path.name + ".part")
    with told(path):
        try:
            with beside.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
            _sync_folder(path.parent)
        except BaseException:
            with suppress(OSError):
                beside.unlink(missing_ok=True)
            raise


def append_line(path: Path, line: str, *, sync: bool = False) -> None:
    """One more line at the end of a file; a line that was cut off there, now or by a crash before, is taken away.

    With ``sync`` it is on the disk when this returns.
    """
    with told(path), path.open("a+b", buffering=0) as file:  # a buffer would be written once more when it is closed
        _end_with_a_whole_line(file)
        start = file.seek(0, os.SEEK_END)
        rest = memoryview(line.encode() + b"\n")
        try:
            while rest:
                rest = rest[file.write(rest) :]
            if sync:
                os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):
                file.truncate(start)
            raise


def whole_lines(path: Path) -> list[str]:
    """The lines of a file that ``append_line`` made, without one that a crash has cut off."""
    text = path.read_bytes()
    return text[: text.rfind(b"\n") + 1].decode("utf-8", errors="replace").splitlines()


@contextmanager
def told(path: Path) -> Iterator[None]:
    """An error of the disk within, as one sentence that names the file and what is the matter."""
    try:
        yield
    except OSError as error:
        raise UserError(sentence(path, error)) from error


def is_of_the_disk(error: OSError) -> bool:
    """Whether a disk that is full, may only be read, or is gone has led to this error."""
    return error.errno in _FULL | _FORBIDDEN | {errno.ESTALE}


def sentence(path: Path, error: OSError) -> str:
    """What an error of the disk means for the file that was being written."""
    if error.errno in _FULL:
        return f"{path} could not be written, for the disk is full; {_SAFE}; make room there and go on"
    if error.errno in _FORBIDDEN:
        return f"{path} could not be written, for its folder may only be read; {_SAFE}"
    if error.errno in _GONE and not path.parent.exists():
        return f"{path} could not be written, for the folder {path.parent} is gone: was it moved, or a disk taken away?"
    return f"{path} could not be written: {' '.join((error.strerror or str(error)).split())}; {_SAFE}"


def _end_with_a_whole_line(file: IO[bytes]) -> None:
    """Cut the file after its last line break, where its last byte is none."""
    keep = file.seek(0, os.SEEK_END)
    if keep == 0 or _read(file, keep - 1, keep) == b"\n":
        return
    while keep > 0:
        start = max(0, keep - BLOCK)
        found = _read(file, start, keep).rfind(b"\n")
        keep = start + found + 1
        if found >= 0:
            break
    file.truncate(keep)


def _read(file: IO[bytes], start: int, stop: int) -> bytes:
    file.seek(start)
    return file.read(stop - start)


def _sync_folder(folder: Path) -> None:
    """A rename is only sure once its folder is on the disk; a no-op where folders cannot be synced."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

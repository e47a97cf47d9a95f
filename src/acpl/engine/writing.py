"""Files that are there whole or not at all, and a plain sentence when the disk will not have them."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from acpl.errors import UserError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = {errno.EROFS, errno.EACCES, errno.EPERM}
_GONE = {errno.ENOENT, errno.ENOTDIR, errno.ESTALE}
_SAFE = "everything written before is whole"


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


def append_line(path: Path, line: str) -> None:
    """One more line at the end of a file; a line that was cut off there, now or by a crash before, is taken away."""
    with told(path), path.open("a+b") as file:
        _end_with_a_whole_line(file.fileno())
        start = file.seek(0, os.SEEK_END)
        try:
            file.write(line.encode() + b"\n")
            file.flush()
        except OSError:
            with suppress(OSError):
                os.ftruncate(file.fileno(), start)
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


def sentence(path: Path, error: OSError) -> str:
    """What an error of the disk means for the file that was being written."""
    if error.errno in _FULL:
        return f"{path} could not be written, for the disk is full; {_SAFE}; make room there and go on"
    if error.errno in _FORBIDDEN:
        return f"{path} could not be written, for its folder may only be read; {_SAFE}"
    if error.errno in _GONE and not path.parent.exists():
        return f"{path} could not be written, for the folder {path.parent} is gone: was it moved, or a disk taken away?"
    return f"{path} could not be written: {' '.join((error.strerror or str(error)).split())}; {_SAFE}"


def _end_with_a_whole_line(file: int) -> None:
    """Cut the file after its last line break, where its last byte is none."""
    size = os.fstat(file).st_size
    if size == 0 or os.pread(file, 1, size - 1) == b"\n":
        return
    keep, block = size, 4096
    while keep > 0:
        start = max(0, keep - block)
        found = os.pread(file, keep - start, start).rfind(b"\n")
        if found >= 0:
            keep = start + found + 1
            break
        keep = start
    os.ftruncate(file, keep)


def _sync_folder(folder: Path) -> None:
    """A rename is only sure once its folder is on the disk; a no-op where folders cannot be synced."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

"""What a user types for images elsewhere or in many files: addresses on a network, patterns of shards, lists of them.

Only here is an address turned into a connection, and only what was typed as ``data`` or ``images`` comes here: names in
a table's cells stay names (files.py). Stores are reached through fsspec; which ones depends on what is installed.
"""

import glob
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from acpl.data.files import printable
from acpl.errors import UserError

TAR = ".tar"
COMPRESSED = (".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst", ".tzst", ".tar.lz4")
LIST = ".txt"
MAX_SHARDS = 1_000_000
MAX_LIST_BYTES = 2**26
ASKED_AT_ONCE = 16
"""Questions to a store that wait for an answer at a time."""
MARKS = ("ETag", "etag", "md5Hash", "crc32c", "content_settings", "Content-MD5", "Digest", "generation", "VersionId")
TIMES = ("LastModified", "Last-Modified", "last_modified", "mtime", "updated", "created", "modified")


class Shard(NamedTuple):
    """One tar: where it is, what it is called, and what changes when it changes."""

    address: str
    """A path from the root, or an address."""
    name: str
    """Without the folder, where that tells it from all others."""
    size: int | None
    mark: str
    """Time of the last change, or what the store calls its version; blank where nothing is known but its size."""
    copy: str | None = None
    """A file with its content, where only this process could read it from its address."""

    @property
    def key(self) -> str:
        """Another one for another content, as far as can be told without reading it."""
        return blake2b(f"{self.address}\0{self.size}\0{self.mark}".encode(), digest_size=16).hexdigest()


def is_address(text: str) -> bool:
    """Whether this is an address, like ``s3://bucket/scans``, rather than a path."""
    return "://" in text


def names_shards(text: str) -> bool:
    """Whether this is a tar, a pattern of tars, or a list of them."""
    return _plain(text).lower().endswith((TAR, *COMPRESSED, LIST))


def find_shards(text: str) -> list[Shard]:
    """Every shard that is meant, in the order of the pattern or list; a UserError names what is not there."""
    addresses: list[str] = []
    for pattern in _listed(text) if _plain(text).lower().endswith(LIST) else [text]:
        addresses += _matching(pattern)
        if len(addresses) > MAX_SHARDS:
            raise _too_many(text)
    twice = [address for address, times in Counter(addresses).items() if times > 1]
    if twice:
        raise UserError(f"{shown(text)} names the shard {shown(twice[0])} twice")
    for address in addresses:
        if _plain(address).lower().endswith(COMPRESSED):
            raise UserError(
                f"{shown(address)} is a compressed tar, which cannot be read from the middle; images are compressed "
                "already: unpack it to a plain .tar"
            )
    with ThreadPoolExecutor(ASKED_AT_ONCE) as threads:
        states = list(threads.map(_state, addresses))
    missing = [address for address, state in zip(addresses, states, strict=True) if state is None]
    if missing:
        are = f"{len(missing)} of {len(addresses)} shards are" if len(addresses) > 1 else "the shard is"
        first = "the first is " if len(missing) > 1 else ""
        raise UserError(f"{are} not there: {first}{shown(missing[0])}")
    bases = Counter(_base(address) for address in addresses)
    return [
        Shard(address, _base(address) if bases[_base(address)] == 1 else shown(address), *state)
        for address, state in zip(addresses, states, strict=True)
        if state is not None
    ]


def filesystem(address: str) -> tuple[Any, str]:
    """fsspec's file system for an address, and what the address is called there."""
    import fsspec

    if "::" in address:
        raise UserError(f"{shown(address)} joins addresses with '::', which is not read; name the files themselves")
    if re.match(r"[^/]*://[^/@]*:[^/@]*@", address):
        raise UserError(
            f"{shown(address)} holds a password, and a run's config.yaml would keep it; put it where the store's "
            "package looks for it, like the environment"
        )
    protocol = address.partition("://")[0]
    try:
        system, path = fsspec.core.url_to_fs(address)
    except ImportError as error:
        raise UserError(f"{protocol}:// needs a package that is not installed: {_words(error)}") from None
    except ValueError:
        known = ", ".join(f"{name}://" for name in ("s3", "gs", "abfs", "https"))
        raise UserError(
            f"{shown(address)} begins with {protocol}://, which fsspec does not know; {known} are known"
        ) from None
    return system, path


def why(error: BaseException) -> str:
    """What a store's error says, in one line: that it cannot be reached, where that is behind it."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ConnectionError | TimeoutError) or "Connect" in type(cause).__name__:
            return f"it cannot be reached: {_words(cause)}"
        status = getattr(cause, "status", None)
        if status in (401, 403) or isinstance(cause, PermissionError):
            return f"it may not be read: {_words(cause)}"
        if isinstance(status, int) and status >= 400 and status != 404:
            return f"it could not be fetched: {_words(cause)}"
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, FileNotFoundError):
        return "the file is missing"
    return f"it could not be fetched: {_words(error)}"


def mark_of(info: dict[str, Any]) -> str:
    """What a store says of a file's version: a checksum where there is one, else a time; blank for neither."""
    for names in (MARKS, TIMES):
        found = [f"{name}={info[name]}" for name in names if info.get(name) is not None]
        if found:
            return " ".join(found)
    return ""


def shown(address: str) -> str:
    """An address for people: printable, without what may be a key behind its question mark, or a password."""
    return printable(re.sub(r"://[^/@]*@", "://…@", _plain(address)))


def _state(address: str) -> tuple[int | None, str] | None:
    """Size and mark; None where there is no such file."""
    if not is_address(address):
        path = Path(address)
        try:
            state = path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UserError(f"{shown(address)}: {error.strerror}") from None
        if not path.is_file():
            raise UserError(f"{shown(address)} is not a plain file; a shard is a .tar")
        return state.st_size, str(state.st_mtime_ns)
    system, path_there = filesystem(address)
    try:
        info = system.info(path_there)
    except Exception as error:  # every store has its own
        reason = why(error)
        if reason == "the file is missing":
            return None
        raise UserError(f"{shown(address)}: {reason}") from None
    if info.get("type") == "directory":
        raise UserError(f"{shown(address)} is a folder; a shard is a .tar")
    size = info.get("size")
    return (int(size) if size is not None else None), mark_of(info)


def _listed(text: str) -> list[str]:
    """The lines of a list of shards; names are relative to where the list is."""
    if is_address(text):
        system, path = filesystem(text)
        try:
            content = system.cat_file(path)
        except Exception as error:
            raise UserError(f"{shown(text)}: {why(error)}") from None
    else:
        try:
            with Path(text).expanduser().open("rb") as file:
                content = file.read(MAX_LIST_BYTES + 1)
        except OSError as error:
            raise UserError(f"the list of shards {shown(text)} could not be read: {error.strerror}") from None
    if len(content) > MAX_LIST_BYTES:
        raise UserError(f"the list of shards {shown(text)} is longer than the {MAX_LIST_BYTES:,} bytes that are read")
    try:
        lines = [line.strip() for line in content.decode("utf-8-sig").splitlines()]
    except UnicodeDecodeError:
        raise UserError(f"the list of shards {shown(text)} is not UTF-8 text") from None
    names = [line for line in lines if line and not line.startswith("#")]
    if not names:
        raise UserError(f"the list of shards {shown(text)} names none")
    for name in names:
        if not _plain(name).lower().endswith((TAR, *COMPRESSED)):
            raise UserError(f"{shown(text)} should name one .tar a line, but it holds '{shown(name)[:200]}'")
    parent = text.rpartition("/")[0] if is_address(text) else str(Path(text).expanduser().absolute().parent)
    return [name if is_address(name) or name.startswith("/") else f"{parent}/{name}" for name in names]


def _matching(pattern: str) -> list[str]:
    """Every address that a pattern with braces and stars means."""
    if not is_address(pattern):
        pattern = str(Path(pattern).expanduser().absolute())
        if Path(pattern).exists():
            return [pattern]
    found: list[str] = []
    for address in _expanded(pattern):
        if _has_stars(address):
            found += _globbed(address)
        else:
            found.append(address)
    return found


def _expanded(pattern: str) -> Iterable[str]:
    """``a-{00..02}.tar`` to ``a-00.tar`` and so on; ``{x,y}`` to x and y; several braces to all combinations."""
    pieces = re.split(r"\{([^{}]*)\}", pattern)
    choices: list[Sequence[str]] = []
    total = 1
    for place, piece in enumerate(pieces):
        choices.append([piece] if place % 2 == 0 else _choices(piece, pattern))
        total *= len(choices[-1])
        if total > MAX_SHARDS:
            raise _too_many(pattern)
    return map("".join, product(*choices))


def _choices(piece: str, pattern: str) -> Sequence[str]:
    span = re.fullmatch(r"(\d{1,18})\.\.(\d{1,18})", piece)
    if span is not None:
        first, last = int(span[1]), int(span[2])
        if first > last:
            raise UserError(f"{shown(pattern)}: {{{piece}}} counts down; the smaller number comes first")
        if last - first >= MAX_SHARDS:
            raise _too_many(pattern)
        return [f"{number:0{len(span[1])}d}" for number in range(first, last + 1)]
    if "," in piece:
        return [part.strip() for part in piece.split(",")]
    raise UserError(f"{shown(pattern)}: {{{shown(piece)}}} should be like {{000..127}} or {{a,b}}")


def _globbed(pattern: str) -> list[str]:
    if is_address(pattern):
        system, path = filesystem(pattern)
        try:
            found = sorted(system.unstrip_protocol(name) for name in system.glob(path))
        except Exception as error:
            raise UserError(f"{shown(pattern)}: {why(error)}") from None
    else:
        found = sorted(glob.glob(pattern))  # noqa: PTH207 — Path.glob knows no patterns from the root
    if not found:
        raise UserError(f"no shard is called like {shown(pattern)}")
    return found


def _has_stars(address: str) -> bool:
    marks = "*[" if address.startswith(("http://", "https://")) else "*?["
    return any(mark in address for mark in marks)


def _plain(text: str) -> str:
    """Without what follows the question mark in an address on the web."""
    return text.partition("?")[0] if text.startswith(("http://", "https://")) else text


def _base(address: str) -> str:
    return shown(address).rpartition("/")[2]


def _words(error: BaseException) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    words = printable(" ".join(str(text).split()))[:300]
    return re.sub(r"\?\S*", "", words) or type(error).__name__


def _too_many(text: str) -> UserError:
    return UserError(f"{shown(text)} means more than {MAX_SHARDS:,} shards, which is more than are read")

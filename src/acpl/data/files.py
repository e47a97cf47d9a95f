"""Images in a folder or a zip, by name; nothing outside of it is ever opened, nothing is ever unpacked to disk."""

import os
import re
import stat
import unicodedata
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple, Protocol

from acpl.data.dicom_signs import DICOM_HEADER, looks_like_dicom
from acpl.errors import UserError

SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".jp2", ".pgm", ".ppm", ".dcm", ".dicom"}
)
IN_BOTH_CASES = (*sorted(SUFFIXES), *sorted(suffix.upper() for suffix in SUFFIXES))
MAX_FILE_BYTES = 2**30
MAX_REASON = 400
TOO_LARGE = "it needs more memory than a file may take"
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""No name holds these. Others that do not show, like the narrow space in a screenshot's, are written out for people."""


class BadImage(Exception):  # noqa: N818 — named for what it is about, not for being an exception
    """An image that cannot be read, and why, in one line: what a file says of itself cannot move a terminal."""

    def __init__(self, reason: str) -> None:
        super().__init__(printable(reason)[:MAX_REASON])


class Fingerprint(NamedTuple):
    """What changes when a file changes, without reading it."""

    size: int
    mark: int
    """Time of the last change in nanoseconds in a folder, CRC-32 in a zip."""


class ImageFiles:
    """The images below one folder, in one zip or in a store, each by its relative name with forward slashes.

    An image file is one with a suffix from ``SUFFIXES``, or a DICOM file whatever it is called. Links that lead out
    of the folder are refused when they are read. Can be pickled: every process opens the zip for itself, once.
    """

    def __init__(self, path: Path | str, shelf: "Shelf") -> None:
        self.path = path
        """A folder or a zip; an address stays text."""
        self._shelf = shelf
        self._listed: list[str] | None = None
        self._by_base: dict[Callable[[str], str], dict[str, list[str]]] = {}

    @classmethod
    def open(cls, path: Path) -> "ImageFiles":
        """The images in this folder or zip."""
        if path.is_dir():
            return cls(path, _Folder(path))
        if not path.exists():
            raise UserError(f"{path} does not exist; images are in a folder or a zip")
        if not zipfile.is_zipfile(path):
            raise UserError(f"{path} is neither a folder nor a zip of images")
        return cls(path, _Zip(path))

    @property
    def origin(self) -> str:
        """What fingerprints do not tell apart: the folder they were taken in; nothing for a zip, which has CRCs."""
        return self._shelf.origin

    @property
    def place(self) -> str:
        """Where they are, for people."""
        return str(self.path)

    def ask(self, names: Sequence[str]) -> None:
        """Have the fingerprints of these stored names at hand, where each would be a question to a store."""
        self._shelf.ask(names)

    def names(self) -> list[str]:
        """Every image file's name, sorted; hidden files, ``__MACOSX`` and DICOMDIR are left out."""
        return sorted(name for name in self._shelf.names() if is_shown(name) and self._is_image(name))

    def find(self, name: str) -> str:
        """The stored name for a name in a table; BadImage says why there is none.

        Taken as it is, else with one of ``SUFFIXES`` appended, else as the end of exactly one path: ``a.png`` finds
        ``images/a.png``, but ``p1/a.png`` never finds ``p2/a.png``. Where nothing is found, upper and lower case and
        the way in which an accent is written (macOS writes two characters) do not count.
        """
        wanted = inside(name)
        found = self._beside(wanted) or self._below(wanted, exact) or self._below(wanted, folded)
        if not found:
            raise BadImage("the file is missing")
        if len(found) > 1:
            raise BadImage(f"it is there {_times(len(found))}: {', '.join(found[:5])}")
        self._shelf.check(found[0])
        return found[0]

    def fingerprint(self, name: str) -> Fingerprint:
        """Size and mark of a stored name; the file is not read."""
        return self._shelf.fingerprint(name)

    def read(self, name: str) -> bytes:
        """The whole file of a stored name; BadImage says why it cannot be had."""
        stored = inside(name)
        self._shelf.check(stored)
        return self._shelf.read(stored)

    def _beside(self, wanted: str) -> list[str]:
        if self._shelf.holds(wanted):
            return [wanted]
        if wanted.endswith(IN_BOTH_CASES):
            return []
        return [wanted + suffix for suffix in IN_BOTH_CASES if self._shelf.holds(wanted + suffix)]

    def _below(self, wanted: str, form: Callable[[str], str]) -> list[str]:
        """Every image whose path ends in ``wanted``, a suffix more or not, both brought to this form."""
        if form not in self._by_base:
            by_base: dict[str, list[str]] = {}
            self._listed = self.names() if self._listed is None else self._listed
            for name in self._listed:
                path = PurePosixPath(name)
                for base in {path.name, path.stem if path.suffix.lower() in SUFFIXES else path.name}:
                    by_base.setdefault(form(base), []).append(name)
            self._by_base[form] = by_base
        wanted = form(wanted)
        paths = {name: f"/{form(name)}" for name in self._by_base[form].get(wanted.rpartition("/")[2], [])}
        very = [name for name, path in paths.items() if path.endswith(f"/{wanted}")]
        return very or [
            name for name, path in paths.items() if path.endswith(tuple(f"/{wanted}{s}" for s in IN_BOTH_CASES))
        ]

    def _is_image(self, name: str) -> bool:
        path = PurePosixPath(name)
        if path.suffix.lower() in SUFFIXES:
            return True
        return path.name != "DICOMDIR" and looks_like_dicom(self._shelf.head(name, DICOM_HEADER))


class Shelf(Protocol):
    """What holds the files; all names but those of ``holds`` are stored names."""

    origin: str

    def names(self) -> list[str]:
        """All of them, in any order."""
        ...

    def holds(self, name: str) -> bool:
        """Whether there is one of this name."""
        ...

    def check(self, name: str) -> None:
        """BadImage where it may not be opened."""
        ...

    def ask(self, names: Sequence[str]) -> None:
        """These fingerprints will be wanted."""
        ...

    def fingerprint(self, name: str) -> Fingerprint:
        """Without reading the file."""
        ...

    def head(self, name: str, count: int) -> bytes:
        """Its first bytes; none where it cannot be read."""
        ...

    def read(self, name: str) -> bytes:
        """All of it; BadImage says why it cannot be had."""
        ...


class _Folder:
    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.origin = str(self.root)
        self._listings: dict[str, _Listing] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_listings": {}}

    def names(self) -> list[str]:
        found, folders = [], [""]
        while folders:
            folder = folders.pop()
            try:
                listing = self._list(folder)
            except BadImage as reason:
                raise UserError(f"the folder {self.root / folder} cannot be read: {reason}") from None
            found += [folder + base for base in listing.files]
            folders += [f"{folder}{base}/" for base in listing.folders]
        return found

    def holds(self, name: str) -> bool:
        folder, _, base = name.rpartition("/")
        return base in self._list(folder + "/" if folder else "").files

    def check(self, name: str) -> None:
        folder, _, base = name.rpartition("/")
        is_link = self._list(folder + "/" if folder else "").files.get(base)
        if is_link:
            self._refuse_outside(self.root / name)
        if is_link is None or (is_link and not (self.root / name).exists()):
            raise BadImage("the file is missing")
        if not os.access(f"{self.root}/{name}", os.R_OK):
            raise BadImage("it may not be read: permission denied")

    def ask(self, names: Sequence[str]) -> None:
        """A disk answers at once."""

    def fingerprint(self, name: str) -> Fingerprint:
        try:
            state = (self.root / name).stat()
        except OSError as error:
            raise BadImage(_plain(error)) from None
        return Fingerprint(state.st_size, state.st_mtime_ns)

    def head(self, name: str, count: int) -> bytes:
        try:
            self.check(name)
            with self._opened(name) as file:
                return file.read(count)
        except (BadImage, OSError):
            return b""

    def read(self, name: str) -> bytes:
        try:
            with self._opened(name) as file:
                size = os.fstat(file.fileno()).st_size
                refuse_too_long(size)
                return file.read(size)  # and no more, should it grow meanwhile
        except OSError as error:
            raise BadImage(_plain(error)) from None

    def _opened(self, name: str) -> IO[bytes]:
        path = self.root / name
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited on for ever
            raise BadImage("it is not a plain file")
        return path.open("rb")

    def _list(self, folder: str) -> "_Listing":
        if folder not in self._listings:
            self._listings[folder] = self._scan(folder)
        return self._listings[folder]

    def _scan(self, folder: str) -> "_Listing":
        path = self.root / folder
        self._refuse_outside(path)
        listing = _Listing({}, [])
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    if not _is_folder(entry):
                        listing.files[entry.name] = entry.is_symlink()
                    elif not entry.is_symlink():  # links to folders are followed only where a name asks for it
                        listing.folders.append(entry.name)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            raise BadImage(_plain(error)) from None
        return listing

    def _refuse_outside(self, path: Path) -> None:
        try:
            outside = not path.resolve().is_relative_to(self.root)
        except (OSError, RuntimeError) as error:  # RuntimeError: a link that leads to itself
            raise BadImage(_plain(error)) from None
        if outside:
            raise BadImage(f"a link leads outside of {self.root}")


class _Listing(NamedTuple):
    files: dict[str, bool]
    """Base name, and whether it is a link."""
    folders: list[str]


class _Zip:
    origin = ""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: zipfile.ZipFile | None = None
        self._members: dict[str, list[zipfile.ZipInfo]] = {}
        self._open()
        if any(member.flag_bits & 1 for members in self._members.values() for member in members):
            raise UserError(f"{path} is encrypted; unpack it first, or make a zip without a password")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_file": None, "_members": {}}

    def names(self) -> list[str]:
        self._open()
        return list(self._members)

    def holds(self, name: str) -> bool:
        self._open()
        return name in self._members

    def check(self, name: str) -> None:
        member = self._member(name)
        if stat.S_ISLNK(member.external_attr >> 16):
            raise BadImage("it is a link, and links in a zip are not followed")

    def ask(self, names: Sequence[str]) -> None:
        """The index is at hand."""

    def fingerprint(self, name: str) -> Fingerprint:
        member = self._member(name)
        return Fingerprint(member.file_size, member.CRC)

    def head(self, name: str, count: int) -> bytes:
        try:
            return self._read(self._member(name), count)
        except BadImage:
            return b""

    def read(self, name: str) -> bytes:
        member = self._member(name)
        refuse_too_long(member.file_size)
        return self._read(member, -1)

    def _read(self, member: zipfile.ZipInfo, count: int) -> bytes:
        """At most what the zip's index says, however much there would be to unpack."""
        try:
            with self._open().open(member) as file:
                return file.read(count)
        except MemoryError:
            raise BadImage(TOO_LARGE) from None
        except Exception as error:  # zlib, bz2, lzma and zipfile each have their own
            raise BadImage(f"it cannot be read from the zip: {_plain(error)}") from None

    def _member(self, name: str) -> zipfile.ZipInfo:
        self._open()
        members = self._members.get(name, [])
        if not members:
            raise BadImage("the file is missing")
        if len(members) > 1:
            raise BadImage(f"it is in the zip {_times(len(members))} under this name")
        return members[0]

    def _open(self) -> zipfile.ZipFile:
        if self._file is None:
            try:
                file = zipfile.ZipFile(self.path)
            except Exception as error:  # a damaged index leads zipfile to errors of many kinds
                raise UserError(f"{self.path} cannot be opened as a zip: {_plain(error)}") from None
            members: dict[str, list[zipfile.ZipInfo]] = {}
            for member in file.infolist():
                if member.filename and not member.is_dir():
                    members.setdefault(member.filename.replace("\\", "/"), []).append(member)
            self._members, self._file = members, file
        return self._file


def exact(name: str) -> str:
    """A name as it is."""
    return name


def folded(name: str) -> str:
    """A name as people would say it is the same: accents in one form, no upper case."""
    return unicodedata.normalize("NFC", name).casefold()


def inside(name: str) -> str:
    """The name without ``.``, ``..`` and doubled slashes, if it stays inside; backslashes are Windows' slashes."""
    if not name.strip() or "\0" in name:
        raise BadImage("the name is empty" if not name.strip() else "the name holds a zero byte")
    if CONTROL.search(name):
        raise BadImage("the name holds control characters")
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        raise BadImage("the name holds letters that no file name can") from None
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", name):
        raise BadImage("it is an address on a network; images are read from a folder or a zip")
    posix = name.replace("\\", "/")
    if posix.startswith("/") or re.match(r"[A-Za-z]:/", posix):
        raise BadImage("the path is absolute; names are relative to the folder or zip of the images")
    parts: list[str] = []
    for part in posix.split("/"):
        if part == "..":
            if not parts:
                raise BadImage("the path leads outside of the images' folder with '..'")
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def without_suffix(name: str) -> str:
    """The name without ``.png``, ``.jpg`` …; other dots, as in DICOM's numbers, stay."""
    stem, dot, suffix = name.rpartition(".")
    return stem if dot and f".{suffix.lower()}" in SUFFIXES else name


def printable(text: str) -> str:
    """The text with all that does not show, moves a terminal or turns the way of reading written out, as ``\\x1b``."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself
        return False


def is_shown(name: str) -> bool:
    """Whether this is neither hidden nor what a Mac puts beside a file."""
    parts = name.split("/")
    return "__MACOSX" not in parts and not any(part.startswith(".") and part not in (".", "..") for part in parts)


def refuse_too_long(count: int) -> None:
    """BadImage for a file of more bytes than are read."""
    if count > MAX_FILE_BYTES:
        raise BadImage(f"it is longer than the {MAX_FILE_BYTES:,} bytes that are read")


def _times(count: int) -> str:
    return "twice" if count == 2 else f"{count} times"


def _plain(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split()) or type(error).__name__

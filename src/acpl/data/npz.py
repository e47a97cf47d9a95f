"""Images in an .npz file, read one by one: a file of any size takes the memory of a single image."""

import math
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from acpl.data.files import BadImage, Fingerprint
from acpl.errors import UserError

MAX_IMAGES = 1_000_000
"""In each part; names have six digits."""
MAX_LABEL_BYTES = 2**30
_NAME = re.compile(r"(\w+)/(\d{6})\.(pgm|ppm)")


class ArrayShape(NamedTuple):
    """How the images of one array lie in the file."""

    images: int
    height: int
    width: int
    channels: int
    start: int
    """Bytes before the first image."""
    fingerprint: Fingerprint
    """Length and CRC of the whole array."""

    @property
    def image_bytes(self) -> int:
        """Bytes an image."""
        return self.height * self.width * self.channels


class NpzShelf:
    """uint8 arrays ``<part>_images`` (n, h, w) or (n, h, w, 3) as files called ``<part>/000000.pgm`` or ``.ppm``."""

    origin = ""

    def __init__(self, path: Path, parts: tuple[str, ...]) -> None:
        self.path = path
        self.shapes = {part: self._shape(part) for part in parts}
        self._streams: dict[str, IO[bytes]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_streams": {}}

    def names(self) -> list[str]:
        """Every image, part after part."""
        return [self.name(part, row) for part, shape in self.shapes.items() for row in range(shape.images)]

    def name(self, part: str, row: int) -> str:
        """The name of one image."""
        return f"{part}/{row:06d}.{'pgm' if self.shapes[part].channels == 1 else 'ppm'}"

    def holds(self, name: str) -> bool:
        """Whether there is an image of this name."""
        found = _NAME.fullmatch(name)
        if found is None or found[1] not in self.shapes:
            return False
        row = int(found[2])
        return row < self.shapes[found[1]].images and self.name(found[1], row) == name

    def check(self, name: str) -> None:
        """BadImage where there is no such image."""
        if not self.holds(name):
            raise BadImage("there is no such image in the file")

    def ask(self, names: Sequence[str]) -> None:
        """The shapes are at hand."""

    def fingerprint(self, name: str) -> Fingerprint:
        """Length and CRC of the whole array that the image is in."""
        self.check(name)
        return self.shapes[name.split("/")[0]].fingerprint

    def head(self, name: str, count: int) -> bytes:
        """The first bytes of an image file."""
        return self.read(name)[:count]

    def read(self, name: str) -> bytes:
        """The image as a PGM or PPM file: a header and the pixels as they are."""
        self.check(name)
        part, row = name.split("/")[0], int(name.split("/")[1].split(".")[0])
        shape = self.shapes[part]
        try:
            stream = self._stream(part)
            # Forward seeks decompress what lies between; only a step back begins anew.
            stream.seek(shape.start + row * shape.image_bytes)
            pixels = stream.read(shape.image_bytes)
        except (OSError, zipfile.BadZipFile, EOFError, ValueError) as error:
            raise BadImage(f"it cannot be read from {self.path.name}: {error}") from None
        except Exception as error:  # zlib's own error has no better base
            raise BadImage(f"{self.path.name} is damaged: {error}") from None
        if len(pixels) < shape.image_bytes:
            raise BadImage(f"{self.path.name} ends before it")
        return f"P{5 if shape.channels == 1 else 6} {shape.width} {shape.height} 255\n".encode() + pixels

    def _stream(self, part: str) -> IO[bytes]:
        if part not in self._streams:
            file = zipfile.ZipFile(self.path)  # stays open as long as images are asked for
            self._streams[part] = file.open(_member(part))
        return self._streams[part]

    def _shape(self, part: str) -> ArrayShape:
        with zipfile.ZipFile(self.path) as file, file.open(_member(part)) as stream:
            shape, column_major, dtype = read_header(stream)
            start = stream.tell()
            member = file.getinfo(_member(part))
        if dtype != np.uint8 or column_major or len(shape) not in (3, 4) or (len(shape) == 4 and shape[3] != 3):
            raise UserError(
                f"{self.path}: {part}_images should be uint8 (n, h, w) or (n, h, w, 3), but is {dtype} {shape}"
            )
        channels = 3 if len(shape) == 4 else 1
        images, height, width = shape[:3]
        needed = start + images * height * width * channels
        if min(shape) < 1 or needed != member.file_size:
            raise UserError(f"{self.path}: {part}_images says that it is {shape}, but holds {member.file_size} bytes")
        if images > MAX_IMAGES:
            raise UserError(f"{self.path}: {part}_images has {images} images; at most {MAX_IMAGES:,} are read")
        return ArrayShape(images, height, width, channels, start, Fingerprint(member.file_size, member.CRC))


def read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, "np.dtype[Any]"]:
    """Shape, whether columns come first, and kind of an array; ValueError where it is none."""
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version[0] == 1 else np.lib.format.read_array_header_2_0
    shape, column_major, dtype = read(stream)
    return shape, column_major, dtype


def read_labels(path: Path, part: str) -> npt.NDArray[Any]:
    """``<part>_labels``; a header that claims more numbers than a file of images can have labels is not believed."""
    name = f"{part}_labels.npy"
    with zipfile.ZipFile(path) as file:
        with file.open(name) as stream:
            shape, _, dtype = read_header(stream)
        if math.prod(shape) * dtype.itemsize > MAX_LABEL_BYTES:
            raise UserError(f"{path}: {part}_labels should be whole numbers, but is {dtype} {shape}")
        with file.open(name) as stream:
            labels: npt.NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
    return labels


def _member(part: str) -> str:
    return f"{part}_images.npy"

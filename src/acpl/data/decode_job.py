"""Decoding as work for several processes: into a store's file, to pixels, or only to tell grey from colour."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from acpl.data.decode import Decoding, Pixels, decode, is_grey
from acpl.data.files import BadImage, ImageFiles


class Outcome(NamedTuple):
    """What became of one image: the digest of the file's content if it could be read, a reason if it is bad."""

    digest: str | None
    reason: str | None


class DecodeJob(NamedTuple):
    """Image number i of ``names`` becomes row i of the file ``target``."""

    files: ImageFiles
    names: Sequence[str]
    how: Decoding
    target: Path

    def do(self, rows: range) -> list[Outcome]:
        """These rows decoded and written to the target."""
        outcomes = []
        bytes_each = self.how.channels * self.how.size**2
        for row in rows:
            digest = None
            try:
                content = self.files.read(self.names[row])
                digest = hashlib.blake2b(content, digest_size=16).hexdigest()
                pixels = decode(content, self.how)
            except BadImage as bad:
                outcomes.append(Outcome(digest, str(bad)))
                continue
            with self.target.open(
                "r+b"
            ) as file:  # not before: whoever takes the file over from a dead build renames it
                file.seek(row * bytes_each)
                file.write(pixels.data)
            outcomes.append(Outcome(digest, None))
        return outcomes

    def failed(self, reason: str) -> Outcome:
        """Neither a digest nor pixels."""
        return Outcome(None, reason)


class PixelJob(NamedTuple):
    """The pixels of each of these files, or the reason why there are none."""

    files: Sequence[ImageFiles]
    names: Sequence[str]
    how: Decoding

    def do(self, rows: range) -> list[Pixels | str]:
        """These files decoded."""
        return [self._pixels(row) for row in rows]

    def failed(self, reason: str) -> Pixels | str:
        """The reason itself."""
        return reason

    def _pixels(self, row: int) -> Pixels | str:
        try:
            return decode(self.files[row].read(self.names[row]), self.how)
        except BadImage as bad:
            return str(bad)


class GreyJob(NamedTuple):
    """Whether each of these files is grey; None where it cannot be read."""

    files: ImageFiles
    names: Sequence[str]

    def do(self, rows: range) -> list[bool | None]:
        """A look at these files."""
        return [self._grey(row) for row in rows]

    def failed(self, reason: str) -> bool | None:
        """A file that cannot be read has no colour."""
        return None

    def _grey(self, row: int) -> bool | None:
        try:
            return is_grey(self.files.read(self.names[row]))
        except BadImage:
            return None

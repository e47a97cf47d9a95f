"""Decoding as work for several processes, each of which writes its images straight into the store's file."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from acpl.data.decode import Decoding, decode
from acpl.data.files import BadImage, ImageFiles
from acpl.data.workers import CRASHED


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
        with self.target.open("r+b") as file:
            for row in rows:
                digest = None
                try:
                    content = self.files.read(self.names[row])
                    digest = hashlib.blake2b(content, digest_size=16).hexdigest()
                    pixels = decode(content, self.how)
                except BadImage as bad:
                    outcomes.append(Outcome(digest, str(bad)))
                    continue
                file.seek(row * bytes_each)
                file.write(pixels.data)
                outcomes.append(Outcome(digest, None))
        return outcomes

    def crashed(self) -> Outcome:
        """Neither a digest nor pixels."""
        return Outcome(None, CRASHED)

"""Where data comes from: each source yields a manifest and, for the parts asked for, the images."""

from typing import NamedTuple, Protocol

from acpl.data.manifest import Manifest, Part
from acpl.data.store import ImageStore
from acpl.settings import unknown


class Dataset(NamedTuple):
    """Some parts of a data set: what is known of each sample, and its image."""

    manifest: Manifest
    images: ImageStore


class Source(Protocol):
    """A data set that can be opened part by part."""

    def open(self, parts: tuple[Part, ...]) -> Dataset:
        """These parts alone; nothing of any other part is read."""
        ...


def find_source(name: str, *, size: int, patients: int, seed: int) -> Source:
    """The source behind a name; ``patients`` and ``seed`` are for the phantoms."""
    from acpl.data.sources.phantoms import PHANTOMS, PhantomSource

    for phantom in PHANTOMS:
        if name == phantom:
            return PhantomSource(phantom, patients, size, seed)
    raise unknown("data", name, PHANTOMS)

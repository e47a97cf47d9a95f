"""Every image of a source looked at once: can it be read, how large is it, does it show anything."""

import hashlib
import re
import warnings
from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from acpl.data.check.images import ImageFacts
from acpl.data.decode import FORMATS, Decoding, decode
from acpl.data.dicom_signs import looks_like_dicom
from acpl.data.files import BadImage, ImageFiles
from acpl.data.manifest import Manifest
from acpl.data.workers import Progress, do_all

if TYPE_CHECKING:
    from pydicom import Dataset

    from acpl.data.sources import Source
    from acpl.data.sources.files import FileSource
    from acpl.data.sources.shards import ShardSource

GLANCE = Decoding(size=64, channels=3)
"""Pictures are compared as small ones: a copy with another header or compression shows the same."""
NOBODY = frozenset(
    {
        "",
        "0",
        "00",
        "000",
        "anon",
        "anonymized",
        "anonymised",
        "anonymous",
        "deidentified",
        "hidden",
        "id",
        "na",
        "none",
    }
    | {"noid", "null", "patient", "patientid", "removed", "test", "unknown", "unnamed", "x", "xx", "xxx"}
)
"""What stands for a patient's number where it was taken out, without spaces and signs."""


class Seen(NamedTuple):
    """What one look at an image gives."""

    reason: str = ""
    file: str = ""
    picture: str = ""
    width: int = 0
    height: int = 0
    blank: bool = False
    patient: str = ""
    """Digest of who a DICOM file says it shows; empty where it does not say."""


class Header(NamedTuple):
    """What a file says of itself."""

    width: int
    height: int
    patient: str = ""


def scan_files(source: "FileSource", progress: Progress) -> ImageFacts:
    """Facts of every row's file; each is read once, in several processes where there are many."""
    from acpl.data.sources.files import find_files

    names = [str(name) for name in source.manifest().table["image"]]
    stored, bad = find_files(source.files, names)
    seen = [Seen(reason=bad.get(row, "")) for row in range(len(names))]
    looks = do_all(Looking(source.files, list(stored.values())), "reading", progress=progress)
    for row, look in zip(stored, looks, strict=True):
        seen[row] = look
    return _facts(seen, unnamed=sorted(set(source.files.names()) - set(stored.values()) - set(names)))


def scan_shards(source: "ShardSource", progress: Progress) -> ImageFacts:
    """Facts of every row's image in a shard; each shard is read once, and what was seen is kept."""
    content = source.look(progress)
    places, bad = source.find(content, source.manifest())
    seen = [
        Seen(reason=bad[row].reason) if row in bad else Seen(*content.seen[place])
        for row, place in enumerate(places.tolist())
    ]
    unnamed = sorted(set(content.names) - {content.names[place] for place in places if place >= 0})
    return _facts(seen, unnamed, content.faults)


def scan_arrays(source: "Source", manifest: Manifest) -> ImageFacts:
    """Facts of a source that holds its images as arrays."""
    images = source.open(tuple(manifest.table["part"].unique())).images
    ids = {int(sample): row for row, sample in enumerate(images.ids)}
    rows = [ids[int(sample)] for sample in manifest.ids]
    return _facts([_look_at_pixels(images.images[row].numpy()) for row in rows])


class Looking(NamedTuple):
    """A look at each of these stored files, as work for several processes."""

    files: ImageFiles
    names: Sequence[str]

    def do(self, rows: range) -> list[Seen]:
        """What is seen of these files."""
        return [look_at(self.files, self.names[row]) for row in rows]

    def failed(self, reason: str) -> Seen:
        """A reason and nothing else."""
        return Seen(reason=reason)


def look_at(files: ImageFiles, name: str) -> Seen:
    """One look at a stored file."""
    try:
        return look_at_content(files.read(name))
    except BadImage as bad:
        return Seen(reason=str(bad))


def look_at_content(content: bytes) -> Seen:
    """One look at a file's content; BadImage says why nothing can be seen."""
    pixels = decode(content, GLANCE)
    return _look_at_pixels(pixels)._replace(file=_digest(content), **_header(content)._asdict())


def _look_at_pixels(pixels: npt.NDArray[np.uint8]) -> Seen:
    digest = _digest(pixels.tobytes())
    flat = pixels.reshape(len(pixels), -1)
    blank = bool((flat == flat[:, :1]).all())
    return Seen(file=digest, picture=digest, width=pixels.shape[2], height=pixels.shape[1], blank=blank)


def _header(content: bytes) -> Header:
    """The header of an image that could be decoded."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is large, or odd, has been weighed by decode
        if looks_like_dicom(content):
            from pydicom import dcmread

            dataset = dcmread(BytesIO(content), force=True, stop_before_pixels=True)
            return Header(int(dataset.Columns), int(dataset.Rows), _patient(dataset))
        with Image.open(BytesIO(content), formats=FORMATS) as image:
            return Header(*image.size)


def _patient(dataset: "Dataset") -> str:
    """A digest, so that no number of a patient is kept; an issuer's numbers are not another's."""
    try:
        number, issuer = (str(dataset.get(name) or "").strip() for name in ("PatientID", "IssuerOfPatientID"))
    except Exception:  # a number that cannot be read is none
        return ""
    if re.sub(r"[\W_]", "", number).lower() in NOBODY:
        return ""
    return _digest(f"{issuer}\0{number}".encode(errors="surrogateescape"))


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _facts(seen: Sequence[Seen], unnamed: Sequence[str] = (), faults: Sequence[tuple[str, str]] = ()) -> ImageFacts:
    columns = list(zip(*seen, strict=True)) or [()] * len(Seen._fields)
    reason, file, picture, width, height, blank, patient = columns
    return ImageFacts(
        reason=np.array(reason, dtype=object),
        file=np.array(file, dtype=object),
        picture=np.array(picture, dtype=object),
        width=np.array(width, dtype=np.int64),
        height=np.array(height, dtype=np.int64),
        blank=np.array(blank, dtype=bool),
        unnamed=unnamed,
        faults=faults,
        patient=np.array(patient, dtype=object),
    )

"""What the images say: bad files, duplicates, odd sizes, blank pictures."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from acpl.data.check.labels import counted, joined
from acpl.data.check.result import Finding, Severity, Sizes
from acpl.data.manifest import Manifest

ODD_SHAPE = 2.0
"""A width over height this many times the median's, or less than its inverse, is odd."""
ODD_SIDE = 4.0
"""A side (root of the area) this many times the median's, or less than its inverse, is odd."""
TINY = 16
"""Images with a side shorter than this many pixels show nothing."""


@dataclass(frozen=True)
class ImageFacts:
    """What was seen of each row's image, in the manifest's order."""

    reason: npt.NDArray[np.object_]
    """Why the file cannot be read; empty for a good one."""
    file: npt.NDArray[np.object_]
    """Digest, equal for equal files."""
    picture: npt.NDArray[np.object_]
    """Digest, equal for images that show the same."""
    width: npt.NDArray[np.int64]
    height: npt.NDArray[np.int64]
    blank: npt.NDArray[np.bool_]
    """All pixels are the same."""
    unnamed: Sequence[str] = ()
    """Files that no row names."""
    faults: Sequence[tuple[str, str]] = ()
    """Shards that cannot be read to their end, and why."""
    patient: npt.NDArray[np.object_] | None = None
    """Equal for images that say they show the same patient; empty for those that say nothing."""

    @property
    def good(self) -> npt.NDArray[np.bool_]:
        """The rows whose image was read."""
        return np.asarray(self.reason == "", dtype=bool)


def measure_sizes(facts: ImageFacts) -> Sizes | None:
    """Median, smallest and largest size of the good images."""
    width, height = facts.width[facts.good], facts.height[facts.good]
    if not len(width):
        return None
    order = np.argsort(width * height, kind="stable")
    return Sizes(
        median=(int(np.median(width)), int(np.median(height))),
        smallest=(int(width[order[0]]), int(height[order[0]])),
        largest=(int(width[order[-1]]), int(height[order[-1]])),
        different=len(np.unique(np.stack([width, height]), axis=1).T),
    )


def image_findings(manifest: Manifest, facts: ImageFacts) -> list[Finding]:
    """Everything that is wrong or odd with the images."""
    return [
        *_damaged_shards(facts),
        *_bad_files(manifest, facts),
        *_duplicates(manifest, facts),
        *_patients(manifest, facts),
        *_blank(manifest, facts),
        *_odd_sizes(manifest, facts),
        *_unnamed(facts),
    ]


def _damaged_shards(facts: ImageFacts) -> list[Finding]:
    if not facts.faults:
        return []
    items = [{"shard": shard, "reason": reason} for shard, reason in facts.faults]
    return [Finding("damaged-shard", "spoils", f"{counted(len(items), 'shard')} cannot be read to the end", items)]


def _bad_files(manifest: Manifest, facts: ImageFacts) -> list[Finding]:
    bad = manifest.table[~facts.good]
    if bad.empty:
        return []
    reasons = facts.reason[~facts.good]
    items = [
        {"image": image, "part": part, "reason": reason}
        for image, part, reason in zip(bad["image"], bad["part"], reasons, strict=True)
    ]
    says = f"{counted(len(items), 'image')} cannot be read"
    if len(items) == len(manifest.table):
        says = f"not one of {counted(len(items), 'image')} can be read; is the images' folder the right one?"
    return [Finding("bad-file", "spoils", says, items)]


def _duplicates(manifest: Manifest, facts: ImageFacts) -> list[Finding]:
    """Sets of rows that show the same; blank images, which are all alike, are told of elsewhere."""
    picture = pd.Series(facts.picture).where(facts.good & ~facts.blank)
    rows = np.flatnonzero(picture.notna() & picture.duplicated(keep=False))
    if not len(rows):
        return []
    known = manifest.known[rows]
    classes = pd.Series(joined(manifest.labels[rows] > 0, manifest.classes, "|")).replace("", "none")
    same = pd.DataFrame(
        {
            "picture": facts.picture[rows],
            "file": facts.file[rows],
            "image": manifest.table["image"].to_numpy()[rows],
            "part": manifest.table["part"].to_numpy()[rows],
            "labels": classes.where(known),
        }
    )
    different = same.groupby("picture")[["part", "labels"]].nunique()  # a row without labels contradicts nobody
    across = same["picture"].map(different["part"] > 1)
    against = same["picture"].map(different["labels"] > 1)
    dependent = "with the same picture in more than one part: the parts are not independent"
    return [
        *_sets_alike("duplicate-across-parts", "spoils", same[across], dependent),
        *_sets_alike("duplicate-against-label", "spoils", same[against], "with the same picture but different labels"),
        *_sets_alike("duplicate", "note", same[~across & ~against], "with the same picture in the same part"),
    ]


def _sets_alike(kind: str, severity: Severity, same: pd.DataFrame, what: str) -> list[Finding]:
    if same.empty:
        return []
    sets = same.fillna({"labels": "unlabelled"}).groupby("picture", sort=False)
    columns = sets[["image", "part", "labels"]].agg(list)
    one_file = sets["file"].nunique() == 1
    items = [
        {"images": images, "parts": parts, "labels": labels, "alike": "same file" if same_file else "same picture"}
        for images, parts, labels, same_file in zip(*(columns[name] for name in columns), one_file, strict=True)
    ]
    return [Finding(kind, severity, f"{counted(len(items), 'set')} of images {what}", items)]


def _patients(manifest: Manifest, facts: ImageFacts) -> list[Finding]:
    """Patients of several images by what DICOM files say, where no group is known that would keep them together."""
    table = manifest.table
    if facts.patient is None or not (table["group"] == table["image"]).all():
        return []
    seen = table[["image", "part"]].assign(patient=facts.patient)[facts.patient != ""]
    if seen["patient"].nunique() < 2:  # one number for all is that of whoever took the numbers out
        return []
    patients = seen[seen["patient"].duplicated(keep=False)].groupby("patient", sort=False)[["image", "part"]].agg(list)
    if patients.empty:
        return []
    torn = patients[patients["part"].map(lambda parts: len(set(parts)) > 1)]
    what = "by the PatientID in their files, though the data names no groups"
    keep = "a table with a column 'patient' keeps them together"
    if torn.empty:
        says = f"{counted(len(patients), 'patient')} with several images, {what}: intervals are too narrow; {keep}"
        return [Finding("patient-without-group", "note", says, _images_of(patients))]
    says = f"{counted(len(torn), 'patient')} on more than one side, {what}: the parts are not independent; {keep}"
    return [Finding("patient-on-two-sides", "spoils", says, _images_of(torn))]


def _images_of(patients: pd.DataFrame) -> list[dict[str, Any]]:
    return [
        {"images": images, "parts": parts} for images, parts in zip(patients["image"], patients["part"], strict=True)
    ]


def _blank(manifest: Manifest, facts: ImageFacts) -> list[Finding]:
    blank = manifest.table[facts.good & facts.blank]
    if blank.empty:
        return []
    items = [{"image": image, "part": part} for image, part in zip(blank["image"], blank["part"], strict=True)]
    return [Finding("blank", "note", f"{counted(len(items), 'image')} with every pixel the same", items)]


def _odd_sizes(manifest: Manifest, facts: ImageFacts) -> list[Finding]:
    rows = np.flatnonzero(facts.good)
    if not len(rows):
        return []
    width, height = facts.width[rows], facts.height[rows]
    shape = _away_from_median(width / height)
    side = _away_from_median(np.sqrt(width * height))
    why = np.full(len(rows), "", dtype=object)
    why[shape > ODD_SHAPE] = "shape far from the median's"
    why[side > ODD_SIDE] = "size far from the median's"
    why[np.minimum(width, height) < TINY] = f"a side below {TINY} pixels"
    odd = np.flatnonzero(why != "")
    if not len(odd):
        return []
    table = manifest.table.iloc[rows[odd]]
    items = [
        {"image": image, "part": part, "size": f"{w} × {h}", "why": reason}
        for image, part, w, h, reason in zip(
            table["image"], table["part"], width[odd], height[odd], why[odd], strict=True
        )
    ]
    return [Finding("odd-size", "note", f"{counted(len(items), 'image')} of odd size", items)]


def _away_from_median(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """How many times larger or smaller than the median each value is, at least 1."""
    times = values / np.median(values)
    return np.maximum(times, 1 / times)


def _unnamed(facts: ImageFacts) -> list[Finding]:
    if not facts.unnamed:
        return []
    says = f"{counted(len(facts.unnamed), 'image file')} that no row names"
    return [Finding("file-without-row", "note", says, [{"file": name} for name in facts.unnamed])]

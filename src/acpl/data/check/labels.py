"""What the table alone says: counts, balance, groups on two sides, labels that contradict the task."""

from collections import Counter
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd

from acpl.data.check.result import Finding, PartCounts, Severity
from acpl.data.manifest import Manifest, Part
from acpl.task import Task

FEW = 10
"""Fewer positives than this are too few to learn a class from, or to judge it by."""
NEARLY_NONE = 0.02
"""A share of rows this small is more likely a mistake than a rule."""
PARTS: tuple[Part, ...] = get_args(Part)


def count_parts(manifest: Manifest) -> dict[str, PartCounts]:
    """What each part that has a row holds."""
    counts = {}
    for part in PARTS:
        rows = manifest.only([part])
        labelled = rows.labels[rows.known]
        if len(rows.table):
            counts[str(part)] = PartCounts(
                images=len(rows.table),
                groups=int(rows.table["group"].nunique()),
                labelled=len(labelled),
                unlabelled=len(rows.table) - len(labelled),
                positives=dict(zip(manifest.classes, labelled.sum(axis=0).astype(int).tolist(), strict=True)),
            )
    return counts


def count_together(manifest: Manifest) -> list[list[int]]:
    """(classes, classes): labelled rows that are positive for both; a class's own positives on the diagonal."""
    labelled = manifest.labels[manifest.known].astype(np.float64)
    together: list[list[int]] = (labelled.T @ labelled).astype(int).tolist()
    return together


def label_findings(manifest: Manifest, counts: dict[str, PartCounts]) -> list[Finding]:
    """Everything that is wrong or odd with the table, whatever the images look like."""
    return [
        *_parts_that_lack(counts),
        *_groups_on_two_sides(manifest),
        *_rows_against_the_task(manifest),
        *_classes_that_lack(counts),
        *_blank_labels(manifest, counts),
    ]


def _parts_that_lack(counts: dict[str, PartCounts]) -> list[Finding]:
    needed: dict[str, tuple[Severity, str]] = {
        "train": ("spoils", "nothing can be trained"),
        "validation": ("note", "no threshold can be set and no model chosen on it"),
        "test": ("spoils", "no figure can be given"),
    }
    findings = []
    for part, (severity, consequence) in needed.items():
        if part not in counts:
            says = f"there is no {part} part: {consequence}"
        elif counts[part].labelled == 0:
            says = f"no row of the {part} part is labelled: {consequence}"
        else:
            continue
        findings.append(Finding("part-lacking", severity, says, [{"part": part}]))
    return findings


def _groups_on_two_sides(manifest: Manifest) -> list[Finding]:
    places = manifest.table[["group", "part"]]
    once = places.drop_duplicates()
    split = set(once.loc[once["group"].duplicated(), "group"])
    if not split:
        return []
    images = places[places["group"].isin(split)].value_counts().unstack(fill_value=0)
    present = [part for part in PARTS if part in images.columns]
    held = images[present].to_numpy()
    sides = joined(held > 0, tuple(present), " and ")
    ways = ", ".join(f"{count} in {side}" for side, count in pd.Series(sides).value_counts().items())
    items = [
        {"group": str(group), "parts": side} | dict(zip(present, row, strict=True))
        for group, side, row in zip(images.index, sides, held.tolist(), strict=True)
    ]
    says = f"{counted(len(split), 'group')} on more than one side ({ways}): the parts are not independent"
    return [Finding("group-on-two-sides", "spoils", says, items)]


def _rows_against_the_task(manifest: Manifest) -> list[Finding]:
    positive = manifest.labels > 0
    count = positive.sum(axis=1)
    wrong = (manifest.known & (count != 1)) | (count > 1)
    many = counted(int(wrong.sum()), "row")
    if manifest.task is Task.MULTI_CLASS:
        severity: Severity = "spoils"
        says = f"{many} without exactly one class, though the task is multi-class"
    else:
        # One slip of the pen in a multi-class table makes it look multi-label.
        if len(manifest.classes) < 2 or wrong.sum() > NEARLY_NONE * manifest.known.sum():
            return []
        severity = "note"
        says = f"only {many} without exactly one class: if the task is multi-class, mend them and set it"
    items = [
        {"image": image, "part": part, "classes": named or "none"}
        for image, part, named in zip(
            manifest.table["image"][wrong],
            manifest.table["part"][wrong],
            joined(positive[wrong], manifest.classes, ", "),
            strict=True,
        )
    ]
    return [Finding("label-against-task", severity, says, items)] if items else []


def _classes_that_lack(counts: dict[str, PartCounts]) -> list[Finding]:
    without, rare = [], []
    for part, held in counts.items():
        for name, positives in held.positives.items() if held.labelled else ():
            item = {"class": name, "part": part, "positive": positives, "negative": held.labelled - positives}
            if positives in (0, held.labelled):
                without.append(item)
            elif positives < FEW:
                rare.append(item)
    chosen_by = [item for item in without if item["part"] == "validation"]
    learnt_or_judged = [item for item in without if item["part"] != "validation"]
    one_value = "with only one value among the labelled rows, so nothing can be learnt or told from it"
    few = f"with fewer than {FEW} labelled positives, so their figures will be uncertain"
    found: list[tuple[str, Severity, list[dict[str, Any]], str]] = [
        ("class-with-one-value", "spoils", learnt_or_judged, one_value),
        ("class-with-one-value", "note", chosen_by, one_value),
        ("class-with-few-positives", "note", rare, few),
    ]
    return [
        Finding(kind, severity, f"{_classes_by_part(items)} {what}", items)
        for kind, severity, items, what in found
        if items
    ]


def _blank_labels(manifest: Manifest, counts: dict[str, PartCounts]) -> list[Finding]:
    findings = []
    partly = ~manifest.known & ~np.isnan(manifest.labels).all(axis=1)
    if partly.any():
        table = manifest.table[partly]
        items = [{"image": image, "part": part} for image, part in zip(table["image"], table["part"], strict=True)]
        says = f"{counted(len(items), 'row')} with only some labels blank: they count as unlabelled"
        findings.append(Finding("label-partly-blank", "note", says, items))
    unjudged = [{"part": part, "rows": counts[part].unlabelled} for part in ("validation", "test") if part in counts]
    unjudged = [item for item in unjudged if item["rows"]]
    if unjudged:
        where = " and ".join(f"{item['rows']} in {item['part']}" for item in unjudged)
        says = f"unlabelled rows outside the train part ({where}) are left out of every figure"
        findings.append(Finding("unlabelled-outside-train", "note", says, unjudged))
    return findings


def _classes_by_part(items: list[dict[str, Any]]) -> str:
    """For example: 2 classes in train, 1 class in test."""
    parts = Counter(item["part"] for item in items)
    return ", ".join(f"{count} {'class' if count == 1 else 'classes'} in {part}" for part, count in parts.items())


def joined(chosen: npt.NDArray[np.bool_], names: tuple[str, ...], between: str) -> list[str]:
    """The names chosen in each row (rows, names), joined; each different row is joined once."""
    patterns, which = np.unique(chosen, axis=0, return_inverse=True)
    texts = [between.join(name for name, here in zip(names, row, strict=True) if here) for row in patterns]
    return [texts[index] for index in which.ravel()]


def counted(count: int, noun: str) -> str:
    """A number and its noun: 1 row, 2 rows."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"

"""What a check found: counts, and findings that would spoil a result or are worth knowing."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from acpl.data.files import printable
from acpl.task import Task

Severity = Literal["spoils", "note"]


@dataclass(frozen=True)
class Finding:
    """One kind of trouble and everything it concerns; all ``items`` have the same keys and plain values."""

    kind: str
    severity: Severity
    says: str
    """One sentence for people."""
    items: list[dict[str, Any]]

    def __post_init__(self) -> None:
        """File names come from strangers; none may move a terminal."""
        harmless = [{key: _printable(value) for key, value in item.items()} for item in self.items]
        object.__setattr__(self, "items", harmless)


def _printable(value: Any) -> Any:
    if isinstance(value, list):
        return [_printable(part) for part in value]
    return printable(value) if isinstance(value, str) else value


@dataclass(frozen=True)
class PartCounts:
    """How much a part holds; a row is labelled when none of its labels is blank."""

    images: int
    groups: int
    labelled: int
    unlabelled: int
    positives: dict[str, int]
    """Each class's positives among the labelled rows."""


@dataclass(frozen=True)
class Sizes:
    """Width and height in pixels over all readable images; smallest and largest by area."""

    median: tuple[int, int]
    smallest: tuple[int, int]
    largest: tuple[int, int]
    different: int
    """How many different sizes there are."""


@dataclass(frozen=True)
class CheckResult:
    """A data set before any training."""

    task: Task
    classes: tuple[str, ...]
    parts: Mapping[str, PartCounts]
    together: list[list[int]] | None
    """Multi-label: labelled rows, of all parts, that have both classes (classes, classes)."""
    sizes: Sizes | None
    """None when no image could be read."""
    findings: list[Finding]

    @property
    def spoils(self) -> bool:
        """Whether anything found would spoil a result."""
        return any(finding.severity == "spoils" for finding in self.findings)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as they are written to JSON."""
        return {"spoils": self.spoils, **asdict(self), "task": str(self.task)}

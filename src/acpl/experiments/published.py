"""What was published on the same data, to stand beside what was measured here."""

import csv
from dataclasses import dataclass
from functools import cache
from importlib import resources
from math import isclose


@dataclass(frozen=True)
class Published:
    """A mean test AUROC in [0, 1] as a paper has it."""

    data: str
    fraction: float
    method: str
    auroc: float
    note: str


SOURCE = (
    "Published figures: the tables of Liu et al., CVPR 2022 (ACPL), some taken over there from the methods' papers."
)
CHOSEN_ON_TEST = (
    "ACPL's published code keeps the checkpoint that is best on the test part and has no validation part; of the other "
    "published figures it is not known what they were chosen on. Those measured here never saw the test part before "
    "they were judged on it."
)


def published_figure(data: str, fraction: float, method: str) -> Published | None:
    """What was published for a method on these data and this share of labels, if anything was."""
    for row in _rows():
        if (row.data, row.method) == (data, method) and isclose(row.fraction, fraction, abs_tol=1e-6):
            return row
    return None


@cache
def _rows() -> tuple[Published, ...]:
    text = (resources.files("acpl.experiments") / "published.csv").read_text(encoding="utf-8")
    return tuple(
        Published(row["data"], float(row["fraction"]), row["method"], float(row["auroc"]) / 100, row["note"])
        for row in csv.DictReader(text.splitlines())
    )

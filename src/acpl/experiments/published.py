"""What was published on the same data, to stand beside what was measured here."""

from dataclasses import dataclass

from acpl.experiments.reproduce import paper


@dataclass(frozen=True)
class Published:
    """A mean test AUROC in [0, 1] as a paper has it."""

    auroc: float
    note: str


_TABLES = {"chestxray14": "table1", "isic2018": "table3"}
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
    if data not in _TABLES:
        return None
    share = f"{100 * fraction:.4g} %"
    found = paper.figure(_TABLES[data], method, share)
    return None if found is None else Published(found, paper.note(_TABLES[data], method, share))

"""The paper as pure functions on tensors: no files, no state, nothing else of the package.

From features to pseudo labels, equations 2 to 7, in the order of use: neighbours, information, pseudo labels,
anchors; and the spreading of labels over a graph that one of its rivals needs; which few samples cover many; and what
is known beside the image. All take CPU and CUDA tensors alike and return float32, int64 or bool.
"""

from acpl.functional.anchors import connections, purify
from acpl.functional.clinical import clinical_evidence, fit_clinical
from acpl.functional.diversity import farthest_first
from acpl.functional.evidence import (
    add_evidence,
    group_label_evidence,
    share_answers,
    share_known_answers,
    usual_shares,
)
from acpl.functional.graph import affinity, spread
from acpl.functional.information import Information, density, information, level_of_minimum, min_max, select
from acpl.functional.neighbours import MutualNearest, Nearest, mutual_nearest, nearest
from acpl.functional.pseudo_labels import (
    Mixed,
    beta_weights,
    informative_mixup,
    mixup_images,
    neighbour_labels,
    random_mixup,
)

__all__ = [
    "Information",
    "Mixed",
    "MutualNearest",
    "Nearest",
    "add_evidence",
    "affinity",
    "beta_weights",
    "clinical_evidence",
    "connections",
    "density",
    "farthest_first",
    "fit_clinical",
    "group_label_evidence",
    "information",
    "informative_mixup",
    "level_of_minimum",
    "min_max",
    "mixup_images",
    "mutual_nearest",
    "nearest",
    "neighbour_labels",
    "purify",
    "random_mixup",
    "select",
    "share_answers",
    "share_known_answers",
    "spread",
    "usual_shares",
]

"""The paper as pure functions on tensors: no files, no state, nothing else of the package.

From features to pseudo labels, equations 2 to 7, in the order of use: neighbours, information, pseudo labels,
anchors; and the spreading of labels over a graph that one of its rivals needs; and which few
samples cover many. All take CPU and CUDA tensors
alike and return float32, int64 or bool.
"""

from acpl.functional.anchors import connections, purify
from acpl.functional.diversity import farthest_first
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
    "affinity",
    "beta_weights",
    "connections",
    "density",
    "farthest_first",
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
    "spread",
]

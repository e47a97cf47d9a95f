"""Where to draw the line between yes and no: per class, on images that nothing else is judged on."""

import numpy as np
from numpy.typing import ArrayLike

from acpl.evaluation.checks import Bools, Floats, truth_and_score


def youden_thresholds(truth: ArrayLike, score: ArrayLike) -> Floats:
    """Each class's threshold `(classes,)` with the greatest sensitivity + specificity (Youden's J).

    J, unlike F1, does not depend on how frequent a class is, and that differs between a validation part and
    where the model is used. A threshold lies halfway between the lowest score that is a yes and the highest
    that is a no; of equally good ones the lowest is taken, for it finds more. NaN where nothing can be set: for a
    class without a positive or without a negative image, and where no threshold does better than chance.

    >>> youden_thresholds([[1, 0], [1, 0], [0, 0]], [[0.9, 0.1], [0.5, 0.2], [0.25, 0.3]])
    array([0.375,   nan])
    """
    labels, scores = truth_and_score(truth, score)
    return np.array([_youden_one(labels[:, c], scores[:, c]) for c in range(labels.shape[1])])


def _youden_one(labels: Bools, scores: Floats) -> float:
    if labels.all() or not labels.any():
        return float("nan")
    levels, level_of = np.unique(scores, return_inverse=True)
    positives, negatives = (np.bincount(level_of[kind], minlength=len(levels)) for kind in (labels, ~labels))
    found = positives[::-1].cumsum()[::-1]
    false_alarms = negatives[::-1].cumsum()[::-1]
    # In integers, J · positives · negatives: equally good thresholds are then exactly equal.
    gain = found * negatives.sum() - false_alarms * positives.sum()
    best = int(gain.argmax())
    if gain[best] <= 0:
        return float("nan")
    yes, no = levels[best], levels[best - 1]  # the lowest level calls every image, which gains nothing
    middle = no + (yes / 2 - no / 2)  # halves first: the difference of two huge scores is infinite
    return float(middle if middle > no else yes)

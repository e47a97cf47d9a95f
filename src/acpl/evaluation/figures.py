"""The figures of a report, as statistics that can be resampled together.

Each function lays the images out once and gives a `Statistic`: from weights `(sets, images)` to named figures
`(sets, classes)`. Truth is `(images, classes)` of 0 and 1, one-hot for multi-class.
"""

from numpy.typing import ArrayLike

from acpl.evaluation.bootstrap import Integers, Statistic
from acpl.evaluation.calibration import calibration_bins, top_label, weighted_calibration_error
from acpl.evaluation.checks import Bools, Floats, binary
from acpl.evaluation.decisions import decide, decision_rows, weighted_confusion
from acpl.evaluation.ranking import rank, weighted_ranking


def ranking_figures(truth: ArrayLike, score: ArrayLike) -> Statistic:
    """`auroc` and `average_precision` of scores.

    >>> import numpy as np
    >>> ranking_figures([[1], [0]], [[0.9], [0.1]])(np.array([[1, 1]]))["auroc"]
    array([[1.]])
    """
    rankings = rank(truth, score)
    return lambda weights: weighted_ranking(rankings, weights)._asdict()


def decision_figures(truth: ArrayLike, decisions: ArrayLike) -> Statistic:
    """`sensitivity`, `specificity`, `f1` and `balanced_accuracy` of decisions, each class a yes/no question."""
    rows = decision_rows(truth, decisions)

    def figures(weights: Integers) -> dict[str, Floats]:
        counts = weighted_confusion(rows, weights)
        return {
            "sensitivity": counts.sensitivity(),
            "specificity": counts.specificity(),
            "f1": counts.f1(),
            "balanced_accuracy": counts.balanced_accuracy(),
        }

    return figures


def calibration_figures(truth: ArrayLike, score: ArrayLike) -> Statistic:
    """`calibration_error` of probabilities, each class a yes/no question."""
    bins = calibration_bins(truth, score)
    return lambda weights: {"calibration_error": weighted_calibration_error(bins, weights)}


def arg_max_figures(truth: ArrayLike, score: ArrayLike) -> Statistic:
    """Multi-class figures of the most probable class.

    `balanced_accuracy` is the recall of each class, whose mean is the usual multi-class balanced accuracy;
    `top_label_calibration_error` has a single column.
    """
    bins = calibration_bins(*top_label(truth, score))
    rows = decision_rows(truth, decide(score, "argmax"))
    return lambda weights: {
        "balanced_accuracy": weighted_confusion(rows, weights).sensitivity(),
        "top_label_calibration_error": weighted_calibration_error(bins, weights),
    }


def together(*statistics: Statistic) -> Statistic:
    """All figures of several statistics; of two with one name the later stands."""
    return lambda weights: {name: values for one in statistics for name, values in one(weights).items()}


def needed_kinds(truth: ArrayLike) -> dict[str, tuple[Bools, ...]]:
    """The images `(images, classes)` without which ranking and decision figures are undefined, for `resample`."""
    positive = binary(truth, "truth")
    both = dict.fromkeys(("auroc", "average_precision", "f1", "balanced_accuracy"), (positive, ~positive))
    return {**both, "sensitivity": (positive,), "specificity": (~positive,)}

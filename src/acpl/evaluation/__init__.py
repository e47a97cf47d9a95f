"""The honest judge: figures per class, their intervals, and paired comparisons. NumPy only."""

from acpl.evaluation.bootstrap import (
    ClassIntervals,
    MeanInterval,
    PairedDifference,
    Resampled,
    Statistic,
    bootstrap_auroc,
    paired_bootstrap_auroc,
    resample,
)
from acpl.evaluation.calibration import (
    ERRORS,
    calibration_bins,
    calibration_error,
    top_label,
    top_label_calibration_error,
    weighted_calibration_error,
)
from acpl.evaluation.decisions import (
    Confusion,
    balanced_accuracy,
    binary_balanced_accuracy,
    confusion,
    decide,
    decision_rows,
    f1,
    sensitivity,
    specificity,
    weighted_confusion,
)
from acpl.evaluation.figures import (
    arg_max_figures,
    calibration_figures,
    decision_figures,
    needed_kinds,
    ranking_figures,
    together,
)
from acpl.evaluation.means import class_mean, defined_mean
from acpl.evaluation.ranking import (
    Ranking,
    RankingFigures,
    auroc,
    average_precision,
    rank,
    weighted_auroc,
    weighted_ranking,
)
from acpl.evaluation.significance import least_p, two_sided_p
from acpl.evaluation.temperature import fit_temperature
from acpl.evaluation.thresholds import youden_thresholds
from acpl.evaluation.trainings import OverTrainings, mean_over_trainings, over_trainings

__all__ = [
    "ERRORS",
    "ClassIntervals",
    "Confusion",
    "MeanInterval",
    "OverTrainings",
    "PairedDifference",
    "Ranking",
    "RankingFigures",
    "Resampled",
    "Statistic",
    "arg_max_figures",
    "auroc",
    "average_precision",
    "balanced_accuracy",
    "binary_balanced_accuracy",
    "bootstrap_auroc",
    "calibration_bins",
    "calibration_error",
    "calibration_figures",
    "class_mean",
    "confusion",
    "decide",
    "decision_figures",
    "decision_rows",
    "defined_mean",
    "f1",
    "fit_temperature",
    "least_p",
    "mean_over_trainings",
    "needed_kinds",
    "over_trainings",
    "paired_bootstrap_auroc",
    "rank",
    "ranking_figures",
    "resample",
    "sensitivity",
    "specificity",
    "together",
    "top_label",
    "top_label_calibration_error",
    "two_sided_p",
    "weighted_auroc",
    "weighted_calibration_error",
    "weighted_confusion",
    "weighted_ranking",
    "youden_thresholds",
]

"""From which probability on a class is called: the stated rule, and its numbers."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from acpl.config import ThresholdRule
from acpl.errors import UserError
from acpl.evaluation import youden_thresholds
from acpl.task import Task

EVEN = 0.5  # where nothing better is known: a class that is more likely than not


def threshold_rule(asked: ThresholdRule | None, task: Task, validation_images: int) -> ThresholdRule:
    """The rule that a run goes by: what was asked for, or what suits the task where nothing was.

    Multi-class takes the most probable class. Multi-label findings are rare, and 0.5 would call hardly any: their
    thresholds are set on the validation part, and are 0.5 only where there is none.
    """
    if asked == "argmax" and task is Task.MULTI_LABEL:
        raise UserError("threshold 'argmax' names one class an image, but this data set is multi-label")
    if asked == "validation" and validation_images == 0:
        raise UserError("threshold 'validation' needs a validation part with labels, and this data set has none")
    if asked is not None:
        return asked
    if task is Task.MULTI_CLASS:
        return "argmax"
    return "validation" if validation_images else EVEN


def set_on_validation(
    classes: Sequence[str], truth: npt.ArrayLike, score: npt.ArrayLike
) -> tuple[list[float], list[str]]:
    """A threshold a class, and the classes for which validation could set none, whose threshold is 0.5."""
    found = youden_thresholds(truth, score)
    unknown = [name for name, value in zip(classes, found, strict=True) if np.isnan(value)]
    return [float(value) for value in np.where(np.isnan(found), EVEN, found)], unknown

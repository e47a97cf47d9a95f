"""What chance alone could show: p of paired differences, which few patients cannot make small.

However alike the resamples of few patients are, they say little of other patients. Had the two models changed sides
patient by patient, each of the 2^patients ways to do so would have been as likely where neither is better, and the
least two-sided p among them is 2 / 2^patients: no p is below it. The patients that count are those who have the kind
of image that fewer have: of a finding that one patient has, nothing is known about another who has it.

That is a bound, not a cure: between six and eight patients a bootstrap finds p < 0.05 between equal models about one
time in eight, from twelve on about as often as it should.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from acpl.evaluation.checks import Bools, Floats

Integers = NDArray[np.int64]


def least_p(patients: int | None) -> float:
    """The least p that so many patients can show: 2 / 2^patients, at most 1; 0 where their number is not known.

    >>> least_p(1), least_p(2), least_p(6)
    (1.0, 0.5, 0.03125)
    """
    return 0.0 if patients is None else min(1.0, 2.0 ** (1 - min(patients, 1000)))


def two_sided_p(differences: Floats, patients: int | None = None) -> float:
    """p of a difference from its draws `(resamples,)`, NaN where it is undefined; NaN where every draw is.

    2 · (min(#{difference ≤ 0}, #{difference ≥ 0}) + 1) / (#resamples + 1) over the draws that are defined, at most 1
    and at least `least_p`. So it is never 0, and it is 1 for equal figures.

    >>> two_sided_p(np.array([0.1, 0.2, 0.3])), two_sided_p(np.array([0.1, 0.2, 0.3]), patients=1)
    (0.5, 1.0)
    """
    defined = differences[~np.isnan(differences)]
    if not len(defined):
        return float("nan")
    rarer = min(np.sum(defined <= 0), np.sum(defined >= 0))
    return max(min(1.0, 2 * (int(rarer) + 1) / (len(defined) + 1)), least_p(patients))


def patients_with(kinds: Sequence[Bools], group_of: Integers) -> tuple[int, Integers]:
    """How many patients bear on a mean over classes, and on each class `(classes,)`.

    `kinds` are tables `(images, classes)` of images that a figure needs, such as the positives and the negatives;
    `group_of` is each image's patient `(images,)`, numbered from 0. On a class bear the patients who have its rarer
    kind, on the mean those who bear on any class.

    >>> positive = np.array([[True], [False], [False], [False]])
    >>> patients_with((positive, ~positive), np.array([0, 0, 1, 2]))
    (1, array([1]))
    """
    number = int(group_of.max()) + 1
    there = np.zeros((len(kinds), number, kinds[0].shape[1]), dtype=bool)
    for kind, table in enumerate(kinds):
        images, classes = np.nonzero(table)
        there[kind, group_of[images], classes] = True
    counts = there.sum(axis=1)
    rarer = np.take_along_axis(there, counts.argmin(axis=0)[None, None], axis=0)[0]
    return int(rarer.any(axis=1).sum()), counts.min(axis=0)

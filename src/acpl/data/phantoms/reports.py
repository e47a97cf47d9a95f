"""What reports say of the phantoms: labels as they are had in numbers, and so with mistakes in them.

Labels that were mined from reports, or given at a glance, miss findings and make others up; what a laboratory says of
one lesion is written down for another. Findings and lesions stay as common as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from acpl.data.phantoms.chest_patients import PREVALENCE as FINDINGS_PREVALENCE
from acpl.data.phantoms.lesions import PREVALENCE as LESIONS_PREVALENCE

_REPORTS = 0xC4E5A  # a random stream of its own
Labels = NDArray[np.uint8]
Patients = NDArray[np.int64]


def reported_findings(labels: Labels, patients: Patients, *, wrong: float, seed: int) -> Labels:
    """Labels (images, 8) in which a share ``wrong`` of the findings is missed, and as many are made up.

    >>> labels = np.ones((2, 8), dtype=np.uint8)
    >>> bool((reported_findings(labels, np.array([0, 1]), wrong=0.0, seed=0) == labels).all())
    True
    """
    made_up = wrong * FINDINGS_PREVALENCE / (1 - FINDINGS_PREVALENCE)
    said = labels.copy()
    for rows, numbers in _by_patient(patients, seed):
        mistaken = numbers.random((rows.stop - rows.start, labels.shape[1])) < np.where(labels[rows], wrong, made_up)
        said[rows] ^= mistaken
    return said


def reported_lesions(labels: Labels, patients: Patients, *, wrong: float, seed: int) -> Labels:
    """One-hot labels (images, 7) of which a share ``wrong`` is that of any lesion, which may be of the same class."""
    said = labels.copy()
    upto, one_hot = np.cumsum(LESIONS_PREVALENCE[:-1]), np.eye(labels.shape[1], dtype=labels.dtype)
    for rows, numbers in _by_patient(patients, seed):
        luck, which = numbers.random((2, rows.stop - rows.start))
        any_lesion = one_hot[np.searchsorted(upto, which, side="right")]
        said[rows] = np.where((luck < wrong)[:, None], any_lesion, labels[rows])
    return said


def _by_patient(patients: Patients, seed: int) -> Iterator[tuple[slice, np.random.Generator]]:
    """The rows of each patient, who come one after the other, with numbers that no other patient moves."""
    starts = [0, *(np.flatnonzero(np.diff(patients)) + 1).tolist(), len(patients)] if len(patients) else []
    for start, stop in pairwise(starts):
        yield slice(start, stop), np.random.default_rng([seed, _REPORTS, int(patients[start])])

"""One number that makes probabilities mean more nearly what they say: temperature scaling (Guo et al., ICML 2017)."""

import numpy as np
from numpy.typing import ArrayLike

from acpl.evaluation.checks import Bools, Floats, one_hot, probabilities, truth_and_score

LEAST, MOST = 0.02, 50.0
"""The sharpest and the softest."""
_HALVINGS = 60
# As far as float32 tells probabilities apart: beyond, how sure an answer is was lost in rounding.
_SUREST = (float(np.finfo(np.float32).tiny), 1 - float(np.finfo(np.float32).eps) / 2)


def fit_temperature(truth: ArrayLike, score: ArrayLike, *, exclusive: bool) -> float:
    """The temperature T whose softened probabilities explain the truth best, from 0.02 to 50; above 1 they were too
    sure.

    Softened are log-probabilities divided by T, then a softmax, where classes exclude each other (`exclusive`); else
    log-odds divided by T, then a sigmoid. What they are to explain is the truth, `(images, classes)` of 0 and 1, with a
    trace of doubt that is the smaller the more images there are (as in Platt's targets, 1999): few images that are all
    right do not make an answer certain. Probabilities that say nothing keep T = 1.

    >>> sure = [[0.99, 0.01], [0.99, 0.01], [0.01, 0.99], [0.01, 0.99]] * 50
    >>> right_in_three_of_four = [[1, 0], [0, 1], [0, 1], [0, 1]] * 50
    >>> round(fit_temperature(right_in_three_of_four, sure, exclusive=True), 2)
    4.21
    """
    labels, scores = truth_and_score(truth, score)
    probabilities(scores)
    if exclusive:
        one_hot(labels)
        logits = np.log(scores.clip(*_SUREST))
    else:
        logits = np.log(scores.clip(*_SUREST)) - np.log1p(-scores.clip(*_SUREST))
    targets = _doubted(labels, exclusive=exclusive)
    if not (logits - (logits[:, :1] if exclusive else 0)).any():
        return 1.0
    low, high = 1 / MOST, 1 / LEAST
    for _ in range(_HALVINGS):  # the loss is convex in 1 / T
        middle = float(np.sqrt(low * high))
        if _slope(middle, logits, targets, exclusive=exclusive) < 0:
            low = middle
        else:
            high = middle
    return float(1 / np.sqrt(low * high))


def _doubted(labels: Bools, *, exclusive: bool) -> Floats:
    """Targets that are a little less sure than the truth: as if there were one image more that could be anything; of
    yes-or-no questions, as Platt has it, one more yes and one more no."""
    images, classes = labels.shape
    targets: Floats
    if exclusive:
        targets = (images * labels + 1 / classes) / (images + 1)
    else:
        positives = labels.sum(axis=0)
        targets = np.where(labels, (positives + 1) / (positives + 2), 1 / (images - positives + 2))
    return targets


def _slope(inverse: float, logits: Floats, targets: Floats, *, exclusive: bool) -> float:
    """How the cross-entropy of the softened probabilities with the targets grows with 1 / T."""
    scaled = inverse * logits
    if exclusive:
        powers = np.exp(scaled - scaled.max(axis=1, keepdims=True))
        said = powers / powers.sum(axis=1, keepdims=True)
    else:
        said = 0.5 * (1 + np.tanh(scaled / 2))
    return float(((said - targets) * logits).sum(axis=1).mean())

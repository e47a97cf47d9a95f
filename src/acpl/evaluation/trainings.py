"""What another training would show on other patients: intervals that take both for a sample.

A bootstrap over patients says how far the runs at hand can be trusted on other patients. It does not know that a
network trained again, from another seed or with other images labelled, would be another one. Radiology has long had
the same question: readers and cases are both drawn, and what is found of two modalities is to hold for other readers of
other cases. Its answer is taken here, with a training for a reader: Obuchowski and Rockette's analysis of variance
(Communications in Statistics, 1995) with Hillis' degrees of freedom (Statistics in Medicine, 2007).

Figures of n trainings on the same patients vary by S² between trainings, and share what the patients have in common,
the covariance C of two trainings over resamples of patients. The mean of n has the variance S²/n + C, and
(S²/n + C)² / ((S²/n)² / (n - 1)) degrees of freedom: few where trainings differ most, many where it is the patients
that leave doubt. Over resamples the figure of one training has the variance V; were all alike, S² would be about
V - C. Where few trainings happen to lie closer than that, V - C is taken for it, so that nothing is surer here than for
the trainings at hand.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from acpl.evaluation.bootstrap import Resampled
from acpl.evaluation.checks import Floats
from acpl.evaluation.means import defined_mean
from acpl.evaluation.significance import least_p

_TINY = 1e-300
_ROUNDS = 300
_AS_NORMAL = 1e7
"""Degrees of freedom from which the normal distribution stands in for Student's t."""


class OverTrainings(NamedTuple):
    """A mean over trainings, with its interval and p for other trainings on other patients; NaN where unknown."""

    point: float
    low: float
    high: float
    p: float
    """Of a mean of 0, two-sided."""
    degrees: float
    """Of freedom; infinite where all trainings have the same figure."""

    @property
    def unclear(self) -> bool:
        """Whether it may be chance."""
        return not self.p < 0.05


def over_trainings(points: Floats, draws: Floats, *, level: float = 0.95, patients: int | None = None) -> OverTrainings:
    """The mean of figures, or of paired differences, for other trainings on other patients.

    `points` are of each training `(trainings,)`, `draws` the same of each resample of the patients `(resamples,
    trainings)`; all trainings meet the same resamples. Those in which a training has no figure are left out. Of a
    single training nothing is known about another, and the interval is NaN. With `patients`, p is at least `least_p`.

    >>> same = np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    >>> found = over_trainings(np.array([0.1, 0.2, 0.3]), same)
    >>> round(found.low, 3), round(found.high, 3), found.degrees
    (-0.048, 0.448, 2.0)
    """
    points, draws = np.asarray(points, dtype=np.float64), np.asarray(draws, dtype=np.float64)
    if points.ndim != 1 or draws.ndim != 2 or draws.shape[1] != len(points):
        raise ValueError(
            f"points has shape {points.shape} and draws {draws.shape}; they must be (n,) and (resamples, n)"
        )
    if not 0 < level < 1:
        raise ValueError(f"level is {level}; it must be between 0 and 1")
    n, unknown = len(points), float("nan")
    point = float(points.mean()) if n else unknown
    defined = draws[~np.isnan(draws).any(axis=1)]
    if n < 2 or len(defined) < 2 or math.isnan(point):
        return OverTrainings(point, unknown, unknown, unknown, unknown)
    # Their mean has the variance V/n + C (n - 1)/n. By sums alone: a matrix product's last digits depend on threads.
    alone, mean = float(defined.var(axis=0, ddof=1).mean()), float(defined.mean(axis=1).var(ddof=1))
    shared = max(0.0, (n * mean - alone) / (n - 1))
    own = max(float(points.var(ddof=1)), alone - shared) / n
    variance = own + shared
    share = variance / own if own else math.inf
    degrees, error = share * share * (n - 1), math.sqrt(variance)
    reach = student_quantile((1 + level) / 2, degrees) * error
    p = 1.0 if point == 0 else 0.0 if error == 0 else 2 * student_tail(abs(point) / error, degrees)
    return OverTrainings(point, point - reach, point + reach, max(p, least_p(patients)), degrees)


def mean_over_trainings(figures: Sequence[Resampled], *, level: float = 0.95) -> OverTrainings:
    """`over_trainings` of a mean over classes: of a training's figure each, or of paired differences (`less`)."""
    if not figures:
        return over_trainings(np.empty(0), np.empty((0, 0)), level=level)
    points, draws = (
        np.stack([defined_mean(side) for side in kind], axis=-1)
        for kind in zip(*((figure.point, figure.draws) for figure in figures), strict=True)
    )
    return over_trainings(points, draws, level=level, patients=figures[0].groups)


def student_tail(t: float, degrees: float) -> float:
    """The chance that Student's t with these degrees of freedom, which may be infinite, exceeds `t`.

    >>> round(student_tail(2.0, 3), 4), round(student_tail(0.0, 3), 4)
    (0.0697, 0.5)
    """
    if degrees >= _AS_NORMAL:
        return math.erfc(t / math.sqrt(2)) / 2
    beyond = _incomplete_beta(degrees / (degrees + t * t), t * t / (degrees + t * t), degrees / 2) / 2
    return beyond if t >= 0 else 1 - beyond


def student_quantile(share: float, degrees: float) -> float:
    """Below which Student's t lies with the chance `share`, between 0 and 1.

    >>> round(student_quantile(0.975, 2), 3), round(student_quantile(0.975, math.inf), 3)
    (4.303, 1.96)
    """
    if degrees >= _AS_NORMAL:
        return NormalDist().inv_cdf(share)
    if share < 0.5:
        return -student_quantile(1 - share, degrees)
    low, high = 0.0, 1.0
    while student_tail(high, degrees) > 1 - share:
        low, high = high, 2 * high
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if student_tail(middle, degrees) > 1 - share else (low, middle)
    return high


def _incomplete_beta(x: float, rest: float, a: float) -> float:
    """The regularised incomplete beta function I_x(a, 1/2), `rest` being 1 - x; by its continued fraction (Lentz)."""
    b = 0.5
    if x <= 0 or rest <= 0:
        return float(rest <= 0)
    swap = x > (a + 1) / (a + b + 2)  # where the fraction converges slowly, that of 1 - x is used
    if swap:
        a, b, x, rest = b, a, rest, x
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(rest))
    c, d = 1.0, _away_from_zero(1 - (a + b) * x / (a + 1))
    found = d = 1 / d
    for m in range(1, _ROUNDS):
        before = found
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _away_from_zero(1 + numerator * d)
            c = _away_from_zero(1 + numerator / c)
            found *= c * d
        if abs(found - before) <= 1e-16 * abs(found):
            break
    value = front * found / a
    return 1 - value if swap else value


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY

"""How far a figure can be trusted: percentile intervals by bootstrap over groups, and paired comparison.

Images of one patient (or lesion) are not independent, so whole groups are drawn with replacement: as many as
there are, and an image counts as often as its group was drawn. Resample `r` is the `r`-th
`rng.integers(groups, size=groups)` of `np.random.default_rng(seed)`, with groups numbered as they first
appear, so the answer depends on the seed, the data and who shares a group, and on neither the groups' names
nor how the work is cut into blocks. Two models on the same images and seed meet the same resamples, so the
difference of their draws is a paired comparison.

A class that a resample leaves without positives (or negatives) is NaN there and is left out of that
resample's mean, and that resample is left out of the class's interval. With a single group every resample is
the data itself, and low = point = high: such an interval says that nothing is known of its width, not that
there is none.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from acpl.evaluation.checks import Bools, Floats
from acpl.evaluation.means import defined_mean
from acpl.evaluation.ranking import rank, weighted_auroc
from acpl.evaluation.significance import patients_with, two_sided_p

Integers = NDArray[np.int64]
Statistic = Callable[[Integers], Mapping[str, Floats]]
"""From several sets of image weights `(sets, images)` to named figures `(sets, columns)`, NaN where undefined."""

# Weights held at a time: 2 MB, so that the gathers of a block stay in the cache.
_BLOCK_CELLS = 2**18


@dataclass(frozen=True, eq=False)
class ClassIntervals:
    """One interval per class; every array is `(classes,)`, NaN where a class is never defined."""

    point: Floats
    low: Floats
    high: Floats
    undefined: Integers  # resamples in which the class was NaN and which its interval leaves out


@dataclass(frozen=True, eq=False)
class MeanInterval:
    """A mean over classes with its interval, and each class's own."""

    point: float
    low: float
    high: float
    per_class: ClassIntervals


@dataclass(frozen=True, eq=False)
class PairedDifference:
    """By how much b is better than a: difference of class means, interval, p-value, and per class.

    `per_class_p` is `(classes,)`, each as if the class alone were asked about: not corrected for their number.
    """

    point: float
    low: float
    high: float
    p: float
    per_class: ClassIntervals
    per_class_p: Floats

    @property
    def unclear(self) -> bool:
        """Whether it may be chance: the interval holds 0, or p is not below 0.05, as where patients are too few."""
        return not (self.low > 0 or self.high < 0) or not self.p < 0.05


@dataclass(frozen=True, eq=False)
class Resampled:
    """A figure of the data `(columns,)` and of each resample `(resamples, columns)`."""

    point: Floats
    draws: Floats
    groups: int | None = None
    """How many patients bear on the mean over the columns, where that is known."""
    column_groups: Integers | None = None
    """How many bear on each column `(columns,)`, where that is known."""

    def interval(self, level: float = 0.95) -> MeanInterval:
        """Percentile intervals: mean over the columns, and per column."""
        _check_level(level)
        low, high = _percentiles(defined_mean(self.draws), level)
        lows, highs = np.array([_percentiles(column, level) for column in self.draws.T]).T
        undefined = np.isnan(self.draws).sum(axis=0)
        point = float(defined_mean(self.point))
        return MeanInterval(point, low, high, ClassIntervals(self.point, lows, highs, undefined))

    def error_interval(self, level: float = 0.95) -> MeanInterval:
        """Intervals of a sum of distances, such as a calibration error, which resampling can only inflate.

        The percentile interval is mirrored at the point, which takes the inflation out again, cut at 0 and 1, and
        widened to hold the point.
        """
        plain = self.interval(level)
        each = plain.per_class
        low, high = _mirrored(np.array([plain.point]), np.array([plain.low]), np.array([plain.high]))
        lows, highs = _mirrored(each.point, each.low, each.high)
        return MeanInterval(
            plain.point, float(low[0]), float(high[0]), ClassIntervals(each.point, lows, highs, each.undefined)
        )

    def less(self, other: "Resampled") -> "Resampled":
        """The difference to another figure of the same images, groups, seed and resamples, in each of these."""
        if self.draws.shape != other.draws.shape:
            raise ValueError(f"draws have shapes {self.draws.shape} and {other.draws.shape}; they must be the same")
        return Resampled(self.point - other.point, self.draws - other.draws, self.groups, self.column_groups)

    def minus(self, other: "Resampled", level: float = 0.95) -> PairedDifference:
        """This figure less another's of the same images, groups, seed and resamples.

        Every p is `two_sided_p`: of the mean over the resamples in which some class is defined, and of each class over
        those in which it is. The interval excludes 0 wherever p < 1 − level.
        """
        difference = self.less(other)
        found = difference.interval(level)
        p = two_sided_p(defined_mean(difference.draws), self.groups)
        columns = difference.draws.shape[1]
        patients = [self.groups] * columns if self.column_groups is None else map(int, self.column_groups)
        each = [two_sided_p(column, bear) for column, bear in zip(difference.draws.T, patients, strict=True)]
        return PairedDifference(found.point, found.low, found.high, p, found.per_class, np.array(each))


def resample(
    statistic: Statistic,
    images: int,
    groups: ArrayLike | None = None,
    *,
    kinds: Mapping[str, Sequence[Bools]] | None = None,
    resamples: int = 2000,
    seed: int = 0,
) -> dict[str, Resampled]:
    """Every figure of a statistic, on the data and on each resample.

    `statistic` takes weights `(sets, images)`, integers of at least 0, and gives figures by name, each `(sets,
    columns)`, NaN where undefined; it is called with a block of resamples at a time. `groups` is `(images,)` of
    any names, or None for each image its own group. `kinds` are, by figure, the tables of images `(images, columns)`
    that it needs some of (`needed_kinds`): they tell how many groups bear on it; without them it is all.

    >>> height = np.array([1.0, 2.0, 3.0])
    >>> found = resample(lambda w: {"mean": (w @ height / w.sum(axis=1))[:, None]}, images=3)["mean"].interval()
    >>> found.low, found.point, found.high
    (1.0, 2.0, 3.0)
    """
    if images < 1:
        raise ValueError("there are no images; a bootstrap needs at least 1")
    if resamples < 1:
        raise ValueError(f"resamples is {resamples}; it must be at least 1")
    group_of = np.arange(images) if groups is None else _group_numbers(groups, images)
    points = statistic(np.ones((1, images), dtype=np.int64))
    draws = [statistic(weights) for weights in _weight_blocks(group_of, resamples, seed)]
    number = int(group_of.max()) + 1
    found = {}
    for name, point in points.items():
        bear = patients_with(kinds[name], group_of) if kinds and name in kinds else (number, None)
        found[name] = Resampled(point[0], np.concatenate([d[name] for d in draws]), *bear)
    return found


def bootstrap_auroc(
    truth: ArrayLike,
    score: ArrayLike,
    groups: ArrayLike | None = None,
    *,
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> MeanInterval:
    """AUROC with percentile intervals: mean over classes, and per class.

    `truth` and `score` are `(images, classes)` as for `auroc`.

    >>> truth, score = [[1], [0], [1], [0]], [[0.9], [0.1], [0.4], [0.6]]
    >>> found = bootstrap_auroc(truth, score, groups=["ann", "ann", "bob", "bob"], resamples=100)
    >>> found.low, found.point, found.high
    (0.0, 0.75, 1.0)
    """
    return _resample_auroc(truth, score, groups, resamples, seed).interval(level)


def paired_bootstrap_auroc(
    truth: ArrayLike,
    score_a: ArrayLike,
    score_b: ArrayLike,
    groups: ArrayLike | None = None,
    *,
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> PairedDifference:
    """AUROC of b less that of a on the same images and resamples: mean over classes, and per class.

    >>> truth, a, b = [[1], [0], [1], [0]], [[0.9], [0.1], [0.4], [0.6]], [[0.9], [0.1], [0.8], [0.6]]
    >>> found = paired_bootstrap_auroc(truth, a, b, groups=["ann", "ann", "bob", "bob"], resamples=100)
    >>> found.low, found.point, found.high
    (0.0, 0.25, 1.0)
    """
    a, b = (_resample_auroc(truth, score, groups, resamples, seed) for score in (score_a, score_b))
    return b.minus(a, level)


def _resample_auroc(
    truth: ArrayLike, score: ArrayLike, groups: ArrayLike | None, resamples: int, seed: int
) -> Resampled:
    rankings = rank(truth, score)

    def statistic(weights: Integers) -> dict[str, Floats]:
        return {"auroc": weighted_auroc(rankings, weights)}

    positive = np.asarray(truth) == 1
    kinds = {"auroc": (positive, ~positive)}
    return resample(statistic, len(positive), groups, kinds=kinds, resamples=resamples, seed=seed)["auroc"]


def _weight_blocks(group_of: Integers, resamples: int, seed: int) -> Iterator[Integers]:
    rng = np.random.default_rng(seed)
    number = int(group_of.max()) + 1
    size = max(1, _BLOCK_CELLS // len(group_of))
    for start in range(0, resamples, size):
        weights = np.empty((min(size, resamples - start), len(group_of)), dtype=np.int64)
        for row in weights:
            times_drawn = np.bincount(rng.integers(number, size=number), minlength=number)
            np.take(times_drawn, group_of, out=row)
        yield weights


def _group_numbers(groups: ArrayLike, images: int) -> Integers:
    """Each image's group `(images,)`, numbered from 0 as they first appear."""
    # As they are: NumPy would write 1 and NaN of a list that also holds words as the words '1' and 'nan'.
    names = np.asarray(groups) if hasattr(groups, "__array__") else np.asarray(groups, dtype=object)
    if names.shape != (images,):
        raise ValueError(f"groups has shape {names.shape}; it must be one per image, ({images},)")
    listed = names.tolist()
    # A missing name would join strangers into one patient, and the interval would be wrong without a word.
    missing = [row for row, name in enumerate(listed) if _is_missing(name)]
    if missing:
        raise ValueError(
            f"groups holds {len(missing)} missing names; the first is {listed[missing[0]]} at row {missing[0]}"
        )
    number_of: dict[object, int] = {}
    return np.array([number_of.setdefault(name, len(number_of)) for name in listed], dtype=np.int64)


def _is_missing(name: object) -> bool:
    # NaN and NaT differ from themselves, and pandas.NA answers the question with itself.
    itself = name == name
    return name is None or not isinstance(itself, bool | np.bool_) or not itself


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"level is {level}; it must be between 0 and 1")


def _mirrored(point: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    return np.maximum(2 * point - high, 0), np.maximum(np.minimum(2 * point - low, 1), point)


def _percentiles(draws: Floats, level: float) -> tuple[float, float]:
    defined = draws[~np.isnan(draws)]
    if not len(defined):
        return float("nan"), float("nan")
    low, high = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)

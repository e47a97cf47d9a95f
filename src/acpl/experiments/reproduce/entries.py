"""The numbers of a table: means over seeds, intervals over patients, differences and shares of a gap."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from acpl.errors import UserError
from acpl.evaluation import (
    ERRORS,
    Resampled,
    arg_max_figures,
    calibration_figures,
    decision_figures,
    defined_mean,
    mean_over_trainings,
    ranking_figures,
    resample,
    together,
)
from acpl.evaluation.means import ratio

Floats = npt.NDArray[np.float64]
MEASURES = ("auroc", "sensitivity", "f1")
Seeds = Mapping[int, Resampled]
"""A figure of each seed that finished, on the same images and resamples."""


@dataclass(frozen=True)
class Entry:
    """One figure of a table. Intervals are 95 %; differences are to the table's reference in the same column."""

    row: str
    column: str
    measure: str
    mean: float | None
    low: float | None = None
    high: float | None = None
    spread: float | None = None
    """Standard deviation between seeds."""
    difference: float | None = None
    difference_low: float | None = None
    difference_high: float | None = None
    wider_low: float | None = None
    """The difference's interval for other trainings as well as other patients; of one seed there is none."""
    wider_high: float | None = None
    share: float | None = None
    """Of the way from the floor to the ceiling."""
    share_low: float | None = None
    share_high: float | None = None
    paper: float | None = None
    seeds: int = 0
    failed: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Lead:
    """How far one row's figure is ahead of another's, over the seeds that both have. Intervals are 95 %.

    Of an error it is how much less the row has.
    """

    of: str
    over: str
    column: str
    measure: str
    difference: float
    difference_low: float
    difference_high: float
    wider_low: float | None
    """For other trainings as well as other patients; of one seed there is none."""
    wider_high: float | None
    seeds: int


@dataclass(frozen=True)
class Judged:
    """The figures of one judged run by measure, each (classes,)."""

    images: tuple[str, ...]
    classes: tuple[str, ...]
    figures: dict[str, Resampled]


def judge(predictions: Path, resamples: int) -> Judged:
    """All measures of a run from its predictions alone."""
    said = Said.read(predictions)
    figures = figures_of(said, said.values("probability"), said.values("decision"), resamples)
    return Judged(said.images, said.classes, figures)


def judge_calibration(predictions: Path, resamples: int) -> Judged:
    """How far a run's probabilities are off, from its predictions alone."""
    said = Said.read(predictions)
    truth, score = said.values("truth"), said.values("probability")
    statistic = calibration_figures(truth, score)
    if said.exclusive:
        statistic = together(statistic, arg_max_figures(truth, score))
    found = resample(statistic, len(truth), said.groups, resamples=resamples)
    return Judged(said.images, said.classes, {name: found[name] for name in ERRORS if name in found})


def figures_of(said: "Said", score: Floats, called: Floats, resamples: int) -> dict[str, Resampled]:
    """All measures of these probabilities and decisions, (images, classes) each, on the images of ``said``."""
    truth = said.values("truth")
    statistic = together(ranking_figures(truth, score), decision_figures(truth, called.astype(bool)))
    found = resample(statistic, len(truth), said.groups, resamples=resamples)
    return {name: found[name] for name in MEASURES}


def judge_together(predictions: Sequence[Path], resamples: int) -> Resampled:
    """The AUC of the mean of several runs' answers, as of one model of so many networks."""
    said = [Said.read(file) for file in predictions]
    score = np.mean([one.values("probability") for one in said], axis=0)
    statistic = ranking_figures(said[0].values("truth"), score)
    return resample(statistic, len(score), said[0].groups, resamples=resamples)["auroc"]


class Said(NamedTuple):
    """What a run said of the test part, in the order of the images' names."""

    table: pd.DataFrame
    classes: tuple[str, ...]

    @classmethod
    def read(cls, predictions: Path) -> "Said":
        """From a run's predictions."""
        # As text: pandas' own reading of numbers may be off in the last digit.
        table = pd.read_csv(predictions, dtype=str, keep_default_na=False).set_index("image").sort_index()
        return cls(table, tuple(name.removeprefix("truth.") for name in table.columns if name.startswith("truth.")))

    @property
    def images(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(map(str, self.table.index))

    @property
    def groups(self) -> npt.NDArray[np.object_]:
        """Each image's patient or lesion."""
        return self.table["group"].to_numpy(dtype=object)

    @property
    def exclusive(self) -> bool:
        """Whether every image has exactly one class."""
        return bool((self.values("truth").sum(axis=1) == 1).all())

    def values(self, kind: str) -> Floats:
        """(images, classes)."""
        return self.table[[f"{kind}.{name}" for name in self.classes]].to_numpy(dtype=np.float64)


def same_images(judged: Mapping[str, Judged]) -> None:
    """Refuse runs that were not judged on the same images: their differences would mean nothing."""
    first: tuple[str, Judged] | None = None
    for name, one in judged.items():
        first = first or (name, one)
        if (one.images, one.classes) != (first[1].images, first[1].classes):
            raise UserError(f"{name} was not judged on the same images and classes as {first[0]}")


def of_class(figure: Resampled, number: int) -> Resampled:
    """One class's figure alone."""
    return Resampled(figure.point[number : number + 1], figure.draws[:, number : number + 1])


def entry(
    row: str,
    column: str,
    measure: str,
    figures: Seeds,
    *,
    reference: Seeds | None = None,
    floor: Seeds | None = None,
    ceiling: Seeds | None = None,
    paper: float | None = None,
    failed: Sequence[str] = (),
) -> Entry:
    """Summarise a figure over its seeds; None throughout where no seed finished."""
    undefined = [seed for seed, figure in figures.items() if np.isnan(defined_mean(figure.point))]
    if len(undefined) < len(figures):  # else it is so by its nature, as where the test part lacks a class
        failed = [*failed, *(f"seed {seed}: undefined" for seed in undefined)]
        figures = {seed: figure for seed, figure in figures.items() if seed not in undefined}
    if not figures:
        return Entry(row, column, measure, None, paper=paper, failed=list(failed))
    mean = _over(figures)
    whole = mean.error_interval() if measure in ERRORS else mean.interval()
    points = [float(defined_mean(figure.point)) for figure in figures.values()]
    difference = _difference(figures, reference)
    share = _share(figures, floor, ceiling) if measure not in ERRORS else (None, None, None)
    return Entry(
        row,
        column,
        measure,
        mean=_number(whole.point),
        low=_number(whole.low),
        high=_number(whole.high),
        spread=float(np.std(points, ddof=1)) if len(points) > 1 else None,
        difference=difference[0],
        difference_low=difference[1],
        difference_high=difference[2],
        wider_low=difference[3],
        wider_high=difference[4],
        share=share[0],
        share_low=share[1],
        share_high=share[2],
        paper=paper,
        seeds=len(figures),
        failed=list(failed),
    )


def lead(of: str, over: str, column: str, measure: str, figures: Seeds, others: Seeds) -> Lead | None:
    """What is between two rows; None where no seed has a figure in both."""
    both = {
        seed: (figures[seed], others[seed])
        for seed in sorted(set(figures) & set(others))
        if not any(np.isnan(defined_mean(side[seed].point)) for side in (figures, others))
    }
    own, other = ({seed: pair[side] for seed, pair in both.items()} for side in (0, 1))
    better, worse = (other, own) if measure in ERRORS else (own, other)
    point, low, high, wider_low, wider_high = _difference(better, worse)
    if point is None or low is None or high is None:
        return None
    return Lead(of, over, column, measure, point, low, high, wider_low, wider_high, len(both))


def _difference(figures: Seeds, reference: Seeds | None) -> tuple[float | None, ...]:
    """The difference, its interval over patients, and that over trainings, too; of the seeds that both finished."""
    common = sorted(set(figures) & set(reference or {}))
    if reference is None or not common or all(figures[seed] is reference[seed] for seed in common):
        return (None,) * 5
    one, other = (_over({seed: side[seed] for seed in common}) for side in (figures, reference))
    found = one.minus(other)
    wider = mean_over_trainings([figures[seed].less(reference[seed]) for seed in common])
    return tuple(_number(value) for value in (found.point, found.low, found.high, wider.low, wider.high))


def _share(
    figures: Seeds, floor: Seeds | None, ceiling: Seeds | None
) -> tuple[float | None, float | None, float | None]:
    """Over the seeds that all three finished; without a gap that is clearly one there is no share of it."""
    common = sorted(set(figures) & set(floor or {}) & set(ceiling or {}))
    if floor is None or ceiling is None or not common:
        return None, None, None
    value, bottom, top = (_over({seed: side[seed] for seed in common}) for side in (figures, floor, ceiling))
    if not top.minus(bottom).low > 0:
        return None, None, None
    point = _ratio(value.point[None], bottom.point[None], top.point[None])[0]
    draws = _ratio(value.draws, bottom.draws, top.draws)
    low, high = np.nanquantile(draws, [0.025, 0.975])
    return float(point), float(low), float(high)


def _ratio(value: Floats, bottom: Floats, top: Floats) -> Floats:
    """(draws,): how far each is on the way; NaN where there is no way."""
    gap = defined_mean(top) - defined_mean(bottom)
    return ratio(defined_mean(value) - defined_mean(bottom), gap)


def _over(figures: Seeds) -> Resampled:
    return mean_of(list(figures.values()))


def mean_of(figures: Sequence[Resampled]) -> Resampled:
    """The mean of figures on the same patients; a class that some do not have is a mean over the others."""
    points, draws = (np.stack(side, axis=-1) for side in zip(*((f.point, f.draws) for f in figures), strict=True))
    return Resampled(defined_mean(points), defined_mean(draws))


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)

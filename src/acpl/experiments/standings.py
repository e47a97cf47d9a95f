"""Who stands where: means over seeds, ranks, and how far behind the best each is.

Means are over seeds; intervals and paired differences are bootstraps over the patients of the one test part that all
share, of the mean over seeds, so they speak of these trainings on other patients, as do the p-values against the best,
which know that there were many comparisons and that the best was found by them. ``wider`` is a difference's interval
for other trainings as well, and ``spread`` the standard deviation between seeds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from acpl.engine.judging import resampled_auroc
from acpl.errors import UserError
from acpl.evaluation import Resampled, defined_mean, least_p, mean_over_trainings
from acpl.evaluation.means import ratio
from acpl.experiments.cells import Cell, last_epoch
from acpl.experiments.published import published_figure
from acpl.experiments.tuning import AS_IT_STANDS, Choice

Floats = npt.NDArray[np.float64]
_NOTHING = 1e-12
"""What rounding leaves of a mean over seeds where there is no difference; one pair of images is worth far more."""


@dataclass(frozen=True)
class Entry:
    """A method at a fraction: figures are mean test AUROC, differences are to the best at that fraction."""

    fraction: float
    rank: int | None
    method: str
    auroc: float | None
    low: float | None
    high: float | None
    spread: float | None
    behind: float | None
    behind_low: float | None
    behind_high: float | None
    wider_low: float | None
    """Of the same difference for other trainings on other patients; None where there are no two of each."""
    wider_high: float | None
    p: float | None
    seeds: int
    """How many were asked for."""
    finished: int
    """Over how many of them the figures are means."""
    failed: list[str]
    """Why each of the others is missing."""
    chosen: dict[str, Any]
    """What was chosen on validation; empty: the method as it stands."""
    tried: int
    """Among how many settings."""
    steps: float | None
    images: float | None
    seconds: float | None
    published: float | None
    note: str
    """What sets the published figure's set-up apart."""


def summarise(
    folder: Path,
    fraction: float,
    cells: Mapping[str, Sequence[Cell]],
    failed: Mapping[str, str],
    *,
    resamples: int,
    data: str = "",
    chosen: Mapping[str, Choice] | None = None,
) -> list[Entry]:
    """The entries of one fraction, best first; methods of which every cell failed come last.

    A method is compared with the best over the seeds that both have finished.
    """
    figures: dict[str, dict[int, Resampled]] = {}
    images: tuple[str, ...] | None = None
    for method, own in cells.items():
        for seed, cell in enumerate(own):
            if cell.name in failed:
                continue
            names, figure = resampled_auroc(folder / cell.name, resamples=resamples)
            if images is not None and names != images:
                raise UserError(f"{cell.name} was not judged on the same images as the cells before it")
            images = names
            figures.setdefault(method, {})[seed] = figure
    means = {method: _mean(list(found.values())) for method, found in figures.items()}
    order = sorted(means, key=lambda method: -means[method].interval().point)
    differences, wider = {}, {}
    for method in order[1:]:
        common = sorted(set(figures[method]) & set(figures[order[0]]))
        if common:
            each = [figures[method][seed].less(figures[order[0]][seed]) for seed in common]
            differences[method] = _mean(each)
            wider[method] = mean_over_trainings(each)
    corrected = simultaneous(list(means.values()), differences)
    entries = []
    for method in [*order, *(name for name in cells if name not in means)]:
        reasons = [f"seed {seed}: {failed[c.name]}" for seed, c in enumerate(cells[method]) if c.name in failed]
        done = [c for c in cells[method] if c.name not in failed]
        interval = means[method].interval() if method in means else None
        points = [figure.interval().point for figure in figures.get(method, {}).values()]
        last = [last_epoch(folder, cell) for cell in done]
        behind = differences[method].interval() if method in differences else None
        choice = (chosen or {}).get(method, AS_IT_STANDS)
        paper = published_figure(data, fraction, method)
        entries.append(
            Entry(
                fraction=fraction,
                rank=order.index(method) + 1 if method in means else None,
                method=method,
                auroc=interval.point if interval else None,
                low=interval.low if interval else None,
                high=interval.high if interval else None,
                spread=float(np.std(points, ddof=1)) if len(points) > 1 else None,
                behind=behind.point if behind else None,
                behind_low=behind.low if behind else None,
                behind_high=behind.high if behind else None,
                wider_low=_known(wider[method].low) if behind else None,
                wider_high=_known(wider[method].high) if behind else None,
                p=corrected.get(method),
                seeds=len(cells[method]),
                finished=len(done),
                failed=reasons,
                chosen=dict(choice.settings),
                tried=choice.tried,
                published=None if paper is None else paper.auroc,
                note="" if paper is None else paper.note,
                **{
                    name: float(np.mean([event[key] for event in last])) if last else None
                    for name, key in (("steps", "step"), ("images", "images"), ("seconds", "seconds"))
                },
            )
        )
    return entries


def simultaneous(means: Sequence[Resampled], differences: Mapping[str, Resampled]) -> dict[str, float]:
    """p of each difference to the best, as if all pairs had been compared.

    The best is the greatest of many figures, and stands out where all are alike. So a difference, in its standard
    errors, is set against the largest among all pairs in resamples whose true differences are 0 (Tukey's way, with the
    bootstrap for a distribution): the chance that any of several equal methods is called behind is that of p. Resamples
    in which no method has a figure are left out. Never 0, and never below what so many patients can show
    (`least_p`); 1 where there is no difference; NaN where there is no figure.
    """
    if not differences:
        return {}
    point = np.array([defined_mean(mean.point) for mean in means])
    draws = np.stack([defined_mean(mean.draws) for mean in means], axis=1)  # (resamples, methods)
    defined = ~np.isnan(draws).any(axis=1)
    one, other = np.triu_indices(len(means), 1)
    each = draws[defined][:, one] - draws[defined][:, other]
    shaken = ratio(np.abs(each - (point[one] - point[other])), _spread(each))
    largest = np.nanmax(shaken, axis=1, initial=0.0)
    found = {}
    for name, difference in differences.items():
        distance = abs(float(defined_mean(difference.point)))
        if np.isnan(distance) or not len(largest):
            found[name] = float("nan")
        elif distance < _NOTHING:
            found[name] = 1.0
        else:
            spread = float(_spread(defined_mean(difference.draws)[defined]))
            at_least = int((largest >= distance / spread).sum()) if spread > 0 else 0
            found[name] = max((at_least + 1) / (len(largest) + 1), least_p(difference.groups))
    return found


def _spread(draws: Floats) -> Floats:
    """Standard deviation over the resamples; 0 where they differ by rounding alone, or there is but one."""
    found = np.std(draws, axis=0, ddof=1) if len(draws) > 1 else np.zeros(draws.shape[1:])
    return np.where(found < _NOTHING, 0.0, found)


def _known(value: float) -> float | None:
    return None if np.isnan(value) else value


def _mean(figures: Sequence[Resampled]) -> Resampled:
    """Over seeds, which are judged on the same patients."""
    point, draws = (np.mean(side, axis=0) for side in ([f.point for f in figures], [f.draws for f in figures]))
    return Resampled(point, draws, figures[0].groups, figures[0].column_groups)

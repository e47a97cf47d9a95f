"""Who stands where: means over seeds, ranks, and how far behind the best each is.

Means are over seeds; intervals and paired differences are bootstraps over the patients of the one test part that all
share, of the mean over seeds, so they speak of these trainings on other patients; ``spread`` is the standard deviation
between seeds. The p-values against the best are Holm's, over all comparisons at one fraction.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from acpl.engine.judging import resampled_auroc
from acpl.errors import UserError
from acpl.evaluation import Resampled
from acpl.experiments.cells import Cell, last_epoch
from acpl.experiments.published import published_figure


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
    chosen: Mapping[str, Mapping[str, Any]] | None = None,
    tried: int = 1,
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
    differences = {}
    for method in order[1:]:
        common = sorted(set(figures[method]) & set(figures[order[0]]))
        if common:
            one, best = (_mean([figures[name][seed] for seed in common]) for name in (method, order[0]))
            differences[method] = one.minus(best)
    corrected = holm({method: difference.p for method, difference in differences.items()})
    entries = []
    for method in [*order, *(name for name in cells if name not in means)]:
        reasons = [f"seed {seed}: {failed[c.name]}" for seed, c in enumerate(cells[method]) if c.name in failed]
        done = [c for c in cells[method] if c.name not in failed]
        interval = means[method].interval() if method in means else None
        points = [figure.interval().point for figure in figures.get(method, {}).values()]
        last = [last_epoch(folder, cell) for cell in done]
        behind = differences.get(method)
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
                p=corrected.get(method),
                seeds=len(cells[method]),
                finished=len(done),
                failed=reasons,
                chosen=dict((chosen or {}).get(method, {})),
                tried=tried,
                published=None if paper is None else paper.auroc,
                note="" if paper is None else paper.note,
                **{
                    name: float(np.mean([event[key] for event in last])) if last else None
                    for name, key in (("steps", "step"), ("images", "images"), ("seconds", "seconds"))
                },
            )
        )
    return entries


def holm(p: dict[str, float]) -> dict[str, float]:
    """Holm's correction for many comparisons: the smallest p times their number, the next times one less, …"""
    corrected: dict[str, float] = {}
    least = 0.0
    for place, (name, value) in enumerate(sorted(p.items(), key=lambda item: item[1])):
        least = max(least, min(1.0, (len(p) - place) * value))
        corrected[name] = least
    return corrected


def _mean(figures: Sequence[Resampled]) -> Resampled:
    return Resampled(np.mean([f.point for f in figures], axis=0), np.mean([f.draws for f in figures], axis=0))

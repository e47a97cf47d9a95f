"""Which method is best on these data, and is the difference real?

Every cell of methods × fractions × seeds gets the same split of its seed, the same network and the same number of
gradient steps. Means are over seeds; intervals and paired differences are bootstraps over the patients of the one
test part that all share, of the mean over seeds, so they speak of these trainings on other patients; ``spread`` is
the standard deviation between seeds. The p-values against the best are Holm's, over all comparisons at one
fraction.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from acpl import algorithms
from acpl.algorithms.budget import usual_steps
from acpl.algorithms.contract import Schedule
from acpl.config import Config, resolve
from acpl.engine.judging import resampled_auroc
from acpl.engine.run_folder import write_whole
from acpl.engine.training import source_of
from acpl.errors import UserError
from acpl.evaluation import Resampled
from acpl.experiments.cells import Cell, last_epoch, run_cells
from acpl.report.comparison import as_csv, as_latex, as_markdown


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
    finished: int
    failed: list[str]
    steps: float | None
    images: float | None
    seconds: float | None


def compare(
    out: str | Path,
    *,
    methods: Sequence[str] = ("all",),
    fractions: Sequence[float] = (0.05,),
    seeds: int = 3,
    steps: int | None = None,
    jobs: int = 1,
    resamples: int = 2000,
    say: Callable[[str], None] = lambda _: None,
    **settings: Any,
) -> list[Entry]:
    """Train and judge every method with the same splits, network and gradient steps; the best first.

    ``settings`` are fields of :class:`acpl.Config`. Every cell is a run folder below ``out``; those that are done are
    not run again. ``table.md``, ``table.csv`` and ``table.tex`` are written beside them. With more than one job a
    script that calls this needs ``if __name__ == "__main__"``.
    """
    if seeds < 1 or jobs < 1 or not fractions or not methods:
        raise UserError("a comparison needs at least one method, fraction, seed and job")
    folder = Path(out)
    chosen = algorithms.names() if list(methods) == ["all"] else list(dict.fromkeys(methods))
    for name in chosen:
        algorithms.find(name)
    budgets = {fraction: steps or _budget(resolve(fraction=fraction, **settings)) for fraction in fractions}
    plan = {"methods": chosen, "budgets": {str(f): n for f, n in budgets.items()}, "seeds": seeds, **settings}
    _keep_to(folder, plan)
    cells = {
        (fraction, method, seed): Cell(
            f"{method}-{fraction:g}-{seed}",
            {**settings, "method": method, "fraction": fraction, "seed": seed, "steps": budgets[fraction]},
        )
        for fraction in fractions
        for method in chosen
        for seed in range(seeds)
    }
    failed = run_cells(list(cells.values()), folder, jobs=jobs, say=say, keep_going=True)
    entries = []
    for fraction in fractions:
        own = {method: [cells[fraction, method, seed] for seed in range(seeds)] for method in chosen}
        entries += summarise(folder, fraction, own, failed, resamples)
    rows = [asdict(entry) for entry in entries]
    for name, text in (("table.md", as_markdown(rows)), ("table.csv", as_csv(rows)), ("table.tex", as_latex(rows))):
        write_whole(folder / name, text.encode())
    return entries


def summarise(
    folder: Path, fraction: float, cells: dict[str, list[Cell]], failed: dict[str, str], resamples: int
) -> list[Entry]:
    """The entries of one fraction, best first; methods of which every cell failed come last."""
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
                finished=len(done),
                failed=reasons,
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


def _budget(config: Config) -> int:
    manifest = source_of(config).manifest()
    train = (manifest.table["part"] == "train").to_numpy()
    labelled = max(1, round(config.fraction * int((train & manifest.known).sum())))
    schedule = Schedule(config.batch_size, config.warmup_epochs, config.stages, config.stage_epochs)
    return usual_steps(schedule, labelled, int(train.sum()) - labelled)


def _keep_to(folder: Path, plan: dict[str, Any]) -> None:
    """A comparison that was begun is gone on with only as it was planned."""
    text = json.dumps(plan, indent=2, default=str, sort_keys=True) + "\n"
    file = folder / "plan.json"
    if file.exists():
        old, new = json.loads(file.read_text(encoding="utf-8")), json.loads(text)
        other = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
        if other:
            raise UserError(f"{folder} holds a comparison with other {', '.join(other)}; choose another --out")
        return
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} exists and holds no comparison; choose another --out, nothing is ever written over")
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(file, text.encode())

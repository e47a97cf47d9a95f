"""Which method is best on these data, and is the difference real?

Every cell of methods × fractions × seeds gets the same split of its seed, the same network, the same number of
gradient steps and the same number of settings to choose among. How they are ranked: ``standings``.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from acpl import algorithms
from acpl.algorithms.budget import usual_steps
from acpl.algorithms.contract import Schedule
from acpl.config import Config, resolve
from acpl.data.manifest import Manifest
from acpl.engine.training import source_of
from acpl.engine.writing import told, write_whole
from acpl.errors import UserError
from acpl.experiments.about import Account, sentence
from acpl.experiments.cells import Cell, refuse_given_labels
from acpl.experiments.contents import contents
from acpl.experiments.jobs import choose_jobs
from acpl.experiments.published import CHOSEN_ON_TEST, SOURCE
from acpl.experiments.standings import Entry, summarise
from acpl.experiments.tuning import (
    AS_IT_STANDS,
    Choice,
    Settings,
    candidates,
    choose,
    refuse_without_validation,
    tuning_cells,
)
from acpl.experiments.watched import WatchedRuns
from acpl.report.comparison import OTHER_TRAININGS, as_csv, as_latex, as_markdown

if TYPE_CHECKING:
    from rich.console import Console

PHANTOM_PRESET = "compare"
"""Short enough for many cells; ``demo`` is for one run."""


def compare(
    out: str | Path,
    *,
    methods: Sequence[str] = ("all",),
    fractions: Sequence[float] = (0.05,),
    seeds: int = 3,
    budget: int | str = "same",
    tune: int = 1,
    jobs: int | Literal["auto"] = 1,
    resamples: int = 2000,
    say: Callable[[str], None] = lambda _: None,
    console: "Console | None" = None,
    command: str = "",
    preset: str | None = None,
    **settings: Any,
) -> list[Entry]:
    """Train and judge every method with the same splits, network, gradient steps and tuning; the best first.

    ``budget`` is the number of gradient steps of every cell, or ``same``: what ACPL would take at most by the
    schedule. With ``tune`` above 1 each method gets so many settings, of which the best on seed 0's validation part is
    used for all seeds. ``settings`` are fields of :class:`acpl.Config`; without ``preset`` the phantoms start from
    ``compare``. Every cell is a run folder below ``out``; those that are done are not run again. ``table.md``,
    ``table.csv`` and ``table.tex`` are written beside them. With more than one job a script that calls this needs
    ``if __name__ == "__main__"``. ``console`` shows a live table where it is a terminal.
    """
    if seeds < 1 or not fractions or not methods:
        raise UserError("a comparison needs at least one method, fraction and seed")
    if jobs != "auto" and jobs < 1:
        raise UserError(f"jobs should be auto or at least 1, but it is {jobs}")
    folder = Path(out)
    chosen_methods = algorithms.names() if list(methods) == ["all"] else list(dict.fromkeys(methods))
    data = str(settings.get("data", "phantom-chest"))
    preset = preset or (PHANTOM_PRESET if data.startswith("phantom") else None)
    settings = {"preset": preset, **settings}
    offered = {method: candidates(method, tune) for method in chosen_methods}
    config = _checked(offered, fractions, settings)
    manifest = source_of(config).manifest()
    refuse_given_labels(config, manifest)
    if tune > 1:
        validation = (manifest.table["part"] == "validation").to_numpy()
        refuse_without_validation(int((validation & manifest.known).sum()), config.data)
    budgets = {fraction: steps_of(budget, fraction, settings, manifest) for fraction in fractions}
    plan = {
        "methods": chosen_methods,
        "budgets": {str(fraction): steps for fraction, steps in budgets.items()},
        "seeds": seeds,
        **({"candidates": offered} if tune > 1 else {}),
        **settings,
        "contents": contents(config),
    }
    _keep_to(folder, plan)
    total = len(chosen_methods) * len(fractions) * (seeds + (tune if tune > 1 else 0))
    if jobs == "auto":
        found = choose_jobs(config, manifest, total)
        say(found.why)
        jobs = found.count
    shape = " × ".join(
        f"{number} {word}{'' if number == 1 else 's'}"
        for number, word in ((len(chosen_methods), "method"), (len(fractions), "fraction"), (seeds, "seed"))
    )
    each = " or ".join(f"{steps:,}" for steps in dict.fromkeys(budgets.values()))
    title = f"{config.data}: {shape}, {each} gradient steps a run, {jobs} side by side"
    say(title)
    run = WatchedRuns(folder, jobs, say, console, Account(folder, command=command, jobs=jobs, data=config.data))

    best: dict[tuple[float, str], Choice] = {}
    if tune > 1:
        trials = {
            (fraction, method): tuning_cells(
                method, fraction, offered[method], {**settings, "steps": budgets[fraction]}
            )
            for fraction in fractions
            for method in chosen_methods
        }
        failures = run(
            [cell for own in trials.values() for cell in own],
            f"{title}\nchoosing settings on validation, {tune} a method",
        )
        for (fraction, method), own in trials.items():
            record = folder / "tuning" / f"{method}-{fraction:g}.json"
            best[fraction, method] = choose(folder, own, offered[method], failures, record)
    cells = {
        (seed, fraction, method): Cell(
            f"{method}-{fraction:g}-{seed}",
            {
                **settings,
                **best.get((fraction, method), AS_IT_STANDS).settings,
                "method": method,
                "fraction": fraction,
                "seed": seed,
                "steps": budgets[fraction],
            },
        )
        for seed in range(seeds)  # first of all: after one seed of each there is a whole table to look at
        for fraction in fractions
        for method in chosen_methods
    }
    failed = run(list(cells.values()), title)
    entries = []
    with run.busy("resampling patients"):
        for fraction in fractions:
            own_cells = {method: [cells[seed, fraction, method] for seed in range(seeds)] for method in chosen_methods}
            chosen = {method: best.get((fraction, method), AS_IT_STANDS) for method in chosen_methods}
            entries += summarise(
                folder, fraction, own_cells, failed, resamples=resamples, data=config.data, chosen=chosen
            )
    write_tables(folder, entries, run.account.write(run.ended))
    return entries


def write_tables(folder: Path, entries: Sequence[Entry], about: Mapping[str, Any]) -> None:
    """``table.md``, ``table.csv`` and ``table.tex``."""
    rows = [asdict(entry) for entry in entries]
    notes = notes_on(entries)
    heading = f"`{about['command']}`\n{sentence(about)}." if about.get("command") else f"{sentence(about)}."
    texts = {"md": f"{heading}\n\n{as_markdown(rows, notes)}", "csv": as_csv(rows), "tex": as_latex(rows, notes)}
    for ending, text in texts.items():
        write_whole(folder / f"table.{ending}", text.encode())


def notes_on(entries: Sequence[Entry]) -> list[str]:
    """What must be said beside the table: fewer seeds, settings chosen, where published figures come from."""
    notes = []
    for entry in entries:
        where = f"{entry.method} at {entry.fraction:.3g}"
        notes += [f"{where} failed, {reason}" for reason in entry.failed]
        if entry.failed and entry.finished:
            notes.append(f"{where}: the mean is over {entry.finished} of {entry.seeds} seeds")
        if entry.chosen:
            values = ", ".join(f"{key} {value}" for key, value in entry.chosen.items())
            notes.append(f"{where}: {values} was chosen on validation among {entry.tried} settings")
    if any(entry.wider_low is not None for entry in entries):
        notes.append(OTHER_TRAININGS)
    if any(entry.published is not None for entry in entries):
        notes += [SOURCE, CHOSEN_ON_TEST]
        notes += [f"published {entry.method} at {entry.fraction:.3g}: {entry.note}" for entry in entries if entry.note]
    return notes


def steps_of(budget: int | str, fraction: float, settings: Mapping[str, Any], manifest: Manifest) -> int:
    """The gradient steps of every cell at a fraction."""
    if str(budget).lower() == "same":
        config = resolve(**{**settings, "fraction": fraction})
        train = (manifest.table["part"] == "train").to_numpy()
        labelled = max(1, round(config.fraction * int((train & manifest.known).sum())))
        schedule = Schedule(config.batch_size, config.warmup_epochs, config.stages, config.stage_epochs)
        return usual_steps(schedule, labelled, int(train.sum()) - labelled)
    if str(budget).isdecimal() and int(budget) >= 1:
        return int(budget)
    raise UserError(f"budget should be same or a number of gradient steps, but it is '{budget}'")


def _checked(
    offered: Mapping[str, Sequence[Settings]], fractions: Sequence[float], settings: Mapping[str, Any]
) -> Config:
    """Refuse a setting that some cell would stumble over, before the first one runs; the configuration all share."""
    for method, own in offered.items():
        for fraction in fractions:
            for extra in own:
                resolve(**{**settings, **extra, "method": method, "fraction": fraction, "steps": 1})
    return resolve(**{**settings, "fraction": fractions[0]})


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
    with told(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_whole(file, text.encode())

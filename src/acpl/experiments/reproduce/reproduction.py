"""``acpl reproduce NAME``: plan, run, keep, make, write."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from acpl import algorithms
from acpl.engine.training import MAY_CHANGE
from acpl.engine.writing import told, write_whole
from acpl.errors import UserError
from acpl.experiments.contents import data_digest
from acpl.experiments.reproduce import paper
from acpl.experiments.reproduce.against import tables_named, with_others
from acpl.experiments.reproduce.allowance import choose_all, known_choices, not_run, sentences, trials
from acpl.experiments.reproduce.entries import Lead
from acpl.experiments.reproduce.gathered import Gathered, Made, Study
from acpl.experiments.reproduce.keeping import (
    NOT_RUN,
    events,
    kept_beside,
    made_by,
    missing_cells,
    run_and_keep,
    short,
    split_counts,
)
from acpl.experiments.reproduce.names import NAMES
from acpl.experiments.reproduce.plan import Ground, Planned, Request, plan, read_tuned
from acpl.experiments.reproduce.renewing import MADE, refuse_other_data
from acpl.experiments.reproduce.studies import STUDIES
from acpl.experiments.tuning import Choice, refuse_without_validation
from acpl.report.paper_tables import against_sheets, as_csv, as_latex, as_markdown, lead_sheets, sheets
from acpl.settings import unknown

METHODS_FOR = ("table1", "table2", "table3", "beside", "calibration")
AHEAD, AGAINST = "ahead.csv", "against.csv"
# Where things lay and how it was computed: nobody else's affair.
_PLACES = ("data", "images", *MAY_CHANGE)
_WIDER = (
    "For other trainings, too: trainings are taken for a sample as patients are, as readers and cases are in radiology "
    "(Obuchowski and Rockette 1995, Hillis 2007): the interval of a difference that should be found again by training "
    "anew and judging on other patients. Of few seeds it is wide."
)


def reproduce(
    name: str,
    out: str | Path = "results",
    *,
    work: str | Path = "runs/reproduce",
    methods: Sequence[str] = (),
    fractions: Sequence[float] = (),
    seeds: int = 5,
    steps: int | None = None,
    ks: Sequence[int] = (),
    tuned: str | Path | None = None,
    tune: int = 1,
    jobs: int = 1,
    resamples: int = 2000,
    against: Sequence[str | Path] = (),
    dry_run: bool = False,
    run: bool = True,
    say: Callable[[str], None] = lambda _: None,
    **settings: Any,
) -> Path:
    """Run one of the paper's tables or figures on whatever data is given, and return the folder it is written to.

    ``settings`` are fields of :class:`acpl.Config`; without ``data`` or ``preset`` it is the paper's own data.
    ``OUT/NAME`` gets ``table.md``, ``.csv`` and ``.tex``, a figure's ``figure.svg`` and ``.png``, and every run's small
    files below ``runs``; weights and the rest stay below ``work``. What is there is not run again, and a run that
    another table in ``OUT`` has is copied; a table of other data is never written over. ``tuned`` is a YAML file of
    settings: under ``all`` for every method, under a method's name its own. With ``tune`` above 1 every method of
    table1, table2 or table3 gets so many settings of its own to choose among on seed 0's validation part;
    ``OUT/NAME/tuning`` keeps what was found. Without ``run`` the table is made of the runs that are there, and says
    which are not. ``against`` names other folders that hold a table NAME of the same test images, made with other
    settings: what each row has more than there is said with its intervals.
    """
    if name not in STUDIES:
        raise unknown("table or figure", name, STUDIES)
    study = STUDIES[name]
    if seeds < 1 or jobs < 1 or resamples < 1 or (steps is not None and steps < 1):
        raise UserError("seeds, jobs, resamples and steps should be at least 1")
    request = _request(study, methods, fractions, seeds, steps, ks, tuned, settings)
    others = tables_named(against, name, data_digest(request.shared(request.fractions[0]))) if against else []
    ground = request.ground()
    target = Path(out) / name
    kept, records = target / "runs", target / "tuning"
    as_they_stand = {one.cell.name for one in _planned(study, request, ground)}
    refuse_other_data(target, request.shared(request.fractions[0]), as_they_stand)
    chosen = _choices(study, request, ground, tune, records, Path(work), jobs=jobs, run=run and not dry_run, say=say)
    request = replace(request, chosen={place: choice.settings for place, choice in chosen.items()})
    planned = _planned(study, request, ground)
    if dry_run:
        _tell(planned, kept, Path(work), say)
        return target
    failed = run_and_keep(planned, kept, Path(work), prepare=study.prepare, jobs=jobs, say=say, run=run)
    gathered = Gathered(request, ground, planned, kept, failed, resamples, study.judge)
    made = with_others(study.make(gathered), gathered, others)
    _write(target, study, gathered, replace(made, notes=[*made.notes, *sentences(chosen)]))
    return target


def _request(
    study: Study,
    methods: Sequence[str],
    fractions: Sequence[float],
    seeds: int,
    steps: int | None,
    ks: Sequence[int],
    tuned: str | Path | None,
    settings: dict[str, Any],
) -> Request:
    given = {key: value for key, value in settings.items() if value is not None}
    if "data" not in given and "preset" not in given:
        given["preset"] = study.preset
    if methods and not study.methods:
        raise UserError(f"{study.name} is about acpl alone; methods can be named for {', '.join(METHODS_FOR)}")
    if ks and study.name != "figure-k":
        raise UserError("ks can be named for figure-k only")
    if any(k < 1 for k in ks):
        raise UserError(f"ks should be at least 1, but they are {', '.join(map(str, ks))}")
    if any(not 0 < fraction <= 1 for fraction in fractions):
        raise UserError(f"fractions should be above 0 and at most 1, but they are {', '.join(map(str, fractions))}")
    chosen = list(methods or study.methods)
    chosen = algorithms.names() if chosen == ["all"] else list(dict.fromkeys(chosen))
    for method in chosen:
        algorithms.find(method)
    one = study.name.startswith("figure") or study.name in ("table2", "trust", "beside")
    shares = tuple(dict.fromkeys(fractions or study.fractions))
    if one and len(shares) > 1:
        raise UserError(f"{study.name} shows one fraction, but {len(shares)} were named")
    return Request(
        name=study.name,
        fractions=shares,
        seeds=seeds,
        methods=tuple(chosen),
        steps=steps,
        ks=tuple(ks),
        tuned=read_tuned(Path(tuned) if tuned is not None else None),
        settings={**study.settings, **given},
    )


def _planned(study: Study, request: Request, ground: Ground) -> list[Planned]:
    """Every cell of the table."""
    return [
        one
        for fraction in request.fractions
        for one in plan(study.arms(request, ground, fraction), request, ground, fraction)
    ]


def _choices(
    study: Study,
    request: Request,
    ground: Ground,
    tune: int,
    records: Path,
    work: Path,
    *,
    jobs: int,
    run: bool,
    say: Callable[[str], None],
) -> dict[tuple[float, str], Choice]:
    """What every method is given on top, by share of labels and name; without ``run`` as far as it is known."""
    if tune == 1:
        return {}
    if not study.methods or study.name == "trust":
        raise UserError(f"{study.name} is about acpl alone; tune is for {', '.join(METHODS_FOR)}")
    refuse_without_validation(ground.validation, short(request.shared(request.fractions[0]).data))
    offered = trials(request, ground, lambda fraction: study.arms(request, ground, fraction), tune)
    if run:
        return choose_all(offered, records, work, jobs=jobs, say=say)
    waiting = not_run(offered, records, work)
    for cell in waiting:
        say(f"{'to try':8} {cell.name}  (on validation, {cell.settings['steps']} steps)")
    if waiting:
        say(f"{len(waiting)} to try on validation; until then what follows takes their methods as they stand")
    return known_choices(offered, records)


def _tell(planned: Sequence[Planned], kept: Path, work: Path, say: Callable[[str], None]) -> None:
    """A line a cell: its name, what it is, and whether it is there."""
    missing = {one.cell.name for one in missing_cells(planned, kept)}
    cells: dict[str, list[Planned]] = {}
    for one in planned:
        cells.setdefault(one.cell.name, []).append(one)
    to_run = 0
    for name, places in cells.items():
        if name not in missing:
            state = "kept"
        elif kept_beside(places[-1], kept) is not None:
            state = "beside"
        else:
            state = "trained" if (work / name / "evaluation.json").exists() else "to run"
        to_run += state == "to run"
        where = "; ".join(f"{one.arm.row}, {one.column}" for one in places)
        say(f"{state:8} {name}  ({where}, {places[0].cell.settings['steps']} steps)")
    say(f"{len(cells)} cells, {to_run} to run")


def _write(target: Path, study: Study, gathered: Gathered, made: Made) -> None:
    entries, leads, against = ([asdict(one) for one in some] for some in (made.entries, made.leads, made.against))
    request = gathered.request
    how = [_intervals(gathered)] if any(one.low is not None for one in made.entries) else []
    how += [_WIDER] if any(one.wider_low is not None for one in made.entries) else []
    notes = [*made.notes, *how, f"Beside: {paper.source(study.name)}", *_missing(gathered)]
    # Classes do not compete with each other, nor does what the published code does with what it should have done.
    beside = [one["row"] for one in entries] if study.name in ("table2", "departures", "trust") else study.beside
    table = [*sheets(entries, reference=study.reference, beside=beside), *lead_sheets(leads), *against_sheets(against)]
    data = request.shared(request.fractions[0]).data
    title = f"{study.name}: {NAMES[study.name]}"
    with told(target):
        target.mkdir(parents=True, exist_ok=True)
    files = {
        "table.md": as_markdown(title, table, [f"Data: {short(data)}.", *notes]).encode(),
        "table.csv": as_csv(entries).encode(),
        "table.tex": as_latex(title, table, [f"Data: {short(data)}.", *notes]).encode(),
        MADE: (json.dumps(_made(gathered, data, made.against), indent=2) + "\n").encode(),
        **{name: as_csv(some).encode() for name, some in ((AHEAD, leads), (AGAINST, against)) if some},
        **{name: text.encode() for name, text in made.files.items()},
    }
    if made.figure is not None:
        files |= {"figure.svg": made.figure.svg().encode(), "figure.png": made.figure.png()}
    for name, content in files.items():
        write_whole(target / name, content)
    for name in {AHEAD, AGAINST} - files.keys():  # of a table that had more methods, or was compared with others
        (target / name).unlink(missing_ok=True)


def _missing(gathered: Gathered) -> list[str]:
    """Which runs failed, each with its reason, and which were not run yet, in one line."""
    lines = [
        f"failed: {one.arm.row}, {one.column}, seed {one.seed}: {reason}"
        for one in gathered.planned
        if (reason := gathered.failed.get(one.cell.name, NOT_RUN)) != NOT_RUN
    ]
    waiting: dict[str, list[str]] = {}
    for one in gathered.planned:
        if gathered.failed.get(one.cell.name) == NOT_RUN:
            waiting.setdefault(f"{one.arm.row}, {one.column}", []).append(str(one.seed))
    return [*lines, *_not_run(waiting)]


def _not_run(waiting: dict[str, list[str]]) -> list[str]:
    places = [f"{place}, seed{'' if len(seeds) == 1 else 's'} {', '.join(seeds)}" for place, seeds in waiting.items()]
    return [f"Not run yet: {'; '.join(places)}."] if places else []


def _intervals(gathered: Gathered) -> str:
    seeds = "One seed." if gathered.request.seeds == 1 else f"Means over {gathered.request.seeds} seeds."
    return (
        f"{seeds} Intervals: percentile bootstrap over patients or lesions, "
        f"{gathered.resamples:,} resamples, of the mean over seeds; differences are paired. ±: standard deviation "
        "between seeds. Nothing is chosen on the test part, which is opened when training is over."
    )


def _made(gathered: Gathered, data: str, against: Sequence[Lead]) -> dict[str, Any]:
    """What made the table, so that every figure can be traced to its runs."""
    request = gathered.request
    runs = []
    for one in gathered.planned:
        line: dict[str, Any] = {"row": one.arm.row, "column": one.column, "seed": one.seed, "run": one.cell.name}
        if one.cell.name in gathered.failed:
            line["failed"] = gathered.failed[one.cell.name]
        else:
            last = events(gathered.folder(one))[-1]
            line |= {"split": split_counts(gathered.folder(one))["checksum"]}
            line |= {"steps": last["step"], "images": last["images"], "seconds": last["seconds"]}
            made = made_by(gathered.folder(one))
            line |= {"machine": made.get("machine", "not known"), "versions": made.get("versions", {})}
        runs.append(line)
    return {
        "name": request.name,
        "data": short(data),
        "data_digest": data_digest(request.shared(request.fractions[0])),
        "fractions": request.fractions,
        "seeds": request.seeds,
        "methods": request.methods,
        "steps": request.steps,
        "ks": request.ks,
        "tuned": request.tuned,
        "chosen": [
            {"method": method, "fraction": fraction, **own} for (fraction, method), own in request.chosen.items()
        ],
        "settings": {key: str(value) for key, value in request.settings.items() if key not in _PLACES},
        "resamples": gathered.resamples,
        **({"against": list(dict.fromkeys(one.over for one in against))} if against else {}),
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "runs": runs,
    }

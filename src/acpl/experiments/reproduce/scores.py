"""Tables of test figures: a row an arm, a column a share of labels; or a row a class."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from acpl.evaluation import ERRORS, Resampled
from acpl.evaluation.calibration import BINS
from acpl.experiments.reproduce import paper
from acpl.experiments.reproduce.entries import Entry, Lead, Seeds, entry, lead, mean_of, of_class
from acpl.experiments.reproduce.gathered import Gathered, Made
from acpl.experiments.reproduce.keeping import events, split_counts

TOGETHER = "together"
ALL_SHARES, ALL_KS = "mean over the shares", "mean over K"
"""The column of what a seed's runs at all shares of labels, or at all K, have in the mean."""
CEILING = "all labels"
FLOOR = "supervised"
OURS = ("acpl", "acpl-plus")

Figures = Mapping[tuple[str, str, str], Seeds]
"""A figure of every seed by row, column and measure."""
_ERRORS_MEAN = (
    f"Calibration error: each class's images in {BINS} bins by its probability, the mean over images of how far their "
    "bin's mean probability is from the share that has the class, then over classes; of the class called, where "
    "classes exclude each other, the same of the greatest probability. Less is better; to be ahead is to have less. "
    "Its own interval is the percentiles' mirrored at it, for resampling can only inflate it."
)


def methods_table(gathered: Gathered, *, reference: str, measures: tuple[str, ...] = ("auroc",)) -> Made:
    """The score table; means over the shares of labels; what all seeds of an arm say together, where they had the same
    labels; and how far our own methods are ahead of each of the others."""
    made = score_table(gathered, reference=reference, measures=measures)
    shares, joined = over_columns(gathered, measures), _joined(gathered, measures)
    # Nobody's joined figure is shown where there is none of the reference's to compare it with.
    joined = {place: figures for place, figures in joined.items() if (reference, *place[1:]) in joined}
    every_seed = means_of(shares, reference, seeds=gathered.request.seeds)
    entries = [*made.entries, *every_seed, *means_of(joined, reference, seeds=1)]
    leads = _leads({**_single(gathered, measures), **shares, **joined})
    notes = [*made.notes]
    if joined:
        notes.append(
            "Together: the mean of all seeds' answers, judged as one model of so many networks; all had the same "
            "labels. It is of the training's chance as free as so many runs can make it."
        )
    if leads:
        notes.append(
            "Ahead of each of the others: paired like all differences; each interval is for its own question and "
            "not widened for how many are asked."
        )
    return Made(entries, notes, leads=leads)


def calibration_table(gathered: Gathered, *, reference: str) -> Made:
    """How far every arm's probabilities are off, as ``methods_table`` says how well they rank."""
    known = [set(one.figures) for one in gathered.judged.values()]
    measures = tuple(error for error in ERRORS if all(error in figures for figures in known))
    made = methods_table(gathered, reference=reference, measures=measures)
    return replace(made, notes=[*made.notes, _ERRORS_MEAN])


def every_figure(gathered: Gathered, measures: tuple[str, ...]) -> Figures:
    """At each share of labels (or K), in the mean over them, and of all seeds together: what there is."""
    return {**_single(gathered, measures), **over_columns(gathered, measures), **_joined(gathered, measures)}


def _single(gathered: Gathered, measures: tuple[str, ...]) -> Figures:
    return {
        (row, column, measure): gathered.seeds(row, column, measure)
        for row, column in gathered.places()
        for measure in measures
    }


def over_columns(gathered: Gathered, measures: tuple[str, ...]) -> Figures:
    """Every arm's mean over the shares of labels, or over K, seed by seed: one question instead of one a column."""
    columns = list(dict.fromkeys(column for _, column in gathered.places()))
    if len(columns) < 2:
        return {}

    def of(row: str, measure: str) -> dict[int, Resampled]:
        each = [gathered.seeds(row, column, measure) for column in columns]
        common = sorted(set.intersection(*(set(one) for one in each)))
        return {seed: mean_of([one[seed] for one in each]) for seed in common}

    rows = list(dict.fromkeys(row for row, _ in gathered.places()))
    mean = ALL_KS if gathered.request.name == "figure-k" else ALL_SHARES
    return {(row, mean, measure): of(row, measure) for measure in measures for row in rows}


def _joined(gathered: Gathered, measures: tuple[str, ...]) -> Figures:
    """What all seeds of an arm say together, where it is asked how well they rank."""
    if "auroc" not in measures:
        return {}
    return {(row, column, TOGETHER): {0: figure} for (row, column), figure in gathered.together.items()}


def means_of(figures: Figures, reference: str, *, seeds: int) -> list[Entry]:
    """Figures that are not those of single cells, with what there is to compare them with."""
    return [
        entry(
            row,
            column,
            measure,
            own,
            reference=figures.get((reference, column, measure)),
            floor=figures.get((FLOOR, column, measure)),
            ceiling=figures.get((CEILING, column, measure)),
            failed=[f"seed {seed}: not in every column" for seed in range(seeds) if seed not in own],
        )
        for (row, column, measure), own in figures.items()
    ]


def _leads(figures: Figures) -> list[Lead]:
    """Our own methods over each that they are measured with; what the floor and the ceiling have stands elsewhere."""
    found = [
        lead(ours, row, column, measure, figures.get((ours, column, measure), {}), others)
        for ours in OURS
        for (row, column, measure), others in figures.items()
        if row not in (ours, FLOOR, CEILING)
    ]
    return [one for one in found if one is not None]


def score_table(gathered: Gathered, *, reference: str, measures: tuple[str, ...] = ("auroc",)) -> Made:
    """Every arm's figures, with differences to the reference and, where a ceiling was run, shares of the gap."""
    rows = {row for row, _ in gathered.places()}
    alone = len({column for _, column in gathered.places()}) == 1
    found = [
        entry(
            row,
            column,
            measure,
            gathered.seeds(row, column, measure),
            reference=gathered.seeds(reference, column, measure),
            floor=gathered.seeds(FLOOR, column, measure) if CEILING in rows else None,
            ceiling=gathered.seeds(CEILING, column, measure) if CEILING in rows else None,
            paper=paper.figure(gathered.request.name, row, column, measure, only_column=alone),
            failed=gathered.reasons(row, column),
        )
        for row, column in gathered.places()
        for measure in measures
    ]
    notes = steps_notes(gathered)
    if CEILING in rows and any(measure not in ERRORS for measure in measures):
        notes.append(
            f"Floor: {FLOOR}. Ceiling: '{CEILING}', supervised training with every training label and as many gradient "
            "steps. No share is given where the ceiling's interval is not above the floor."
        )
    return Made(found, notes)


def class_table(gathered: Gathered, *, reference: str) -> Made:
    """A row a class, a column an arm; the last row is the mean over classes."""
    (column,) = {column for _, column in gathered.places()}
    name = gathered.request.name
    classes = next(iter(gathered.judged.values())).classes if gathered.judged else gathered.ground.classes
    found = []
    for number, title in [*enumerate(classes), (-1, "Mean")]:
        for arm, _ in gathered.places():
            own, other = (gathered.seeds(one, column, "auroc") for one in (arm, reference))
            if number >= 0:
                # The reference itself keeps its identity, so that it has no difference to itself.
                own = {seed: of_class(figure, number) for seed, figure in own.items()}
                other = own if arm == reference else {seed: of_class(one, number) for seed, one in other.items()}
            beside = paper.figure(name, title, arm) if column == "20 %" else None
            reasons = gathered.reasons(arm, column)
            found.append(entry(title, arm, "auroc", own, reference=other, paper=beside, failed=reasons))
    return Made(found, [f"Labels: {column} of the training images.", *steps_notes(gathered)])


def sets_table(gathered: Gathered, *, reference: str) -> Made:
    """AUC, stages that trained, and the share of the pool that was pseudo-labelled in the end."""
    made = score_table(gathered, reference=reference)
    found: list[Entry] = []
    for one in made.entries:
        found.append(one)
        if one.mean is None or one.row == FLOOR:
            continue
        cells = gathered.at(one.row, one.column)
        stages = [_stages(events(gathered.folder(cell))) for cell in cells]
        shares = [
            _selected(events(gathered.folder(cell))) / max(1, split_counts(gathered.folder(cell)).get("unlabelled", 0))
            for cell in cells
        ]
        beside = paper.figure(gathered.request.name, one.row, one.column, "stages")
        found.append(_plain(one.row, one.column, "stages", stages, beside))
        found.append(_plain(one.row, one.column, "pseudo_labelled", shares, None))
    note = "Stages end before their number when no unlabelled image is left or none is of high information."
    return Made(found, [*made.notes, note])


def steps_notes(gathered: Gathered) -> list[str]:
    """How many gradient steps the arms took."""
    taken: dict[str, set[int]] = {}
    for one in gathered.planned:
        if one.cell.name not in gathered.failed:
            taken.setdefault(one.column, set()).add(int(events(gathered.folder(one))[-1]["step"]))
    said = {
        column: f"{min(steps):,}" if len(steps) == 1 else f"{min(steps):,} to {max(steps):,}"
        for column, steps in taken.items()
    }
    if not said:
        return []
    if len(set(said.values())) == 1:
        return [f"Gradient steps of a run: {next(iter(said.values()))}."]
    return ["Gradient steps of a run: " + "; ".join(f"{column}: {text}" for column, text in said.items()) + "."]


def _plain(row: str, column: str, measure: str, values: list[float], beside: float | None) -> Entry:
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Entry(row, column, measure, float(np.mean(values)), spread=spread, paper=beside, seeds=len(values))


def _stages(happened: list[dict[str, object]]) -> float:
    return float(sum(event["event"] == "stage" and int(str(event["stage"])) > 0 for event in happened))


def _selected(happened: list[dict[str, object]]) -> float:
    return float(sum(int(str(event.get("selected", 0))) for event in happened if event["event"] == "stage"))

"""Tables of test figures: a row an arm, a column a share of labels; or a row a class."""

import numpy as np

from acpl.evaluation import Resampled
from acpl.experiments.reproduce import paper
from acpl.experiments.reproduce.entries import Entry, entry, mean_of, of_class
from acpl.experiments.reproduce.gathered import Gathered, Made
from acpl.experiments.reproduce.keeping import events, split_counts

TOGETHER = "together"
ALL_SHARES = "mean over the shares"
"""The column of what a seed's runs at all shares of labels have in the mean."""
CEILING = "all labels"
FLOOR = "supervised"


def methods_table(gathered: Gathered, *, reference: str, measures: tuple[str, ...] = ("auroc",)) -> Made:
    """The score table; means over the shares of labels; and what all seeds of an arm say together.

    The last where they had the same labels.
    """
    made = score_table(gathered, reference=reference, measures=measures)
    made = Made([*made.entries, *_over_shares(gathered, reference, measures)], made.notes)
    found = gathered.together

    def of(row: str, column: str) -> dict[int, Resampled]:
        return {0: found[row, column]} if (row, column) in found else {}

    joined = [
        entry(
            row,
            column,
            TOGETHER,
            of(row, column),
            reference=of(reference, column),
            floor=of(FLOOR, column),
            ceiling=of(CEILING, column),
        )
        for row, column in found
        if (reference, column) in found  # else there is nothing to compare with
    ]
    if not joined:
        return made
    note = (
        "Together: the mean of all seeds' answers, judged as one model of so many networks; all had the same labels. "
        "It is of the training's chance as free as so many runs can make it."
    )
    return Made([*made.entries, *joined], [*made.notes, note])


def _over_shares(gathered: Gathered, reference: str, measures: tuple[str, ...]) -> list[Entry]:
    """Every arm's mean over the shares of labels, seed by seed: one question instead of one a share."""
    columns = list(dict.fromkeys(column for _, column in gathered.places()))
    rows = list(dict.fromkeys(row for row, _ in gathered.places()))
    if len(columns) < 2:
        return []

    def of(row: str, measure: str) -> dict[int, Resampled]:
        each = [gathered.seeds(row, column, measure) for column in columns]
        common = sorted(set.intersection(*(set(one) for one in each)))
        return {seed: mean_of([one[seed] for one in each]) for seed in common}

    found = []
    for measure in measures:
        means = {row: of(row, measure) for row in rows}
        for row, own in means.items():
            missing = [f"seed {seed}: not at every share" for seed in range(gathered.request.seeds) if seed not in own]
            found.append(
                entry(
                    row,
                    ALL_SHARES,
                    measure,
                    own,
                    reference=means.get(reference),
                    floor=means.get(FLOOR) if CEILING in rows else None,
                    ceiling=means.get(CEILING),
                    failed=missing,
                )
            )
    return found


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
    if CEILING in rows:
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

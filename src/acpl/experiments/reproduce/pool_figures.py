"""The paper's figures: K, and what happens to the pools between two stages."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from acpl.config import resolve
from acpl.data.manifest import Manifest
from acpl.engine.training import source_of
from acpl.evaluation import Resampled, resample
from acpl.evaluation.means import ratio
from acpl.experiments.reproduce.entries import Entry, entry, of_class
from acpl.experiments.reproduce.gathered import Gathered, Made
from acpl.experiments.reproduce.keeping import events, split_counts
from acpl.experiments.reproduce.plan import Planned
from acpl.experiments.reproduce.scores import means_of, over_columns, score_table, steps_notes
from acpl.experiments.reproduce.stage_tables import all_reasons, labels_said, stages_of, train_manifest, with_stages
from acpl.report.paper_plots import Example, Line, bar_plot, example_sheet, line_plot
from acpl.task import Task

Mask = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
NO_FINDING = "No Finding"
EXAMPLES = 18
_CHARACTERS = 21  # that fit below an example


def k_figure(gathered: Gathered) -> Made:
    """Test AUC over K, with and without purification, and what either has in the mean over K.

    Drawn, and compared with each other, are means over as many seeds as any has.
    """
    made = score_table(gathered, reference="purified")
    seeds = max((one.seeds for one in made.entries), default=0)
    lines = []
    for row in dict.fromkeys(one.row for one in made.entries):
        points, band = [], []
        for one in made.entries:
            if one.row != row or one.seeds < seeds or one.mean is None or one.low is None or one.high is None:
                continue
            k = float(one.column.removeprefix("K = "))
            points.append((k, 100 * one.mean))
            band.append((k, 100 * one.low, 100 * one.high))
        lines.append(Line(row, points, band))
        if len(points) > 1:
            values = [value for _, value in points]
            made.notes.append(f"{row}: best and worst K lie {max(values) - min(values):.2f} AUC × 100 apart.")
    over_k = over_columns(gathered, ("auroc",))
    means = means_of(over_k, "purified", seeds=gathered.request.seeds) if any(over_k.values()) else []
    title = f"AUC over K, {labels_said(gathered)} (mean of {seeds} seeds, 95 % over patients)"
    figure = line_plot(title, lines, "K", "mean test AUC, %")
    return replace(made, entries=[*made.entries, *means], figure=figure)


def size_figure(gathered: Gathered) -> Made:
    """How large the labelled set is when each stage trains: labels that were given, and pseudo-labels."""
    found, lines = [], []
    for row, column in gathered.places():
        cells = gathered.at(row, column)
        sizes = [_sizes(gathered.folder(one)) for one in cells]
        longest = max((len(each) for each in sizes), default=1)
        # A run that ended before its last stage has what it had: nothing was left to select.
        table = np.array([each + each[-1:] * (longest - len(each)) for each in sizes], dtype=np.float64)
        points, band = [], []
        for stage in range(longest):
            name = "warm-up" if stage == 0 else f"stage {stage}"
            if not len(table):
                found.append(Entry(row, name, "size", None, failed=gathered.reasons(row, column)))
                continue
            each = table[:, stage]
            spread = float(np.std(each, ddof=1)) if len(each) > 1 else None
            failed = gathered.reasons(row, column)
            found.append(Entry(row, name, "size", float(each.mean()), spread=spread, seeds=len(each), failed=failed))
            points.append((float(stage), float(each.mean())))
            band.append((float(stage), float(each.min()), float(each.max())))
        lines.append(Line(row, points, band))
    title = f"Labelled and pseudo-labelled images by stage, {labels_said(gathered)}"
    notes = ["Means over seeds ± standard deviation; the bands are the least and the greatest of the seeds."]
    return Made(found, notes, line_plot(title, lines, "stage (0: warm-up)", "images trained on"))


def balance_figure(gathered: Gathered) -> Made:
    """How common each class is among the samples of high and of low information, and in the whole pool."""
    sides = ("high information", "low information", "the pool")
    manifest = train_manifest(gathered)
    names, labels = _with_no_finding(manifest)
    shares: dict[str, dict[int, Resampled]] = {side: {} for side in sides}
    for one in with_stages(gathered):
        masks = _information(gathered.folder(one), one, manifest)
        for side, mask in zip(sides, masks, strict=True):
            shares[side][one.seed] = _share(labels, mask, manifest, gathered.resamples)
    found = []
    for number, name in enumerate(names):
        each = {side: {seed: of_class(f, number) for seed, f in own.items()} for side, own in shares.items()}
        for side in sides:
            own, pool = each[side], each["the pool"]
            found.append(entry(name, side, "share", own, reference=pool, failed=all_reasons(gathered)))
    bars = {
        side: [100 * one.mean if one.mean is not None else np.nan for one in found if one.column == side]
        for side in sides
    }
    seeds = f"mean of {gathered.request.seeds} seeds"
    title = f"Classes among unlabelled images before stage 1, {labels_said(gathered)} ({seeds})"
    notes = ["True labels of the unlabelled training images, which no method sees; intervals over patients."]
    return Made(found, notes, bar_plot(title, names, bars, "% of the images"))


def examples_figure(gathered: Gathered) -> Made:
    """How many pseudo-labels are right in each stage, and some of the first stage's to look at."""
    manifest = train_manifest(gathered)
    runs = with_stages(gathered)
    right: dict[int, dict[int, Resampled]] = {}
    for one in runs:
        for number, table in enumerate(stages_of(gathered.folder(one)), start=1):
            chosen = _chosen(table, manifest)
            if len(chosen) == 0:
                continue
            rows, marks = _right(chosen, manifest)
            mask, correct = np.zeros((2, len(manifest.table)), dtype=bool)
            mask[rows], correct[rows] = True, marks
            figure = _share(correct[:, None].astype(np.float64), mask, manifest, gathered.resamples)
            right.setdefault(number, {})[one.seed] = figure
    found = [
        entry(f"stage {number}", "right", "share", right[number], failed=all_reasons(gathered))
        for number in sorted(right)
    ] or [Entry("stage 1", "right", "share", None, failed=all_reasons(gathered))]
    examples: list[Example] = []
    listed = "image,pseudo-label,truth,right\n"
    if runs:
        examples, listed = _examples(gathered, runs[0], manifest)
    title = f"Pseudo-labels of stage 1, seed 0, drawn at random, {labels_said(gathered)}: green right, red wrong"
    rule = (
        "Right: the most probable class is the true one."
        if manifest.task is Task.MULTI_CLASS
        else "Right: the most probable finding is there; where there is none, no finding is more likely than not."
    )
    return Made(found, [rule, *steps_notes(gathered)], example_sheet(title, examples), {"examples.csv": listed})


def _examples(gathered: Gathered, one: Planned, manifest: Manifest) -> tuple[list[Example], str]:
    import torch

    table = stages_of(gathered.folder(one))[0]
    chosen = _chosen(table, manifest)
    picked = np.random.default_rng(0).permutation(len(chosen))[:EXAMPLES]
    chosen = chosen.iloc[np.sort(picked)]
    images = source_of(resolve(**one.cell.settings)).open(("train",)).images
    pixels = images.gather(torch.from_numpy(chosen["id"].to_numpy(dtype=np.int64, copy=True))).numpy()
    rows, marks = _right(chosen, manifest)
    labels = _pseudo_labels(chosen, manifest)
    examples, lines = [], ["image,pseudo-label,truth,right"]
    for image, row, mark, said in zip(pixels, rows, marks, labels, strict=True):
        order = np.argsort(-said, kind="stable")[:2]
        words = [f"{manifest.classes[k]} {said[k]:.2f}" for k in order]
        true = [name for name, there in zip(manifest.classes, manifest.labels[row], strict=True) if there == 1]
        truth = " + ".join(true) or NO_FINDING
        shown = image[0] if len(image) == 1 else image.transpose(1, 2, 0)
        short = tuple(_short(line) for line in (*words, f"is {truth}"))
        examples.append(Example(np.ascontiguousarray(shown), bool(mark), short))
        lines.append(f"{manifest.table['image'].iloc[row]},{' '.join(words)},{truth},{int(mark)}")
    return examples, "\n".join(lines) + "\n"


def _right(chosen: pd.DataFrame, manifest: Manifest) -> tuple[npt.NDArray[np.int64], Mask]:
    """Rows of the manifest, and whether their pseudo-labels are right."""
    rows = np.searchsorted(manifest.ids, chosen["id"].to_numpy(dtype=np.int64))
    said, truth = _pseudo_labels(chosen, manifest), manifest.labels[rows]
    top = said.argmax(axis=1)
    hit = truth[np.arange(len(rows)), top] == 1
    if manifest.task is Task.MULTI_LABEL:
        hit = np.where(truth.sum(axis=1) > 0, hit, said.max(axis=1) < 0.5)
    return rows, np.asarray(hit, dtype=bool)


def _chosen(table: pd.DataFrame, manifest: Manifest) -> pd.DataFrame:
    """Selected samples whose truth is known."""
    return table[table["selected"].to_numpy() & np.isin(table["id"], manifest.ids)]


def _pseudo_labels(chosen: pd.DataFrame, manifest: Manifest) -> Floats:
    return chosen[[f"pseudo_label.{name}" for name in manifest.classes]].to_numpy(dtype=np.float64)


def _with_no_finding(manifest: Manifest) -> tuple[list[str], Floats]:
    if manifest.task is Task.MULTI_LABEL and NO_FINDING not in manifest.classes:
        manifest = manifest.with_no_finding()
    return list(manifest.classes), manifest.labels.astype(np.float64)


def _information(folder: Path, one: Planned, manifest: Manifest) -> tuple[Mask, Mask, Mask]:
    """Which of the manifest's samples were of high and of low information before stage 1, and which in the pool."""
    table = stages_of(folder)[0]
    table = table[np.isin(table["id"], manifest.ids)]
    rows = np.searchsorted(manifest.ids, table["id"].to_numpy(dtype=np.int64))
    level = table["information"].to_numpy()
    highest = int(resolve(**one.cell.settings).settings["sets"]) - 1
    masks = np.zeros((3, len(manifest.table)), dtype=bool)
    masks[0, rows[level == highest]], masks[1, rows[level == 0]], masks[2, rows] = True, True, True
    return masks[0], masks[1], masks[2]


def _share(labels: Floats, mask: Mask, manifest: Manifest, resamples: int) -> Resampled:
    """(columns,): the share of the masked samples that have each label, on the same patients for every mask."""
    above, below = labels * mask[:, None], mask.astype(np.float64)[:, None]
    found = resample(
        lambda weights: {
            "share": ratio(weights @ above, np.broadcast_to(weights @ below, (len(weights), above.shape[1])))
        },
        len(mask),
        manifest.groups,
        resamples=resamples,
    )
    return found["share"]


def _sizes(folder: Path) -> list[float]:
    """Images trained on: in the warm-up, and in each stage."""
    sizes = [float(split_counts(folder)["labelled"])]
    for event in events(folder):
        if event["event"] == "stage" and event["stage"] > 0:
            sizes.append(sizes[-1] + float(event.get("selected", 0)))
    return sizes


def _short(line: str) -> str:
    return line if len(line) <= _CHARACTERS else f"{line[: _CHARACTERS - 2]}.."

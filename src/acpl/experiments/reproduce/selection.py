"""What choosing a checkpoint on the test part is worth: a study, made when training is over.

Nothing in a run looks at the test part. Here the predictors that a run kept after its warm-up and every stage are
judged on validation and on test, and what each rule would have chosen is compared: the last one, the best on
validation, and the best on test, as the published code does. That third one is no result of any method.
"""

from io import BytesIO
from pathlib import Path

import numpy as np
import torch

from acpl.data.manifest import Part
from acpl.engine.beside import Beside
from acpl.engine.predicting import FINAL, Predictor
from acpl.engine.run_folder import RunFolder, write_whole
from acpl.engine.training import source_of
from acpl.errors import UserError
from acpl.evaluation import Resampled, auroc, defined_mean, ranking_figures, resample
from acpl.experiments.reproduce.entries import Seeds, entry
from acpl.experiments.reproduce.gathered import Gathered, Made
from acpl.experiments.reproduce.scores import score_table

SNAPSHOTS = "snapshots.npz"
"""What every kept predictor of a run says of validation and of test."""
BY_VALIDATION, BY_TEST = "best stage by validation", "best stage by TEST (no result: a measurement)"


def judge_snapshots(run: Path, device: str = "auto") -> None:
    """Write ``snapshots.npz`` into a finished run's folder: images, groups, truth and scores of both parts."""
    folder = RunFolder.open(run)
    config, card = folder.config(), folder.card()
    source = source_of(config.model_copy(update={"colour": "grey" if card.channels == 1 else "rgb"}))
    names = [name for name in folder.weight_names() if name != FINAL]
    found: dict[str, np.ndarray] = {"names": np.array(names)}
    parts: tuple[Part, ...] = ("validation", "test")
    for part in parts:
        dataset = source.open((part,))
        known = dataset.manifest.known
        if not known.any():
            raise UserError(f"{config.data} has no {part} part with labels, so checkpoints cannot be compared on it")
        table = dataset.manifest.table[known]
        ids = torch.from_numpy(dataset.manifest.ids[known])
        found[f"{part}.image"] = table["image"].to_numpy(dtype=str)
        found[f"{part}.group"] = table["group"].to_numpy(dtype=str)
        found[f"{part}.truth"] = dataset.manifest.labels[known]
        beside = Beside.of(card, table)
        for name in names:
            said = Predictor.load(folder, name, device)(dataset.images, ids, beside=beside)
            found[f"{part}.{name}"] = said.astype(np.float32)
    content = BytesIO()
    np.savez_compressed(content, **found)  # type: ignore[arg-type]
    write_whole(run / SNAPSHOTS, content.getvalue())


def departures_table(gathered: Gathered, *, reference: str) -> Made:
    """Each departure against the paper's text; below, what choosing among a run's stages would have been worth."""
    made = score_table(gathered, reference=reference)
    found, notes = list(made.entries), list(made.notes)
    for column in dict.fromkeys(column for _, column in gathered.places()):
        last = gathered.seeds(reference, column, "auroc")
        chosen: dict[str, dict[int, Resampled]] = {BY_VALIDATION: {}, BY_TEST: {}}
        candidates = 0
        for one in gathered.at(reference, column):
            snapshots = _read(gathered.folder(one) / SNAPSHOTS)
            candidates = max(candidates, len(snapshots["names"]))
            for rule, part in ((BY_VALIDATION, "validation"), (BY_TEST, "test")):
                best = _best(snapshots, part)
                chosen[rule][one.seed] = _resampled(snapshots, best, gathered.resamples)
        failed = gathered.reasons(reference, column)
        found += [entry(rule, column, "auroc", own, reference=last, failed=failed) for rule, own in chosen.items()]
        notes += _verdict(column, chosen[BY_TEST], chosen[BY_VALIDATION], candidates)
    return Made(found, notes)


def _verdict(column: str, by_test: Seeds, by_validation: Seeds, candidates: int) -> list[str]:
    if not by_test:
        return []
    between = entry("", column, "auroc", by_test, reference=by_validation)
    if between.difference is None or between.difference_low is None or between.difference_high is None:
        return []
    ends = f"[{100 * between.difference_low:+.2f}, {100 * between.difference_high:+.2f}]"
    return [
        f"{column}: choosing among {candidates} kept predictors (the warm-up's and each stage's) on the test part "
        f"instead of validation is worth {100 * between.difference:+.2f} {ends} AUC × 100. The published code chooses "
        "among many more, every 1,000 steps. The interval takes the choice as given."
    ]


def _read(file: Path) -> dict[str, np.ndarray]:
    with np.load(file, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def _best(snapshots: dict[str, np.ndarray], part: str) -> str:
    """The predictor of greatest mean AUROC on a part; the first in name of equals."""
    truth = snapshots[f"{part}.truth"].astype(np.float64)
    means = {
        str(name): float(defined_mean(auroc(truth, snapshots[f"{part}.{name}"].astype(np.float64))))
        for name in snapshots["names"]
    }
    return max(means, key=lambda name: means[name])


def _resampled(snapshots: dict[str, np.ndarray], name: str, resamples: int) -> Resampled:
    """A predictor's test AUROC, in the order and on the resamples of every other row."""
    order = np.argsort(snapshots["test.image"], kind="stable")
    truth = snapshots["test.truth"][order].astype(np.float64)
    score = snapshots[f"test.{name}"][order].astype(np.float64)
    groups = snapshots["test.group"][order].astype(object)
    return resample(ranking_figures(truth, score), len(truth), groups, resamples=resamples)["auroc"]

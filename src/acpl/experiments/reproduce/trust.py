"""Whom to believe: how well pseudo-labels rank the unlabelled images, by how much these could teach."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from acpl import functional
from acpl.config import resolve
from acpl.data.manifest import Manifest
from acpl.evaluation import Resampled, ranking_figures, resample
from acpl.experiments.reproduce.entries import entry
from acpl.experiments.reproduce.gathered import Gathered, Made
from acpl.experiments.reproduce.stage_tables import all_reasons, stages_of, train_manifest, with_stages

POOL = "the pool"
Floats = npt.NDArray[np.float64]


def trust_table(gathered: Gathered) -> Made:
    """AUC of the model's word, the neighbours' mean label and eq. 6 on images of each information set."""
    manifest = train_manifest(gathered)
    found: dict[tuple[str, str], dict[int, Resampled]] = {}
    sets_said: dict[str, list[str]] = {}
    for one in with_stages(gathered):
        table = stages_of(gathered.folder(one))[0]
        table = table[np.isin(table["id"], manifest.ids)]
        sets = int(resolve(**one.cell.settings).settings["sets"])
        levels = table["information"].to_numpy()
        masks = {f"{name} information": levels == level for level, name in enumerate(_names(sets))}
        for row, mask in {**masks, POOL: np.ones(len(table), dtype=bool)}.items():
            dense = f"{table['density'].to_numpy()[mask].mean():.2f}" if mask.any() else "none"
            sets_said.setdefault(row, []).append(f"{int(mask.sum()):,} ({dense})")
            for column, said in _said(table, manifest).items():
                figure = _ranked(table, manifest, said, mask, gathered.resamples)
                found.setdefault((row, column), {})[one.seed] = figure
    entries = [
        entry(row, column, "auroc", seeds, reference=found[POOL, column], failed=all_reasons(gathered))
        for (row, column), seeds in found.items()
    ]
    notes = ["True labels of the unlabelled training images, which no method sees; before stage 1."]
    notes += [f"Images (mean density), {row}: {', '.join(each)}." for row, each in sets_said.items()]
    return Made(entries, notes)


def _names(sets: int) -> list[str]:
    """Of the information sets, the least informative first."""
    between = ["medium"] if sets == 3 else [f"{number}th" for number in range(2, sets)]
    return ["low", *between, "high"]


def _said(table: pd.DataFrame, manifest: Manifest) -> dict[str, Floats]:
    """(images, classes) each: what the model, the neighbours and both together say."""
    import torch

    model, neighbours = (
        table[[f"{who}.{name}" for name in manifest.classes]].to_numpy(dtype=np.float32, copy=True)
        for who in ("model", "neighbours")
    )
    density = table["density"].to_numpy(dtype=np.float32, copy=True)
    both = functional.informative_mixup(*(torch.from_numpy(each) for each in (model, neighbours, density)))
    said = {"model": model, "neighbours": neighbours, "informative mixup": both.numpy()}
    return {who: values.astype(np.float64) for who, values in said.items()}


def _ranked(
    table: pd.DataFrame, manifest: Manifest, said: Floats, mask: npt.NDArray[np.bool_], resamples: int
) -> Resampled:
    """(classes,): AUC among the masked images; patients are drawn from all, so that sets can be compared."""
    rows = np.searchsorted(manifest.ids, table["id"].to_numpy(dtype=np.int64))
    if not mask.any():
        return Resampled(np.full(said.shape[1], np.nan), np.full((resamples, said.shape[1]), np.nan))
    statistic = ranking_figures(manifest.labels[rows][mask], said[mask])
    found = resample(lambda weights: statistic(weights[:, mask]), len(rows), manifest.groups[rows], resamples=resamples)
    return found["auroc"]

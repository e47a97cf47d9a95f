"""What a run's stages selected, as plain numbers and pictures for the report.

Read after training, from the run folder and the images it was trained on. The truth of unlabelled samples, where
the data set has it, is read here for the first time: nothing is trained any more.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from acpl import functional
from acpl.config import Config
from acpl.data.manifest import Manifest
from acpl.data.sources import Dataset
from acpl.engine.pictures import SMALL, thumbnails
from acpl.engine.run_folder import RunFolder
from acpl.engine.selection_cards import stage_cards, within_limit
from acpl.engine.stage_table import Floats, Known, StageTable
from acpl.errors import UserError

BINS = 48


def selection_figures(
    folder: RunFolder,
    dataset: Dataset,
    true: Manifest,
    config: Config,
    left_out: Callable[[str], object] = lambda sentence: None,
) -> dict[str, Any] | None:
    """Each stage's densities, class balance and map, and cards of pseudo-labels; None where no stage kept a table.

    ``true``: the data set's table without the mistakes that its labels may have on purpose. ``left_out`` is told of
    each file that is damaged: a report without it is better than a training that ends without a model.
    """
    known = Known.of(folder, dataset.manifest, true)
    labels = {number: known.truth[number] for number in known.given if number in known.truth}
    labelled = _shares(list(labels.values()))
    joined: set[int] = set()
    stages, cards = [], []
    for stage in StageTable.read(folder, known, left_out):
        stages.append(_figures(stage, config.settings) | {"map": _map(folder, stage, joined, left_out)})
        cards += stage_cards(stage, labels)
        chosen = stage.selected
        labels |= {int(n): label for n, label in zip(stage.ids[chosen], stage.pseudo_label[chosen], strict=True)}
        joined |= {int(number) for number in stage.ids[stage.joined]}
    if not stages:
        return None
    cards = within_limit(cards)
    shown = {card["id"] for card in cards}
    beside = {anchor["id"] for card in cards for anchor in card["anchors"]} - shown
    return {
        "task": known.task,
        "classes": known.classes,
        "labelled": labelled,
        "stages": stages,
        "cards": cards,
        "pictures": thumbnails(dataset.images, shown) | thumbnails(dataset.images, beside, SMALL),
    }


def _figures(stage: StageTable, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Counts, the densities with their mixture, the balance of classes, and how many pseudo-labels are right."""
    known = stage.known
    judged = [int(row) for row in np.flatnonzero(stage.selected) if int(stage.ids[row]) in known.truth]
    right = sum(known.right(stage.pseudo_label[row], known.truth[int(stage.ids[row])]) for row in judged)
    return {
        "stage": stage.number,
        "candidates": len(stage.ids),
        "selected": int(stage.selected.sum()),
        "density": _densities(stage, settings),
        "balance": _balance(stage),
        "judged": len(judged),
        "right": right,
    }


def _densities(stage: StageTable, settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """A histogram by information level, and the components of the mixture it was read from.

    The fit is deterministic; the components are its last step, done over again from its posteriors.
    """
    if stage.density is None or "information" not in stage.table or len(stage.ids) == 0:
        return None
    density, level = stage.density.astype(np.float32), stage.table["information"].to_numpy(dtype=np.int64)
    low, high = float(density.min()), float(density.max())
    edges = np.linspace(low, high if high > low else low + 1e-6, BINS + 1)
    sets = int(settings.get("sets", level.max() + 1))
    components = []
    if sets >= 2 and high > low:
        share = functional.information(
            torch.from_numpy(density),
            sets,
            tolerance=float(settings.get("mixture_tolerance", 1e-6)),
            iterations=int(settings.get("mixture_iterations", 500)),
        ).posterior.double()
        values, weight = torch.from_numpy(density).double()[:, None], share.sum(dim=0).clamp_min(1e-12)
        mean = (share * values).sum(dim=0) / weight
        spread = ((share * (values - mean) ** 2).sum(dim=0) / weight).sqrt()
        parts = zip(weight / len(density), mean, spread, strict=True)
        components = [{"weight": float(w), "mean": float(m), "sd": float(s)} for w, m, s in parts]
    return {
        "edges": [round(float(edge), 6) for edge in edges],
        "counts": [np.histogram(density[level == place], edges)[0].tolist() for place in range(sets)],
        "components": components,
        "taken": sorted({int(place) for place in level[stage.selected]}),
    }


def _balance(stage: StageTable) -> dict[str, Any]:
    """Each class's share of the pool and of what was selected: true where known, else as the model sees both."""
    truth = stage.known.truth
    ids = [int(number) for number in stage.ids]
    known = bool(ids) and all(number in truth for number in ids)
    values = np.stack([truth[number] for number in ids]) if known else stage.model
    return {
        "measure": "truth" if known else "model",
        "pool": _shares(values),
        "selected": _shares(values[stage.selected]),
    }


def _map(
    folder: RunFolder, stage: StageTable, joined: set[int], left_out: Callable[[str], object]
) -> dict[str, Any] | None:
    """Two dimensions of the features that were looked at before this stage, and what each point was."""
    name = f"report/features-{stage.number:02d}.parquet"
    if not (folder.path / name).exists():
        return None
    try:
        seen = folder.read_parquet(name)
    except UserError as reason:
        left_out(str(reason))
        return None
    how, places = _two_dimensions(seen.drop(columns="id").to_numpy(dtype=np.float64))
    candidates = {int(n): bool(chosen) for n, chosen in zip(stage.ids, stage.selected, strict=True)}
    groups: dict[str, list[list[float]]] = {"rest": [], "selected": [], "joined": [], "labelled": []}
    for number, (x, y) in zip(seen["id"], places.tolist(), strict=True):
        if int(number) in candidates:
            kind = "selected" if candidates[int(number)] else "rest"
        else:
            kind = "joined" if int(number) in joined else "labelled"
        groups[kind].append([round(x, 4), round(y, 4)])
    return {"how": how, "points": groups}


def _two_dimensions(components: Floats) -> tuple[str, Floats]:
    """UMAP where it is installed and finds its way, else the two directions that vary most."""
    try:
        from umap import UMAP
    except ImportError:
        return "PCA", components[:, :2]
    try:
        places = np.asarray(UMAP(random_state=0).fit_transform(components), dtype=np.float64)
    except Exception:  # of few or equal points: each of the libraries below it has its own
        return "PCA", components[:, :2]
    return ("UMAP", places) if np.isfinite(places).all() else ("PCA", components[:, :2])


def _shares(values: Sequence[Floats] | Floats) -> list[float | None] | None:
    if len(values) == 0:
        return None
    return [None if np.isnan(share) else round(float(share), 5) for share in np.mean(values, axis=0)]

"""A finished run's training images, as its final model sees them."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from acpl import functional
from acpl.config import Config
from acpl.data.manifest import Manifest
from acpl.data.sources import Source
from acpl.data.store import ImageStore
from acpl.data.workers import Progress, nothing
from acpl.engine.beside import Beside
from acpl.engine.parts import refuse_other_parts
from acpl.engine.predicting import Predictor
from acpl.engine.run_folder import ModelCard, RunFolder
from acpl.engine.training import source_of
from acpl.errors import UserError

NEIGHBOURS = 10


@dataclass(frozen=True)
class Pool:
    """The training part; rows of ``labelled`` and ``unlabelled`` count in ``manifest``."""

    folder: RunFolder
    config: Config
    card: ModelCard
    source: Source
    manifest: Manifest
    images: ImageStore
    labelled: npt.NDArray[np.int64]
    unlabelled: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Sight:
    """What the final model says of the unlabelled images, in the order of ``pool.unlabelled``."""

    pool: Pool
    features: Tensor
    """(unlabelled, features)"""
    labelled_features: Tensor
    """(labelled, features)"""
    probabilities: npt.NDArray[np.float64]
    """(unlabelled, classes)"""
    neighbours: npt.NDArray[np.float64]
    """(unlabelled, classes): the mean label of the nearest labelled images, eq. 5."""
    nearest: npt.NDArray[np.int64]
    """(unlabelled, k): rows of the manifest, nearest first."""
    density: npt.NDArray[np.float64]
    """(unlabelled,): mean cosine similarity to the nearest labelled images, eq. 4."""


def open_pool(path: Path, progress: Progress = nothing) -> Pool:
    """The training part of a run, with the roles that its split gave; the test part is not opened.

    A table from which other parts are drawn by now is refused.
    """
    folder = RunFolder.open(path)
    config, card = folder.config(), folder.card()
    # Colour is found from the images that are opened; what the model was trained on is what counts.
    colour = "grey" if card.channels == 1 else "rgb"
    source = source_of(config.model_copy(update={"colour": colour}), progress)
    refuse_other_parts(folder, source.manifest())
    dataset = source.open(("train",))
    manifest = dataset.manifest
    if list(manifest.classes) != card.classes:
        raise UserError(f"{config.data} has other classes than when {path} was trained: {', '.join(manifest.classes)}")
    roles = _roles(folder, manifest)
    unlabelled, labelled = np.flatnonzero(roles == "unlabelled"), np.flatnonzero(roles == "labelled")
    if len(unlabelled) == 0:
        raise UserError(f"{path} has no unlabelled images: all of its training images have labels")
    return Pool(folder, config, card, source, manifest, dataset.images, labelled, unlabelled)


def look(pool: Pool, *, device: str = "auto") -> Sight:
    """The final model's features and probabilities, and each unlabelled image's nearest labelled images.

    The anchors are the images that a person labelled: what the method pseudo-labelled is what is to be checked.
    """
    look_at = Predictor.load(pool.folder, device=device).inference(pool.images)
    seen = {
        name: look_at(torch.from_numpy(pool.manifest.ids[rows]))
        for name, rows in (("labelled", pool.labelled), ("unlabelled", pool.unlabelled))
    }
    similarity, index = functional.nearest(
        seen["unlabelled"].features, seen["labelled"].features, _neighbours(pool.config, pool)
    )
    labels = torch.from_numpy(pool.manifest.labels[pool.labelled]).to(index.device)
    said = seen["unlabelled"].probabilities[:, : len(pool.card.classes)]
    beside = Beside.of(pool.card, pool.manifest.table)
    if beside is not None:
        said = beside.added(said, torch.from_numpy(pool.manifest.ids[pool.unlabelled]))
    return Sight(
        pool,
        seen["unlabelled"].features.cpu(),
        seen["labelled"].features.cpu(),
        said.double().cpu().numpy(),
        functional.neighbour_labels(index, labels).double().cpu().numpy(),
        pool.labelled[index.cpu().numpy()],
        functional.density(similarity).double().cpu().numpy(),
    )


def _roles(folder: RunFolder, manifest: Manifest) -> npt.NDArray[np.object_]:
    """Each training image's role in the run; a data set that has changed since is refused."""
    split = folder.split().set_index("id")
    known = manifest.table.index.isin(split.index)
    there = manifest.table.index[known]
    names = manifest.table["image"][known].astype(str)
    if not known.any() or not (split.loc[there, "image"].to_numpy() == names.to_numpy()).all():
        raise UserError(f"{folder.config().data} does not hold the images that {folder.path} was trained on any more")
    roles = np.full(len(manifest.table), "left out", dtype=object)
    roles[known] = split.loc[there, "role"].to_numpy(dtype=object)
    return roles


def _neighbours(config: Config, pool: Pool) -> int:
    """The method's own number of neighbours where it has one."""
    settings = config.method_settings()
    if hasattr(settings, "neighbours"):
        share = len(pool.labelled) / (len(pool.labelled) + len(pool.unlabelled))
        return int(settings.neighbours(round(share, 3)))
    return NEIGHBOURS

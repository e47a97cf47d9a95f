"""Several runs as one model: their networks answer together, with the mean of their probabilities."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from acpl.config import Config
from acpl.data.sources import Source
from acpl.data.splits import checksum
from acpl.data.workers import Progress, nothing
from acpl.engine.beside import Beside
from acpl.engine.building import network_of
from acpl.engine.device import Device
from acpl.engine.parts import refuse_other_parts
from acpl.engine.predicting import FINAL, Predictor
from acpl.engine.reporting import keep, machine, versions
from acpl.engine.run_folder import ModelCard, RunFolder
from acpl.engine.thresholds import set_on_validation
from acpl.engine.training import source_of
from acpl.errors import UserError

_ALIKE = (
    *("task", "classes", "normal_output", "channels", "size", "aspect", "backbone", "activation", "looks"),
    "group_answers",
)


def join_runs(paths: Sequence[Path], out: Path, *, device: str = "auto", progress: Progress = nothing) -> RunFolder:
    """Write the joined model into the new run folder ``out``.

    All runs must have been trained on the same parts of the same images, for else one network may have learnt what
    another is tested on; a table from which other parts are drawn by now is refused, as when a run is judged.
    Thresholds that are set on validation are set anew.
    """
    folders = [RunFolder.open(path) for path in paths]
    if len(folders) < 2:
        raise UserError("join takes at least two runs")
    for place, path in enumerate(paths):
        if path.resolve() in [other.resolve() for other in paths[:place]]:
            raise UserError(f"{path} is named twice")
    RunFolder.refuse_existing(out)  # before the work, not after it
    first, cards = folders[0], [folder.card() for folder in folders]
    for folder, card in zip(folders, cards, strict=True):
        _refuse_unlike(first, cards[0], folder, card)
    split, labelled = _one_split(folders)
    source = _source_of(first, cards[0], progress)
    refuse_other_parts(first, source.manifest())

    weights = {
        f"networks.{number}.{name}": value
        for number, folder in enumerate(folders)
        for name, value in folder.read_weights(FINAL).items()
    }
    card = replace(cards[0], networks=len(folders), thresholds=None, snapshot_thresholds={}, temperature=1.0)
    fingerprint = checksum(split["id"].to_numpy(), split["role"].to_numpy(dtype=object))
    config = first.config().model_copy(update={"split_checksum": fingerprint})
    chosen = Device.choose(device, config.precision)
    network = network_of(card)
    network.load_state_dict(weights)
    predictor = Predictor(network.to(chosen.torch).eval(), card, chosen)
    card = _with_thresholds(source, predictor, progress)

    with RunFolder.whole(out) as folder:
        folder.write_config(config)
        folder.write_split(split)
        folder.append_event({"event": "joined", "runs": [str(path) for path in paths], **labelled})
        keep(folder, "made.json", _made(str(chosen.torch)))
        folder.write_card(card)
        folder.write_weights(FINAL, weights)
    return RunFolder(out)


def _refuse_unlike(first: RunFolder, card: ModelCard, other: RunFolder, its: ModelCard) -> None:
    """Refuse networks that are not called alike, or that were trained on other data."""
    if its.networks > 1:
        raise UserError(f"{other.path} is joined itself; name the runs that it was joined from")
    for name in (*_ALIKE, "threshold"):
        if getattr(card, name) != getattr(its, name):
            raise UserError(f"{other.path} has {name} {getattr(its, name)}, but {first.path} has {getattr(card, name)}")
    if card.clinical != its.clinical:
        raise UserError(
            f"{other.path} and {first.path} learnt other things from the patients' data: "
            "their columns differ, or whose labels they had"
        )
    if _source(first.config()) != _source(other.config()):
        raise UserError(f"{other.path} was not trained on the same images as {first.path}")
    if not np.allclose([*card.mean, *card.std], [*its.mean, *its.std], rtol=0, atol=1e-6):
        raise UserError(f"{other.path} normalises images otherwise than {first.path} does")


def _source(config: Config) -> tuple[Any, ...]:
    """What tells data sets apart whose images have the same names; a table may have been moved."""
    phantoms = (config.phantom_seed, config.phantom_patients) if config.data.startswith("phantom") else ()
    return (Path(config.data).name, *phantoms)


def _one_split(folders: Sequence[RunFolder]) -> tuple[pd.DataFrame, dict[str, int]]:
    """The first run's split, in which an image is labelled where it is for any run; and how many are, for any and for
    the one that has most."""
    splits = [folder.split() for folder in folders]
    whole = splits[0].copy()
    for folder, split in zip(folders, splits, strict=True):
        same = split[["id", "image"]].equals(whole[["id", "image"]])
        if not same or ((split["role"] == "validation") != (whole["role"] == "validation")).any():
            raise UserError(
                f"{folder.path} was not trained on the same parts as {folders[0].path}: "
                "one may have learnt what the other is tested on"
            )
        whole.loc[split["role"] == "labelled", "role"] = "labelled"
    each = [int((split["role"] == "labelled").sum()) for split in splits]
    return whole, {"labelled": int((whole["role"] == "labelled").sum()), "labelled_for_one": max(each)}


def _source_of(first: RunFolder, card: ModelCard, progress: Progress) -> Source:
    # Colour is found from the images that are opened; what the model was trained on is what counts.
    return source_of(first.config().model_copy(update={"colour": "grey" if card.channels == 1 else "rgb"}), progress)


def _with_thresholds(source: Source, predictor: Predictor, progress: Progress) -> ModelCard:
    card = predictor.card
    if card.threshold != "validation":
        return card
    dataset = source.open(("validation",))
    known = dataset.manifest.known
    ids = torch.from_numpy(dataset.manifest.ids[known])
    score = predictor(dataset.images, ids, progress, Beside.of(card, dataset.manifest.table))
    thresholds, _ = set_on_validation(card.classes, dataset.manifest.labels[known], score)
    return replace(card, thresholds=thresholds)


def _made(device: str) -> dict[str, Any]:
    return {"versions": versions(), "device": device, "machine": machine(device), "seconds": {}}

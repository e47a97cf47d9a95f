"""From a configuration to a trained run folder."""

from pathlib import Path

import numpy as np
import pandas as pd
import torch

from acpl import algorithms
from acpl.algorithms.contract import Context, Networks, Schedule
from acpl.config import Config
from acpl.data.manifest import Manifest
from acpl.data.pools import Pools
from acpl.data.sources import Source, find_source
from acpl.data.splits import checksum, draw_labelled
from acpl.engine.device import Device, seed_everything
from acpl.engine.loop import Trainer
from acpl.engine.monitor import Monitor
from acpl.engine.run_folder import ModelCard, RunFolder
from acpl.errors import UserError
from acpl.models import Classifier, WeightAverage, build_classifier
from acpl.task import Task

# What the first weights are drawn with; stages and epochs use other numbers in this place.
_FIRST_WEIGHTS = 1_000_000


def run_training(config: Config, out: Path, monitor: Monitor) -> RunFolder:
    """Train as ``config`` says; the test part is not opened."""
    settings = config.method_settings()
    device = Device.choose(config.device, config.precision)
    dataset = source_of(config).open(("train", "validation"))
    manifest = dataset.manifest
    if config.normal_output:
        if manifest.task is not Task.MULTI_LABEL:
            raise UserError(f"normal_output needs a multi-label data set, but {config.data} is {manifest.task}")
        manifest = manifest.with_no_finding()
    reported = len(dataset.manifest.classes)

    split = draw_split(manifest, config)
    fingerprint = checksum(split["id"].to_numpy(), split["role"].to_numpy(dtype=object))
    if config.split_checksum not in (None, fingerprint):
        raise UserError(f"split_checksum is {config.split_checksum}, but this split's is {fingerprint}")
    pools = _pools(manifest, split)
    validation = (split["role"] == "validation").to_numpy()

    mean, std = dataset.images.statistics()
    card = ModelCard(
        task=manifest.task,
        classes=list(dataset.manifest.classes),
        backbone=config.backbone,
        activation=config.activation,
        channels=dataset.images.channels,
        size=dataset.images.size,
        mean=mean,
        std=std,
        threshold=config.threshold,
        normal_output=config.normal_output,
    )
    seed_everything(config.seed, _FIRST_WEIGHTS)

    def build() -> Networks:
        network = build_network(card, dropout=config.dropout, weights=config.weights)
        network = network.to(device.torch, memory_format=torch.channels_last)  # type: ignore[call-overload]
        return Networks(network, WeightAverage(network, config.averaging, config.averaging_statistics))

    context = Context(
        task=manifest.task,
        classes=reported,
        pools=pools,
        schedule=Schedule(config.batch_size, config.warmup_epochs, config.stages, config.stage_epochs),
        fraction=config.fraction,
        seed=config.seed,
        build=build,
    )
    method = algorithms.find(config.method)(settings, context)

    folder = RunFolder.create(out)
    folder.write_config(config.model_copy(update={"split_checksum": fingerprint}))
    folder.write_split(split)
    monitor.say(
        f"{config.data}: {len(pools.labelled)} labelled, {len(pools.unlabelled)} unlabelled, "
        f"{int(validation.sum())} validation images; {manifest.task}, {reported} classes; {device.torch}"
    )
    trainer = Trainer(
        config=config,
        task=manifest.task,
        classes=list(manifest.classes),
        pools=pools,
        images=dataset.images,
        validation_ids=torch.from_numpy(manifest.ids[validation]),
        validation_truth=torch.from_numpy(dataset.manifest.labels[validation]),
        device=device,
        mean=torch.tensor(mean, device=device.torch),
        std=torch.tensor(std, device=device.torch),
        folder=folder,
        monitor=monitor,
    )
    kept = trainer.fit(method)
    folder.write_card(card)
    folder.write_weights("model", kept.state_dict())
    return folder


def source_of(config: Config) -> Source:
    """The data set that a configuration names."""
    return find_source(config.data, size=config.size, patients=config.phantom_patients, seed=config.phantom_seed)


def build_network(card: ModelCard, *, dropout: float = 0.0, weights: str = "none") -> Classifier:
    """The network that a model card describes."""
    return build_classifier(
        card.backbone,  # type: ignore[arg-type]
        channels=card.channels,
        classes=len(card.classes) + card.normal_output,
        activation=card.activation,  # type: ignore[arg-type]
        dropout=dropout,
        weights=weights,
    )


def draw_split(manifest: Manifest, config: Config) -> pd.DataFrame:
    """A row a sample in the manifest's order: id, image, role (labelled, unlabelled, validation)."""
    train = np.flatnonzero((manifest.table["part"] == "train").to_numpy())
    rows = draw_labelled(
        manifest.labels[train], manifest.groups[train], config.fraction, seed=config.seed, draw=config.draw
    )
    roles = np.full(len(manifest.table), "validation", dtype=object)
    roles[train] = "unlabelled"
    roles[train[rows]] = "labelled"
    if len(rows) == 0:
        raise UserError(f"fraction {config.fraction} of {len(train)} training images leaves none labelled")
    return pd.DataFrame({"id": manifest.ids, "image": manifest.table["image"].to_numpy(), "role": roles})


def _pools(manifest: Manifest, split: pd.DataFrame) -> Pools:
    labelled = (split["role"] == "labelled").to_numpy()
    unlabelled = (split["role"] == "unlabelled").to_numpy()
    ids = manifest.ids
    return Pools(
        torch.from_numpy(ids[labelled]),
        torch.from_numpy(manifest.labels[labelled]),
        torch.from_numpy(ids[unlabelled]),
    )

"""From a configuration to a trained run folder."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from acpl import algorithms
from acpl.algorithms.acpl import ACPL
from acpl.algorithms.contract import Averaged, Context, Schedule, as_said
from acpl.config import Config
from acpl.data.manifest import Manifest
from acpl.data.pools import Pools
from acpl.data.sources import Source, SourceOptions, find_source
from acpl.data.splits import checksum
from acpl.data.workers import Progress, nothing
from acpl.engine.beginning import Beginning
from acpl.engine.beside import Beside, Clinical, InSteps, of_no_use, taught_nobody
from acpl.engine.building import build_network
from acpl.engine.checkpoints import Checkpoints
from acpl.engine.clock import Clock
from acpl.engine.crew import Crew, check_batch_size, check_number, own_crew
from acpl.engine.device import Device, seed_everything
from acpl.engine.feed import near
from acpl.engine.launching import at_work
from acpl.engine.loop import Trainer
from acpl.engine.monitor import Monitor, Quiet
from acpl.engine.processes import OneProcess, Processes
from acpl.engine.reporting import gather_training
from acpl.engine.roles import draw_split
from acpl.engine.run_folder import ElsewhereFolder, ModelCard, RunFolder
from acpl.engine.step import Workbench
from acpl.engine.stopping import Stop, Stopped, stopped_at_once
from acpl.engine.temperature import refuse_no_validation, soften_by_validation
from acpl.engine.thresholds import EVEN, set_on_validation, threshold_rule
from acpl.engine.trouble import is_out_of_memory, labels_that_teach_little, neighbours_that_say_little
from acpl.errors import UserError
from acpl.models import Classifier, WeightAverage, check_backbone, expected_statistics
from acpl.models.shared_norms import synchronise
from acpl.task import Task

# Settings that decide where and how a run computes, not what.
MAY_CHANGE = ("device", "devices", "nodes", "cache", "cuda_graphs", "store_share", "checkpoint_minutes")
# What the first weights are drawn with; stages and epochs use other numbers in this place.
_FIRST_WEIGHTS = 1_000_000


def run_training(config: Config, out: Path, monitor: Monitor, processes: Processes | None = None) -> RunFolder:
    """Train as ``config`` says in a new folder; the test part is not opened.

    ``processes`` are those that a launcher has started and that are connected; this is the first of them. Without
    them, this process starts as many as the configuration asks for.
    """
    config.method_settings()
    check_backbone(config.backbone, config.weights)
    if processes is None and config.nodes > 1:
        return _with_other_machines(
            config.devices, config.nodes, out, lambda met: run_training(config, out, monitor, met)
        )
    crew = _crew_for(config, processes)
    source = source_of(config, monitor.progress)
    folder = RunFolder.create(out, config)
    with folder.locked():
        try:
            with stopped_at_once(folder.path), _begun(config, folder, crew, processes) as group:
                _train(config, source, folder, monitor, group)
        except Stopped:
            raise  # the folder stays: it can be gone on with
        except UserError:
            folder.remove_if_untrained()
            raise
    return folder


def resume_training(
    out: Path, monitor: Monitor, changes: Mapping[str, Any], processes: Processes | None = None
) -> RunFolder:
    """Go on with the run in ``out``, exactly where its newest whole checkpoint was; ``changes`` are refused by name."""
    nodes = int(changes.get("nodes", 1))
    if processes is None and nodes > 1:  # where the run's folder need not be
        devices = int(changes.get("devices", 1))
        return _with_other_machines(devices, nodes, out, lambda met: resume_training(out, monitor, changes, met))
    folder = RunFolder.open_unfinished(out)
    with folder.locked():
        config = folder.config()
        began = Beginning.kept_in(folder)
        if began is not None:
            began.refuse_other_settings(config, MAY_CHANGE)
            began.refuse_another_edition(folder)
        config = _unchanged(config, changes)
        if not {"devices", "nodes"} & changes.keys() and (processes is not None or config.nodes > 1):
            config = config.model_copy(update={"devices": 1, "nodes": 1})  # as many as are here now
        crew = _crew_for(config, processes)
        with stopped_at_once(folder.path), _begun(config, folder, crew, processes) as group:
            _train(config, source_of(config, monitor.progress), folder, monitor, group)
    return folder


def take_part(processes: Processes) -> None:
    """Do what a process other than the first does: its part of each step and look, nothing that others can see."""
    told = processes.told(None)
    config, processes.folder = Config.parse(told["config"]), Path(told["folder"])
    _train(config, source_of(config), ElsewhereFolder(processes.folder), Quiet(), processes)


def _unchanged(config: Config, changes: Mapping[str, Any]) -> Config:
    """The run's configuration; only where and how fast it runs may be told anew."""
    told = config.model_dump()
    for name, value in changes.items():
        old = told["settings"][name] if name in told["settings"] else told.get(name)
        changed = Config.parse({**told, name: value}).model_dump() if name in told else None
        new = changed[name] if changed is not None else value
        if name not in MAY_CHANGE and str(new) != str(old):
            raise UserError(f"{name} was {old} when this run began and cannot be {new} now; --resume takes no changes")
        if changed is not None:
            told = changed
    return Config.parse(told)


def _crew_for(config: Config, processes: Processes | None) -> Crew | None:
    """Who is to train; what cannot be shared out among them is refused before anybody is started."""
    crew = own_crew(config.devices, config.nodes) if processes is None else processes.crew
    if crew is None:
        Device.choose(config.device, config.precision)
        return None
    check_number(config.devices, config.nodes, crew)
    check_batch_size(config.batch_size, crew.size, even=config.cutmix > 0)
    Device.check_several(config.device, crew.devices)
    return crew


@contextmanager
def _begun(
    config: Config, folder: RunFolder, crew: Crew | None, processes: Processes | None
) -> Iterator[Processes | OneProcess]:
    """All processes of the run, told what to do."""
    if crew is None:
        yield OneProcess()
        return
    with at_work(crew) if processes is None else nullcontext(processes) as group:
        group.folder = folder.path
        group.told({"config": config.model_dump(mode="json"), "folder": str(folder.path.absolute())})
        yield group


def _with_other_machines(devices: int, nodes: int, out: Path, work: Callable[[Processes], RunFolder]) -> RunFolder:
    """Meet the other machines first: whatever is refused then is refused on all."""
    crew = own_crew(devices, nodes)
    assert crew is not None
    with at_work(crew, out) as met:
        if crew.rank == 0:
            return work(met)
        take_part(met)
    return RunFolder(out)


def _train(
    config: Config, source: Source, folder: RunFolder, monitor: Monitor, processes: Processes | OneProcess
) -> None:
    settings = config.method_settings()
    device = Device.choose(config.device, config.precision, processes.local_rank if processes.size > 1 else None)
    if isinstance(processes, Processes):
        processes.use(device.torch)
    for sentence in source.said:
        monitor.say(sentence)
    clock = Clock()
    with clock("opening images"), processes.first_opens():
        dataset = source.open(("train", "validation"))
    for file in dataset.bad:
        monitor.say(f"left out: {file.name}: {file.reason}")
    manifest = dataset.manifest
    if config.normal_output:
        if manifest.task is not Task.MULTI_LABEL:
            raise UserError(f"normal_output needs a multi-label data set, but {config.data} is {manifest.task}")
        manifest = manifest.with_no_finding()
    reported = len(dataset.manifest.classes)

    split = draw_split(manifest, config)
    roles = split["role"].to_numpy(dtype=object)
    clinical = Clinical.learnt(config.clinical, manifest, roles == "labelled") if config.clinical else None
    now = Beginning.of(config, dataset, split) if processes.rank == 0 else None
    began = Beginning.kept_in(folder)
    _refuse_other_data(began, now, folder, split, processes)
    fingerprint = checksum(split["id"].to_numpy(), split["role"].to_numpy(dtype=object))
    if config.split_checksum not in (None, fingerprint):
        raise UserError(f"split_checksum is {config.split_checksum}, but this split's is {fingerprint}")
    if fingerprint != processes.told(fingerprint):
        raise UserError(f"process {processes.rank} finds other images or another split than process 0: {fingerprint}")
    pools = _pools(manifest, split)
    validation = (split["role"] == "validation").to_numpy() & dataset.manifest.known
    rule = threshold_rule(config.threshold, manifest.task, int(validation.sum()))
    refuse_no_validation(config.calibrate, int(validation.sum()))

    expected = expected_statistics(config.backbone, config.weights, dataset.images.channels)
    mean, std = expected if expected is not None else dataset.images.statistics()
    card = ModelCard(
        task=manifest.task,
        classes=list(dataset.manifest.classes),
        backbone=config.backbone,
        activation=config.activation,
        channels=dataset.images.channels,
        size=dataset.images.size,
        mean=mean,
        std=std,
        threshold=rule,
        normal_output=config.normal_output,
        aspect=config.aspect,
        looks=config.looks,
        clinical=None if clinical is None or config.clinical_in == "pseudo-labels" else clinical.as_json(),
        group_answers=config.group_answers,
    )
    seed_everything(config.seed, _FIRST_WEIGHTS)

    first_weights = None if config.init_from is None else weights_of_run(config.init_from, card)

    def build() -> Averaged:
        network = build_network(card, dropout=config.dropout, weights=config.weights)
        if first_weights is not None:
            network.load_state_dict(first_weights, strict=False)
        try:
            network = network.to(device.torch, memory_format=torch.channels_last)  # type: ignore[call-overload]
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            raise UserError(f"{device.torch} has too little memory for the weights of {config.backbone}") from None
        if isinstance(processes, Processes):
            synchronise(network, processes)
        return Averaged(network, WeightAverage(network, config.averaging, config.averaging_statistics))

    beside = Beside.in_training(config, clinical, manifest, roles)
    in_steps = None if beside is None else InSteps(beside, pools.unlabelled, device.torch)
    context = Context(
        task=manifest.task,
        classes=reported,
        pools=pools,
        schedule=Schedule(config.batch_size, config.warmup_epochs, config.stages, config.stage_epochs),
        fraction=round(len(pools.labelled) / (len(pools.labelled) + len(pools.unlabelled)), 3),
        seed=config.seed,
        build=build,
        group=processes,
        heard=in_steps or as_said,
        shared=in_steps.shared if in_steps is not None and config.group_pseudo_labels > 0 else None,
    )
    method = algorithms.find(config.method)(settings, context)
    if isinstance(processes, Processes):
        synchronise(method.networks().trained, processes)  # what a method builds besides

    troubles = labels_that_teach_little(
        manifest.labels[(split["role"] == "labelled").to_numpy()], manifest.classes, manifest.task
    )
    if isinstance(method, ACPL) and (trouble := neighbours_that_say_little(method.neighbours(), len(pools.labelled))):
        troubles.append(trouble)
    checkpoints = Checkpoints(folder.path / "checkpoints", config.checkpoint_minutes)
    state, broken = checkpoints.read() if processes.rank == 0 else (None, [])
    state = processes.told(state)
    for checkpoint in broken:
        monitor.say(f"broken checkpoint passed over: {checkpoint}")
    folder.write_config(config.model_copy(update={"split_checksum": fingerprint}))
    folder.write_split(split)
    if state is None:
        folder.cut_events(0)
        if began is None and now is not None:  # a run of an older version has none, and goes on without
            now.keep_in(folder)
    monitor.opened(folder.path, config.model_dump(mode="json"))
    for trouble in troubles if state is None else ():
        monitor.say(trouble.sentence)
        folder.append_event(trouble.event())
        monitor.event(trouble.event())
    monitor.say(
        f"{config.data}: {len(pools.labelled)} labelled, {len(pools.unlabelled)} unlabelled, "
        f"{int(validation.sum())} validation images; {manifest.task}, {reported} classes; {device.torch}"
        + (f", {processes.size} processes" if processes.size > 1 else "")
    )
    for sentence in of_no_use(config, manifest, roles):
        monitor.say(sentence)
    stop = Stop()
    bench = Workbench(
        config=config,
        device=device,
        store=near(dataset.images, device, config.store_share),
        pools=pools,
        mean=torch.tensor(mean, device=device.torch),
        std=torch.tensor(std, device=device.torch),
        generator=torch.Generator(device.torch),
        processes=processes,
    )
    trainer = Trainer(
        bench=bench,
        task=manifest.task,
        classes=list(manifest.classes),
        validation_ids=torch.from_numpy(manifest.ids[validation]),
        validation_truth=torch.from_numpy(dataset.manifest.labels[validation]),
        folder=folder,
        checkpoints=checkpoints,
        monitor=monitor,
        stop=stop,
        beside=beside,
        clock=clock,
    )
    with stop.listening():
        kept = trainer.fit(method, state)
    for sentence in taught_nobody(config, in_steps, between_stages=trainer.looked_at_pools):
        monitor.say(sentence)
    for sentence in folder.put_aside_broken_weights():
        monitor.say(f"put aside: {sentence}")
    if config.calibrate:
        temperature = soften_by_validation(kept, lambda: trainer.on_validation(kept), manifest.task)
        monitor.say(f"temperature {temperature:.2f}, fitted on validation: the model's logits are divided by it")
        card = replace(card, temperature=temperature)
    card = _with_thresholds(card, trainer, kept)
    if processes.rank > 0:
        return
    true = true_manifest(config, dataset.manifest)
    for sentence in gather_training(folder, dataset, true, device=str(device.torch), clock=clock):
        monitor.say(f"left out of the report: {sentence}")
    folder.write_card(card)
    folder.write_weights("model", kept.state_dict())  # last: with it the run is done


def _refuse_other_data(
    began: Beginning | None,
    now: Beginning | None,
    folder: RunFolder,
    split: pd.DataFrame,
    processes: Processes | OneProcess,
) -> None:
    """UserError where the data are not what the run began with, which the first process knows.

    The others hear of it here: one that is still opening its images would find the first gone, without a word.
    """
    sentence = None
    if began is not None and now is not None:
        try:
            began.refuse_other_data(now, folder.split(), split)
        except UserError as reason:
            sentence = str(reason)
    sentence = processes.told(sentence)
    if sentence is not None:
        raise UserError(sentence)


def _with_thresholds(card: ModelCard, trainer: Trainer, kept: Classifier) -> ModelCard:
    """The card with the probability from which each class is called, set on validation where that is the rule."""
    if card.threshold == "argmax":
        return card
    if card.threshold != "validation":
        return replace(card, thresholds=[float(card.threshold or EVEN)] * len(card.classes))
    thresholds, unknown = set_on_validation(card.classes, *trainer.on_validation(kept))
    if unknown:
        trainer.monitor.say(f"validation sets no threshold, so it is {EVEN}: {', '.join(unknown)}")
    snapshots = {}
    processes, folder = trainer.bench.processes, trainer.folder
    for name in processes.told(folder.weight_names()):
        network = build_network(card)
        network.load_state_dict(processes.told(folder.read_weights(name) if processes.rank == 0 else None))
        seen = trainer.on_validation(network.to(trainer.bench.device.torch))
        snapshots[name] = set_on_validation(card.classes, *seen)[0]
    return replace(card, thresholds=thresholds, snapshot_thresholds=snapshots)


def weights_of_run(run: Path, card: ModelCard) -> dict[str, torch.Tensor]:
    """A finished run's weights to start from; without those of its head where the classes are others."""
    folder = RunFolder.open(run)
    other = folder.card()
    for name in ("backbone", "channels", "activation", "networks"):
        mine, theirs = getattr(card, name), getattr(other, name)
        if mine != theirs:
            raise UserError(f"init_from: {run} has {name} {theirs}, but this run has {mine}")
    weights = folder.read_weights("model")
    if (other.classes, other.normal_output) != (card.classes, card.normal_output):
        weights = {name: value for name, value in weights.items() if not name.startswith("head.")}
    return weights


def source_of(config: Config, progress: Progress = nothing) -> Source:
    """The data set that a configuration names."""
    return find_source(
        SourceOptions(
            data=config.data,
            images=config.images,
            size=config.size,
            colour=config.colour,
            aspect=config.aspect,
            task=config.task,
            classes=config.classes,
            image_column=config.image_column,
            group_column=config.group_column,
            split_column=config.split_column,
            labels_column=config.labels_column,
            split=config.split,
            parts=config.parts,
            validation=config.validation,
            split_seed=config.split_seed,
            skip_bad=config.skip_bad,
            cache=config.cache,
            patients=config.phantom_patients,
            seed=config.phantom_seed,
            errors=config.phantom_errors,
            progress=progress,
        )
    )


def true_manifest(config: Config, manifest: Manifest) -> Manifest:
    """The same images with the labels that they should have: phantoms' are known without ``phantom_errors``."""
    if config.phantom_errors == 0 or not config.data.startswith("phantom"):
        return manifest
    right = source_of(config.model_copy(update={"phantom_errors": 0.0})).manifest()
    return right.keep(np.isin(right.ids, manifest.ids))


def _pools(manifest: Manifest, split: pd.DataFrame) -> Pools:
    labelled = (split["role"] == "labelled").to_numpy()
    unlabelled = (split["role"] == "unlabelled").to_numpy()
    ids = manifest.ids
    return Pools(
        torch.from_numpy(ids[labelled]),
        torch.from_numpy(manifest.labels[labelled]),
        torch.from_numpy(ids[unlabelled]),
    )

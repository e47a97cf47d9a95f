"""How many cells fit side by side: as many as there are cores, and no more than memory allows."""

from dataclasses import dataclass
from pathlib import Path

import torch

from acpl.config import Config
from acpl.data.manifest import Manifest
from acpl.engine.building import build_network
from acpl.engine.device import Device
from acpl.engine.run_folder import ModelCard
from acpl.experiments.cells import cores

GIB = 2**30
_PROCESS = 0.8 * GIB
"""Python, torch and MONAI, the blocks of the neighbour search, and the bootstrap."""
_CONTEXT = 0.8 * GIB
"""What CUDA keeps for a process before it does anything."""
_COPIES = 10
"""Weights, gradients, Adam's two, the averaged copy, a second network of each for methods that have one."""
_IMAGES = 4
"""Batches whose activations are held at once: labelled and unlabelled, two views or two networks."""
_SLACK = 1.3
"""Allocators keep more than they hand out."""
_KEPT_FREE = 0.9


@dataclass(frozen=True)
class Jobs:
    """How many, and one sentence why."""

    count: int
    why: str


def choose_jobs(config: Config, manifest: Manifest, cells: int) -> Jobs:
    """As many as the cores, the memory and the cells allow."""
    device = Device.choose(config.device, config.precision).torch
    network = training_bytes(config, manifest)
    limits = {"cores": cores(), "cells": cells}
    host = int(_PROCESS) + _images_in_memory(config, manifest) + (network if device.type == "cpu" else 0)
    free = free_memory()
    if free is not None:
        limits["memory"] = int(_KEPT_FREE * free // host)
    needs = f"about {host / GIB:.1f} GiB each" + ("" if free is None else f" of {free / GIB:.1f} GiB free")
    if device.type == "cuda":
        free_there = torch.cuda.mem_get_info(device)[0]
        store = len(manifest.table) * 3 * config.size**2
        on_device = int(_CONTEXT) + network + min(store, int(config.store_share * free_there))
        limits["the device's memory"] = int(_KEPT_FREE * free_there // on_device)
        needs += f", and on the device about {on_device / GIB:.1f} GiB each of {free_there / GIB:.1f} GiB free"
    least = min(limits, key=lambda name: limits[name])
    count = max(1, limits[least])
    return Jobs(count, f"{count} side by side, limited by {least} ({limits['cores']} cores; {needs})")


def training_bytes(config: Config, manifest: Manifest) -> int:
    """What training a network holds: its weights many times over, and what a step keeps for its gradients.

    The latter is counted, by one pass over two images, so it holds for any backbone.
    """
    network = build_network(_card(config, manifest))
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    weights = {parameter.untyped_storage().data_ptr() for parameter in network.parameters()}
    images = torch.zeros(2, 3, config.size, config.size)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = network(images)  # held, so that no storage is freed and its address taken again
    an_image = sum(size for place, size in kept.items() if place not in weights) / len(images)
    del output
    size = sum(parameter.nbytes for parameter in network.parameters())
    return int(_SLACK * (_COPIES * size + _IMAGES * config.batch_size * an_image))


def free_memory() -> int | None:
    """Bytes that this process and its children may still take; None where the system does not say."""
    found = []
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found += [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    except OSError:
        return None
    try:  # a container's own limit
        limit, used = (Path(f"/sys/fs/cgroup/memory.{name}").read_text().strip() for name in ("max", "current"))
        if limit != "max":
            found.append(max(0, int(limit) - int(used)))
    except (OSError, ValueError):
        pass
    return min(found, default=None)


def _card(config: Config, manifest: Manifest) -> ModelCard:
    """The network that a cell trains; colour, for it is not known yet and grey takes no more."""
    return ModelCard(
        task=manifest.task,
        classes=list(manifest.classes),
        backbone=config.backbone,
        activation=config.activation,
        channels=3,
        size=config.size,
        mean=[0.0] * 3,
        std=[1.0] * 3,
        threshold=None,
        normal_output=config.normal_output,
    )


def _images_in_memory(config: Config, manifest: Manifest) -> int:
    """Phantoms are drawn into memory, at twice their size and again when they are judged; files are mapped."""
    if not config.data.startswith("phantom"):
        return 0
    return 2 * len(manifest.table) * 3 * config.size**2

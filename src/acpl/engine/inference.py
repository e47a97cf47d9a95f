"""A network's word on many images, without augmentation."""

import torch
from torch import Tensor

from acpl.algorithms.contract import Views
from acpl.data.augment import normalise
from acpl.data.store import ImageStore
from acpl.data.workers import Progress, nothing
from acpl.engine.device import Device
from acpl.models import Classifier, probabilities
from acpl.task import Task

BATCH = 256


@torch.no_grad()
def infer(
    network: Classifier,
    store: ImageStore,
    ids: Tensor,
    *,
    task: Task,
    mean: Tensor,
    std: Tensor,
    device: Device,
    progress: Progress = nothing,
) -> Views:
    """Features and probabilities of ``ids`` in their order, float32, on the device; the network is put back."""
    training = network.training
    network.eval()
    features, outputs, done = [], [], 0
    for chunk in torch.split(ids, BATCH):
        images = normalise(store.gather(chunk).to(device.torch), mean, std)
        with device.autocast():
            out = network(images.contiguous(memory_format=torch.channels_last))
        features.append(out.features.float())
        outputs.append(probabilities(out.logits, task))
        done += len(chunk)
        progress("looking at images", done, len(ids))
    network.train(training)
    if not features:
        width, classes = network.head.in_features, network.head.out_features
        return Views(torch.empty(0, width, device=device.torch), torch.empty(0, classes, device=device.torch))
    return Views(torch.cat(features), torch.cat(outputs))

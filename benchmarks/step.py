"""A training step: the published way, as written here, recorded here, and the bare recorded step, in one process.

python benchmarks/step.py [--device cuda --backbone densenet121 --sizes 512x16,512x64,224x128,64x256 --json step.json]
                          [--precision auto|32|bf16-mixed] [--far]

The published way, from its description: half precision (fp16) autocast with loss scaling on a GPU, NCHW, an unused
forward pass of the averaged copy, the copy moved tensor by tensor, the network as its authors wrote it. It is given
float images that lie on the device.
*Ours* goes from uint8 images in the store through gathering, augmentation, loss, Adam and averaging, as ``acpl train``
does; with --far also from a store that stays on the host, as one does that is larger than the device's share: threads
read ahead into pinned memory and copies overlap with the steps. *Bare* is the recorded forward, backward, Adam and
averaging alone, on one batch that never changes.
The floor: the operations of the convolutions and products over what a large product reaches here, and the bytes that
the operations read and write, each by itself, over what a copy reaches.
"""

import argparse
import copy
from collections.abc import Callable
from typing import Any

import torch
from timing import ceilings, machine, seconds, table, write_json
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from acpl import algorithms
from acpl.algorithms.contract import Averaged, Context, Schedule
from acpl.config import Config
from acpl.data.pools import Pools
from acpl.data.store import ImageStore
from acpl.engine.device import Device
from acpl.engine.feed import FarFeed
from acpl.engine.recording import CudaRecording, Repeated
from acpl.engine.step import TrainingStep, Workbench, epoch_order, fresh_optimiser
from acpl.models import Classifier, WeightAverage, build_classifier, classification_loss
from acpl.task import Task

CLASSES, IMAGES = 14, 512


def network(backbone: str, device: torch.device, fused: bool = True) -> Classifier:
    """The same weights for everybody."""
    torch.manual_seed(0)
    return build_classifier(backbone, channels=3, classes=CLASSES, fused=fused).to(device)


def published_step(backbone: str, size: int, batch: int, device: torch.device) -> Callable[[], None]:
    """As the published code trains, from its description: torch's own batch norm, activation and concatenation."""
    model = network(backbone, device, fused=False).train()
    average = copy.deepcopy(model).requires_grad_(False).train()
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler(device.type, enabled=device.type == "cuda")
    images = torch.randn(batch, 3, size, size, device=device)
    targets = (torch.rand(batch, CLASSES, device=device) < 0.1).float()

    def step() -> None:
        with torch.autocast(device.type, dtype=torch.float16, enabled=device.type == "cuda"):
            logits = model(images).logits
        loss = F.binary_cross_entropy_with_logits(logits.float(), targets)
        optimiser.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimiser)
        scaler.update()
        with torch.no_grad():
            for own, followed in zip(average.parameters(), model.parameters(), strict=True):
                own.mul_(0.99).add_(followed, alpha=0.01)
            with torch.autocast(device.type, dtype=torch.float16, enabled=device.type == "cuda"):
                average(images)
        loss.item()

    return step


def our_step(
    backbone: str, size: int, batch: int, device: Device, graphs: bool, far: bool = False
) -> tuple[Callable[[], None], int]:
    """Some steps as ``acpl train`` takes them, and how many."""
    ids = torch.arange(IMAGES)
    store = ImageStore(ids, torch.randint(256, (IMAGES, 3, size, size), dtype=torch.uint8))
    if not far:
        store = store.on(device.torch)
    targets = (torch.rand(IMAGES, CLASSES) < 0.1).float()
    pools = Pools(ids, targets, ids[:0])

    def build() -> Averaged:
        model = network(backbone, device.torch).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return Averaged(model, WeightAverage(model, 0.99))

    schedule = Schedule(batch, 1, 0, 1)
    found = algorithms.find("supervised")
    method = found(found.Settings(), Context(Task.MULTI_LABEL, CLASSES, pools, schedule, 1.0, 0, build))
    config = Config(batch_size=batch, cuda_graphs=graphs)
    spread = torch.full((3,), 0.5, device=device.torch)
    generator = torch.Generator(device.torch)
    bench = Workbench(config, device, store, pools, spread, spread, generator)
    stage = method.stage(0)
    assert stage is not None
    step = TrainingStep(bench, method, stage, fresh_optimiser(method, config, device))
    if far:  # on a CPU the store always lies there, and this feed must be asked for
        step._feed = FarFeed(store, device.torch)
    method.networks().trained.train()
    step.begin_stage(stage)
    steps = 50 if far and device.torch.type == "cuda" else 10  # enough that the first reads do not count much

    def some() -> None:
        order = epoch_order(stage.draws["labelled"], steps, torch.Generator().manual_seed(0))
        step.begin_epoch({"labelled": order})
        for number in range(steps):
            step(number)

    return some, steps


def bare_step(backbone: str, size: int, batch: int, device: Device) -> Callable[[], None]:
    """Forward, backward, Adam and averaging on one batch, recorded."""
    model = network(backbone, device.torch).to(memory_format=torch.channels_last).train()  # type: ignore[call-overload]
    average = WeightAverage(model, 0.99)
    on_gpu = device.torch.type == "cuda"
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True, capturable=on_gpu)
    images = torch.randn(batch, 3, size, size, device=device.torch).contiguous(memory_format=torch.channels_last)
    targets = (torch.rand(batch, CLASSES, device=device.torch) < 0.1).float()

    def step() -> None:
        with device.autocast():
            logits = model(images).logits
        classification_loss(logits, targets, Task.MULTI_LABEL).backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        average.update(model)

    return Repeated(step, CudaRecording() if on_gpu else None)


class Bytes(TorchDispatchMode):
    """How many bytes the operations read and write, each by itself; views move none."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, operation: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        results = operation(*arguments, **(options or {}))
        inputs = [leaf for leaf in tree_leaves((arguments, options)) if isinstance(leaf, Tensor)]
        outputs = [leaf for leaf in tree_leaves(results) if isinstance(leaf, Tensor)]
        if not operation.is_view:
            self.total += sum(leaf.nbytes for leaf in [*inputs, *outputs])
        return results


def floor(backbone: str, size: int, batch: int, device: Device) -> tuple[float, float]:
    """Operations and bytes of the forward and backward passes."""
    plain = network(backbone, device.torch, fused=False)  # what is written by hand is not seen by who counts
    model: nn.Module = plain.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    images = torch.randn(batch, 3, size, size, device=device.torch).contiguous(memory_format=torch.channels_last)
    flops, moved = FlopCounterMode(display=False), Bytes()
    with moved, flops, device.autocast():
        model(images).logits.float().square().mean().backward()
    return float(flops.get_total_flops()), float(moved.total)


def main() -> None:
    """Measure, print a table, write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--backbone", default="densenet121" if torch.cuda.is_available() else "small")
    parser.add_argument("--sizes", default="512x16,512x64,224x128,64x256" if torch.cuda.is_available() else "64x32")
    parser.add_argument("--precision", default="auto", choices=("auto", "32", "bf16-mixed"))
    parser.add_argument("--far", action="store_true", help="also from a store that stays on the host")
    parser.add_argument("--json")
    asked = parser.parse_args()
    device = Device.choose(asked.device, asked.precision)
    products, copies = ceilings(device.torch, torch.bfloat16 if device.mixed else torch.float32)
    rows, numbers = [], []
    for text in asked.sizes.split(","):
        size, batch = map(int, text.split("x"))
        times = {
            "published": seconds(published_step(asked.backbone, size, batch, device.torch), device.torch, repeats=9)
        }
        ways = [("eager", False, False), ("ours", True, False), *([("far", True, True)] if asked.far else [])]
        for name, graphs, far in ways:
            some, steps = our_step(asked.backbone, size, batch, device, graphs, far)
            times[name] = seconds(some, device.torch, warm=2) / steps
        times["bare"] = seconds(bare_step(asked.backbone, size, batch, device), device.torch, warm=5, repeats=15)
        operations, moved = floor(asked.backbone, size, batch, device)
        least = operations / products, moved / copies
        rate = {name: batch / value for name, value in times.items()}
        rows.append(
            [
                f"{size} px, batch {batch}",
                *(f"{rate[name]:,.0f}" for name in ("published", "eager", "ours", "bare")),
                f"{rate['ours'] / rate['published']:.1f} ×",
                f"{rate['ours'] / rate['bare']:.0%}",
                f"{1e3 * times['ours']:.1f}",
                f"{1e3 * least[0]:.1f} / {1e3 * least[1]:.1f}",
                *([f"{rate['far']:,.0f} ({rate['far'] / rate['ours']:.0%})"] if asked.far else []),
            ]
        )
        numbers.append(
            {
                "size": size,
                "batch": batch,
                "seconds": times,
                "operations": operations,
                "bytes": moved,
                "floor_operations_s": least[0],
                "floor_bytes_s": least[1],
            }
        )
        print(rows[-1], flush=True)
    headings = ["step", "published", "ours, eager", "**ours**", "bare", "ours / published", "ours / bare"]
    precision = "bf16-mixed" if device.mixed else "32"
    print(f"\n{asked.backbone}, {precision}, images/s; {machine(device.torch)}")
    print(f"product {products / 1e9:,.0f} G/s, copy {copies / 1e9:,.0f} GB/s\n")
    headings += ["ms a step", "floor, ms: operations / bytes", *(["from the host (of ours)"] if asked.far else [])]
    print(table(headings, rows))
    about = {"machine": machine(device.torch), "backbone": asked.backbone, "precision": precision}
    write_json(asked.json, {**about, "rows": numbers})


if __name__ == "__main__":
    main()

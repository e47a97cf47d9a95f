"""A whole run of ACPL by the paper's schedule: how long it takes, where the time goes, what the published way takes.

python benchmarks/end_to_end.py --data labels.csv --images images.zip [--preset isic2018 --backbone efficientnet-lite0]

The run is ``acpl train`` itself, after a short one that warms the machine and decodes the images. The published way is
not run to its end: one of its steps is measured at the same network and batch size (see step.py) and multiplied by the
steps that show as many images, with nothing between them: a floor for it. The floor for ours is that of step.py, the
operations and the bytes of the forward and backward passes over what this machine reaches, for as many images.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from step import floor, published_step
from timing import ceilings, machine, seconds, table, write_json

import acpl
from acpl.engine.device import Device
from acpl.engine.run_folder import RunFolder


def main() -> None:
    """Train twice, print a table, write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="phantom-lesions")
    for name in ("images", "preset", "backbone", "weights", "draw", "size", "json"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="any other setting of acpl train")
    asked = vars(parser.parse_args())
    file, others = asked.pop("json"), asked.pop("set")
    settings: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    settings |= dict(text.split("=", 1) for text in others)
    with tempfile.TemporaryDirectory() as folder:
        acpl.train(out=Path(folder) / "warm", **{**settings, "warmup_epochs": 1, "stages": 1, "stage_epochs": 1})
        start = time.perf_counter()
        run = RunFolder(acpl.train(out=Path(folder) / "run", **settings))
        whole = time.perf_counter() - start
        config, card, events = run.config(), run.card(), run.events()
    epochs = [event for event in events if event["event"] == "epoch"]
    training = epochs[-1]["seconds"]
    device = Device.choose(config.device, config.precision)
    torch.cuda.empty_cache()
    # Its batch is one pool's share of ours: a stage shows two batches a step.
    size = config.batch_size
    published = seconds(published_step(config.backbone, card.size, size, device.torch), device.torch)
    images = epochs[-1]["images"]
    other = images / size * published
    products, copies = ceilings(device.torch, torch.bfloat16 if device.mixed else torch.float32)
    operations, moved = (images / size * amount for amount in floor(config.backbone, card.size, size, device))
    rows = [
        [
            "this project, from the call to the model",
            f"{whole:.0f}",
            f"{images / whole:,.0f}",
            f"{other / whole:.1f} ×",
        ],
        ["of that: the loop, with looks at the pools", f"{training:.0f}", f"{images / training:,.0f}", ""],
        ["the published way, its steps alone", f"{other:.0f}", f"{size / published:,.0f}", "1 ×"],
        ["floor by operations / by bytes", f"{operations / products:.0f} / {moved / copies:.0f}", "", ""],
    ]
    print(f"{config.data}: {config.backbone}, {card.size} px, {images:,} images shown; {machine(device.torch)}\n")
    print(table(["what", "seconds", "images/s", "ratio"], rows))
    numbers = {"whole_s": whole, "training_s": training, "published_s": other, "images": images, "events": epochs}
    least = {"floor_operations_s": operations / products, "floor_bytes_s": moved / copies}
    write_json(file, {"machine": machine(device.torch), **numbers, **least})


if __name__ == "__main__":
    main()

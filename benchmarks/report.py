"""How large the report of a run with 100,000 images in the pool is, how long it takes to make, and to open.

Prints a table and writes JSON: ``python benchmarks/report.py --out report.json``. Opening is measured in Chromium
where there is one. Pictures are noise, the worst that can be packed.
"""

import argparse
import json
import platform
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from acpl.config import resolve
from acpl.data.manifest import Manifest
from acpl.data.sources import Dataset
from acpl.data.store import ImageStore
from acpl.engine.feature_sample import FeatureSample
from acpl.engine.reporting import keep, keep_features
from acpl.engine.run_folder import RunFolder
from acpl.engine.selection_figures import selection_figures
from acpl.report import write_report
from acpl.task import Task

CLASSES = [f"finding {place}" for place in range(14)]
LABELLED, STAGES = 2000, 5


def make_run(folder: RunFolder, pool: int) -> Dataset:
    """A run folder whose stages selected from so many images, and the images."""
    rng = np.random.default_rng(0)
    total = LABELLED + pool
    names = [f"images_{n // 1000:03d}/{n:08d}_000.png" for n in range(total)]
    table = pd.DataFrame({"image": names, "group": [str(n // 3) for n in range(total)], "part": "train"})
    labels = (rng.random((total, len(CLASSES))) < 0.08).astype(np.float32)
    noise = torch.from_numpy(rng.integers(0, 256, (64, 3, 112, 112), dtype=np.uint8))
    images = noise[torch.zeros(1, dtype=torch.int64)].expand(total, -1, -1, -1)
    folder.write_config(resolve(data="phantom-chest"))
    roles = ["labelled"] * LABELLED + ["unlabelled"] * pool
    folder.write_split(pd.DataFrame({"id": range(total), "image": names, "role": roles}))
    left = np.arange(LABELLED, total)
    for stage in range(1, STAGES + 1):
        density = torch.from_numpy(np.clip(rng.normal(0.8, 0.1, len(left)), 0, 1)).float()
        model, neighbours = (torch.from_numpy(rng.random((len(left), len(CLASSES)))).float() ** 3 for _ in range(2))
        level = torch.from_numpy(np.digitize(-density.numpy(), [-0.85, -0.7]))
        chosen = level == 2
        nearest = {f"nearest_{n}": torch.from_numpy(rng.integers(0, LABELLED, len(left))) for n in (1, 2, 3)}
        columns = {
            "id": torch.from_numpy(left),
            "density": density,
            "information": level,
            "model": model,
            "neighbours": neighbours,
            "selected": chosen,
            "pseudo_label": torch.where(chosen[:, None], (model + neighbours) / 2, torch.nan),
            "joined_anchors": chosen & (density < 0.6),
            **nearest,
        }
        folder.write_stage(stage, columns, CLASSES)
        seen = FeatureSample()
        seen.note(torch.from_numpy(left), torch.from_numpy(rng.normal(size=(len(left), 64))).float())
        seen.note(torch.arange(LABELLED), torch.from_numpy(rng.normal(size=(LABELLED, 64))).float())
        keep_features(folder, stage, seen)
        counts = {"selected": int(chosen.sum()), "anchors": LABELLED, "left": int((~chosen).sum())}
        folder.append_event({"event": "stage", "stage": stage, "name": f"stage {stage}", **counts})
        epoch = {"event": "epoch", "stage": stage, "epoch": 1, "step": 100 * stage, "losses": {"labelled": 1.0}}
        folder.append_event({**epoch, "images": 1, "validation_auroc": 0.7, "seconds": 10.0 * stage})
        left = left[~chosen.numpy()]
    folder.write_json("model.json", {"classes": CLASSES, "task": "multi-label"})
    return Dataset(Manifest(Task.MULTI_LABEL, tuple(CLASSES), table, labels), ImageStore(torch.arange(total), images))


def milliseconds_to_open(page: Path) -> float | None:
    """From the address to a page that is there whole, in Chromium."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.browser.chromium import EXECUTABLE, Page

    if EXECUTABLE is None:
        return None
    with Page(page) as opened:
        return float(opened.run("performance.timing.loadEventEnd - performance.timing.navigationStart"))


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pool", type=int, default=100_000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    place = Path(tempfile.mkdtemp())
    try:
        (place / "run").mkdir()
        folder = RunFolder(place / "run")
        dataset = make_run(folder, options.pool)
        started = time.perf_counter()
        found = selection_figures(folder, dataset, dataset.manifest, folder.config())
        assert found is not None
        keep(folder, "selection.json", {"found": found})
        gathered = time.perf_counter()
        page = write_report(folder.path)
        written = time.perf_counter()
        result = {
            "images in the pool": options.pool,
            "cards": len(found["cards"]),
            "pictures": len(found["pictures"]),
            "seconds to gather": round(gathered - started, 1),
            "seconds to write the page": round(written - gathered, 2),
            "page, MB": round(page.stat().st_size / 1e6, 2),
            "milliseconds to open": milliseconds_to_open(page),
            "machine": f"{platform.machine()}, {torch.get_num_threads()} threads",
        }
    finally:
        shutil.rmtree(place)
    for name, value in result.items():
        print(f"{name:<28}{value}")
    if options.out is not None:
        options.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()

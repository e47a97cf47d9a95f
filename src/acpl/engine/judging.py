"""From a finished run to figures and predictions."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from acpl.data.decode import BadImage, decode, find_images
from acpl.data.store import ImageStore
from acpl.engine.device import Device
from acpl.engine.inference import BATCH, infer
from acpl.engine.run_folder import ModelCard, RunFolder
from acpl.engine.training import build_network, source_of
from acpl.errors import UserError
from acpl.evaluation import bootstrap_auroc, bootstrap_decisions, decide, paired_bootstrap_auroc
from acpl.evaluation.bootstrap import MeanInterval, PairedDifference
from acpl.models import Classifier
from acpl.task import Task

Floats = npt.NDArray[np.float64]
FINAL = "model"


class Predictor(NamedTuple):
    """A trained network and all it needs to be called."""

    network: Classifier
    card: ModelCard
    device: Device

    @classmethod
    def load(cls, folder: RunFolder, name: str = FINAL, device: str = "auto") -> "Predictor":
        """The run's final model, or the snapshot of this name."""
        card = folder.card()
        chosen = Device.choose(device, "auto")
        network = build_network(card)
        network.load_state_dict(folder.read_weights(name))
        return cls(network.to(chosen.torch).eval(), card, chosen)

    def __call__(self, images: ImageStore) -> Floats:
        """(samples, classes) probabilities in the store's order."""
        mean = torch.tensor(self.card.mean, device=self.device.torch)
        std = torch.tensor(self.card.std, device=self.device.torch)
        task = Task(self.card.task)
        views = infer(self.network, images, images.ids, task=task, mean=mean, std=std, device=self.device)
        reported: Floats = views.probabilities[:, : len(self.card.classes)].double().cpu().numpy()
        return reported


def run_evaluation(path: Path, *, resamples: int = 2000, device: str = "auto") -> dict[str, Any]:
    """Open the test part, judge the final model and every snapshot, write ``evaluation.json`` and predictions."""
    folder = RunFolder.open(path)
    config, card = folder.config(), folder.card()
    manifest, images = source_of(config).open(("test",))
    if len(manifest.table) == 0:
        raise UserError(f"{config.data} has no test part")
    scores = {name: Predictor.load(folder, name, device)(images) for name in folder.weight_names()}
    truth, groups = manifest.labels.astype(np.float64), manifest.groups

    result: dict[str, Any] = {
        "method": config.method,
        "data": config.data,
        "task": card.task,
        "part": "test",
        "images": len(truth),
        "groups": len(set(groups)),
        "resamples": resamples,
        **_figures(truth, scores[FINAL], groups, card, resamples),
    }
    for name in scores:
        if name != FINAL:
            change = paired_bootstrap_auroc(truth, scores[name], scores[FINAL], groups, resamples=resamples)
            result.setdefault("snapshots", {})[name] = {
                **_figures(truth, scores[name], groups, card, resamples),
                "gain": {"mean": change.point, "low": change.low, "high": change.high, "p": change.p},
            }
    folder.write_json("evaluation.json", result)
    table = manifest.table[["image", "group"]].reset_index(names="id")
    columns = {f"truth.{name}": truth[:, i].astype(int) for i, name in enumerate(card.classes)}
    columns |= {f"probability.{name}": scores[FINAL][:, i] for i, name in enumerate(card.classes)}
    predictions = pd.concat([table, pd.DataFrame(columns)], axis=1)
    predictions.to_csv(folder.path / "predictions.csv", index=False)
    return result


def compare_runs(before: Path, after: Path, *, resamples: int = 2000) -> PairedDifference:
    """How much better ``after`` is than ``before`` on the test images both have predicted."""
    first, second = (_predictions(path) for path in (before, after))
    if list(first.columns) != list(second.columns) or not first["image"].equals(second["image"]):
        raise UserError(f"{before} and {after} were not judged on the same images and classes")
    truth = first.filter(regex=r"^truth\.").to_numpy(dtype=np.float64)
    old, new = (table.filter(regex=r"^probability\.").to_numpy(dtype=np.float64) for table in (first, second))
    return paired_bootstrap_auroc(truth, old, new, first["group"].to_numpy(dtype=object), resamples=resamples)


def _predictions(run: Path) -> pd.DataFrame:
    file = RunFolder.open(run).path / "predictions.csv"
    if not file.exists():
        raise UserError(f"{run} has not been evaluated: acpl evaluate {run}")
    return pd.read_csv(file, dtype={"group": str})


def run_prediction(path: Path, images: Sequence[Path], *, device: str = "auto") -> tuple[pd.DataFrame, list[str]]:
    """A table of ids (paths) and probabilities; and a sentence for each file that could not be read."""
    folder = RunFolder.open(path)
    files = find_images(images)
    predictor = Predictor.load(folder, device=device)
    bad: list[str] = []
    names: list[str] = []
    rows: list[Floats] = []
    for chunk_names, store in _decoded(files, predictor.card, bad):
        names += chunk_names
        rows.append(predictor(store))
    if not rows:
        raise UserError(f"none of {len(files)} files could be read; the first: {bad[0]}")
    table = pd.DataFrame(np.concatenate(rows), columns=predictor.card.classes)
    table.insert(0, "id", names)
    return table, bad


def _decoded(files: list[Path], card: ModelCard, bad: list[str]) -> Iterator[tuple[list[str], ImageStore]]:
    for start in range(0, len(files), BATCH):
        names, pixels = [], []
        for file in files[start : start + BATCH]:
            try:
                pixels.append(torch.from_numpy(decode(file, size=card.size, channels=card.channels).copy()))
                names.append(str(file))
            except BadImage as reason:
                bad.append(f"{file}: {reason}")
        if pixels:
            yield names, ImageStore(torch.arange(len(pixels)), torch.stack(pixels))


def _figures(
    truth: Floats, score: Floats, groups: npt.NDArray[np.object_], card: ModelCard, resamples: int
) -> dict[str, Any]:
    area = bootstrap_auroc(truth, score, groups, resamples=resamples)
    per_class = area.per_class
    figures: dict[str, Any] = {
        "auroc": {
            "mean": _number(area.point),
            "low": _number(area.low),
            "high": _number(area.high),
            "per_class": _by_class(card.classes, per_class.point),
            "per_class_low": _by_class(card.classes, per_class.low),
            "per_class_high": _by_class(card.classes, per_class.high),
            "left_out": [name for name, x in zip(card.classes, per_class.point, strict=True) if np.isnan(x)],
        }
    }
    if card.task == Task.MULTI_CLASS:
        rule = "argmax" if card.threshold is None else card.threshold
        decisions = bootstrap_decisions(truth, decide(score, rule), groups, resamples=resamples)
        figures |= {"rule": rule, **_flat("sensitivity", decisions.sensitivity), **_flat("f1", decisions.f1)}
    return figures


def _flat(name: str, interval: MeanInterval) -> dict[str, Any]:
    return {
        name: _number(interval.point),
        f"{name}_interval": [_number(interval.low), _number(interval.high)],
    }


def _by_class(classes: list[str], values: Floats) -> dict[str, float | None]:
    return {name: _number(value) for name, value in zip(classes, values, strict=True)}


def _number(value: float) -> float | None:
    """JSON has no NaN."""
    return None if np.isnan(value) else float(value)

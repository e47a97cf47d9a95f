"""The built-in data sets: phantoms, split by patient."""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import pandas as pd
import torch

from acpl.data.manifest import Manifest, Part
from acpl.data.phantoms import (
    CHEST_FINDINGS,
    LESION_CLASSES,
    chest_labels,
    draw_chest,
    draw_lesions,
    lesion_labels,
    reported_findings,
    reported_lesions,
)
from acpl.data.sources import Dataset
from acpl.data.store import ImageStore
from acpl.task import Task

PhantomName = Literal["phantom-chest", "phantom-lesions"]
PHANTOMS: tuple[PhantomName, ...] = get_args(PhantomName)
# Of every ten patients in turn: four train, one validation, five test, for test images decide how narrow an
# interval can be.
PARTS: tuple[Part, ...] = ("train",) * 4 + ("validation",) + ("test",) * 5


@dataclass(frozen=True)
class PhantomSource:
    """Phantom patients, drawn anew from the seed each time; several images a patient."""

    name: PhantomName
    patients: int
    size: int
    seed: int = 0
    errors: float = 0.0
    """Share of the training part's labels that are wrong, as reports have them."""

    @property
    def said(self) -> list[str]:
        """Nothing is inferred of a phantom."""
        return []

    def manifest(self) -> Manifest:
        """The whole table, without drawing an image."""
        chest = self.name == "phantom-chest"
        labels, patients = (chest_labels if chest else lesion_labels)(range(self.patients), seed=self.seed)
        part = np.array(PARTS, dtype=object)[patients % len(PARTS)]
        if self.errors > 0:
            reported = (reported_findings if chest else reported_lesions)(
                labels, patients, wrong=self.errors, seed=self.seed
            )
            labels = np.where((part == "train")[:, None], reported, labels)
        number = pd.Series(patients).groupby(patients).cumcount().to_numpy()
        table = pd.DataFrame(
            {
                "image": [f"{self.name}-{p:05d}-{n}" for p, n in zip(patients, number, strict=True)],
                "group": [f"{p:05d}" for p in patients],
                "part": part,
            }
        )
        task, classes = (Task.MULTI_LABEL, CHEST_FINDINGS) if chest else (Task.MULTI_CLASS, LESION_CLASSES)
        return Manifest(task, classes, table, labels.astype(np.float32))

    def open(self, parts: tuple[Part, ...]) -> Dataset:
        """These parts alone; the patients of the others are not drawn."""
        manifest = self.manifest().only(parts)
        wanted = [p for p in range(self.patients) if PARTS[p % len(PARTS)] in parts]
        draw = draw_chest if self.name == "phantom-chest" else draw_lesions
        drawn = draw(wanted, size=self.size, seed=self.seed)
        return Dataset(manifest, ImageStore(torch.from_numpy(manifest.ids), torch.from_numpy(drawn.images)))

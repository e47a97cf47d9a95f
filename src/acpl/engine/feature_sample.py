"""A small sample of the features a method looked at, kept for the map in the report.

Whatever the pools hold, no more than ``SAMPLE`` images of each look are kept, reduced to a few principal components:
the method has computed these features anyway, so the map costs a run of 100,000 images nothing that can be measured.
"""

import pandas as pd
import torch
from torch import Tensor

SAMPLE = 1500
COMPONENTS = 16


class NoMap(Exception):  # noqa: N818 — nothing has gone wrong that training knows of
    """Why there is no map."""


class FeatureSample:
    """What was looked at since it was made: evenly spread ids and their features."""

    def __init__(self) -> None:
        self._ids: list[Tensor] = []
        self._features: list[Tensor] = []

    def note(self, ids: Tensor, features: Tensor) -> None:
        """Keep some of these; nothing random is drawn, so that the run stays as it is."""
        if len(ids):
            rows = torch.linspace(0, len(ids) - 1, min(SAMPLE, len(ids))).long()
            self._ids.append(ids[rows])
            self._features.append(features[rows.to(features.device)].float().cpu())

    def table(self) -> pd.DataFrame | None:
        """A row an image: id and its principal components ``c00`` …; None where nothing was seen.

        NoMap says why there is none of what was seen: a picture for people, which training does without.
        """
        if not self._ids:
            return None
        ids, features = torch.cat(self._ids), torch.cat(self._features)
        if len(ids) < 3 or features.shape[1] < 2:
            raise NoMap(f"{len(ids)} images with {features.shape[1]} features are too few")
        if not features.isfinite().all():
            raise NoMap("some features are no numbers")
        try:
            components = principal_components(features)
        except RuntimeError:  # LAPACK has not converged
            raise NoMap("the directions that vary most were not found") from None
        columns = {f"c{number:02d}": components[:, number].numpy() for number in range(components.shape[1])}
        return pd.DataFrame({"id": ids.numpy(), **columns}).drop_duplicates("id")


def principal_components(features: Tensor, count: int = COMPONENTS) -> Tensor:
    """(n, count): the directions of unit-length ``features`` that vary most, the largest first.

    Length is taken out because neighbours are found by the cosine. Each direction's sign is fixed by its largest
    coefficient, so that two runs give one map.
    """
    unit = torch.nn.functional.normalize(features.double(), dim=1)
    centred = unit - unit.mean(dim=0)
    _, directions = torch.linalg.eigh(centred.T @ centred)
    directions = directions.flip(1)[:, :count]
    largest = directions.gather(0, directions.abs().argmax(dim=0, keepdim=True))
    places: Tensor = centred @ (directions * largest.sign())
    return places.float()

"""Decoded images by sample id."""

import torch
from torch import Tensor

from acpl.data.cache import BadFile, Stored, build_store

__all__ = ["BadFile", "ImageStore", "Stored", "build_store"]

COPIED_AT_ONCE = 4096
"""Images."""


class ImageStore:
    """uint8 images (samples, channels, height, width), found by sample id; only what was loaded is there."""

    def __init__(self, ids: Tensor, images: Tensor, places: Tensor | None = None) -> None:
        """``places`` says which of the images is each id's, where there may be others among them."""
        if places is None:
            places = torch.arange(len(images))
        if images.dtype != torch.uint8 or images.ndim != 4 or len(places) != len(ids):
            raise ValueError(f"images must be uint8 ({len(ids)}, c, h, w), not {images.dtype} {tuple(images.shape)}")
        self.ids = ids
        self.images = images
        self._places = places
        self._row = torch.full((int(ids.max()) + 1 if len(ids) else 0,), -1, dtype=torch.int64)
        self._row[ids] = places
        self._row = self._row.to(images.device)

    @classmethod
    def of(cls, stored: Stored, ids: Tensor) -> "ImageStore":
        """The images that could be read, straight from disk; ``ids`` has one id for each name that was asked for."""
        return cls(ids[torch.from_numpy(stored.rows)], torch.from_numpy(stored.images))

    @property
    def channels(self) -> int:
        """1 for grey, 3 for colour."""
        return int(self.images.shape[1])

    @property
    def size(self) -> int:
        """Height and width in pixels."""
        return int(self.images.shape[2])

    @property
    def nbytes(self) -> int:
        """Bytes of the images that have an id."""
        return len(self.ids) * self.images[0].nbytes if len(self.images) else 0

    def require(self, ids: Tensor) -> None:
        """Refuse ids whose image is not here: once for a whole pool, since ``gather`` does not look."""
        ids = ids.to(self._row.device)
        if len(ids) and (int(ids.max()) >= len(self._row) or (self._row[ids] < 0).any()):
            raise KeyError("a sample was asked for whose image is not in this store")

    def gather(self, ids: Tensor) -> Tensor:
        """uint8 (n, channels, height, width) of these ids, which lie where the images do."""
        return self.images[self._row[ids]]

    def gather_into(self, images: Tensor, ids: Tensor) -> None:
        """The same, written to ``images``."""
        torch.index_select(self.images, 0, self._row[ids], out=images)

    def on(self, device: torch.device) -> "ImageStore":
        """All images that have an id in the memory of this device."""
        if len(self.images) == len(self.ids):
            return ImageStore(self.ids, self.images.to(device), self._places)
        there = torch.empty((len(self.ids), *self.images.shape[1:]), dtype=torch.uint8, device=device)
        for start in range(0, len(self.ids), COPIED_AT_ONCE):
            there[start : start + COPIED_AT_ONCE] = self.images[self._places[start : start + COPIED_AT_ONCE]].to(device)
        return ImageStore(self.ids, there)

    def statistics(self, sample: int = 2000) -> tuple[list[float], list[float]]:
        """Mean and standard deviation of each channel in [0, 1], from at most ``sample`` evenly spread images."""
        chosen = self._places[torch.linspace(0, len(self.ids) - 1, min(sample, len(self.ids))).long()]
        counts = torch.zeros(self.channels, 256, dtype=torch.float64)
        for rows in torch.split(chosen, 64):
            for channel, pixels in enumerate(self.images[rows].transpose(0, 1).flatten(1)):
                counts[channel] += torch.bincount(pixels, minlength=256)
        levels = torch.arange(256, dtype=torch.float64) / 255
        total = counts.sum(dim=1)
        mean = (counts @ levels) / total
        spread = (counts * (levels - mean[:, None]) ** 2).sum(dim=1) / (total - 1)
        return mean.tolist(), spread.sqrt().clamp_min(1e-3).tolist()

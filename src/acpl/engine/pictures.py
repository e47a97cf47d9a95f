"""Images small enough to be shown by the hundred, as text that a page can hold."""

from base64 import b64encode
from collections.abc import Iterable
from io import BytesIO

import torch
from PIL import Image
from torch import Tensor

from acpl.data.store import ImageStore

SIDE = 112
"""Pixels of a thumbnail's longer side at most."""
SMALL = 56
"""The same for pictures that are shown beside another."""
QUALITY = 72


def thumbnails(store: ImageStore, ids: Iterable[int], side: int = SIDE) -> dict[str, str]:
    """By id: a WebP picture in base64, no larger than ``side``; images that are small already stay as they are."""
    return {str(number): _encoded(store.gather(torch.tensor([number]))[0], side) for number in sorted(set(ids))}


def _encoded(pixels: Tensor, side: int) -> str:
    array = pixels.permute(1, 2, 0).numpy()
    image = Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)
    image.thumbnail((side, side), Image.Resampling.LANCZOS)
    file = BytesIO()
    image.save(file, "WEBP", quality=QUALITY, method=4)
    return b64encode(file.getvalue()).decode("ascii")

"""Feature rows with their lengths, and the exact products of pairs of them.

Rows are brought to unit length in float64 and rounded to multiples of 2⁻²⁶. Products of two such numbers are
multiples of 2⁻⁵², and every partial sum of a scalar product of unit vectors stays below 2: float64 holds each
of them *exactly*, in whatever order a matrix kernel adds them. So a pair's similarity does not depend on the
block it falls into, on the number of threads or on the device, and duplicated rows tie to the last bit. The
rounding moves a cosine by about 10⁻⁸, and by no more than 1.5 · 10⁻⁸ √features, which float32 sums exceed.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

GRID = 2.0**26

# Per element of a row while it is measured or rounded: its float32, float64 and rounded forms.
BYTES_PER_FEATURE = 32

# On the CPU: so much of it stays in the cache, and is not mapped anew each time.
_MEASURED_BYTES = 8 * 2**20


class Rows(NamedTuple):
    """Features ``(rows, features)`` as they came, and the float64 length of each row, 1 for a zero row."""

    features: Tensor
    length: Tensor

    def unit(self, part: slice | Tensor) -> Tensor:
        """Return rows of unit length, float32; a zero row stays zero."""
        return self.features[part].float() / self.length[part, None].float()

    def on_grid(self, part: slice | Tensor) -> Tensor:
        """Return rows of unit length times 2²⁶, rounded to whole numbers, float64; a zero row stays zero."""
        return self.features[part].float().double().mul_(GRID / self.length[part, None]).round_()


def measured(name: str, features: Tensor, block_bytes: int) -> Rows:
    """Return the rows with their lengths; a row with NaN or infinity is a mistake."""
    length = features.new_empty(len(features), dtype=torch.float64)
    room = min(block_bytes, _MEASURED_BYTES) if features.device.type == "cpu" else block_bytes
    step = max(1, room // (BYTES_PER_FEATURE * max(1, features.shape[1])))
    for part in slices(len(features), step):
        # In float32, as it will be used: a float64 beyond its range is an infinity.
        length[part] = torch.linalg.vector_norm(features[part].float(), dim=1, dtype=torch.float64)
    bad = int((~length.isfinite()).sum())
    if bad:
        raise ValueError(f"{name} must be finite, got NaN or infinity in {bad} of {len(features)} rows")
    return Rows(features, length.masked_fill_(length == 0, 1.0))


def similarity(products: Tensor) -> Tensor:
    """Turn scalar products of rows on the grid into cosines, float32 in [-1, 1]."""
    cosines = products.mul_(GRID**-2).float().clamp_(-1.0, 1.0)
    return cosines.add_(0.0)  # minus zero would rank below zero


def slices(count: int, step: int) -> Iterator[slice]:
    """Cut ``range(count)`` into parts of at most ``step``."""
    return (slice(start, min(start + step, count)) for start in range(0, count, step))

"""Images that say nothing, for tests of what is known beside them."""

from pathlib import Path

import numpy as np
from PIL import Image


def write_noise(folder: Path, count: int) -> list[str]:
    """So many different grey images in the folder, ``00.png`` and so on; their names."""
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    names = [f"{number:02d}.png" for number in range(count)]
    for name in names:
        Image.fromarray(rng.integers(0, 256, (32, 32), dtype=np.uint8)).save(folder / name)
    return names

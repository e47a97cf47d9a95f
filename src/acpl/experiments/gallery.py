"""A picture of the built-in images: a column a class, chests above lesions."""

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from acpl.data.phantoms import CHEST_FINDINGS, LESION_CLASSES, draw_chest, draw_lesions

TILE, GAP, TITLE, ROWS, PATIENTS = 112, 4, 16, 2, 1500


def draw_gallery(target: Path, *, seed: int = 0) -> None:
    """Two examples of each class with that class alone, and of a chest without finding."""
    chest = draw_chest(range(PATIENTS), size=TILE, seed=seed)
    lesions = draw_lesions(range(PATIENTS), size=TILE, seed=seed)
    nothing = np.flatnonzero(chest.labels.sum(axis=1) == 0)
    columns = [("No finding", chest.images[_different(nothing, chest.patients)])]
    for names, drawn in ((CHEST_FINDINGS, chest), (LESION_CLASSES, lesions)):
        for number, name in enumerate(names):
            alone = np.flatnonzero((drawn.labels[:, number] == 1) & (drawn.labels.sum(axis=1) == 1))
            columns.append((name, drawn.images[_different(alone, drawn.patients)]))
    bands = [columns[: 1 + len(CHEST_FINDINGS)], columns[1 + len(CHEST_FINDINGS) :]]
    height = TITLE + ROWS * (TILE + GAP)
    width = max(len(band) for band in bands) * (TILE + GAP) - GAP
    sheet = Image.new("RGB", (width, len(bands) * height), "white")
    pen = ImageDraw.Draw(sheet)
    for line, band in enumerate(bands):
        for place, (name, images) in enumerate(band):
            left, top = place * (TILE + GAP), line * height
            pen.text((left + 2, top + 2), name, fill="black")
            for row, pixels in enumerate(images):
                tile = Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
                sheet.paste(tile.convert("RGB"), (left, top + TITLE + row * (TILE + GAP)))
    sheet.save(target, optimize=True)


def _different(rows: np.ndarray, patients: np.ndarray) -> np.ndarray:
    """The first rows of different patients."""
    _, first = np.unique(patients[rows], return_index=True)
    return np.asarray(rows[first[:ROWS]])

"""A trained model for Python: arrays, PIL images and files in, a table out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from PIL import Image
from torch import Tensor

from acpl.data.decode import BadImage, Decoding, decode_image
from acpl.data.decode_job import PixelJob
from acpl.data.store import BadFile, ImageStore
from acpl.data.workers import do_all
from acpl.engine.inference import BATCH
from acpl.engine.patient_rows import answers_beside
from acpl.engine.predicting import FINAL, Predictor, find_files, prediction_table
from acpl.engine.run_folder import RunFolder
from acpl.errors import UserError

Floats = npt.NDArray[np.float64]
_CHANNELS = (1, 3, 4)


@dataclass(frozen=True)
class Model:
    """A run's final model. Call it with one image or many; it answers with the columns of ``acpl predict``.

    An image is a path (of a file, a folder or a zip), a PIL image, or an array (height, width) or (height, width,
    channels) with 1 (grey), 3 (RGB) or 4 (RGBA) channels; arrays with one dimension more are batches of these. Arrays
    of uint8 are taken as they are, floats have to lie in [0, 1], and other integers are stretched from the least to the
    greatest value of each image, as files of 16 bits are.
    """

    predictor: Predictor

    @classmethod
    def load(cls, run: Path, device: str = "auto") -> "Model":
        """The final model of a finished run."""
        return cls(Predictor.load(RunFolder.open(run), FINAL, device))

    @property
    def classes(self) -> list[str]:
        """The classes' names, in the order of the probabilities."""
        return list(self.predictor.card.classes)

    @property
    def task(self) -> str:
        """multi-class or multi-label."""
        return self.predictor.card.task

    @property
    def thresholds(self) -> dict[str, float] | None:
        """The probability from which each class is called; None: the most probable one is."""
        rule = self.predictor.card.decision_rule()
        return None if rule == "argmax" else dict(zip(self.classes, rule, strict=True))

    def __call__(self, images: Any, *, skip_bad: bool = False, patients: pd.DataFrame | None = None) -> pd.DataFrame:
        """``id`` (a file's path; an array's or a PIL image's place), a probability a class, and the decisions.

        What cannot be read is named in one UserError, or left out with ``skip_bad``. ``patients`` has a row an image,
        in their order, with what the model knows beside them: its clinical columns, and ``group``, whose image it is
        (each its own without it). Without ``patients`` it answers by the images alone.
        """
        ids, pixels, bad = self._read(images)
        if bad and (not skip_bad or not ids):
            reasons = "; ".join(f"{file.name}: {file.reason}" for file in bad)
            raise UserError(f"{len(bad)} of {len(bad) + len(ids)} images cannot be read: {reasons}")
        if not ids:
            raise UserError("there is no image to predict")
        said = self.probabilities_of(pixels)
        if patients is not None:
            if len(patients) != len(ids) + len(bad):
                raise UserError(f"patients should have a row an image, {len(ids) + len(bad)}, but has {len(patients)}")
            if bad:
                raise UserError(f"{bad[0].name} cannot be read, so that rows of patients and images would not agree")
            table = patients.reset_index(drop=True)
            whose = table.get("group", table.index)
            said = answers_beside(self.predictor.card, table.assign(group=whose), said)
        return prediction_table(ids, said, self.predictor.card)

    def probabilities_of(self, pixels: Sequence[Tensor]) -> Floats:
        """(images, classes) for decoded images, uint8 (channels, size, size) each."""
        found = []
        for start in range(0, len(pixels), BATCH):
            batch = torch.stack(list(pixels[start : start + BATCH]))
            store = ImageStore(torch.arange(len(batch)), batch)
            found.append(self.predictor(store, store.ids))
        return np.concatenate(found)

    def decoded(self, image: "Image.Image | npt.NDArray[Any]") -> Tensor:
        """One image as the network takes it; BadImage says why it cannot be."""
        picture = image if isinstance(image, Image.Image) else _picture(image)
        return torch.from_numpy(decode_image(picture, self._decoding))

    @property
    def _decoding(self) -> Decoding:
        card = self.predictor.card
        return Decoding(card.size, card.channels, card.aspect)

    def _read(self, images: Any) -> tuple[list[Any], list[Tensor], list[BadFile]]:
        ids: list[Any] = []
        pixels: list[Tensor] = []
        bad: list[BadFile] = []
        for place, image in enumerate(_each(images)):
            if isinstance(image, str | Path):
                files = find_files([Path(image)])
                # In processes with limits of their own, as every stranger's file is read.
                job = PixelJob([file.files for file in files], [file.name for file in files], self._decoding)
                for file, found in zip(files, do_all(job, "decoding"), strict=True):
                    if isinstance(found, str):
                        bad.append(BadFile(file.id, found))
                    else:
                        pixels.append(torch.from_numpy(found))
                        ids.append(file.id)
                continue
            try:
                pixels.append(self.decoded(image))
                ids.append(place)
            except BadImage as reason:
                bad.append(BadFile(f"image {place}", str(reason)))
        return ids, pixels, bad


def _each(images: Any) -> Iterable[Any]:
    """The images one by one: of a single one, of a batch, or of a sequence that may mix all kinds."""
    if isinstance(images, str | Path | Image.Image):
        return [images]
    if isinstance(images, Tensor):
        images = images.detach().cpu().numpy()
    if isinstance(images, np.ndarray) and images.dtype != object:
        single = images.ndim == 2 or (images.ndim == 3 and images.shape[2] in _CHANNELS)
        if not single and images.ndim not in (3, 4):
            raise UserError(
                "an array should be (height, width), (height, width, channels), or a batch of these, "
                f"but it is {images.shape}"
            )
        return [images] if single else list(images)
    if not isinstance(images, Iterable):
        raise UserError(f"images should be paths, PIL images or arrays, but they are {type(images).__name__}")
    return images


def _picture(image: Any) -> Image.Image:
    """An array as the image that a file with its values would hold."""
    try:
        values = np.asarray(image.detach().cpu() if isinstance(image, Tensor) else image)
    except (TypeError, ValueError):
        values = np.empty(0, dtype=object)
    if values.dtype.kind not in "buif" or values.ndim not in (2, 3) or 0 in values.shape:
        raise BadImage(f"it is no path, PIL image or array of pixels, but {type(image).__name__} {values.shape}")
    if values.ndim == 3 and values.shape[2] not in _CHANNELS:
        raise BadImage(f"its last axis should hold 1, 3 or 4 channels, but its shape is {values.shape}")
    if values.ndim == 3 and values.shape[2] == 1:
        values = values[:, :, 0]
    if values.dtype.kind == "f":
        if not np.isfinite(values).all():
            raise BadImage("it holds values that are not numbers")
        if values.min() < 0 or values.max() > 1:
            raise BadImage(f"floats should lie in [0, 1], but it holds {values.min():.4g} to {values.max():.4g}")
        return Image.fromarray(np.rint(values * 255).astype(np.uint8))
    if values.dtype == bool:
        return Image.fromarray(values.astype(np.uint8) * 255)
    if values.dtype == np.uint8:
        return Image.fromarray(np.ascontiguousarray(values))
    least, span = float(values.min()), float(values.max()) - float(values.min())
    stretched = (values.astype(np.float64) - least) * (255 / (span or 1))
    return Image.fromarray(stretched.round().astype(np.uint8))

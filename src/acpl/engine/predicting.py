"""A trained network's word on images it has not seen: those of a part, or files that a user names."""

import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from acpl.data.decode import Decoding
from acpl.data.decode_job import PixelJob
from acpl.data.files import SUFFIXES, ImageFiles
from acpl.data.store import BadFile, ImageStore
from acpl.data.workers import Progress, do_all, nothing
from acpl.engine.beside import Beside, asked_for, knows_more
from acpl.engine.building import network_of
from acpl.engine.device import Device
from acpl.engine.inference import BATCH, Inference
from acpl.engine.patient_rows import PatientRows
from acpl.engine.run_folder import ModelCard, RunFolder
from acpl.errors import UserError
from acpl.evaluation import decide
from acpl.models import Network
from acpl.task import Task

__all__ = ["FINAL", "BadFile", "Predictor", "find_files", "prediction_table", "run_prediction"]

Floats = npt.NDArray[np.float64]
FINAL = "model"


class Predictor(NamedTuple):
    """A trained network and all it needs to be called."""

    network: Network
    card: ModelCard
    device: Device

    @classmethod
    def load(
        cls, folder: RunFolder, name: str = FINAL, device: str = "auto", precision: str | None = None
    ) -> "Predictor":
        """The run's final model, or the snapshot of this name, in the precision that its thresholds were set in."""
        card = folder.card()
        chosen = Device.choose(device, precision or folder.config().precision)
        network = network_of(card)
        network.load_state_dict(folder.read_weights(name))
        return cls(network.to(chosen.torch).eval(), card, chosen)

    def inference(self, images: ImageStore) -> Inference:
        """Looks at the images of this store by id."""
        return Inference(
            self.network,
            images,
            task=Task(self.card.task),
            mean=torch.tensor(self.card.mean, device=self.device.torch),
            std=torch.tensor(self.card.std, device=self.device.torch),
            device=self.device,
            looks=self.card.looks,
        )

    def __call__(
        self, images: ImageStore, ids: Tensor, progress: Progress = nothing, beside: Beside | None = None
    ) -> Floats:
        """(samples, classes) probabilities of these ids in their order; of the images alone without ``beside``."""
        said = self.inference(images)(ids, progress).probabilities[:, : len(self.card.classes)]
        if beside is not None:
            said = beside.answers(said, ids)
        reported: Floats = said.double().cpu().numpy()
        return reported


class NamedFile(NamedTuple):
    """An image file, and what the user knows it by."""

    id: str
    files: ImageFiles
    name: str


def run_prediction(
    path: Path,
    images: Sequence[Path],
    *,
    table: Path | None = None,
    device: str = "auto",
    progress: Progress = nothing,
    say: Callable[[str], object] = lambda sentence: None,
) -> tuple[pd.DataFrame, list[BadFile]]:
    """A table of ids, probabilities and decisions; and each file that could not be read, with the reason.

    ``table`` is a CSV of what the model knows beside the images, where it does; ``say`` is told what that comes to.
    """
    folder = RunFolder.open(path)
    predictor = Predictor.load(folder, device=device)
    card = predictor.card
    patients = None if table is None else PatientRows(table, folder.config(), card)
    if patients is None and knows_more(card):
        say(f"judged by the images alone: the model knows {asked_for(card)} as well, which a --table may say")
    files = find_files(images)
    names: list[str] = []
    rows: list[Floats] = []
    bad: list[BadFile] = []
    for read, pixels, unreadable in _decoded(files, card):
        bad += unreadable
        if pixels:
            names += read
            store = ImageStore(torch.arange(len(pixels)), torch.stack(pixels))
            rows.append(predictor(store, store.ids))
        progress("predicting", len(names) + len(bad), len(files))
    if not rows:
        reasons = "\n".join(f"  {file.name}: {file.reason}" for file in bad)
        raise UserError(f"none of {len(files)} files could be read:\n{reasons}")
    said = np.concatenate(rows)
    if patients is not None:
        said, known = patients.answers(names, said)
        if not known.all():
            first = names[int(np.flatnonzero(~known)[0])]
            say(f"{int((~known).sum())} of {len(names)} images have no row in {table} and are judged alone: {first}, …")
    return prediction_table(names, said, card), bad


def find_files(paths: Iterable[Path]) -> list[NamedFile]:
    """Files as given, and every image below a folder or in a zip; each once, in order."""
    found: dict[str, NamedFile] = {}
    folders: dict[Path, ImageFiles] = {}
    for path in paths:
        if path.is_dir() or (path.suffix.lower() not in SUFFIXES and path.is_file() and zipfile.is_zipfile(path)):
            inside = ImageFiles.open(path)
            found |= {file.id: file for file in (NamedFile(f"{path}/{n}", inside, n) for n in inside.names())}
        elif path.is_file():
            real = path.resolve()
            if real.parent not in folders:
                folders[real.parent] = ImageFiles.open(real.parent)
            found[str(path)] = NamedFile(str(path), folders[real.parent], real.name)
        else:
            raise UserError(f"{path} does not exist")
    if not found:
        raise UserError(f"no image was found; files may end in {', '.join(sorted(SUFFIXES))}, or be DICOM")
    return list(found.values())


def prediction_table(ids: Sequence[str], probabilities: Floats, card: ModelCard) -> pd.DataFrame:
    """``id``, a probability a class under its name, then the decisions at the model's own thresholds.

    Where the most probable class is called, ``decision`` names it; where each class has a threshold of its own,
    ``decision.CLASS`` is 0 or 1, and an image may have none or several.
    """
    rule = card.decision_rule()
    decisions = decide(probabilities, rule)
    first = pd.Series(list(ids), name="id")
    table = pd.concat([first, pd.DataFrame(probabilities, columns=card.classes)], axis=1)
    if rule == "argmax":
        table["decision"] = np.array(card.classes, dtype=object)[decisions.argmax(axis=1)]
        return table
    called = pd.DataFrame(decisions.astype(int), columns=[f"decision.{name}" for name in card.classes])
    return pd.concat([table, called], axis=1)


def _decoded(files: list[NamedFile], card: ModelCard) -> Iterator[tuple[list[str], list[Tensor], list[BadFile]]]:
    """Ids, pixels and what could not be read, a batch of files at a time: no more pixels than that are held."""
    how = Decoding(card.size, card.channels, card.aspect)
    for start in range(0, len(files), BATCH):
        chunk = files[start : start + BATCH]
        job = PixelJob([file.files for file in chunk], [file.name for file in chunk], how)
        found = list(zip(chunk, do_all(job, "decoding"), strict=True))
        good = [(file.id, torch.from_numpy(pixels)) for file, pixels in found if not isinstance(pixels, str)]
        bad = [BadFile(file.id, reason) for file, reason in found if isinstance(reason, str)]
        yield [name for name, _ in good], [image for _, image in good], bad

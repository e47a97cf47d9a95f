"""What else strangers may hand over: tables, archives, arrays, configurations, weights; and how each is opened."""

import io
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save

from acpl.config import resolve
from acpl.data.files import BadImage, ImageFiles
from acpl.data.sources import SourceOptions, find_source
from acpl.data.sources.files import FileSource
from acpl.data.tables import Columns, read_table
from acpl.errors import UserError
from acpl.models.pretrained import read_state
from tests.hostile.corpus import sound


@dataclass(frozen=True)
class Document:
    """A sound document, and the function that opens it for a user."""

    kind: str
    suffix: str
    content: Callable[[], bytes]
    open: Callable[[Path], object]

    def attempt(self, content: bytes, folder: Path) -> str | None:
        """Open these bytes; the sentence of a refusal, None where they were taken, and no other exception."""
        file = folder / f"document{self.suffix}"
        file.write_bytes(content)
        try:
            self.open(file)
        except UserError as refusal:
            return str(refusal)
        return None


def table() -> bytes:
    """A CSV with quotes, blanks, a group, a split and labels."""
    rows = (
        f'"img, {n}.png";p{n // 3};{("train", "val", "test")[n % 3]};{n % 2};{"" if n == 5 else 1 - n % 2}\r\n'
        for n in range(30)
    )
    return ("\ufeffimage;patient;split;Mass;Nodule\r\n" + "".join(rows)).encode()


def configuration() -> bytes:
    """A YAML file with every kind of value."""
    lines = ("seed: 3", "learning_rate: 1.0e-3", "betas: [0.9, 0.99]", "flip: true", "classes: [a, b]", "cache: none")
    return "\n".join([*lines, "settings: {k: 7}", ""]).encode()


@cache
def archive() -> bytes:
    """A zip of images in folders, one stored and the others deflated."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, name in enumerate(("png grey", "jpeg colour", "dicom grey")):
            archive.writestr(f"x/{number}.png", sound()[name])
        archive.writestr(zipfile.ZipInfo("y/3.png"), sound()["gif"])
    return file.getvalue()


@cache
def arrays() -> bytes:
    """A MedMNIST file."""
    rng, content = np.random.default_rng(0), {}
    for part, count in (("train", 12), ("val", 4), ("test", 4)):
        content[f"{part}_images"] = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        content[f"{part}_labels"] = (np.arange(count) % 2).astype(np.uint8)[:, None]
    file = io.BytesIO()
    np.savez_compressed(file, **content)
    return file.getvalue()


def _tensors() -> dict[str, torch.Tensor]:
    return {"conv.weight": torch.arange(24.0).reshape(2, 3, 4), "conv.bias": torch.zeros(2)}


@cache
def safe_weights() -> bytes:
    """A safetensors file."""
    return bytes(save(_tensors()))


@cache
def torch_weights() -> bytes:
    """A file as torch.save writes it."""
    file = io.BytesIO()
    torch.save(_tensors(), file)
    return file.getvalue()


def _read_all(file: Path) -> None:
    files = ImageFiles.open(file)
    for name in files.names():
        try:
            files.read(files.find(name))
        except BadImage:
            continue


def _open_arrays(file: Path) -> None:
    source = find_source(SourceOptions(data=f"medmnist:{file}"))
    assert isinstance(source, FileSource)
    files = source.files
    for name in files.names()[:50]:
        try:
            files.read(name)
        except BadImage:
            continue


DOCUMENTS = (
    Document("table", ".csv", table, lambda file: read_table(file, Columns())),
    Document("yaml", ".yaml", configuration, lambda file: resolve(file=file)),
    Document("zip", ".zip", archive, _read_all),
    Document("npz", ".npz", arrays, _open_arrays),
    Document("safetensors", ".safetensors", safe_weights, read_state),
    Document("torch", ".pt", torch_weights, read_state),
)

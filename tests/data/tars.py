"""Tars of small pictures, as tests make them."""

import io
import json
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

Content = bytes | str | Mapping[str, Any]


def picture(seed: int, kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (20, 24), dtype=np.uint8)).save(file, kind)
    return file.getvalue()


def tarred(members: Iterable[tuple[str, Content]]) -> bytes:
    """A tar of these members in this order; a mapping becomes JSON."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, content in members:
            data = json.dumps(content) if isinstance(content, Mapping) else content
            data = data.encode() if isinstance(data, str) else data
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return file.getvalue()


def samples(first: int, count: int) -> list[tuple[str, Content]]:
    """Pictures with labels and patients of two pictures each; every third has no label, every fifth is for test."""
    members: list[tuple[str, Content]] = []
    for number in range(first, first + count):
        about: dict[str, Any] = {"patient": f"p{number // 2}", "split": "test" if number % 10 < 2 else "train"}
        about["label"] = None if number % 3 == 2 else ("mass" if number % 2 else "clear")
        members += [(f"s{number:03d}.png", picture(number)), (f"s{number:03d}.json", about)]
    return members


def write_shards(folder: Path, shards: int = 4, each: int = 10) -> Path:
    """``scans-000.tar`` and so on; what to type to mean them all."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(shards):
        (folder / f"scans-{number:03d}.tar").write_bytes(tarred(samples(number * each, each)))
    return folder / f"scans-{{000..{shards - 1:03d}}}.tar"

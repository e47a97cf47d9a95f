"""A small data set of files, and a run on it, for reviews."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import acpl

HOSTILE = '<img src=x onerror="document.title=1">'


@pytest.fixture(scope="session")
def file_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty patients with an image each, a third unlabelled; one class's name is HTML."""
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)
    rows = ['image,patient,sex,Mass,"<img src=x onerror=""document.title=1"">",split']
    (folder / "scans").mkdir()
    for number in range(40):
        part = "train" if number < 28 else "validation" if number < 34 else "test"
        mass, other = number % 2, number // 2 % 2
        pixels = rng.integers(0, 90, (48, 60), dtype=np.uint8)
        pixels[8:24, 8:24] += np.uint8(120 * mass)
        pixels[28:44, 36:52] += np.uint8(120 * other)
        name = f"scan & {number:02d}.png"
        Image.fromarray(pixels).save(folder / "scans" / name)
        labels = "," if part == "train" and number % 3 == 0 else f"{mass},{other}"
        rows.append(f"{name},p{number},{'FM'[number % 2]},{labels},{part}")
    (folder / "labels.csv").write_text("\n".join(rows))
    return folder


@pytest.fixture(scope="session")
def trained_files(file_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A multi-label run on these files."""
    return acpl.train(
        data=str(file_data / "labels.csv"),
        images=file_data / "scans",
        cache=file_data / "cache",
        out=tmp_path_factory.mktemp("runs") / "files",
        backbone="small",
        weights="none",
        size=32,
        batch_size=8,
        warmup_epochs=2,
        stages=1,
        stage_epochs=1,
        k=3,
        device="cpu",
    )


@pytest.fixture
def files_run(trained_files: Path, tmp_path: Path) -> Path:
    """A copy of the run that a test may write to."""
    return Path(shutil.copytree(trained_files, tmp_path / "run"))

"""Training cannot read the test part: spoil it in every way, and the same model comes out."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from tests.conftest import TINY

import acpl
from acpl.data.phantoms import draw_chest
from acpl.data.sources import phantoms

SMALL = {**TINY, "warmup_epochs": 1, "stages": 1, "fraction": 0.5}


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A CSV of real files: phantom chests of 30 patients, ten of them for the test."""
    monkeypatch.setenv("ACPL_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "whole"
    folder.mkdir()
    drawn = draw_chest(range(30), size=32)
    rows = []
    for number, (pixels, labels, patient) in enumerate(zip(drawn.images, drawn.labels, drawn.patients, strict=True)):
        Image.fromarray(pixels[0]).save(folder / f"{number:03d}.png")
        part = ("train", "val", "test")[patient % 3] if patient > 3 else "train"
        rows.append({"image": f"{number:03d}.png", "patient": patient, "split": part, "A": labels[0], "B": labels[1]})
    pd.DataFrame(rows).to_csv(folder / "labels.csv", index=False)
    return folder / "labels.csv"


def missing(file: Path) -> None:
    file.unlink()


def unreadable(file: Path) -> None:
    file.write_bytes(b"poison")


@pytest.mark.parametrize("spoil", [missing, unreadable])
def test_spoilt_test_files_and_labels_change_nothing_in_training(
    table: Path, tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    clean = acpl.train(out=tmp_path / "clean", data=str(table), **SMALL)
    rows = pd.read_csv(table)
    test = rows["split"] == "test"
    assert test.any()
    for name in rows.loc[test, "image"]:
        spoil(table.parent / name)
    rows.loc[test, ["A", "B"]] = 1 - rows.loc[test, ["A", "B"]]
    rows.to_csv(table, index=False)

    spoilt = acpl.train(out=tmp_path / "spoilt", data=str(table), **SMALL)
    first, second = load_file(clean / "model.safetensors"), load_file(spoilt / "model.safetensors")
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert (clean / "model.json").read_bytes() == (spoilt / "model.json").read_bytes()
    with pytest.raises(acpl.UserError):
        acpl.evaluate(spoilt)


def test_phantoms_of_the_test_part_are_not_even_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(patients: list[int], **how: int) -> object:
        assert all(phantoms.PARTS[patient % 10] != "test" for patient in patients)
        return draw_chest(patients, **how)

    monkeypatch.setattr(phantoms, "draw_chest", draw)
    run = acpl.train(out=tmp_path / "run", data="phantom-chest", **SMALL)
    with pytest.raises(AssertionError):
        acpl.evaluate(run)

"""The model for other programs: equal outputs, any batch size, and a card that is enough."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import acpl
from acpl.data.phantoms import draw_chest, draw_lesions
from acpl.engine import exporting


@pytest.fixture
def runs(chest_run: Path, lesions_run: Path, tmp_path: Path) -> dict[str, Path]:
    """Copies that may be written to."""
    copies = {"chest": chest_run, "lesions": lesions_run}
    return {name: Path(shutil.copytree(run, tmp_path / name)) for name, run in copies.items()}


def probabilities_by_card(folder: Path, pixels: np.ndarray) -> np.ndarray:
    """What a program makes of uint8 images (n, c, h, w) that knows only the exported folder."""
    card = json.loads((folder / "model.json").read_text())
    if card["format"] == "onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(str(folder / card["file"]), providers=["CPUExecutionProvider"])
        return np.asarray(session.run([card["output"]["name"]], {card["input"]["name"]: pixels})[0])
    if card["format"] == "torchscript":
        with torch.no_grad():
            return torch.jit.load(str(folder / card["file"]))(torch.from_numpy(pixels)).numpy()
    from safetensors.torch import load_file

    from acpl.models import build_classifier

    network = build_classifier(
        card["network"]["backbone"],
        channels=card["input"]["shape"][1],
        classes=card["network"]["outputs"],
        activation=card["network"]["activation"],
    ).eval()
    network.load_state_dict(load_file(folder / card["file"]))
    mean, std = (np.array(card["normalisation"][key]).reshape(1, -1, 1, 1) for key in ("mean", "std"))
    images = torch.from_numpy(((pixels / 255 - mean) / std).astype(np.float32))
    with torch.no_grad():
        logits = network(images).logits
    return (logits.sigmoid() if card["output"]["activation"] == "sigmoid" else logits.softmax(dim=1)).numpy()


@pytest.mark.parametrize("form", ["safetensors", "torchscript", pytest.param("onnx", marks=pytest.mark.slow)])
@pytest.mark.parametrize("data", ["chest", "lesions"])
def test_the_file_and_its_card_are_enough_to_get_the_runs_probabilities(
    form: Any, data: str, runs: dict[str, Path]
) -> None:
    done = acpl.export(runs[data], form)
    assert done.difference <= exporting.TOLERANCE
    draw = draw_chest if data == "chest" else draw_lesions
    pixels = draw([7, 8, 17], size=32).images
    model = acpl.load(runs[data], device="cpu")
    expected = model(list(pixels.transpose(0, 2, 3, 1)))[model.classes].to_numpy()
    for count in (1, 2, len(pixels)):
        found = probabilities_by_card(done.folder, pixels[:count])
        assert found == pytest.approx(expected[:count], abs=1e-4)
    card = json.loads((done.folder / "model.json").read_text())
    assert card["classes"] == model.classes
    assert card["decision"]["thresholds"] == model.thresholds
    assert card["checked"]["part"] == "validation"
    assert card["checked"]["largest_difference"] == done.difference


@pytest.mark.slow
def test_the_network_that_real_images_start_with_becomes_onnx_too(tmp_path: Path) -> None:
    run = acpl.train(
        data="phantom-lesions",
        out=tmp_path / "run",
        backbone="efficientnet-lite0",
        method="supervised",
        phantom_patients=20,
        size=32,
        fraction=1.0,
        batch_size=4,
        warmup_epochs=1,
        stages=0,
        device="cpu",
    )
    assert acpl.export(run, "onnx").difference <= exporting.TOLERANCE


def test_a_file_whose_outputs_differ_is_not_left_behind(runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(exporting.Callable8Bit):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return super().forward(images) * 0.999

    monkeypatch.setattr(exporting, "Callable8Bit", Wrong)
    with pytest.raises(acpl.UserError, match=r"differ from the run's by up to .*; nothing was exported"):
        acpl.export(runs["chest"], "torchscript")
    assert not list(runs["chest"].glob("export*"))


def test_nothing_is_written_over_and_mistakes_are_told(runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    acpl.export(runs["chest"], "safetensors")
    with pytest.raises(acpl.UserError, match="exists; choose another --out"):
        acpl.export(runs["chest"], "safetensors")
    with pytest.raises(acpl.UserError, match="format should be onnx, torchscript, safetensors, but it is 'tflite'"):
        acpl.export(runs["chest"], "tflite")  # type: ignore[arg-type]
    real = exporting._version
    monkeypatch.setattr(exporting, "_version", lambda name: None if name == "onnxruntime" else real(name))
    with pytest.raises(acpl.UserError, match=r"needs onnxruntime: pip install 'acpl\[export\]'"):
        acpl.export(runs["chest"], "onnx")


def test_a_file_that_answers_with_nothing_is_not_the_same(chest_run: Path) -> None:
    predictor = exporting.Predictor.load(exporting.RunFolder.open(chest_run), device="cpu")
    images = torch.randint(0, 255, (64, 1, 32, 32), dtype=torch.uint8)
    expected = predictor(exporting.ImageStore(torch.arange(64), images), torch.arange(64))
    answers = iter([expected[:1], *[np.full_like(expected, np.nan)] * 9])

    def call(part: torch.Tensor) -> np.ndarray:
        return np.asarray(next(answers))[: len(part)]

    assert np.isnan(exporting._difference(predictor, images, call))


def test_a_difference_that_is_no_number_is_no_small_one(runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "_difference", lambda *_: float("nan"))
    with pytest.raises(acpl.UserError, match="nothing was exported"):
        acpl.export(runs["lesions"], "torchscript")
    assert not list(runs["lesions"].glob("export*"))

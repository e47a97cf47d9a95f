"""A run whose images are looked at in several ways: everything that looks does so, and it is the mean over the ways."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from PIL import Image
from safetensors.torch import load_file
from tests.conftest import TINY
from tests.engine.tape import Tape
from torch import Tensor

import acpl
from acpl.data.store import ImageStore
from acpl.engine import inference
from acpl.engine.inference import Inference
from acpl.engine.predicting import Predictor
from acpl.engine.run_folder import RunFolder
from acpl.engine.thresholds import set_on_validation
from acpl.engine.training import source_of
from acpl.evaluation import auroc, defined_mean
from acpl.labelling.pool import look, open_pool
from acpl.models import Looks
from acpl.task import Task

WAYS: dict[str, Callable[[Tensor], list[Tensor]]] = {
    "mirrored": lambda images: [images, images.flip(3)],
    "turned": lambda images: [
        torch.rot90(side, quarters, dims=(2, 3)) for side in (images, images.flip(3)) for quarters in range(4)
    ],
}
DATA: dict[str, Looks] = {"phantom-chest": "mirrored", "phantom-lesions": "turned"}


@pytest.fixture(scope="module", params=DATA)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished and judged run of each task."""
    data: str = request.param
    out = tmp_path_factory.mktemp("looks") / data
    acpl.train(out=out, data=data, looks=DATA[data], features_from="averaged", keep="best", **TINY)
    acpl.evaluate(out, resamples=20)
    return out


def by_hand(run: Path, images: Tensor, name: str = "model") -> tuple[Tensor, np.ndarray]:
    """Features and probabilities of uint8 images, way after way by a model that looks once, then the mean."""
    folder = RunFolder.open(run)
    once = Predictor.load(folder, name, "cpu")
    once = once._replace(card=replace(once.card, looks="one"))
    found = []
    for way in WAYS[folder.card().looks](images):
        store = ImageStore(torch.arange(len(way)), way.contiguous())
        found.append(once.inference(store)(store.ids))
    features = torch.stack([views.features for views in found]).mean(dim=0)
    said = torch.stack([views.probabilities for views in found]).mean(dim=0)
    return features, said.double().numpy()


def part_of(run: Path, part: Any) -> tuple[pd.DataFrame, np.ndarray, Tensor]:
    """Table, labels and images of a part."""
    dataset = source_of(RunFolder.open(run).config()).open((part,))
    ids = torch.from_numpy(dataset.manifest.ids)
    return dataset.manifest.table, dataset.manifest.labels.astype(float), dataset.images.gather(ids)


def test_the_judged_model_and_its_snapshot_say_the_mean(run: Path) -> None:
    _, truth, images = part_of(run, "test")
    _, said = by_hand(run, images)
    written = pd.read_csv(run / "predictions.csv").filter(regex="^probability").to_numpy()
    assert written == pytest.approx(said, abs=1e-5)
    judged = json.loads((run / "evaluation.json").read_text())
    assert judged["auroc"]["mean"] == pytest.approx(float(defined_mean(auroc(truth, said))), abs=1e-9)
    _, early = by_hand(run, images, "warm-up")
    assert judged["snapshots"]["warm-up"]["auroc"]["mean"] == pytest.approx(
        float(defined_mean(auroc(truth, early))), abs=1e-9
    )


def test_validation_in_training_goes_by_the_mean_and_so_do_thresholds(run: Path) -> None:
    _, truth, images = part_of(run, "validation")
    _, said = by_hand(run, images)
    scores = [event["validation_auroc"] for event in RunFolder(run).events() if event["event"] == "epoch"]
    assert max(scores) == pytest.approx(float(defined_mean(auroc(truth, said))), abs=1e-9)
    card = RunFolder.open(run).card()
    if card.task == Task.MULTI_LABEL:
        assert card.thresholds == pytest.approx(set_on_validation(card.classes, truth, said)[0], abs=1e-5)
        _, early = by_hand(run, images, "warm-up")
        wanted = set_on_validation(card.classes, truth, early)[0]
        assert card.snapshot_thresholds["warm-up"] == pytest.approx(wanted, abs=1e-5)


def test_a_stage_selects_by_the_mean(run: Path) -> None:
    table, _, images = part_of(run, "train")
    stage = pd.read_parquet(run / "stages" / "01.parquet")
    rows = table.index.get_indexer(stage["id"])
    features, said = by_hand(run, images, "warm-up")
    classes = RunFolder.open(run).card().classes
    model = stage[[f"model.{name}" for name in classes]].to_numpy()
    assert model == pytest.approx(said[rows], abs=1e-5)
    split = pd.read_csv(run / "split.csv")
    labelled = table.index.get_indexer(split["id"][split["role"] == "labelled"])
    near = torch.nn.functional.normalize(features, dim=1)
    similarity = near[rows] @ near[labelled].T
    density = similarity.topk(TINY["k"], dim=1).values.mean(dim=1)  # type: ignore[arg-type]
    assert stage["density"].to_numpy() == pytest.approx(density.numpy(), abs=1e-4)


def test_predict_and_load_answer_an_image_and_its_other_sides_alike(run: Path, tmp_path: Path) -> None:
    _, _, images = part_of(run, "validation")
    images = images[:3]
    model = acpl.load(run, device="cpu")
    _, said = by_hand(run, images)
    files = []
    for way in WAYS[RunFolder.open(run).card().looks](images):
        pixels = way.numpy().transpose(0, 2, 3, 1)
        assert model(pixels)[model.classes].to_numpy() == pytest.approx(said, abs=1e-5)
        files.append(tmp_path / f"{len(files)}.png")
        Image.fromarray(pixels[0].squeeze()).save(files[-1])
    table, bad = acpl.predict(run, files, device="cpu")
    assert bad == []
    assert table[model.classes].to_numpy() == pytest.approx(np.repeat(said[:1], len(files), axis=0), abs=1e-5)


def test_suggestions_go_by_the_mean(run: Path) -> None:
    sight = look(open_pool(run), device="cpu")
    pool = sight.pool
    ids = torch.from_numpy(pool.manifest.ids[pool.unlabelled])
    features, said = by_hand(run, pool.images.gather(ids))
    assert torch.allclose(sight.features, features, atol=1e-5)
    assert sight.probabilities == pytest.approx(said, abs=1e-5)


@pytest.mark.parametrize("form", ["safetensors", "torchscript", pytest.param("onnx", marks=pytest.mark.slow)])
def test_an_exported_model_looks_as_the_run_does(form: Any, run: Path, tmp_path: Path) -> None:
    done = acpl.export(run, form, out=tmp_path / "exported")
    card = json.loads((done.folder / "model.json").read_text())
    assert card["looks"]["averaged_over"] == RunFolder.open(run).card().looks
    assert card["looks"]["in_file"] is (form != "safetensors")
    images = part_of(run, "validation")[2][:3]
    _, said = by_hand(run, images)
    if form == "torchscript":
        with torch.no_grad():
            found = torch.jit.load(str(done.file))(images).numpy()
        assert found == pytest.approx(said, abs=1e-4)
    elif form == "onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(str(done.file), providers=["CPUExecutionProvider"])
        for count in (1, 3):
            (found,) = session.run(None, {"images": images[:count].numpy()})
            assert found == pytest.approx(said[:count], abs=1e-4)


def eye(run: Path, images: Tensor, looks: Looks, recording: Tape | None = None) -> Inference:
    """A run's model over images, as the loop has it."""
    predictor = Predictor.load(RunFolder.open(run), device="cpu")
    return Inference(
        predictor.network,
        ImageStore(torch.arange(len(images)), images),
        task=Task(predictor.card.task),
        mean=torch.tensor(predictor.card.mean),
        std=torch.tensor(predictor.card.std),
        device=predictor.device,
        looks=looks,
        recording=recording,
    )


@pytest.mark.parametrize("looks", ["one", "mirrored", "turned"])
def test_recorded_and_stored_looks_are_those_taken_as_written(
    looks: Looks, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = part_of(run, "validation")[2][:11]
    ids = torch.arange(len(images))
    monkeypatch.setattr(inference, "BATCH", 2)
    written, tape = eye(run, images, looks)(ids), Tape()
    replayed = eye(run, images, looks, tape)(ids)
    assert tape.operations
    monkeypatch.setattr(inference, "is_too_large", lambda *_: True)
    stored = eye(run, images, looks).share(ids, tmp_path)
    for values, again, kept in zip(written, replayed, stored, strict=True):
        assert torch.allclose(again, values, atol=1e-6)
        assert torch.equal(kept[:], values)


def test_one_look_is_to_the_bit_what_the_network_says(run: Path) -> None:
    images = part_of(run, "validation")[2]
    sight = eye(run, images, "one")
    card = RunFolder.open(run).card()
    mean, std = (torch.tensor(values).view(1, -1, 1, 1) for values in (card.mean, card.std))
    normalised = images.float().mul_(1.0 / (255.0 * std)).add_(-mean / std)
    with torch.no_grad():
        out = sight.network(normalised.contiguous(memory_format=torch.channels_last))
    said = out.logits.sigmoid() if card.task == Task.MULTI_LABEL else out.logits.softmax(dim=1)
    found = sight(torch.arange(len(images)))
    assert torch.equal(found.features, out.features)
    assert torch.equal(found.probabilities, said)


def test_a_run_from_before_there_were_looks_looks_once(chest_run: Path, tmp_path: Path) -> None:
    config, card = yaml.safe_load((chest_run / "config.yaml").read_text()), RunFolder.open(chest_run).card()
    assert config.pop("looks") == card.looks == "one"
    old = RunFolder(tmp_path)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    old.write_json("model.json", {name: value for name, value in vars(card).items() if name != "looks"})
    assert (old.config().looks, old.card()) == ("one", card)


def test_looks_cannot_change_in_a_run_that_goes_on(run: Path, tmp_path: Path) -> None:
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "config.yaml").write_bytes((run / "config.yaml").read_bytes())
    with pytest.raises(acpl.UserError, match=r"looks was \w+ when this run began and cannot be one now"):
        acpl.train(resume=tmp_path / "cut", looks="one")


def test_more_looks_leave_the_training_of_a_method_that_selects_nothing_as_it_is(tmp_path: Path) -> None:
    settings = {**TINY, "method": "mean-teacher", "k": None, "stages": 1}
    once, often = (
        acpl.train(out=tmp_path / looks, data="phantom-lesions", looks=looks, **settings) for looks in ("one", "turned")
    )
    first, second = (load_file(trained / "model.safetensors") for trained in (once, often))
    assert all(torch.equal(first[name], second[name]) for name in first)

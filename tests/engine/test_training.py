"""Whole runs, small: what they leave behind, and that they can be repeated."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from tests.conftest import TINY

import acpl
from acpl.algorithms.contract import Draw
from acpl.data.sources.phantoms import PhantomSource
from acpl.engine.run_folder import RunFolder
from acpl.engine.step import epoch_order, rate
from acpl.models.classifier import Classifier, Outputs


def test_two_cpu_runs_of_one_configuration_are_bit_identical(chest_run: Path, tmp_path: Path) -> None:
    again = acpl.train(out=tmp_path / "again", data="phantom-chest", **TINY)
    first, second = load_file(chest_run / "model.safetensors"), load_file(again / "model.safetensors")
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert (chest_run / "split.csv").read_bytes() == (again / "split.csv").read_bytes()


def test_another_seed_gives_another_split_and_another_model(chest_run: Path, tmp_path: Path) -> None:
    other = acpl.train(out=tmp_path / "other", data="phantom-chest", seed=1, **TINY)
    assert (chest_run / "split.csv").read_bytes() != (other / "split.csv").read_bytes()
    first, second = load_file(chest_run / "model.safetensors"), load_file(other / "model.safetensors")
    assert any(not torch.equal(first[name], second[name]) for name in first)


def test_the_run_folder_is_the_one_the_documents_describe(chest_run: Path) -> None:
    names = {path.name for path in chest_run.iterdir()}
    assert names == {
        "beginning.json",
        "config.yaml",
        "split.csv",
        "events.jsonl",
        "stages",
        "checkpoints",
        "warm-up.safetensors",
        "model.safetensors",
        "model.json",
        "evaluation.json",
        "predictions.csv",
        "report",
        "report.html",
    }
    steps = [event["step"] for event in RunFolder(chest_run).events() if event["event"] == "epoch"]
    kept = [path.name for path in sorted((chest_run / "checkpoints").iterdir())]
    assert kept == [f"{step:08d}.pt" for step in steps[-2:]]


def test_a_stage_file_says_what_happened_to_each_candidate(chest_run: Path) -> None:
    table = pd.read_parquet(chest_run / "stages" / "01.parquet")
    split = pd.read_csv(chest_run / "split.csv")
    assert set(table["id"]) == set(split.loc[split["role"] == "unlabelled", "id"])
    chosen = table["selected"]
    assert table.loc[chosen, "pseudo_label.Effusion"].between(0, 1).all()
    assert table.loc[~chosen, "pseudo_label.Effusion"].isna().all()
    assert (
        table.loc[chosen, "joined_anchors"]
        == (table.loc[chosen, "connections"] == table.loc[chosen, "connections"].min())
    ).all()
    assert not table.loc[~chosen, "joined_anchors"].any()


def test_events_tell_every_epoch_and_stage(chest_run: Path) -> None:
    events = [json.loads(line) for line in (chest_run / "events.jsonl").read_text().splitlines()]
    assert [event["name"] for event in events if event["event"] == "stage"] == ["warm-up", "stage 1", "stage 2"]
    epochs = [event for event in events if event["event"] == "epoch"]
    assert {"labelled", "selected"} == set(epochs[-1]["losses"])
    assert 0 <= epochs[-1]["validation_auroc"] <= 1


def test_training_never_opens_the_test_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[tuple[str, ...]] = []
    original = PhantomSource.open

    def watched(self: PhantomSource, parts: tuple[str, ...]) -> object:
        opened.append(parts)
        dataset = original(self, parts)  # type: ignore[arg-type]
        assert set(dataset.manifest.table["part"]) <= {"train", "validation"}
        return dataset

    monkeypatch.setattr(PhantomSource, "open", watched)
    acpl.train(out=tmp_path / "run", data="phantom-chest", **TINY)
    assert opened == [("train", "validation")]


def test_labels_of_unlabelled_samples_change_nothing(
    chest_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Poison them after the split is drawn: the same bits come out."""
    from acpl.engine import training

    original = training._pools

    def poisoned(manifest: object, split: pd.DataFrame) -> object:
        hidden = (split["role"] == "unlabelled").to_numpy()
        manifest.labels[hidden] = np.nan  # type: ignore[attr-defined]
        return original(manifest, split)  # type: ignore[arg-type]

    monkeypatch.setattr(training, "_pools", poisoned)
    run = acpl.train(out=tmp_path / "poisoned", data="phantom-chest", **TINY)
    first, second = load_file(chest_run / "model.safetensors"), load_file(run / "model.safetensors")
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_an_existing_folder_is_refused(chest_run: Path) -> None:
    with pytest.raises(acpl.UserError, match="exists; choose another --out"):
        acpl.train(out=chest_run, data="phantom-chest", **TINY)


def test_a_split_with_another_checksum_is_refused(tmp_path: Path) -> None:
    with pytest.raises(acpl.UserError, match="split_checksum is sha256:0, but this split's is sha256:"):
        acpl.train(out=tmp_path / "run", split_checksum="sha256:0", **TINY)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "switches",
    [
        {"normal_output": True, "averaging_statistics": "forward", "draw": "per-class", "schedule": "step"},
        {"keep": "best", "features_from": "best", "activation": "leaky-relu", "dropout": 0.2},
        {"precision": "bf16-mixed", "schedule": "cosine", "draw": "images"},
        {"method": "supervised", "validate_every": 1, "keep": "best", "k": None},
    ],
)
def test_every_switch_trains(switches: dict[str, object], tmp_path: Path) -> None:
    run = acpl.train(out=tmp_path / "run", data="phantom-chest", **{**TINY, **switches})
    result = acpl.evaluate(run, resamples=20)
    assert len(result["auroc"]["per_class"]) == 8


def test_no_finding_needs_a_multi_label_set(tmp_path: Path) -> None:
    with pytest.raises(acpl.UserError, match="normal_output needs a multi-label data set"):
        acpl.train(out=tmp_path / "run", normal_output=True, **{**TINY, "data": "phantom-lesions"})


def test_an_epoch_visits_every_sample_once_a_pass_in_full_batches() -> None:
    draw = Draw(torch.arange(100, 110), batch_size=4)
    order = epoch_order(draw, steps=5, generator=torch.Generator().manual_seed(0))
    assert order.shape == (5, 4)
    passes = order.flatten().view(2, 10)
    assert all(sorted(one.tolist()) == list(range(100, 110)) for one in passes)
    assert passes[0].tolist() != passes[1].tolist()


def test_a_schedule_runs_over_the_whole_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rates: list[float] = []
    monkeypatch.setattr("acpl.engine.loop.set_rate", lambda _, value: rates.append(value))
    quick = {**TINY, "k": None, "method": "supervised", "stages": 0, "warmup_epochs": 4, "batch_size": 8}
    acpl.train(out=tmp_path / "run", schedule="cosine", learning_rate=0.1, **quick)
    steps = len(rates)
    assert steps >= 8
    assert rates == pytest.approx([0.1 * rate("cosine", step / steps) for step in range(steps)])


def test_learning_rates_follow_their_schedule() -> None:
    assert [rate("constant", p) for p in (0, 0.5, 1)] == [1, 1, 1]
    assert [rate("step", p) for p in (0, 0.69, 0.7)] == [1, 1, 0.1]
    assert [rate("cosine", p) for p in (0, 0.5, 1)] == pytest.approx([1, 0.5, 0])


def test_training_shows_small_crops_and_judges_whole_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = set()
    forward = Classifier.forward

    def noting(self: Classifier, images: torch.Tensor) -> Outputs:
        seen.add((self.training, *images.shape[2:]))
        return forward(self, images)

    monkeypatch.setattr(Classifier, "forward", noting)
    acpl.train(out=tmp_path / "run", **{**TINY, "size": 48, "crop_size": 32})
    assert seen == {(True, 32, 32), (False, 48, 48)}


def test_a_network_without_room_for_its_weights_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(self: torch.nn.Module, *where: object, **how: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch.nn.Module, "to", no_room)
    with pytest.raises(acpl.UserError, match="has too little memory for the weights of small"):
        acpl.train(out=tmp_path / "run", **TINY)
    assert not (tmp_path / "run").exists()

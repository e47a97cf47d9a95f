"""A finished model whose logits were divided by a temperature."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from scipy.special import expit, logit, softmax
from tests.conftest import TINY
from tests.engine.tape import Tape

import acpl
from acpl.data.sources.phantoms import PhantomSource
from acpl.data.store import ImageStore
from acpl.engine import inference
from acpl.engine.device import Device
from acpl.engine.inference import Inference
from acpl.engine.monitor import Quiet
from acpl.engine.run_folder import RunFolder
from acpl.engine.temperature import soften_by_validation
from acpl.errors import UserError
from acpl.evaluation import fit_temperature
from acpl.models import Classifier, build_classifier
from acpl.report.first_screen import notes
from acpl.report.run_data import read_run
from acpl.task import Task

DATA = ("phantom-chest", "phantom-lesions")


class Listens(Quiet):
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, sentence: str) -> None:
        self.said.append(sentence)


def judged(run: Path) -> tuple[np.ndarray, np.ndarray]:
    """Truth and probabilities of the validation part, in the order of the images."""
    acpl.evaluate(run, part="validation", resamples=5, device="cpu")
    table = pd.read_csv(run / "predictions-validation.csv").set_index("image").sort_index()
    truth, said = (table[[name for name in table if name.startswith(kind)]] for kind in ("truth.", "probability."))
    return truth.to_numpy(), said.to_numpy()


@pytest.fixture(scope="module", params=DATA)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run, and the same with a temperature."""
    place = tmp_path_factory.mktemp(request.param)
    runs = [
        acpl.train(out=place / name, data=request.param, **TINY, calibrate=calibrate)
        for name, calibrate in (("plain", False), ("calibrated", True))
    ]
    return runs[0], runs[1]


def test_the_head_is_divided_by_it_and_nothing_else_is_another(pair: tuple[Path, Path]) -> None:
    plain, calibrated = (load_file(run / "model.safetensors") for run in pair)
    temperature = RunFolder.open(pair[1]).card().temperature
    assert temperature != 1
    assert RunFolder.open(pair[0]).card().temperature == 1
    for name, before in plain.items():
        expected = before / temperature if name.startswith("head.") else before
        torch.testing.assert_close(calibrated[name], expected, rtol=1e-5, atol=0)


def test_it_is_the_one_that_explains_the_validation_part_best(pair: tuple[Path, Path]) -> None:
    exclusive = "lesions" in str(pair[0])
    (truth, before), (_, after) = judged(pair[0]), judged(pair[1])
    temperature = RunFolder.open(pair[1]).card().temperature
    assert fit_temperature(truth, before, exclusive=exclusive) == pytest.approx(temperature, rel=5e-3)
    assert fit_temperature(truth, after, exclusive=exclusive) == pytest.approx(1, abs=5e-3)
    expected = softmax(np.log(before) / temperature, axis=1) if exclusive else expit(logit(before) / temperature)
    np.testing.assert_allclose(after, expected, atol=1e-4)


def test_thresholds_are_those_of_the_softened_answers(pair: tuple[Path, Path]) -> None:
    before, after = (RunFolder.open(run).card().decision_rule() for run in pair)
    if before == "argmax":
        assert after == "argmax"
        return
    temperature = RunFolder.open(pair[1]).card().temperature
    (_, plain), (_, soft) = judged(pair[0]), judged(pair[1])
    assert ((plain >= before) == (soft >= after)).all(), temperature


@pytest.mark.parametrize("more", [{"looks": "turned"}, {"group_answers": 0.5}])
def test_with_several_looks_or_a_groups_images_no_temperature_would_make_the_answers_better(
    more: dict[str, Any], tmp_path: Path
) -> None:
    listens = Listens()
    run = acpl.train(out=tmp_path / "run", data="phantom-chest", **TINY, calibrate=True, monitor=listens, **more)
    truth, said = judged(run)
    assert fit_temperature(truth, said, exclusive=False) == pytest.approx(1, abs=0.02)
    temperature = RunFolder.open(run).card().temperature
    assert f"temperature {temperature:.2f}, fitted on validation: the model's logits are divided by it" in listens.said


def test_a_recorded_look_sees_the_softened_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """tests/gpu has its twin: what was recorded before must read the weights as they are now."""
    monkeypatch.setattr(inference, "BATCH", 4)
    torch.manual_seed(0)
    network = build_classifier("small", channels=1, classes=3)
    images = torch.randint(0, 256, (24, 1, 32, 32), dtype=torch.uint8)
    store, tape = ImageStore(torch.arange(24), images), Tape()
    one = torch.full((1,), 0.5)
    how: dict[str, Any] = {"task": Task.MULTI_CLASS, "mean": one, "std": one, "device": Device.choose("cpu", "32")}
    sight = Inference(network, store, recording=tape, **how)
    before = sight(store.ids).probabilities
    assert tape.operations
    network.soften(0.1)
    after = sight(store.ids).probabilities
    torch.testing.assert_close(after, torch.softmax(before.log() / 0.1, dim=1), rtol=1e-3, atol=1e-5)
    assert (after - before).abs().max() > 0.01


def test_a_joined_model_answers_with_the_mean_of_softened_ones(pair: tuple[Path, Path], tmp_path: Path) -> None:
    data = json.loads((pair[1] / "beginning.json").read_text())["settings"]["data"]
    other = acpl.train(out=tmp_path / "other", data=data, **{**TINY, "learning_rate": 0.01}, calibrate=True)
    both = acpl.join([pair[1], other], out=tmp_path / "both", device="cpu")
    np.testing.assert_allclose(judged(both)[1], (judged(pair[1])[1] + judged(other)[1]) / 2, atol=1e-6)
    assert RunFolder.open(both).card().temperature == 1  # each network has its own


def test_without_validation_it_is_refused_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = PhantomSource.open
    monkeypatch.setattr(PhantomSource, "open", lambda self, parts: original(self, ("train",)))
    with pytest.raises(UserError, match="calibrate needs a validation part with labels"):
        acpl.train(out=tmp_path / "run", **TINY, calibrate=True)
    assert not (tmp_path / "run").exists()


def test_answers_that_are_worse_than_none_are_softened_as_far_as_it_goes_and_no_further() -> None:
    network = Classifier(torch.nn.Identity(), 2, 2)
    images = torch.eye(2)[[0, 1] * 20]
    wrong = images.flip(1).double().numpy()
    with torch.no_grad():
        network.head.weight.copy_(3 * torch.eye(2))
        network.head.bias.zero_()

    def answers() -> tuple[np.ndarray, np.ndarray]:
        return wrong, torch.softmax(network(images).logits, dim=1).double().detach().numpy()

    assert soften_by_validation(network, answers, Task.MULTI_CLASS) == pytest.approx(50)
    torch.testing.assert_close(network.head.weight.detach(), 3 * torch.eye(2) / 50)


def test_it_is_fitted_again_where_the_answers_do_not_follow_it() -> None:
    """Two looks that contradict each other: their mean is no softened mean."""
    draw = torch.Generator().manual_seed(0)
    one, other = 4 * torch.randn(400, 2, generator=draw), 4 * torch.randn(400, 2, generator=draw)
    network = Classifier(torch.nn.Identity(), 2, 2)
    with torch.no_grad():
        network.head.weight.copy_(torch.eye(2))
        network.head.bias.zero_()
    truth = torch.eye(2)[(one + other).argmax(dim=1)].double().numpy()
    asked = []

    def answers() -> tuple[np.ndarray, np.ndarray]:
        looks = [torch.softmax(network(side).logits, dim=1).double().detach() for side in (one, other)]
        asked.append((looks[0] + looks[1]).div(2).numpy())
        return truth, asked[-1]

    temperature = soften_by_validation(network, answers, Task.MULTI_CLASS)
    first = fit_temperature(truth, asked[0], exclusive=True)
    assert abs(temperature / first - 1) > 0.05
    assert fit_temperature(*answers(), exclusive=True) == pytest.approx(1, abs=0.02)


def test_a_page_that_says_probabilities_are_off_says_what_may_mend_it(chest_run: Path) -> None:
    run = read_run(chest_run)
    assert run.evaluation is not None
    off = {**run.evaluation, "calibration_error": {"mean": 0.2}}
    plain, calibrated = (
        [note.text for note in notes(replace(run, config={**run.config, "calibrate": how}, evaluation=off))]
        for how in (False, True)
    )
    words = "Probabilities are off by 20.0 percentage points on average: do not read them as risks"
    assert f"{words}; --calibrate when training fits them to the validation part." in plain
    assert f"{words}." in calibrated
    assert run.card is not None
    softened = replace(
        run, card={**run.card, "temperature": 1.5}, evaluation={**off, "calibration_error": {"mean": 0.01}}
    )
    assert (
        "Probabilities are off by 1.0 percentage points on average, with a temperature of 1.50 that was fitted to the "
        "validation part."
    ) in [note.text for note in notes(softened)]

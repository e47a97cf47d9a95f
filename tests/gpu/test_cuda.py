"""What only a GPU can show: recorded steps and looks, the store on the card or on the host. Skipped without one."""

import gc
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from tests.conftest import TINY
from tests.engine.test_recording import losses_of
from tests.engine.test_resume import Stutters
from tests.noise import write_noise

import acpl
from acpl import algorithms
from acpl.data.augment import Augmentation, augment
from acpl.data.store import ImageStore
from acpl.engine.device import Device
from acpl.engine.inference import BATCH, Inference
from acpl.engine.recording import CudaRecording, Repeated
from acpl.engine.stopping import Stopped
from acpl.evaluation import fit_temperature
from acpl.models import build_classifier
from acpl.task import Task

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
ON_GPU: dict[str, Any] = {
    **TINY,
    "device": "cuda",
    "precision": "32",
    "warmup_epochs": 3,
    "stage_epochs": 3,
    "batch_size": 8,
}


def settings_for(method: str) -> dict[str, Any]:
    return {**ON_GPU, "method": method, "k": 3 if method == "acpl" else None}


@pytest.mark.parametrize("data", ["phantom-chest", "phantom-lesions"])
@pytest.mark.parametrize("method", algorithms.names())
def test_recorded_steps_leave_the_losses_of_steps_run_as_written(method: str, data: str, tmp_path: Path) -> None:
    ways = {"written": False, "again": False, "recorded": True}
    runs = {
        way: acpl.train(out=tmp_path / way, data=data, cuda_graphs=graphs, **settings_for(method))
        for way, graphs in ways.items()
    }
    losses = {way: losses_of(run) for way, run in runs.items()}
    for name, value in losses["written"][0].items():  # the first epoch: later ones drift apart by rounding
        assert losses["recorded"][0][name] == pytest.approx(value, rel=0.02, abs=1e-4), name
    assert set(losses["written"][-1]) == set(losses["recorded"][-1])
    if method in ("supervised", "mean-teacher"):  # one stage: what averages has seen the same steps
        written, again, recorded = (all_weights(run) for run in runs.values())
        noise = (written - again).norm()  # sums in kernels have no order, and Adam makes much of little
        assert (written - recorded).norm() <= 3 * noise + 1e-4 * written.norm()


@pytest.mark.parametrize("method", ["fixmatch", "mean-teacher"])
def test_recorded_steps_hear_what_is_known_beside_the_images(method: str, tmp_path: Path) -> None:
    rows = [f"{name},{'abc'[n % 3]},{'xyz'[n % 3]}" for n, name in enumerate(write_noise(tmp_path / "noise", 48))]
    table = tmp_path / "noise" / "labels.csv"
    table.write_text("\n".join(["image,dx,site", *rows]))
    given = {**settings_for(method), "data": table, "fraction": 0.5, "steps": 12, "clinical": "site"}
    given |= {"clinical_in": "pseudo-labels", **({"confidence": 0.4} if method == "fixmatch" else {})}
    written, recorded = (
        losses_of(acpl.train(out=tmp_path / str(graphs), cuda_graphs=graphs, **given)) for graphs in (False, True)
    )
    for name, value in written[0].items():
        assert recorded[0][name] == pytest.approx(value, rel=0.02, abs=1e-4), name


def all_weights(run: Path) -> torch.Tensor:
    return torch.cat([values.float().flatten() for values in load_file(run / "model.safetensors").values()])


def test_two_replays_augment_differently_and_a_seed_repeats_them() -> None:
    device = torch.device("cuda")
    generator = torch.Generator(device)
    images, seen = torch.rand(4, 1, 16, 16, device=device), torch.empty(4, 1, 16, 16, device=device)
    work = Repeated(lambda: seen.copy_(augment(images, Augmentation(), generator)), CudaRecording([generator]))

    def views() -> list[torch.Tensor]:
        generator.manual_seed(7)
        found = []
        for _ in range(6):
            work()
            found.append(seen.clone())
        return found

    first, second = views(), views()  # the first has three runs as written, the second is replayed throughout
    assert not torch.equal(first[4], first[5])
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("graphs", [False, True])
def test_images_on_the_host_train_like_images_on_the_card(graphs: bool, tmp_path: Path) -> None:
    near, far = (
        acpl.train(
            out=tmp_path / str(share),
            data="phantom-chest",
            store_share=share,
            cuda_graphs=graphs,
            **settings_for("acpl"),
        )
        for share in (0.5, 0.0)
    )
    for one, other in zip(losses_of(near)[:3], losses_of(far)[:3], strict=True):
        assert one == pytest.approx(other, rel=0.02, abs=1e-4)


def test_a_stopped_run_goes_on_on_the_gpu(tmp_path: Path) -> None:
    from acpl.engine.run_folder import RunFolder

    whole = acpl.train(out=tmp_path / "whole", data="phantom-chest", **settings_for("acpl"))
    cut = acpl.train(out=tmp_path / "cut", data="phantom-chest", checkpoint_minutes=0, **settings_for("acpl"))
    (cut / "model.safetensors").unlink()
    newest = max((cut / "checkpoints").iterdir())
    newest.unlink()
    acpl.train(resume=cut)
    steps = [[event["step"] for event in RunFolder(run).events() if event["event"] == "epoch"] for run in (whole, cut)]
    assert steps[0] == steps[1]
    first, second = load_file(whole / "model.safetensors"), load_file(cut / "model.safetensors")
    assert all(first[name].shape == second[name].shape for name in first)


def test_bf16_training_and_recorded_looks_agree_with_float32(tmp_path: Path) -> None:
    run = acpl.train(out=tmp_path / "run", data="phantom-chest", **{**settings_for("acpl"), "precision": "bf16-mixed"})
    one, two = (acpl.evaluate(run, resamples=10, device=device)["auroc"]["mean"] for device in ("cuda", "cpu"))
    assert one == pytest.approx(two, abs=0.02)


@pytest.mark.parametrize("precision", ["32", "bf16-mixed"])
def test_recorded_looks_from_all_sides_are_those_taken_as_written(precision: str) -> None:
    device = Device.choose("cuda", precision)
    torch.manual_seed(0)
    network = build_classifier("small", channels=1, classes=3).to(device.torch, memory_format=torch.channels_last)
    images = torch.randint(0, 256, (6 * BATCH + 5, 1, 32, 32), dtype=torch.uint8)
    stores = [ImageStore(torch.arange(len(some)), some) for some in (images, images.rot90(1, (2, 3)).contiguous())]
    how: dict[str, Any] = {"task": Task.MULTI_LABEL, "device": device, "looks": "turned"}
    how |= {name: torch.full((1,), 0.5, device=device.torch) for name in ("mean", "std")}
    written = Inference(network, stores[0], **how)(stores[0].ids)
    recorded, other = (Inference(network, store, recording=CudaRecording(), **how)(store.ids) for store in stores)
    near = 1e-4 if precision == "32" else 2e-2
    for values, again, turned in zip(written, recorded, other, strict=True):
        assert torch.allclose(again, values, atol=near)
        assert torch.allclose(turned, values, atol=near)


@pytest.mark.parametrize("graphs", [False, True])
def test_recorded_looks_see_the_head_that_a_temperature_softened(graphs: bool, tmp_path: Path) -> None:
    given = {**settings_for("supervised"), "calibrate": True, "cuda_graphs": graphs}
    run = acpl.train(out=tmp_path / "run", data="phantom-lesions", **given)
    acpl.evaluate(run, part="validation", resamples=5, device="cuda")
    table = pd.read_csv(run / "predictions-validation.csv")
    truth, said = (table[[name for name in table if name.startswith(kind)]] for kind in ("truth.", "probability."))
    assert fit_temperature(truth, said, exclusive=True) == pytest.approx(1, abs=0.01)


TIGHT: dict[str, Any] = {
    **ON_GPU,
    "data": "phantom-chest",
    "phantom_patients": 400,
    "size": 128,
    "store_share": 0.0,
    "checkpoint_minutes": 0,
}
ROOM = 600 * 2**20
"""Bytes beyond what is there before."""


@pytest.fixture
def little_memory() -> Iterator[None]:
    """A card with room for a few hundred megabytes more than it holds."""
    gc.collect()
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + ROOM) / total)
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)
    gc.collect()
    torch.cuda.empty_cache()


@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("method", ["supervised", "fixmatch", "acpl"])
@pytest.mark.usefixtures("little_memory")
def test_a_batch_that_does_not_fit_is_told_with_one_that_does(method: str, graphs: bool, tmp_path: Path) -> None:
    settings = {**TIGHT, "method": method, "k": 3 if method == "acpl" else None, "cuda_graphs": graphs}
    sizes = [4096]
    while True:
        said = train_or_say(tmp_path / str(sizes[-1]), {**settings, "batch_size": sizes[-1]})
        gc.collect()
        torch.cuda.empty_cache()
        if said is None:
            break
        found = re.match(
            rf"cuda(:\d)? has too little memory for batch_size {sizes[-1]} of 128 pixels: "
            r"batch_size (\d+) would fit",
            said,
        )
        assert found is not None, said
        assert 2 <= int(found[2]) <= sizes[-1] // 2
        sizes.append(int(found[2]))
    assert 2 <= len(sizes) <= (2 if method != "acpl" else 3)  # acpl's stages draw twice what its warm-up does
    assert (tmp_path / str(sizes[-1]) / "model.safetensors").exists()


def train_or_say(out: Path, settings: dict[str, Any]) -> str | None:
    """What is said of a run that does not fit; None of one that does."""
    try:
        acpl.train(out=out, **settings)
    except acpl.UserError as error:
        return str(error)
    return None


@pytest.mark.usefixtures("little_memory")
def test_where_nothing_would_fit_a_smaller_size_is_advised(tmp_path: Path) -> None:
    torch.cuda.set_per_process_memory_fraction(1e-5)
    with pytest.raises(acpl.UserError, match="too little memory"):
        acpl.train(out=tmp_path / "run", **{**TIGHT, "method": "supervised", "k": None, "batch_size": 64})


def test_a_run_stopped_within_an_epoch_on_the_gpu_goes_on_to_the_same_within_float_noise(tmp_path: Path) -> None:
    """Deterministic kernels are not asked for, so sums differ in their last bits: as much as from run to run."""
    settings = {**settings_for("mean-teacher"), "data": "phantom-chest", "dropout": 0.2, "schedule": "cosine"}
    whole, again = (acpl.train(out=tmp_path / name, **settings) for name in ("whole", "again"))
    cut = tmp_path / "cut"
    go_on: dict[str, Any] = {"out": cut, **settings}
    stops = 0
    while not (cut / "model.safetensors").exists():
        with suppress(Stopped):
            acpl.train(monitor=Stutters(7), **go_on)
        go_on = {"resume": cut}
        stops += 1
    assert stops > 2
    for run in (whole, again, cut):
        print(run.name, losses_of(run))
    first = losses_of(whole)[0]  # later epochs drift apart by rounding, which Adam makes much of
    assert losses_of(cut)[0] == pytest.approx(first, rel=0.002, abs=1e-4)
    weights = {run.name: all_weights(run) for run in (whole, again, cut)}
    noise = (weights["whole"] - weights["again"]).norm()
    apart = (weights["whole"] - weights["cut"]).norm()
    print("noise", float(noise), "apart", float(apart), "of", float(weights["whole"].norm()))
    assert apart <= 3 * noise + 1e-4 * weights["whole"].norm()

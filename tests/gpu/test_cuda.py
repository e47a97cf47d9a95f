"""What only a GPU can show: recorded steps and looks, the store on the card or on the host. Skipped without one."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.conftest import TINY
from tests.engine.test_recording import losses_of

import acpl
from acpl import algorithms
from acpl.data.augment import Augmentation, augment
from acpl.engine.recording import CudaRecording, Repeated

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

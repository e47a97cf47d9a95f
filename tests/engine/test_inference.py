"""A network's word on many images, where memory is short."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.engine.tape import Tape

from acpl.data.store import ImageStore
from acpl.engine import inference
from acpl.engine.device import Device
from acpl.engine.inference import Inference
from acpl.models import Classifier, build_classifier
from acpl.models.classifier import Outputs
from acpl.task import Task

IMAGES = 300


class Small(Classifier):
    """A network on a device that has room for so many images at a time."""

    room = 1000
    batches: list[int]

    def forward(self, images: torch.Tensor) -> Outputs:
        if len(images) > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory")
        self.batches.append(len(images))
        return super().forward(images)


@pytest.fixture
def network() -> Small:
    torch.manual_seed(0)
    small = build_classifier("small", channels=1, classes=3)
    small.__class__ = Small
    assert isinstance(small, Small)
    small.batches = []
    return small


def looking(network: Classifier, **how: Any) -> Inference:
    pixels = torch.randint(0, 256, (IMAGES, 1, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    store = ImageStore(torch.arange(IMAGES), pixels)
    half = torch.full((1,), 0.5)
    return Inference(
        network, store, task=Task.MULTI_LABEL, mean=half, std=half, device=Device.choose("cpu", "32"), **how
    )


@pytest.mark.parametrize("recorded", [False, True])
def test_a_batch_that_does_not_fit_is_taken_in_smaller_ones(network: Small, recorded: bool) -> None:
    ids = torch.arange(IMAGES).flip(0)
    want = looking(network)(ids)
    network.train()
    network.room = 70
    look = looking(network, recording=Tape() if recorded else None)
    network.batches.clear()
    found, again = look(ids), look(ids)
    for values, once_more, wanted in zip(found, again, want, strict=True):
        assert torch.allclose(values, wanted, atol=1e-6)
        assert torch.equal(values, once_more)
    assert network.batches == 2 * [64, 64, 64, 64, 44]
    assert network.training


def test_what_does_not_fit_in_any_batch_is_an_error(network: Small) -> None:
    network.room = 0
    with pytest.raises(torch.OutOfMemoryError):
        looking(network)(torch.arange(5))


def test_stored_views_do_without_large_batches_too(
    network: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = torch.arange(IMAGES)
    want = looking(network)(ids)
    network.room = 70
    monkeypatch.setattr(inference, "is_too_large", lambda *_: True)
    found = looking(network).share(ids, tmp_path)
    for values, wanted in zip(found, want, strict=True):
        assert torch.allclose(values[:], wanted, atol=1e-6)


@pytest.mark.parametrize(("count", "times"), [(inference.BATCH, 2), (inference.BATCH - 1, 0), (0, 0)])
def test_memory_is_given_back_around_many_images_only(
    network: Small, count: int, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_back: list[int] = []
    monkeypatch.setattr(inference, "give_back_memory", lambda: given_back.append(len(network.batches)))
    looking(network)(torch.arange(count))
    assert len(given_back) == times
    assert times == 0 or given_back == [0, 1]  # before the first batch and after the last

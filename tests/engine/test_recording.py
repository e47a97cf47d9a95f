"""A step that is recorded and replayed is the step that was written."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest
import torch
from tests.conftest import TINY
from tests.engine.tape import LookedAtAValueError, Tape

import acpl
from acpl import algorithms
from acpl.algorithms.contract import Draw, Method, Stage
from acpl.algorithms.mean_teacher import MeanTeacher
from acpl.algorithms.single_stage import SingleStage
from acpl.algorithms.ss_dcgan import SSDCGAN
from acpl.config import Config
from acpl.data.pools import Pools
from acpl.engine.device import Device
from acpl.engine.recording import Repeated
from acpl.engine.step import TrainingStep, Workbench, shown_as
from acpl.models import classification_loss

SHORT = {**TINY, "warmup_epochs": 2, "stage_epochs": 2, "batch_size": 8}


def losses_of(run: Path) -> list[dict[str, float]]:
    """Every epoch's losses."""
    from acpl.engine.run_folder import RunFolder

    return [event["losses"] for event in RunFolder(run).events() if event["event"] == "epoch"]


@pytest.fixture
def taped(monkeypatch: pytest.MonkeyPatch) -> list[Tape]:
    """Every step and look is recorded on a tape and replayed."""
    tapes: list[Tape] = []

    def recording(self: Workbench) -> Tape:
        tapes.append(Tape())
        return tapes[-1]

    monkeypatch.setattr(Workbench, "recording", recording)
    return tapes


@pytest.mark.slow
@pytest.mark.parametrize("data", ["phantom-chest", "phantom-lesions"])
@pytest.mark.parametrize("method", algorithms.names())
def test_replayed_steps_leave_the_same_losses_as_steps_run_as_written(
    method: str, data: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    settings: dict[str, Any] = {**SHORT, "method": method, "k": None, "data": data, "dropout": 0.1}
    if method == "acpl":
        settings["k"] = 3
    written = acpl.train(out=tmp_path / "written", **settings)
    tapes: list[Tape] = request.getfixturevalue("taped")
    replayed = acpl.train(out=tmp_path / "replayed", **settings)
    assert any(tape.operations for tape in tapes)
    pairs = list(zip(losses_of(written), losses_of(replayed), strict=True))
    if method == "ups":  # it looks through dropout, and recorded looks are filled up: other lots for each image
        pairs = pairs[: settings["warmup_epochs"]]
    for one, other in pairs:
        assert one == pytest.approx(other, rel=1e-3, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("data", ["phantom-chest", "phantom-lesions"])
def test_everything_beyond_the_paper_can_be_replayed_too(
    data: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    settings: dict[str, Any] = {**SHORT, "method": "acpl-plus", "data": data, "consistency": 1.0}
    settings |= {"consistency_confidence": 0.3, "balance": 0.5, "labelled_loss": "logit-adjusted", "sharpen": 0.8}
    settings |= {"consistency_in": "all", "teachers": 1, "cutmix": 0.5}
    written = acpl.train(out=tmp_path / "written", **settings)
    request.getfixturevalue("taped")
    replayed = acpl.train(out=tmp_path / "replayed", **settings)
    for one, other in zip(losses_of(written), losses_of(replayed), strict=True):
        # Rounding decides who is just confident enough, so that a mean over few jumps a little.
        assert one == pytest.approx(other, rel=1e-2, abs=1e-5)


def test_two_replays_augment_differently() -> None:
    from acpl.data.augment import Augmentation, augment

    generator = torch.Generator().manual_seed(0)
    images, seen = torch.rand(4, 1, 16, 16), torch.empty(4, 1, 16, 16)
    work = Repeated(lambda: seen.copy_(augment(images, Augmentation(), generator)), Tape())
    views = []
    for _ in range(6):
        work()
        views.append(seen.clone())
    assert not any(torch.equal(views[4], other) for other in [*views[:4], views[5]])


def test_work_that_looks_at_a_value_is_found_out() -> None:
    value = torch.ones(())
    work = Repeated(lambda: print(float(value)), Tape())
    for _ in range(3):
        work()
    with pytest.raises(LookedAtAValueError):
        work()


class CountsInPython(SingleStage):
    """A method that nobody has looked over."""

    name: ClassVar[str] = "counts"
    summary: ClassVar[str] = "counts"

    def losses(self, batch: Any) -> dict[str, torch.Tensor]:
        labelled = batch["labelled"]
        return {"labelled": classification_loss(self.student(labelled.images).logits, labelled.targets, "multi-label")}


class MeanTeacherWithAnotherRamp(MeanTeacher):
    """Changes what a step calls, by a name that only its base knows."""

    def ramp_up(self, share: float) -> torch.Tensor:
        return torch.tensor(float(self.step) * share)


class CountsBeside:
    """Comes before a method's own losses without being a method."""

    def losses(self, batch: Any) -> dict[str, torch.Tensor]:
        return {}


class Mixed(CountsBeside, MeanTeacher):
    """Says nothing of its own."""


class LookedOver(MeanTeacherWithAnotherRamp):
    """Somebody has looked it over."""

    recordable: ClassVar[bool] = True


class OfTheSameStep(MeanTeacher):
    """Another name, another schedule, and something of its own that no inherited step can call."""

    name: ClassVar[str] = "other"

    def stage(self, index: int) -> Stage | None:
        return self.half(super().stage(index))

    def half(self, stage: Stage | None) -> Stage | None:
        return None if stage is None else replace(stage, steps=stage.steps // 2)


def test_a_method_that_changes_the_step_is_not_recorded_unless_it_says_so() -> None:
    assert not CountsInPython.recordable
    assert not MeanTeacherWithAnotherRamp.recordable
    assert not Mixed.recordable
    assert not type("Child", (MeanTeacherWithAnotherRamp,), {}).recordable  # type: ignore[attr-defined]
    assert not type("Begins", (MeanTeacher,), {"__init__": lambda *_: None}).recordable  # type: ignore[attr-defined]
    assert LookedOver.recordable
    assert OfTheSameStep.recordable
    assert MeanTeacher.recordable
    assert type("Later", (SSDCGAN,), {"edition": 3}).recordable  # type: ignore[attr-defined]


def test_every_method_here_can_be_recorded() -> None:
    assert [name for name in algorithms.names() if not getattr(algorithms.find(name), "recordable", False)] == []


@pytest.mark.parametrize("kind", ["near", "far"])
def test_a_feed_brings_every_step_its_images(kind: str) -> None:
    from acpl.data.store import ImageStore
    from acpl.engine.feed import FarFeed, NearFeed

    images = torch.arange(20, dtype=torch.uint8)[:, None, None, None].expand(20, 1, 4, 4).contiguous()
    store = ImageStore(torch.arange(100, 120), images)
    make: Callable[[], Any] = (
        (lambda: NearFeed(store)) if kind == "near" else (lambda: FarFeed(store, torch.device("cpu")))
    )
    feed = make()
    for first in (0, 3):
        order = torch.randperm(18).view(9, 2) + 100
        feed.begin({"a": order, "b": order.flip(1)}, first)
        for step in range(first, 9):
            feed.load(step)
            place = feed.ids("a").data_ptr()
            assert (feed.images("a")[:, 0, 0, 0] + 100).tolist() == order[step].tolist()
            assert (feed.images("b")[:, 0, 0, 0] + 100).tolist() == order[step].flip(0).tolist()
        assert feed.ids("a").data_ptr() == place


def test_distortions_are_for_what_is_taught() -> None:
    ids = torch.arange(4)
    labelled, guessed = Draw(ids, 2), Draw(ids, 2, known=False)
    compared = Draw(ids, 2, ("weak", "strong"), known=False)
    assert shown_as(labelled, distort=False) == ("weak",)
    assert shown_as(labelled, distort=True) == shown_as(guessed, distort=True) == ("strong",)
    assert shown_as(compared, distort=True) == ("weak", "strong")


def test_distorted_training_is_other_training(tmp_path: Path) -> None:
    runs = [acpl.train(out=tmp_path / str(distort), **TINY, distort=distort) for distort in (False, True)]
    plain, distorted = (losses_of(run)[-1] for run in runs)
    assert plain.keys() == distorted.keys()
    assert plain != distorted


def test_patched_training_is_other_training(tmp_path: Path) -> None:
    runs = [acpl.train(out=tmp_path / str(share), **TINY, cutmix=share) for share in (0.0, 1.0)]
    plain, mixed = (losses_of(run)[-1] for run in runs)
    assert plain.keys() == mixed.keys()
    assert plain != mixed


@pytest.mark.parametrize(("known", "guessed"), [(True, False), (False, True), (False, False)])
def test_a_step_mixes_the_targets_that_it_knows_as_it_mixes_the_images(known: bool, guessed: bool) -> None:
    """Images that are black or white all over: how bright one is says how much of it is whose."""
    from acpl.data.store import ImageStore

    count = 64
    kinds = torch.randperm(count) % 2
    store = ImageStore(torch.arange(count), (255 * kinds).to(torch.uint8)[:, None, None, None].expand(-1, 1, 32, 32))
    labels = torch.nn.functional.one_hot(kinds, 2).float()
    pools = Pools(torch.arange(count), labels, torch.arange(0))
    config = Config(cutmix=0.9, flip=False, crop=(1.0, 1.0), ratio=(1.0, 1.0))
    device = Device(torch.device("cpu"), mixed=False)
    bench = Workbench(config, device, store, pools, torch.zeros(1), torch.ones(1), torch.Generator().manual_seed(0))
    draw = Draw(torch.arange(count), count, known=known, guessed=guessed)
    stage = Stage("one", {"drawn": draw}, 1, 1)
    network = torch.nn.Linear(1, 1)
    step = TrainingStep(bench, cast("Method", object()), stage, torch.optim.Adam(network.parameters()))
    step._feed.begin({"drawn": torch.randperm(count)[None]})
    step._feed.load(0)
    samples = step._samples("drawn", draw)
    white = samples.images.mean(dim=(1, 2, 3))
    if not known:
        assert samples.targets.isnan().all()
    if not (known or guessed):
        assert samples.own is None
        assert torch.equal(white, kinds[samples.ids].float())
        return
    assert samples.own is not None
    assert 0.05 < float(((white > 0.01) & (white < 0.99)).float().mean()) < 0.6, "pairs of two kinds"
    assert torch.allclose(samples.of(labels)[:, 1], white, atol=1e-5)
    assert torch.allclose(samples.of(labels).sum(dim=1), torch.ones(count))
    if known:
        assert torch.equal(samples.targets, samples.of(labels))


def test_only_images_with_targets_are_patched() -> None:
    ids = torch.arange(4)
    assert Draw(ids, 2).mixes
    assert Draw(ids, 2, known=False, guessed=True).mixes
    assert not Draw(ids, 2, ("weak", "strong"), known=False).mixes
    for name in ("self-training", "graph-xnet", "curriculum-labelling", "ups"):
        assert algorithms.find(name).mixes == (name != "ups")  # type: ignore[attr-defined]

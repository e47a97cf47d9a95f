"""Training that goes wrong says so: what is found, what is said, and that training goes on where it can."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.conftest import TINY

import acpl
from acpl import functional
from acpl.engine.checkpoints import Checkpoints
from acpl.engine.loop import Trainer
from acpl.engine.monitor import Quiet
from acpl.engine.trouble import (
    Trouble,
    batch_size_that_fits,
    collapsed,
    is_out_of_memory,
    labels_that_teach_little,
    nan_sentence,
    neighbours_that_say_little,
    out_of_memory,
    selection_of_none_or_all,
)
from acpl.errors import UserError
from acpl.task import Task

THREE = ("mole", "nevus", "wart")


def multi_class(*numbers: int) -> np.ndarray:
    return np.eye(3, dtype=np.float32)[list(numbers)]


def kinds(troubles: list[Trouble]) -> list[str]:
    return [trouble.kind for trouble in troubles]


class TestLabels:
    def test_labels_of_every_class_are_no_trouble(self) -> None:
        assert labels_that_teach_little(multi_class(0, 1, 2, 0), THREE, Task.MULTI_CLASS) == []
        both = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1]], dtype=np.float32)
        assert labels_that_teach_little(both, THREE, Task.MULTI_LABEL) == []

    def test_a_class_with_no_labelled_sample_is_named(self) -> None:
        (trouble,) = labels_that_teach_little(multi_class(0, 2, 0, 2), THREE, Task.MULTI_CLASS)
        assert trouble.event()["classes"] == ["nevus"]
        assert trouble.sentence == (
            "no labelled image shows 'nevus': what is not shown is not learnt (label some, or draw them per-class)"
        )
        assert json.loads(json.dumps(trouble.event()))["event"] == "trouble"

    def test_rows_with_a_blank_do_not_count(self) -> None:
        labels = np.array([[1, 0, 0], [0, 0, 1], [np.nan, 1, 0]], dtype=np.float32)
        found = labels_that_teach_little(labels, THREE, Task.MULTI_CLASS)
        assert kinds(found) == ["fewer-labelled-than-classes", "class-without-label"]

    def test_fewer_labelled_than_classes_is_said(self) -> None:
        trouble = labels_that_teach_little(multi_class(0, 1), THREE, Task.MULTI_CLASS)[0]
        assert trouble.sentence == "only 2 images are labelled for 3 classes: not every class can be learnt"

    def test_a_finding_that_all_have_cannot_be_told(self) -> None:
        labels = np.array([[1, 0, 1], [1, 1, 0], [1, 0, 0]], dtype=np.float32)
        (trouble,) = labels_that_teach_little(labels, THREE, Task.MULTI_LABEL)
        assert (trouble.kind, trouble.event()["classes"]) == ("class-without-contrast", ["mole"])

    @pytest.mark.parametrize(
        ("labels", "task"),
        [
            (multi_class(1, 1, 1), Task.MULTI_CLASS),
            (np.array([[1, 0, 0], [1, 0, 0]], dtype=np.float32), Task.MULTI_LABEL),
            (np.zeros((4, 3), dtype=np.float32), Task.MULTI_LABEL),
        ],
    )
    def test_labels_that_are_all_alike_are_refused(self, labels: np.ndarray, task: Task) -> None:
        with pytest.raises(UserError, match="all have the same labels"):
            labels_that_teach_little(labels, THREE, task)

    def test_no_label_at_all_is_refused(self) -> None:
        with pytest.raises(UserError, match="no image is labelled"):
            labels_that_teach_little(np.full((2, 3), np.nan), THREE, Task.MULTI_LABEL)


class TestSelection:
    def test_none_and_all_are_said_and_some_is_not(self) -> None:
        none = selection_of_none_or_all("stage 2", {"selected": 0, "left": 30})
        every = selection_of_none_or_all("stage 2", {"selected": 30, "left": 0})
        assert none is not None
        assert every is not None
        assert none.sentence.startswith("stage 2: none of 30 unlabelled images was selected")
        assert every.sentence.startswith("stage 2: all of 30 unlabelled images were selected")
        assert (none.kind, every.kind) == ("nothing-selected", "everything-selected")
        assert selection_of_none_or_all("stage 2", {"selected": 10, "left": 20}) is None
        assert selection_of_none_or_all("warm-up", {}) is None

    @pytest.mark.parametrize(("share", "stages"), [(0.0, 3), (1.0, 2)])
    def test_training_goes_on_after_a_selection_of_none_and_of_all(
        self, share: float, stages: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(functional, "select", lambda level, *_: torch.full_like(level, share, dtype=torch.bool))
        run = acpl.train(out=tmp_path / "run", data="phantom-chest", **TINY)
        events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
        told = [event for event in events if event["event"] == "stage"]
        assert len(told) == stages
        troubles = [(event["kind"], event.get("stage_name")) for event in events if event["event"] == "trouble"]
        kind = "everything-selected" if share else "nothing-selected"
        assert [(kind, f"stage {index}") for index in range(1, stages)] == [t for t in troubles if t[1] is not None]
        assert (run / "model.safetensors").exists()


def test_what_labels_cannot_teach_and_a_collapse_are_said_and_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ear(Quiet):
        def __init__(self) -> None:
            self.said: list[str] = []

        def say(self, text: str) -> None:
            self.said.append(text)

    def says_one_thing(self: Trainer, network: Any) -> tuple[np.ndarray, np.ndarray]:
        truth = self.validation_truth.double().numpy()
        return truth, np.full_like(truth, 0.25)

    monkeypatch.setattr(Trainer, "on_validation", says_one_thing)
    ear = Ear()
    tiny = {key: value for key, value in TINY.items() if key not in ("fraction", "k")}
    quick = {**tiny, "method": "supervised", "labelled": 3, "draw": "images", "threshold": 0.5}
    run = acpl.train(out=tmp_path / "run", data="phantom-lesions", monitor=ear, **quick)
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    troubles = [event for event in events if event["event"] == "trouble"]
    kinds = [event["kind"] for event in troubles]
    assert kinds[:2] == ["fewer-labelled-than-classes", "class-without-label"]
    assert set(kinds[2:]) == {"collapsed"}
    assert all(event["sentence"] in ear.said for event in troubles)


@pytest.mark.parametrize("method", ["acpl", "supervised", "mean-teacher"])
def test_training_with_fewer_labelled_images_than_classes_ends_well(method: str, tmp_path: Path) -> None:
    tiny = {key: value for key, value in TINY.items() if key not in ("fraction", "k")}
    run = acpl.train(out=tmp_path / "run", data="phantom-lesions", method=method, labelled=3, draw="images", **tiny)
    assert (run / "model.safetensors").exists()


class TestCollapsed:
    truth = multi_class(0, 1, 2, 0)

    def test_one_class_for_all_is_named(self) -> None:
        said = np.array([[0.6, 0.2, 0.2], [0.5, 0.3, 0.2], [0.4, 0.3, 0.3], [0.9, 0.1, 0.0]])
        trouble = collapsed(said, self.truth, THREE, Task.MULTI_CLASS)
        assert trouble is not None
        assert trouble.sentence == "the predictor calls each of 4 validation images 'mole', which 2 are"
        assert collapsed(said, self.truth, THREE, Task.MULTI_LABEL) is None

    @pytest.mark.parametrize("task", list(Task))
    def test_the_same_probabilities_for_all_are_said(self, task: Task) -> None:
        trouble = collapsed(np.tile([0.1, 0.7, 0.2], (4, 1)), self.truth, THREE, task)
        assert trouble is not None
        assert "says the very same of all 4" in trouble.sentence

    @pytest.mark.parametrize("task", list(Task))
    def test_what_is_no_number_is_said(self, task: Task) -> None:
        trouble = collapsed(np.full((4, 3), np.nan), self.truth, THREE, task)
        assert trouble is not None
        assert "no number" in trouble.sentence

    def test_a_healthy_predictor_is_not_blamed(self) -> None:
        assert collapsed(np.eye(3)[[0, 1, 1, 0]], self.truth, THREE, Task.MULTI_CLASS) is None

    @pytest.mark.parametrize("truth", [multi_class(1, 1, 1), multi_class(1), np.zeros((0, 3))])
    def test_images_that_are_all_alike_may_be_called_alike(self, truth: np.ndarray) -> None:
        assert collapsed(np.tile([0.1, 0.7, 0.2], (len(truth), 1)), truth, THREE, Task.MULTI_CLASS) is None


def poison(monkeypatch: pytest.MonkeyPatch, value: float) -> Callable[[], str]:
    """Make the fourteenth step's loss this; what is returned tells the ids of its images."""
    from acpl.algorithms.supervised import Supervised

    honest, shown = Supervised.losses, []

    def poisoned(self: Supervised, batch: Any) -> dict[str, torch.Tensor]:
        losses = honest(self, batch)
        if int(self.step) != 13:
            return losses
        shown.append(", ".join(str(number) for number in batch["labelled"].ids.tolist()))
        return {"labelled": losses["labelled"] * value}

    monkeypatch.setattr(Supervised, "losses", poisoned)
    return lambda: shown[-1]


class TestLosses:
    def test_a_bad_step_is_told_with_its_images_and_the_last_checkpoint(self) -> None:
        ids = {"labelled": torch.arange(8, 11), "unlabelled": torch.arange(100, 120)}
        checkpoint = Path("run/checkpoints/01.pt")
        assert nan_sentence(8, "stage 2", ["consistency"], ids, checkpoint, 0.05, mixed=True) == (
            "'consistency' is not a number at step 8 (stage 2), over the images with the ids labelled 8, 9, 10; "
            "unlabelled 100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111 and 8 more; "
            "the last good checkpoint is run/checkpoints/01.pt; a learning_rate below 0.05 or precision 32 may help"
        )

    @pytest.mark.parametrize("value", [float("nan"), float("inf")])
    def test_a_run_whose_loss_is_no_number_ends_with_that_sentence(
        self, value: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ids = poison(monkeypatch, value)
        quick = {**TINY, "k": None, "method": "supervised", "warmup_epochs": 6, "checkpoint_minutes": 0}
        with pytest.raises(UserError) as told:
            acpl.train(out=tmp_path / "run", batch_size=8, **quick)
        said = f"'labelled' is not a number at step 14 (supervised), over the images with the ids labelled {ids()}; "
        assert str(told.value).startswith(said)
        newest = max((tmp_path / "run" / "checkpoints").iterdir())
        assert f"the last good checkpoint is {newest}" in str(told.value)
        assert int(newest.stem) <= 13

    def test_step_and_images_are_right_in_a_run_that_went_on_within_an_epoch(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Stops(Quiet):
            left = 13

            def step(self, losses: Any) -> None:
                self.left -= 1
                if self.left == 0:
                    signal.raise_signal(signal.SIGTERM)

        ids = poison(monkeypatch, float("nan"))
        quick = {**TINY, "k": None, "method": "supervised", "warmup_epochs": 6, "checkpoint_minutes": 5}
        with pytest.raises(UserError, match="stopped at step 13"):
            acpl.train(out=tmp_path / "run", batch_size=4, monitor=Stops(), **quick)
        state, _ = Checkpoints(tmp_path / "run" / "checkpoints", 5).read()
        assert state is not None
        assert state["place"]["step"] > 0
        with pytest.raises(UserError) as told:
            acpl.train(resume=tmp_path / "run")
        said = f"'labelled' is not a number at step 14 (supervised), over the images with the ids labelled {ids()}; "
        assert str(told.value).startswith(said)


class TestMemory:
    @pytest.mark.parametrize(("room", "fits"), [(100, 64), (64, 64), (63, 32), (2, 2), (1, 0)])
    def test_the_batch_size_that_would_fit_is_found_by_halving(self, room: int, fits: int) -> None:
        def attempt(size: int) -> None:
            if size > room:
                raise torch.OutOfMemoryError("CUDA out of memory")

        assert batch_size_that_fits(128, attempt) == fits

    def test_another_error_is_not_hidden(self) -> None:
        def attempt(size: int) -> None:
            raise RuntimeError("something else")

        with pytest.raises(RuntimeError, match="something else"):
            batch_size_that_fits(128, attempt)

    def test_errors_of_memory_are_known(self) -> None:
        assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
        assert is_out_of_memory(MemoryError())
        with pytest.raises(RuntimeError) as told:
            torch.empty(2**60)
        assert is_out_of_memory(told.value)
        assert not is_out_of_memory(RuntimeError("shape mismatch"))

    def test_an_error_that_a_lack_of_memory_led_to_is_one(self) -> None:
        error = RuntimeError("operation failed due to a previous error during capture")
        error.__context__ = torch.OutOfMemoryError("CUDA out of memory")
        assert is_out_of_memory(error)

    @pytest.mark.parametrize(("room", "fits"), [(20, 16), (7, 4), (1, 0)])
    def test_a_run_that_does_not_fit_names_a_batch_size_that_does(
        self, room: int, fits: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The lack of memory is made up; all that follows from it is real."""
        from acpl.algorithms.fixmatch import FixMatch

        honest = FixMatch.losses

        def hungry(self: FixMatch, batch: Any) -> dict[str, torch.Tensor]:
            if len(batch["labelled"].ids) > room:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return honest(self, batch)

        monkeypatch.setattr(FixMatch, "losses", hungry)
        quick = {**TINY, "k": None, "method": "fixmatch", "data": "phantom-chest"}
        with pytest.raises(UserError) as told:
            acpl.train(out=tmp_path / "large", batch_size=32, **quick)
        assert str(told.value).startswith("cpu has too little memory for batch_size 32 of 32 pixels: ")
        if not fits:
            assert "not even batch_size 2 would fit" in str(told.value)
            return
        assert f"batch_size {fits} would fit" in str(told.value)
        assert (acpl.train(out=tmp_path / "fits", batch_size=fits, **quick) / "model.safetensors").exists()

    def test_a_look_at_the_pools_that_does_not_fit_is_said(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from acpl.algorithms.acpl import ACPL

        def hungry(self: ACPL, index: int, look: Any) -> None:
            if index == 1:
                raise torch.OutOfMemoryError("CUDA out of memory")

        monkeypatch.setattr(ACPL, "before_stage", hungry)
        with pytest.raises(UserError, match="cpu has too little memory to look at the pools before stage 1") as told:
            acpl.train(out=tmp_path / "run", data="phantom-chest", **TINY)
        (checkpoint,) = (tmp_path / "run" / "checkpoints").iterdir()
        assert f"the last checkpoint is {checkpoint}" in str(told.value)

    def test_the_sentence_says_what_would_fit(self) -> None:
        error = out_of_memory("cuda:0", 512, 224, 128, Path("run/checkpoints/01.pt"))
        assert str(error) == (
            "cuda:0 has too little memory for batch_size 512 of 224 pixels: batch_size 128 would fit; "
            "the last checkpoint is run/checkpoints/01.pt"
        )
        assert "smaller size or backbone" in str(out_of_memory("cuda:0", 4, 224, 0, None))


@pytest.mark.parametrize(("k", "labelled", "said"), [(25, 100, False), (26, 100, True), (3, 5, True), (1, 4, False)])
def test_neighbours_that_are_a_good_part_of_all_labelled_images_are_told(k: int, labelled: int, said: bool) -> None:
    trouble = neighbours_that_say_little(k, labelled)
    assert (trouble is not None) == said
    if trouble is not None:
        assert f"k is {k} and {labelled} images are labelled" in trouble.sentence


def test_a_run_says_that_its_k_is_too_large(tmp_path: Path) -> None:
    run = acpl.train(out=tmp_path / "run", **{**TINY, "k": 500})
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    assert [event["k"] for event in events if event.get("kind") == "k-too-large"] == [500]

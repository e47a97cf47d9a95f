"""What goes wrong in training, found and said: labels that cannot teach, selections of none or all, losses that are no
numbers, a predictor that says one thing, and a device without memory. What cannot be gone on with is a UserError."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from acpl.errors import UserError
from acpl.task import Task

Floats = npt.NDArray[np.floating[Any]]
SAME = 1e-6
"""Probabilities that differ by less say the same."""
SHOWN = 12


@dataclass(frozen=True)
class Trouble:
    """Something that a person should know of and that training goes on after."""

    kind: str
    sentence: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    def event(self) -> dict[str, Any]:
        """The line of ``events.jsonl``."""
        return {"event": "trouble", "kind": self.kind, "sentence": self.sentence, **self.facts}


def labels_that_teach_little(labels: Floats, classes: Sequence[str], task: Task) -> list[Trouble]:
    """What the labelled images (images, classes) cannot teach; UserError where they cannot teach anything."""
    known = labels[~np.isnan(labels).any(axis=1)]
    if len(known) == 0:
        raise UserError("no image is labelled, so there is nothing to learn from")
    positives = (known > 0).sum(axis=0)
    never = [name for name, count in zip(classes, positives, strict=True) if count == 0]
    always = [name for name, count in zip(classes, positives, strict=True) if count == len(known)]
    constant = len(classes) - len(never) < 2 if task is Task.MULTI_CLASS else len(never) + len(always) == len(classes)
    if constant:
        raise UserError(
            f"the {len(known)} labelled images all have the same labels, so that no class can be told from another; "
            "label more of them, or draw them per-class"
        )
    troubles = []
    if len(known) < len(classes):
        troubles.append(
            Trouble(
                "fewer-labelled-than-classes",
                f"only {len(known)} images are labelled for {len(classes)} classes: not every class can be learnt",
                {"labelled": len(known), "classes": len(classes)},
            )
        )
    if never:
        troubles.append(
            Trouble(
                "class-without-label",
                f"no labelled image shows {_listed(never)}: what is not shown is not learnt "
                "(label some, or draw them per-class)",
                {"classes": never},
            )
        )
    if always and task is Task.MULTI_LABEL:
        troubles.append(
            Trouble(
                "class-without-contrast",
                f"every labelled image shows {_listed(always)}: it cannot be told from its absence",
                {"classes": always},
            )
        )
    return troubles


def neighbours_that_say_little(k: int, labelled: int) -> Trouble | None:
    """As many neighbours as a good part of all labelled images: their mean label is hardly one image's own."""
    if 4 * k <= labelled:
        return None
    return Trouble(
        "k-too-large",
        f"k is {k} and {labelled} images are labelled: the mean label of more than a quarter of them says little of "
        f"one image (k {max(1, labelled // 10)} is a tenth)",
        {"k": k, "labelled": labelled},
    )


def selection_of_none_or_all(stage: str, summary: Mapping[str, float]) -> Trouble | None:
    """A stage that selected nothing, or left nothing; ``summary`` is a record's, with ``selected`` and ``left``."""
    if "selected" not in summary or "left" not in summary:  # in rounds nobody leaves the pool
        return None
    selected, left = int(summary["selected"]), int(summary["left"])
    facts = {"stage_name": stage, "selected": selected, "left": left}
    if selected == 0 and left > 0:
        return Trouble(
            "nothing-selected",
            f"{stage}: none of {left} unlabelled images was selected, so that it trains on labelled images alone",
            facts,
        )
    if selected > 0 and left == 0:
        return Trouble(
            "everything-selected",
            f"{stage}: all of {selected} unlabelled images were selected, so that none is left for a further stage",
            facts,
        )
    return None


def collapsed(probabilities: Floats, truth: Floats, classes: Sequence[str], task: Task) -> Trouble | None:
    """A predictor that says the same of every image (images, classes), although their labels differ."""
    differing = int((truth.max(axis=0) > truth.min(axis=0)).sum()) if len(truth) > 1 else 0
    if differing == 0:
        return None
    count = len(probabilities)
    if not np.isfinite(probabilities).all():
        return Trouble("collapsed", f"of {count} validation images the predictor says what is no number")
    if bool((np.ptp(probabilities, axis=0) < SAME).all()):
        return Trouble("collapsed", f"the predictor says the very same of all {count} validation images")
    called = probabilities.argmax(axis=1)
    if task is Task.MULTI_CLASS and bool((called == called[0]).all()):
        name, right = classes[int(called[0])], int(truth[:, called[0]].sum())
        return Trouble(
            "collapsed",
            f"the predictor calls each of {count} validation images '{name}', which {right} are",
            {"class": name},
        )
    return None


def nan_sentence(
    step: int,
    stage: str,
    names: Sequence[str],
    ids: Mapping[str, Tensor],
    checkpoint: Path | None,
    learning_rate: float,
    *,
    mixed: bool,
) -> str:
    """Where a loss stopped being a number, over which images, and what to do."""
    batch = "; ".join(f"{pool} {_numbers(samples)}" for pool, samples in ids.items())
    kept = f"the last good checkpoint is {checkpoint}" if checkpoint is not None else "there is no checkpoint yet"
    cure = f"a learning_rate below {learning_rate:g}" + (" or precision 32" if mixed else "")
    return (
        f"{_listed(names)} is not a number at step {step} ({stage})"
        + (f", over the images with the ids {batch}" if batch else "")
        + f"; {kept}; {cure} may help"
    )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this error means that a device, or the machine, has no memory left."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    if error.__context__ is not None and is_out_of_memory(error.__context__):  # it broke off a recording, say
        return True
    said = (
        "can't allocate memory",
        "CUDA error: out of memory",
        "CUBLAS_STATUS_ALLOC_FAILED",
        "CUDNN_STATUS_ALLOC_FAILED",
    )
    return isinstance(error, RuntimeError) and any(words in str(error) for words in said)


def batch_size_that_fits(batch_size: int, attempt: Callable[[int], None]) -> int:
    """The largest of a half, a quarter, … of ``batch_size`` that ``attempt`` gets through; 0 where not even 2 does."""
    size = batch_size // 2
    while size >= 2:
        try:
            attempt(size)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        else:
            return size
        size //= 2
    return 0


def out_of_memory(device: str, batch_size: int, size: int, fits: int, checkpoint: Path | None) -> UserError:
    """What to say when a step did not fit, and which batch size would."""
    cure = (
        f"batch_size {fits} would fit" if fits else "not even batch_size 2 would fit; take a smaller size or backbone"
    )
    kept = f"; the last checkpoint is {checkpoint}" if checkpoint is not None else ""
    return UserError(f"{device} has too little memory for batch_size {batch_size} of {size} pixels: {cure}{kept}")


def _numbers(samples: Tensor) -> str:
    shown = [str(number) for number in samples[:SHOWN].tolist()]
    more = f" and {len(samples) - SHOWN} more" if len(samples) > SHOWN else ""
    return ", ".join(shown) + more


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:SHOWN])
    return shown + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")

"""The ways in which one image is looked at, whose answers are averaged."""

from collections.abc import Callable
from typing import Literal

from torch import Tensor

from acpl.models.classifier import Outputs, probabilities
from acpl.task import Task

Looks = Literal["one", "mirrored", "turned"]
"""one: as it is. mirrored: it and its left-right mirror image. turned: quarter turns of both, eight in all."""

_ROWS, _COLUMNS = 2, 3
# Whether height and width change places, and what is then reversed: with all of them, every turn and mirror image.
_WAYS: dict[Looks, tuple[tuple[bool, tuple[int, ...]], ...]] = {
    "one": ((False, ()),),
    "mirrored": ((False, ()), (False, (_COLUMNS,))),
    "turned": tuple(
        (swapped, reversed_)
        for swapped in (False, True)
        for reversed_ in ((), (_COLUMNS,), (_ROWS,), (_ROWS, _COLUMNS))
    ),
}


def look_at(images: Tensor, network: Callable[[Tensor], Outputs], *, looks: Looks, task: Task) -> tuple[Tensor, Tensor]:
    """Features and probabilities of square images (n, c, size, size), each the float32 mean over the ways to look.

    One way after the other, so that memory is that of one batch; which ways there are never depends on the images, so
    that it can be recorded and exported.
    """
    features, said = _one_way(network(images), task)
    further = _WAYS[looks][1:]
    for swapped, reversed_ in further:
        more_features, more_said = _one_way(network(_shown(images, swapped, reversed_)), task)
        features, said = features + more_features, said + more_said
    if not further:
        return features, said
    count = len(further) + 1
    return features / count, said / count


def _one_way(out: Outputs, task: Task) -> tuple[Tensor, Tensor]:
    return out.features.float(), probabilities(out.logits, task)


def _shown(images: Tensor, swapped: bool, reversed_: tuple[int, ...]) -> Tensor:
    if swapped:
        images = images.transpose(_ROWS, _COLUMNS)
    return images.flip(reversed_) if reversed_ else images

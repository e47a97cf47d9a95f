"""Who is labelled: seeded, exact, no patient on two sides."""

import hashlib
from typing import Literal

import numpy as np
import numpy.typing as npt

from acpl.data.manifest import Labels

Draw = Literal["groups", "images", "per-class"]
Rows = npt.NDArray[np.int64]


def draw_labelled(
    labels: Labels, groups: npt.NDArray[np.object_], fraction: float, *, seed: int, draw: Draw = "groups"
) -> Rows:
    """Rows that keep their labels: ``fraction`` of all, ascending.

    ``groups`` keeps a patient's images together; ``images`` draws image by image, as the paper does. Both take
    exactly round(fraction × rows) images (``groups``: the nearest that whole patients allow, never more), and
    both begin with one positive of each class, rarest first, so that no class is left without an example where
    there is one. ``per-class`` is the published code's draw: the fraction of each class's positives (and of the
    images without any), united, which labels more images than it says.
    """
    rng = np.random.default_rng([seed, 0x5EED])
    if draw == "per-class":
        return _draw_per_class(labels, fraction, rng)
    count = round(fraction * len(labels))
    keys = groups if draw == "groups" else np.arange(len(labels))
    _, member = np.unique(keys, return_inverse=True)
    sizes = np.bincount(member)
    order = rng.permutation(len(sizes))
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))

    chosen = np.zeros(len(sizes), dtype=bool)
    left = count
    positives = np.nansum(labels, axis=0)
    for column in np.argsort(positives, kind="stable"):
        holders = np.unique(member[labels[:, column] > 0])
        holders = holders[np.argsort(rank[holders])]
        if chosen[holders].any():
            continue
        fitting = holders[sizes[holders] <= left]
        if len(fitting):
            chosen[fitting[0]] = True
            left -= int(sizes[fitting[0]])
    for group in order:
        if left == 0:
            break
        if not chosen[group] and sizes[group] <= left:
            chosen[group] = True
            left -= int(sizes[group])
    return np.flatnonzero(chosen[member])


def checksum(ids: npt.NDArray[np.int64], roles: npt.NDArray[np.object_]) -> str:
    """A fingerprint of who has which role, whatever the order of the rows."""
    order = np.argsort(ids)
    text = "\n".join(f"{ids[row]},{roles[row]}" for row in order)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _draw_per_class(labels: Labels, fraction: float, rng: np.random.Generator) -> Rows:
    nothing = np.nanmax(labels, axis=1) == 0
    chosen = np.zeros(len(labels), dtype=bool)
    for holders in [*(np.flatnonzero(column > 0) for column in labels.T), np.flatnonzero(nothing)]:
        chosen[rng.permutation(holders)[: round(fraction * len(holders))]] = True
    return np.flatnonzero(chosen)

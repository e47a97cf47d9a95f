"""Who is labelled, and who is for training, validation and test: seeded, exact, no patient on two sides."""

import hashlib
from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from acpl.data.manifest import Labels, Part, rows_known
from acpl.errors import UserError

Draw = Literal["groups", "images", "per-class", "order"]
Rows = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Names = npt.NDArray[np.object_]


def draw_labelled(
    labels: Labels,
    groups: Names,
    fraction: float | None = None,
    *,
    count: int | None = None,
    seed: int,
    draw: Draw = "groups",
    order: npt.NDArray[np.float64] | None = None,
) -> Rows:
    """Rows that keep their labels, ascending: ``fraction`` of the rows whose labels are known, or ``count`` of them.

    ``groups`` keeps a patient's images together; ``images`` draws image by image, as the paper does. Both take
    exactly the number asked for (``groups``: the nearest that whole patients allow, never more), and both begin with
    one positive of each class, rarest first, so that no class is left without an example where there is one.
    ``order`` takes the rows with the least ``order``, as published splits do. ``per-class`` is the published code's
    draw: the fraction of each class's positives (and of the images without any), united, which labels more images
    than it says.
    """
    known = np.flatnonzero(rows_known(labels))
    if (fraction is None) == (count is None):
        raise ValueError("give either fraction or count")
    if count is None:
        count = round((fraction or 0) * len(known))
    elif count > len(known):
        raise UserError(f"count is {count}, but only {len(known)} training images have labels")
    rng = np.random.default_rng([seed, 0x5EED])
    if draw == "per-class":
        if fraction is None:
            raise UserError("draw 'per-class' takes a fraction of each class, not a count")
        return known[_draw_per_class(labels[known], fraction, rng)]
    if draw == "order":
        return known[_first_in_order(order[known] if order is not None else None, count)]
    crowd = _Crowd(labels[known], groups[known] if draw == "groups" else np.arange(len(known)), rng)
    chosen = np.zeros(len(crowd.sizes), dtype=bool)
    chosen[crowd.representatives(count, ~chosen)] = True
    return known[np.flatnonzero(crowd.fill(chosen, ~chosen, count)[crowd.member])]


def draw_parts(labels: Labels, groups: Names, shares: Sequence[float], *, seed: int) -> Names:
    """Each row's part; ``shares`` are those of train, validation and test among the rows whose labels are known.

    Groups stay whole, and the counts are exact as far as whole groups allow, never more than their share of
    validation and test. A class has a positive in training, then in test, then in validation, as far as it has
    groups for them. A group without any known label is for training: it could not be judged.
    """
    known = rows_known(labels)
    total = int(known.sum())
    counts = {"test": round(shares[2] * total), "validation": round(shares[1] * total)}
    counts["train"] = total - counts["test"] - counts["validation"]
    crowd = _Crowd(labels[known], groups[known], np.random.default_rng([seed, 0x9A27]))
    free = np.ones(len(crowd.sizes), dtype=bool)
    chosen = {}
    for part in ("train", "test", "validation"):
        chosen[part] = np.zeros(len(free), dtype=bool)
        chosen[part][crowd.representatives(counts[part], free)] = True
        free &= ~chosen[part]
    parts = np.full(len(labels), "train", dtype=object)
    judged: tuple[Part, ...] = ("test", "validation")
    for part in judged:
        filled = crowd.fill(chosen[part], free, counts[part])
        free &= ~filled
        theirs = set(crowd.names[filled])
        parts[[group in theirs for group in groups]] = part
    return parts


def checksum(ids: npt.NDArray[np.int64], roles: Names) -> str:
    """A fingerprint of who has which role, whatever the order of the rows."""
    order = np.argsort(ids)
    text = "\n".join(f"{ids[row]},{roles[row]}" for row in order)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


class _Crowd:
    """Groups of rows in a random order: how many rows each has, and which classes it has a positive of."""

    def __init__(self, labels: Labels, keys: npt.NDArray[np.generic] | Names, rng: np.random.Generator) -> None:
        self.names, self.member = np.unique(keys, return_inverse=True)
        self.sizes: Numbers = np.bincount(self.member, minlength=len(self.names))
        self.order = rng.permutation(len(self.sizes))
        self.rank = np.empty_like(self.order)
        self.rank[self.order] = np.arange(len(self.order))
        self.rarest_first = np.argsort(labels.sum(axis=0), kind="stable")
        self.has: Mask = np.zeros((len(self.sizes), labels.shape[1]), dtype=bool)
        for column in range(labels.shape[1]):
            self.has[self.member[labels[:, column] > 0], column] = True

    def representatives(self, count: int, free: Mask) -> list[int]:
        """Free groups of at most ``count`` rows together that have a positive of each class, as far as they can."""
        at_random = self._at_random(count, free)
        if self._classes(at_random) == self._classes(np.flatnonzero(free)):
            return at_random
        return max(at_random, self._thrifty(count, free), key=self._classes)

    def _classes(self, groups: Sequence[int] | Numbers) -> int:
        """How many classes these groups have a positive of."""
        return int(np.any(self.has[groups], axis=0).sum())

    def _at_random(self, left: int, free: Mask) -> list[int]:
        """For each class in turn the first of its groups in the random order that still fits."""
        chosen: list[int] = []
        for column in self.rarest_first:
            if np.any(self.has[chosen, column]):
                continue
            fitting = np.flatnonzero(self.has[:, column] & free & (self.sizes <= left))
            if len(fitting):
                chosen.append(int(fitting[np.argmin(self.rank[fitting])]))
                left -= int(self.sizes[chosen[-1]])
        return chosen

    def _thrifty(self, left: int, free: Mask) -> list[int]:
        """The most further classes a row, first: never costs more than the smallest group of every class."""
        chosen: list[int] = []
        missing = np.ones(self.has.shape[1], dtype=bool)
        while True:
            fitting = np.flatnonzero(free & (self.sizes <= left) & self.has[:, missing].any(axis=1))
            if len(fitting) == 0:
                return chosen
            gain = self.has[fitting][:, missing].sum(axis=1) / self.sizes[fitting]
            best = fitting[gain == gain.max()]
            chosen.append(int(best[np.argmin(self.rank[best])]))
            left -= int(self.sizes[chosen[-1]])
            missing &= ~self.has[chosen[-1]]

    def fill(self, chosen: Mask, free: Mask, count: int) -> Mask:
        """``chosen`` and further free groups in the random order, ``count`` rows or the nearest below."""
        left = int(count - self.sizes[chosen].sum())
        waiting = [int(group) for group in self.order if free[group] and not chosen[group]]
        taken: list[int] = []
        for group in waiting:
            if self.sizes[group] <= left:
                taken.append(group)
                left -= int(self.sizes[group])
        if left > 0:
            taken = self._exchange(taken, waiting, left)
        filled = chosen.copy()
        filled[taken] = True
        return filled

    def _exchange(self, taken: list[int], waiting: list[int], left: int) -> list[int]:
        """Change as few of the groups taken last as brings the sum as near as any choice could."""
        total = int(self.sizes[taken].sum()) + left
        short = total - _nearest_sum(self.sizes[waiting], total)
        if short == left:
            return taken
        kept, back = len(taken), 1
        while True:
            kept = max(0, kept - back)
            staying = set(taken[:kept])
            others = [group for group in waiting if group not in staying]
            target = int(self.sizes[taken[kept:]].sum()) + left - short
            found = _groups_of_sum(self.sizes[others], target)
            if found is not None:
                return taken[:kept] + [others[position] for position in found]
            back *= 2


def _nearest_sum(sizes: Numbers, limit: int) -> int:
    """The greatest sum of some of the sizes that is not above ``limit``."""
    return _sums(sizes, limit)[-1][2].bit_length() - 1


def _groups_of_sum(sizes: Numbers, target: int) -> list[int] | None:
    """Positions of sizes that add up to ``target``, the first ones of each size; None where there are none."""
    steps = _sums(sizes, target)
    if not steps[-1][2] >> target & 1:
        return None
    wanted: dict[int, int] = {}
    for step in range(len(steps) - 1, 0, -1):
        size, copies, _ = steps[step]
        if not steps[step - 1][2] >> target & 1:
            wanted[size] = wanted.get(size, 0) + copies
            target -= size * copies
    return [int(position) for size, copies in wanted.items() for position in np.flatnonzero(sizes == size)[:copies]]


def _sums(sizes: Numbers, limit: int) -> list[tuple[int, int, int]]:
    """Steps (size, copies, sums): bit s of ``sums`` is set where some of what was offered so far adds up to s."""
    steps = [(0, 0, 1)]
    mask = (1 << (limit + 1)) - 1
    for size, number in zip(*np.unique(sizes, return_counts=True), strict=True):
        left, copies = min(int(number), limit // int(size)), 1
        # 1, 2, 4, … and a rest: every number of copies is a sum of these.
        while left > 0:
            copies = min(copies, left)
            sums = steps[-1][2]
            steps.append((int(size), copies, (sums | sums << int(size) * copies) & mask))
            left, copies = left - copies, copies * 2
    return steps


def _first_in_order(order: npt.NDArray[np.float64] | None, count: int) -> Rows:
    if order is None:
        raise UserError("draw 'order' needs a column 'order' in the table or in the split file")
    there = np.flatnonzero(~np.isnan(order))
    if count > len(there):
        raise UserError(f"{count} images are to be labelled, but the column 'order' has a number for {len(there)} only")
    return np.sort(there[np.argsort(order[there], kind="stable")][:count])


def _draw_per_class(labels: Labels, fraction: float, rng: np.random.Generator) -> Rows:
    chosen = np.zeros(len(labels), dtype=bool)
    nothing = labels.max(axis=1, initial=0) == 0
    for holders in [*(np.flatnonzero(column > 0) for column in labels.T), np.flatnonzero(nothing)]:
        chosen[rng.permutation(holders)[: round(fraction * len(holders))]] = True
    return np.flatnonzero(chosen)

"""What both phantoms draw with: random numbers that belong to a patient, and soft shapes on a plane.

A scene lives on the plane [−1, 1]², x to the right and y down, whatever the number of pixels. Shapes are
functions of the plane's coordinates, arrays of shape (images, size, size); a scene's parameters have shape
(images, 1, 1) so that both broadcast. Edges have a width in the plane's units, never in pixels: a larger
picture is a finer look at the same scene.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]  # float32 throughout
Flags = NDArray[np.bool_]

SMALLEST = 32
MOST_IMAGES = 4
_IMAGES_PER_PATIENT = np.cumsum([0.50, 0.25, 0.15, 0.10])
_PIXELS_AT_ONCE = 2**16  # a few arrays of this many floats stay in a core's cache

Scene = TypeVar("Scene")


class Phantoms(NamedTuple):
    """Drawn images with their labels and patients, a row each, by ascending patient.

    `images` is uint8 (images, channels, size, size), `labels` uint8 (images, classes) of 0 and 1, `patients`
    int64 (images,).
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.uint8]
    patients: NDArray[np.int64]


class Plane(NamedTuple):
    """Coordinates (images, size, size), or (1, size, size) before a pose, and the width of one pixel."""

    x: Array
    y: Array
    pixel: float

    def at(self, rows: Flags | NDArray[np.intp]) -> Plane:
        """The plane of the images in `rows` only."""
        return Plane(self.x[rows], self.y[rows], self.pixel)


class Deck:
    """Random numbers dealt in order, one row per image; who asks in the same order gets the same numbers.

    Rows are independent, so a row's numbers do not depend on which other rows are in the deck.
    """

    def __init__(self, uniforms: Array, normals: Array, variety: float = 1.0) -> None:
        """`variety` scales every spread that `normal` is asked for."""
        self._uniforms, self._normals, self._variety = uniforms, normals, variety
        self._next_uniform = self._next_normal = 0

    def uniform(self, low: float = 0.0, high: float = 1.0) -> Array:
        """(images, 1, 1), uniform between `low` and `high`."""
        column = self._uniforms[:, self._next_uniform]
        self._next_uniform += 1
        return (low + (high - low) * column)[:, None, None].astype(np.float32)

    def normal(self, mean: float = 0.0, spread: float = 1.0) -> Array:
        """(images, 1, 1), normal but cut at 2.5 spreads so that no anatomy is absurd."""
        return mean + self._variety * spread * np.clip(self.lattice(1), -2.5, 2.5)

    def chance(self, probability: float) -> Flags:
        """(images,), true with `probability`."""
        return np.asarray(self.uniform()[:, 0, 0] < probability)

    def sign(self) -> Array:
        """(images, 1, 1), −1 or 1."""
        return np.where(self.uniform() < 0.5, np.float32(-1), np.float32(1))

    def lattice(self, knots: int) -> Array:
        """(images, knots, knots) of standard normals, for `texture`."""
        start, self._next_normal = self._next_normal, self._next_normal + knots * knots
        if self._next_normal > self._normals.shape[1]:
            raise IndexError(f"the deck holds {self._normals.shape[1]} normals, {self._next_normal} were asked for")
        return self._normals[:, start : self._next_normal].reshape(-1, knots, knots)


class DeckSize(NamedTuple):
    """How many uniforms and normals a deck deals."""

    uniforms: int
    normals: int


def check_patients(patients: Sequence[int] | range, seed: int) -> NDArray[np.int64]:
    """The patient numbers as int64 (patients,), refused unless they and the seed are not negative."""
    numbers = np.asarray(patients, dtype=np.int64).reshape(-1)
    if numbers.size and numbers.min() < 0:
        raise ValueError(f"patients must not be negative, got {int(numbers.min())}")
    if numbers.size and np.any(np.diff(numbers) <= 0):
        where = int(np.argmax(np.diff(numbers) <= 0))
        raise ValueError(f"patients must ascend, got {int(numbers[where])} before {int(numbers[where + 1])}")
    if seed < 0:
        raise ValueError(f"seed must not be negative, got {seed}")
    return numbers


def check_size(size: int) -> None:
    """Refuse a picture too small to show the smallest finding."""
    if size < SMALLEST:
        raise ValueError(f"size must be at least {SMALLEST} pixels, got {size}")


def images_per_patient(uniform: float) -> int:
    """1 to 4 images, from one uniform number: half of the patients have a single one."""
    return min(int(np.searchsorted(_IMAGES_PER_PATIENT, uniform, side="right")) + 1, MOST_IMAGES)


def deal(
    key: Sequence[int],
    patients: NDArray[np.int64],
    counts: NDArray[np.int64],
    who: DeckSize,
    shot: DeckSize,
    variety: float = 1.0,
) -> tuple[Deck, Deck]:
    """Two decks with a row per image: one equal for all images of a patient, one different for each."""
    own_uniforms, own_normals, shot_uniforms, shot_normals = [], [], [], []
    for patient, count in zip(patients.tolist(), counts.tolist(), strict=True):
        rng = np.random.default_rng([*key, patient])
        own_uniforms.append(rng.random(who.uniforms, dtype=np.float32))
        own_normals.append(rng.standard_normal(who.normals, dtype=np.float32))
        for _ in range(count):
            shot_uniforms.append(rng.random(shot.uniforms, dtype=np.float32))
            shot_normals.append(rng.standard_normal(shot.normals, dtype=np.float32))
    rows = np.repeat(np.arange(len(patients)), counts)
    return (
        Deck(np.stack(own_uniforms)[rows], np.stack(own_normals)[rows], variety),
        Deck(np.stack(shot_uniforms), np.stack(shot_normals), variety),
    )


def batches(patients: NDArray[np.int64], size: int) -> Iterator[NDArray[np.int64]]:
    """Runs of patients whose images fit a core's cache together; how they are cut changes no picture."""
    step = max(1, _PIXELS_AT_ONCE // (2 * size * size))
    for start in range(0, len(patients), step):
        yield patients[start : start + step]


def take(scene: Scene, rows: Flags | NDArray[np.intp]) -> Scene:
    """The same dataclass of arrays with only the images in `rows`."""
    fields: dict[str, Any] = {f.name: getattr(scene, f.name)[rows] for f in dataclasses.fields(scene)}  # type: ignore[arg-type]
    return type(scene)(**fields)


def plane(size: int) -> Plane:
    """The coordinates of the pixels' centres, (1, size, size)."""
    centres = ((2 * np.arange(size) + 1) / size - 1).astype(np.float32)
    x, y = np.meshgrid(centres, centres)
    return Plane(x[None], y[None], 2.0 / size)


def posed(flat: Plane, angle: Array, scale: Array, right: Array, down: Array) -> Plane:
    """The plane as an object turned by `angle` (radians), scaled and shifted sees it."""
    x, y = flat.x - right, flat.y - down
    cos, sin = np.cos(angle) / scale, np.sin(angle) / scale
    return Plane(x * cos + y * sin, y * cos - x * sin, flat.pixel)


def texture(lattice: Array, size: int) -> Array:
    """Smooth noise (images, size, size): the lattice's knots span the plane, joined by cubic B-splines."""
    weights = _spline_weights(lattice.shape[-1], size)
    return np.asarray(weights @ lattice @ weights.T)


def _spline_weights(knots: int, size: int) -> Array:
    """(size, knots) weights; scaled so that a lattice of unit variance gives about unit variance."""
    centres = (np.arange(size) + 0.5) / size * (knots - 3) + 1
    gap = np.abs(centres[:, None] - np.arange(knots)[None])
    near = 2 / 3 - gap**2 + gap**3 / 2
    far = np.maximum(2 - gap, 0) ** 3 / 6
    weights = np.where(gap < 1, near, far)
    return np.asarray(weights / np.sqrt((weights**2).sum(1).mean()), dtype=np.float32)


def grain(key: Sequence[int], patients: NDArray[np.int64], size: int) -> Array:
    """Independent unit noise per pixel (images, size, size), seeded by patient and place among its images."""
    noise = np.empty((len(patients), size, size), dtype=np.float32)
    shot = 0
    for row, patient in enumerate(patients.tolist()):
        shot = shot + 1 if row and patients[row - 1] == patient else 0
        np.random.default_rng([*key, patient, shot]).standard_normal(out=noise[row], dtype=np.float32)
    return noise


def step(value: Array, softness: Array | float) -> Array:
    """0 where `value` is well below zero, 1 well above, a smooth ramp of width ± `softness` between."""
    # In place: most of a picture's time is spent here.
    t = np.asarray(value * (0.5 / softness))
    t += 0.5
    np.clip(t, 0, 1, out=t)
    squared = t * t
    t *= -2
    t += 3
    squared *= t
    return np.asarray(squared)


def bell(squared: Array) -> Array:
    """exp(−`squared`/2): a soft spot from a squared distance in spreads."""
    return np.asarray(np.exp(-0.5 * squared))


def spot(on: Plane, x: Array | float, y: Array, radius: Array | float) -> Array:
    """A soft round spot at (x, y)."""
    return bell(((on.x - x) ** 2 + (on.y - y) ** 2) / radius**2)


def softmin(first: Array, second: Array, reach: float) -> Array:
    """The smaller of two distances with the corner between them rounded over `reach`."""
    blend = np.maximum(reach - np.abs(first - second), 0)
    return np.asarray(np.minimum(first, second) - blend * blend * (0.25 / reach))


def softmax(first: Array, second: Array, reach: float) -> Array:
    """The larger of two distances with the notch between them filled over `reach`."""
    return -softmin(-first, -second, reach)


def ink(distance: Array, width: Array | float, pixel: float) -> Array:
    """A line's coverage from the distance to its centre.

    A line thinner than a pixel is drawn a pixel wide and paler, as a detector would see it; otherwise small
    pictures would show it as dots.
    """
    wide = np.asarray(width, dtype=np.float32)
    seen = np.sqrt(wide**2 + (0.45 * pixel) ** 2)
    return np.asarray((wide / seen) * bell((distance / seen) ** 2))


def along(on: Plane, points: Sequence[tuple[Array, Array]]) -> Array:
    """Distance to the chain of straight pieces through `points`."""
    nearest: Array | None = None
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        dx, dy = x1 - x0, y1 - y0
        px, py = on.x - x0, on.y - y0
        t = np.clip((px * dx + py * dy) / (dx * dx + dy * dy + np.float32(1e-8)), 0, 1)
        squared = (px - t * dx) ** 2 + (py - t * dy) ** 2
        nearest = squared if nearest is None else np.minimum(nearest, squared)
    if nearest is None:
        raise ValueError(f"points must be at least two, got {len(points)}")
    return np.sqrt(nearest)


def to_bytes(picture: Array) -> NDArray[np.uint8]:
    """A picture of 0 to 1 as uint8."""
    return (np.clip(picture, 0, 1) * 255 + 0.5).astype(np.uint8)

"""`phantom-lesions`: dermoscopic pictures of pigmented skin lesions, one of seven classes each.

Colour comes from what the light passes: skin that holds melanin and blood, each swallowing its own part of
the spectrum; scale, scars and the blue-white veil scatter it back. A class is a distribution over features,
listed in one table; look-alikes overlap, as melanoma, nevus and benign keratosis do in life.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from acpl.data.phantoms.drawing import (
    Array,
    Deck,
    DeckSize,
    Flags,
    Phantoms,
    Plane,
    batches,
    bell,
    check_patients,
    check_size,
    deal,
    grain,
    images_per_patient,
    ink,
    plane,
    posed,
    spot,
    step,
    take,
    texture,
    to_bytes,
)

LESION_CLASSES: tuple[str, ...] = ("MEL", "NV", "BCC", "AKIEC", "BKL", "DF", "VASC")

PREVALENCE = np.array([0.111, 0.669, 0.051, 0.033, 0.110, 0.012, 0.014])

# Mean and spread of each feature's strength by class; a strength below zero is absence.
# fmt: off
_FEATURES: dict[str, tuple[tuple[float, float], ...]] = {
    #            MEL         NV          BCC         AKIEC       BKL         DF          VASC
    "radius":   ((.54, .11), (.45, .11), (.45, .10), (.49, .12), (.49, .12), (.39, .06), (.39, .09)),
    "ragged":   ((.16, .06), (.08, .05), (.12, .05), (.16, .05), (.12, .06), (.07, .04), (.10, .05)),
    "edge":     ((.11, .05), (.14, .05), (.19, .06), (.21, .06), (.08, .04), (.23, .05), (.08, .04)),
    "melanin":  ((1.21, .38), (.89, .33), (.28, .17), (.35, .20), (.76, .35), (.50, .17), (.23, .16)),
    "blood":    ((.17, .20), (.15, .13), (.48, .17), (.67, .22), (.22, .20), (.32, .13), (1.35, .38)),
    "uneven":   ((.52, .20), (.21, .13), (.25, .13), (.30, .13), (.36, .17), (.16, .09), (.25, .11)),
    "lopsided": ((.42, .22), (.13, .13), (.18, .13), (.18, .13), (.22, .17), (.07, .06), (.13, .11)),
    "network":  ((.31, .28), (.34, .28), (-.30, .20), (-.10, .20), (.02, .20), (.38, .18), (-.50, .20)),
    "globules": ((.18, .28), (.12, .28), (-.20, .20), (-.20, .20), (-.05, .20), (-.30, .20), (-.50, .20)),
    "veil":     ((.36, .32), (-.40, .30), (-.15, .25), (-.60, .20), (-.30, .30), (-.60, .20), (-.40, .30)),
    "nests":    ((-.30, .30), (-.70, .30), (.46, .30), (-.70, .30), (-.40, .30), (-.80, .20), (-.50, .30)),
    "vessels":  ((-.25, .30), (-.60, .30), (.56, .25), (.05, .30), (-.40, .30), (-.30, .30), (-.30, .30)),
    "dots":     ((-.40, .30), (-.70, .30), (-.40, .30), (.51, .25), (-.45, .30), (-.50, .30), (-.60, .30)),
    "scale":    ((-.50, .30), (-.70, .30), (-.10, .30), (.41, .25), (.05, .30), (-.60, .30), (-.80, .30)),
    "cysts":    ((-.50, .30), (-.60, .30), (-.50, .30), (-.50, .30), (.51, .32), (-.70, .30), (-.80, .30)),
    "fissures": ((-.30, .30), (-.50, .30), (-.70, .30), (-.40, .30), (.31, .35), (-.70, .30), (-.80, .30)),
    "scar":     ((-.05, .30), (-.60, .30), (-.25, .30), (-.40, .30), (-.40, .30), (.66, .20), (-.80, .30)),
    "lacunae":  ((-.80, .20), (-.90, .20), (-.60, .20), (-.70, .20), (-.90, .20), (-.90, .20), (.66, .20)),
}
# fmt: on
# Whom a lesion may resemble, three for each class; some twice, for they are the likelier.
_LOOK_ALIKES = (
    ("NV", "NV", "BKL"),
    ("MEL", "BKL", "DF"),
    ("AKIEC", "AKIEC", "BKL"),
    ("BCC", "BKL", "BCC"),
    ("MEL", "NV", "AKIEC"),
    ("NV", "NV", "BCC"),
    ("BCC", "MEL", "AKIEC"),
)
_MOST_ALIKE = 0.6  # 1 would be the other class
_SMALLEST_OF = {"radius": 0.2, "edge": 0.03}
_LARGEST_OF = {"radius": 0.74, "ragged": 0.26}

# What one unit of each pigment takes from red, green and blue.
_MELANIN = (0.50, 0.95, 1.25)
_BLOOD = (0.16, 0.72, 0.62)
_VEIL = (0.44, 0.50, 0.62)
_PALE = (0.96, 0.88, 0.84)
_KERATIN = (0.97, 0.92, 0.78)

_HAIRS = 7
_LABELS, _SCENE, _GRAIN = 0xDE12A, 0xDE12B, 0xDE12C  # one random stream each, apart from the chests'
_WHO = DeckSize(uniforms=40, normals=3200)
_SHOT = DeckSize(uniforms=72, normals=80)


def lesion_labels(patients: Sequence[int] | range, *, seed: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Who has what, without drawing: one-hot labels (images, 7), and the patient of each row.

    >>> labels, patients = lesion_labels(range(3), seed=0)
    >>> labels.sum(axis=1).tolist() == [1] * len(patients)
    True
    """
    numbers = check_patients(patients, seed)
    draws = np.array([np.random.default_rng([seed, _LABELS, p]).random(2) for p in numbers.tolist()]).reshape(-1, 2)
    counts = np.array([images_per_patient(u) for u in draws[:, 0].tolist()], dtype=np.int64)
    kinds = np.searchsorted(np.cumsum(PREVALENCE[:-1]), draws[:, 1], side="right")
    one_hot = np.eye(len(LESION_CLASSES), dtype=np.uint8)
    return one_hot[np.repeat(kinds, counts)], np.repeat(numbers, counts)


def draw_lesions(patients: Sequence[int] | range, *, size: int = 64, seed: int = 0) -> Phantoms:
    """The lesions of `patients` (ascending numbers), as RGB images (images, 3, size, size) with labels.

    >>> drawn = draw_lesions(range(3), size=32)
    >>> drawn.images.shape[1:], drawn.labels.shape[1]
    ((3, 32, 32), 7)
    """
    check_size(size)
    labels, owners = lesion_labels(patients, seed=seed)
    images = np.empty((len(owners), 3, size, size), dtype=np.uint8)
    done = 0
    for batch in batches(check_patients(patients, seed), size):
        drawn = render_lesions(lesion_scenes(batch.tolist(), seed=seed), size=size, seed=seed)
        images[done : done + len(drawn)] = drawn
        done += len(drawn)
    return Phantoms(images, labels, owners)


@dataclasses.dataclass(frozen=True)
class LesionScenes:
    """Everything a renderer needs to know of each image; every field's first axis is the image.

    The features named in the table of classes come first; the rest are (images, 1, 1) lengths, angles and
    strengths, (images,) flags, or (images, knots, knots) lattices of noise.
    """

    patient: NDArray[np.int64]
    radius: Array
    ragged: Array
    edge: Array
    melanin: Array
    blood: Array
    uneven: Array
    lopsided: Array
    network: Array
    globules: Array
    veil: Array
    nests: Array
    vessels: Array
    dots: Array
    scale: Array
    cysts: Array
    fissures: Array
    scar: Array
    lacunae: Array
    # the lesion's own shape
    turn: Array
    zoom: Array
    right: Array
    down: Array
    stretch: Array
    outline: Array
    lean: Array
    mesh: Array
    spot_x: Array
    spot_y: Array
    warp_x: Array
    warp_y: Array
    blotches: Array
    patches: Array
    strands: Array
    # the skin
    tan: Array
    flush: Array
    tone: Array
    pores: Array
    freckles: Array
    # the shot
    light: Array
    warm: Array
    green: Array
    contrast: Array
    tilt_x: Array
    tilt_y: Array
    vignette: Array
    lens: Array
    noise: Array
    hairy: Flags
    hair_dark: Array
    hair_angle: Array
    hair_offset: Array
    hair_bend: Array
    bubbly: Flags
    bubble_x: Array
    bubble_y: Array
    bubble_radius: Array
    ruled: Flags
    rule_at: Array


def lesion_scenes(patients: Sequence[int] | range, *, seed: int) -> LesionScenes:
    """The parameters of the patients' images, in the order of `lesion_labels`."""
    numbers = check_patients(patients, seed)
    labels, owners = lesion_labels(patients, seed=seed)
    counts = np.searchsorted(owners, numbers, side="right") - np.searchsorted(owners, numbers)
    who, shot = deal([seed, _SCENE], numbers, counts, _WHO, _SHOT)
    return LesionScenes(
        patient=owners,
        **_features(who, labels),
        turn=who.uniform(0, 6.28) + shot.normal(0, 0.35),
        zoom=np.exp(who.normal(0, 0.13) + shot.normal(0, 0.07)),
        right=who.normal(0, 0.06) + shot.normal(0, 0.06),
        down=who.normal(0, 0.06) + shot.normal(0, 0.06),
        stretch=who.uniform(0.0, 0.30),
        outline=who.lattice(4),
        lean=who.uniform(0, 6.28),
        mesh=who.uniform(0.080, 0.115),
        spot_x=who.normal(0, 0.5),
        spot_y=who.normal(0, 0.5),
        warp_x=who.lattice(14) * 0.034,
        warp_y=who.lattice(14) * 0.034,
        blotches=who.lattice(8),
        patches=who.lattice(14),
        strands=who.lattice(20),
        tan=who.uniform(0.0, 0.40) * who.uniform(0.3, 1.0),
        flush=who.uniform(0.04, 0.42),
        tone=who.lattice(5),
        pores=who.lattice(44),
        freckles=who.uniform(-0.4, 0.5),
        light=shot.normal(0.98, 0.09),
        warm=who.normal(0, 0.025) + shot.normal(0, 0.04),
        green=who.normal(0, 0.02) + shot.normal(0, 0.03),
        contrast=shot.normal(0.98, 0.12),
        tilt_x=shot.normal(0, 0.045),
        tilt_y=shot.normal(0, 0.045),
        vignette=shot.uniform(0.04, 0.34),
        lens=np.where(shot.uniform() < 0.14, shot.uniform(1.02, 1.22), np.float32(3)),
        noise=shot.uniform(0.008, 0.024),
        hairy=who.chance(0.33),
        hair_dark=who.uniform(0.2, 0.8),
        hair_angle=who.normal(0, 1.0) + np.concatenate([shot.normal(0, 0.3) for _ in range(_HAIRS)], axis=1),
        hair_offset=np.concatenate([shot.uniform(-3.0, 2.6) for _ in range(_HAIRS)], axis=1),
        hair_bend=np.concatenate([shot.normal(0, 0.22) for _ in range(_HAIRS)], axis=1),
        bubbly=shot.chance(0.12),
        bubble_x=np.concatenate([shot.uniform(-0.95, 0.95) for _ in range(4)], axis=1),
        bubble_y=np.concatenate([shot.uniform(-0.95, 0.95) for _ in range(4)], axis=1),
        bubble_radius=np.concatenate([shot.uniform(0.03, 0.13) for _ in range(4)], axis=1),
        ruled=shot.chance(0.12),
        rule_at=shot.uniform(0.80, 0.95),
    )


def _features(who: Deck, labels: NDArray[np.uint8]) -> dict[str, Array]:
    """The strength of each feature in the table, (images, 1, 1), drawn from the image's class."""
    kind = labels.argmax(axis=1)
    others = np.array([[LESION_CLASSES.index(name) for name in names] for names in _LOOK_ALIKES])
    other = others[kind, (3 * who.uniform(0, 0.999)[:, 0, 0]).astype(np.intp)]
    # Most lesions are typical of their class and few could pass for another: hence the square.
    alike = _MOST_ALIKE * who.uniform() ** 2
    strengths = {}
    for name, by_class in _FEATURES.items():
        table = np.asarray(by_class, dtype=np.float32)[:, :, None, None]
        mean, spread = np.moveaxis(table[kind] + alike[:, None] * (table[other] - table[kind]), 1, 0)
        drawn = mean + spread * who.normal()
        strengths[name] = np.clip(drawn, _SMALLEST_OF.get(name, 0.0), _LARGEST_OF.get(name, 3.0))
    return strengths


def render_lesions(scenes: LesionScenes, *, size: int, seed: int) -> NDArray[np.uint8]:
    """Images uint8 (images, 3, size, size) of the scenes; `seed` feeds the camera's noise only."""
    check_size(size)
    flat = plane(size)
    on = posed(flat, scenes.turn, scenes.zoom, scenes.right, scenes.down)
    colour = _lesion(scenes, on)
    colour = _covered(scenes, flat, colour)
    return to_bytes(_photograph(scenes, flat, colour, grain([seed, _GRAIN], scenes.patient, size)))


def _lesion(s: LesionScenes, on: Plane) -> Array:
    """Skin and lesion, (images, 3, size, size), in even light."""
    size = on.x.shape[-1]
    blotch, patch, strand = texture(s.blotches, size), texture(s.patches, size), texture(s.strands, size)
    pores = texture(s.pores, size)
    x = on.x * (1 + s.stretch) + 0.4 * s.ragged * patch * 0.3
    y = on.y / (1 + 0.3 * s.stretch) + 0.4 * s.ragged * strand * 0.18
    away = np.hypot(x, y)
    rim = s.radius * (1 + s.ragged * _waves(s.outline, np.arctan2(y, x)))
    depth = (rim - away) / s.radius  # 1 in the middle, 0 at the rim
    inside = step(depth, s.edge)
    core = step(depth - 0.25, 0.35)

    lean = (x * np.cos(s.lean) + y * np.sin(s.lean)) / s.radius
    body = inside * np.clip(1 + 0.75 * s.uneven * blotch + s.lopsided * lean, 0.15, 2.4)
    honey = _honeycomb(s, on, size)
    melanin = s.melanin * body * (0.75 + 0.25 * core)
    meshed = inside * (1 - 0.35 * core) * np.clip(0.75 + 0.45 * blotch, 0.1, 1.3)
    melanin += 1.2 * s.network * meshed * (step(-0.05 - honey, 1.2) - 0.4)
    melanin += 1.6 * s.globules * inside * step(honey - 1.3, 0.9) * step(patch + 0.1, 0.6)
    melanin += 1.1 * s.fissures * inside * ink(strand + 0.4 * patch, 0.22, 0.0)
    melanin += 1.6 * s.cysts * inside * step(-pores - 1.35, 0.4)
    blood = s.blood * inside * np.clip(1 + 0.5 * s.uneven * patch, 0.2, 2)
    blood += 1.5 * s.vessels * step(depth + 0.05, 0.3) * ink(strand + 0.5 * blotch, 0.10, 0.0) * step(patch + 0.5, 0.6)
    blood += 1.1 * s.dots * inside * step(honey - 1.3, 0.7)
    blood += 1.5 * s.lacunae * inside * step(patch + 0.6 * blotch - 0.1, 0.35)
    melanin += 0.5 * s.lacunae * inside * step(patch + 0.6 * blotch - 0.5, 0.3)

    # the skin around
    tone = texture(s.tone, size)
    melanin = s.tan * (1 + 0.25 * tone) + 0.025 * pores + np.maximum(melanin, 0)
    melanin += 0.5 * np.maximum(s.freckles, 0) * step(patch - 1.6, 0.6) * (1 - inside)
    blood += s.flush * (1 + 0.3 * tone) + 0.02 * pores

    red, green, blue = (
        top * np.exp(-(m * np.maximum(melanin, 0) + b * np.maximum(blood, 0)))
        for top, m, b in zip((0.97, 0.86, 0.82), _MELANIN, _BLOOD, strict=True)
    )
    colour = np.stack([red, green, blue], axis=1)
    veiled = spot(Plane(x, y, 0), s.spot_x * s.radius * 0.6, s.spot_y * s.radius * 0.6, 0.5 * s.radius)
    _scatter(colour, s.veil, np.clip(1.3 * veiled * inside * (0.9 + 0.3 * blotch), 0, 0.85), _VEIL)
    nests = inside * step(strand + 0.4 * patch - 0.75, 0.5)
    _scatter(colour, s.nests, 0.85 * nests, (0.38, 0.39, 0.47))
    _scatter(colour, s.cysts, 0.9 * inside * step(pores - 1.45, 0.4), _KERATIN)
    flakes = inside * step(strand + 0.5 * blotch + 0.5 * pores - 0.7, 0.8)
    _scatter(colour, s.scale, 0.85 * flakes, _KERATIN)
    middle = bell((away / (0.42 * s.radius)) ** 2) * (1 + 0.15 * patch)
    _scatter(colour, s.scar, np.clip(1.0 * middle, 0, 0.9), _PALE)
    return colour


def _waves(lattice: Array, angle: Array) -> Array:
    """A closed outline's deviation: seven harmonics whose strength falls with their number."""
    weights = lattice.reshape(len(lattice), 16)[:, :, None, None]
    total = np.zeros_like(angle)
    turned_cos, turned_sin = np.cos(angle), np.sin(angle)
    cos, sin = turned_cos, turned_sin
    for harmonic in range(2, 8):
        cos, sin = cos * turned_cos - sin * turned_sin, sin * turned_cos + cos * turned_sin
        total += (weights[:, harmonic] * cos + weights[:, harmonic + 8] * sin) * (2.6 / harmonic**1.6)
    return total


def _honeycomb(s: LesionScenes, on: Plane, size: int) -> Array:
    """A bent honeycomb, 3 in the middle of a cell and down to −1.5 on its walls."""
    x, y = on.x + texture(s.warp_x, size), on.y + texture(s.warp_y, size)
    pace = 6.2832 / s.mesh
    return np.asarray(np.cos(pace * x) + np.cos(pace * (0.5 * x + 0.866 * y)) + np.cos(pace * (0.5 * x - 0.866 * y)))


def _scatter(colour: Array, strength: Array, where: Array, towards: tuple[float, float, float]) -> None:
    """Blend a colour in, for the images that have the feature."""
    rows = np.flatnonzero(strength[:, 0, 0] > 0)
    if rows.size:
        amount = np.clip(np.minimum(1.4 * strength[rows], 1) * where[rows], 0, 1)[:, None]
        target = np.asarray(towards, dtype=np.float32)[None, :, None, None]
        colour[rows] += amount * (target - colour[rows])


def _covered(s: LesionScenes, flat: Plane, colour: Array) -> Array:
    """What lies on the skin and says nothing of the lesion: hairs, bubbles of the gel, a ruler."""
    if s.hairy.any():
        colour[s.hairy] *= _hairs(take(s, s.hairy), flat)[:, None]
    if s.bubbly.any():
        colour[s.bubbly] += _bubbles(take(s, s.bubbly), flat)[:, None]
    if s.ruled.any():
        colour[s.ruled] *= _ruler(take(s, s.ruled), flat)[:, None]
    return colour


def _hairs(s: LesionScenes, flat: Plane) -> Array:
    """What light bent dark hairs leave."""
    left = np.ones((len(s.patient), *flat.x.shape[1:]), dtype=np.float32)
    for hair in range(_HAIRS):
        angle, offset, bend = (a[:, hair, None] for a in (s.hair_angle, s.hair_offset, s.hair_bend))
        ahead = flat.x * np.cos(angle) + flat.y * np.sin(angle)
        across = flat.y * np.cos(angle) - flat.x * np.sin(angle)
        # an offset far out draws no hair: their number varies
        distance = across - offset * 0.8 - bend * ahead * ahead
        left *= 1 - s.hair_dark * ink(distance, 0.0085, flat.pixel) * step(0.9 - np.abs(ahead + bend), 0.1)
    return left


def _bubbles(s: LesionScenes, flat: Plane) -> Array:
    """Bright rings with a glint."""
    light = np.zeros((len(s.patient), *flat.x.shape[1:]), dtype=np.float32)
    for bubble in range(s.bubble_x.shape[1]):
        x, y, radius = (a[:, bubble, None] for a in (s.bubble_x, s.bubble_y, s.bubble_radius))
        away = np.hypot(flat.x - x, flat.y - y)
        light += 0.22 * ink(away - radius, 0.014, flat.pixel) - 0.05 * step(radius - away, 0.02)
        light += 0.4 * spot(flat, x - 0.4 * radius, y - 0.4 * radius, 0.25 * radius)
    return light


def _ruler(s: LesionScenes, flat: Plane) -> Array:
    """Millimetre marks along one side."""
    near = np.abs(((flat.x * 9) % 1) - 0.5) / 9
    long = (np.floor(flat.x * 9) % 3 == 0).astype(np.float32)
    mark = ink(near, 0.009, flat.pixel) * step(flat.y - s.rule_at + 0.10 * long, 0.012)
    return np.asarray(1 - 0.75 * mark)


def _photograph(s: LesionScenes, flat: Plane, colour: Array, noise: Array) -> Array:
    """Lamp, lens and camera."""
    off_axis = flat.x**2 + flat.y**2
    lamp = s.light * (1 + s.tilt_x * flat.x + s.tilt_y * flat.y - s.vignette * 0.5 * off_axis)
    lamp = lamp * (1 - 0.96 * step(np.sqrt(off_axis) - s.lens, 0.04))
    tint = np.stack([1 + s.warm, 1 + s.green, 1 - 1.3 * s.warm], axis=1)
    lit = (0.55 + (colour - 0.55) * s.contrast[:, None]) * lamp[:, None] * tint
    return np.asarray(lit + (s.noise * noise * (32 * flat.pixel) ** 0.5)[:, None])

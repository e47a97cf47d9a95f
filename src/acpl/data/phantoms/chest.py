"""`phantom-chest`: frontal chest radiographs with eight findings, several at once or none.

A picture is the film's answer to how much tissue each ray meets: body, heart, spine and bones add, air in the
lungs takes away. A finding changes the tissue, as disease does, and not the grey values; so exposure and
anatomy hide it as they do in life. Image left is the patient's right.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from acpl.data.phantoms.chest_patients import (
    CARDIOMEGALY,
    EFFUSION,
    FIBROSIS,
    HERNIA,
    INFILTRATION,
    MASS,
    NODULE,
    PNEUMOTHORAX,
    ChestScenes,
    chest_labels,
    chest_scenes,
)
from acpl.data.phantoms.drawing import (
    Array,
    Phantoms,
    Plane,
    along,
    batches,
    bell,
    check_patients,
    check_size,
    grain,
    ink,
    plane,
    posed,
    softmax,
    softmin,
    spot,
    step,
    take,
    texture,
    to_bytes,
)

_GRAIN = 0xC4E59  # its own random stream


def draw_chest(patients: Sequence[int] | range, *, size: int = 64, seed: int = 0) -> Phantoms:
    """The radiographs of `patients` (ascending numbers), as grey images (images, 1, size, size) with labels.

    >>> drawn = draw_chest(range(3), size=32)
    >>> drawn.images.shape[1:], drawn.labels.shape[1]
    ((1, 32, 32), 8)
    """
    check_size(size)
    labels, owners = chest_labels(patients, seed=seed)
    images = np.empty((len(owners), 1, size, size), dtype=np.uint8)
    done = 0
    for batch in batches(check_patients(patients, seed), size):
        drawn = render_chest(chest_scenes(batch.tolist(), seed=seed), size=size, seed=seed)
        images[done : done + len(drawn)] = drawn
        done += len(drawn)
    return Phantoms(images, labels, owners)


@dataclasses.dataclass
class _Chest:
    """A chest being drawn: where the lungs are and what is in them, all (images, size, size)."""

    body: Array  # coordinates in the patient's frame
    height: Array
    aside: Array  # distance from the midline
    left: Array  # 1 on the patient's left, 0 on the right
    wall: Array  # depth under the chest wall
    depth: Array  # depth under the nearest border of the lung
    floor: Array  # height of the diaphragm
    lung: Array
    air: Array  # how much air is in the lung, 1 is healthy
    markings: Array  # how visible vessels are
    solid: Array  # tissue drawn into the lungs by findings


def render_chest(scenes: ChestScenes, *, size: int, seed: int) -> NDArray[np.uint8]:
    """Images uint8 (images, 1, size, size) of the scenes; `seed` feeds the film's grain only."""
    check_size(size)
    flat = plane(size)
    on = posed(flat, scenes.turn, scenes.zoom, scenes.right, scenes.down)
    on = Plane(on.x + texture(scenes.warp_x, size), on.y + texture(scenes.warp_y, size), on.pixel)
    chest = _thorax(scenes, on)
    for finding, draw in _IN_THE_LUNG.items():
        rows = np.flatnonzero(scenes.severity[:, finding])
        if rows.size:
            _amend(chest, rows, draw(take(scenes, rows), on.at(rows), take(chest, rows)))
    met = _tissue(scenes, on, chest, texture(scenes.tissue, size))
    hernias = np.flatnonzero(scenes.severity[:, HERNIA])
    if hernias.size:
        met[hernias] += _hernia(take(scenes, hernias), on.at(hernias))
    for present, device in (
        (scenes.pacemaker, _pacemaker),
        (scenes.tube, _tube),
        (scenes.wires, _wires),
    ):
        if present.any():
            met[present] += device(take(scenes, present), on.at(present))
    picture = _film(scenes, flat, met, grain([seed, _GRAIN], scenes.patient, size))
    return to_bytes(picture)[:, None]


def _amend(chest: _Chest, rows: NDArray[np.intp], changed: _Chest) -> None:
    """Write back what a finding changed in some of the images."""
    for name in ("lung", "air", "markings", "solid"):
        getattr(chest, name)[rows] = getattr(changed, name)


def _thorax(s: ChestScenes, on: Plane) -> _Chest:
    """Two healthy lungs: under the ribs' wall, beside the mediastinum, above the diaphragm's domes."""
    x = on.x - s.twist
    aside = np.abs(x)
    left = step(x, 0.02)
    fall = np.clip((s.base - on.y) / (s.base - s.apex), 0, None)
    wall = (1 - np.sqrt(np.square(aside / s.half_width) + np.square(fall))) * 0.72
    inner = aside - s.mediastinum * (0.85 + 0.9 * np.clip(fall - 0.72, 0, 1) * 2)
    floor = s.base + s.base_left * left + s.dome * ((aside - 0.34) / (s.half_width - 0.34)) ** 2
    depth = softmin(softmin(wall, inner, 0.14), floor - on.y, 0.03)
    lung = step(depth, 0.028)
    ones = np.ones_like(lung)
    return _Chest(x, on.y, aside, left, wall, depth, floor, lung, ones, ones.copy(), np.zeros_like(lung))


def _tissue(s: ChestScenes, on: Plane, chest: _Chest, noise: Array) -> Array:
    """What the rays meet, in units of which 1 is a chest without lungs."""
    x, y, aside = chest.body, chest.height, chest.aside
    # trunk, neck and arms; beyond them the rays meet nothing
    outline = 0.20 + (s.half_width + 0.22 + 0.08 * s.fat) * step(y - s.shoulder + 0.42 * (aside - 0.5), 0.16)
    trunk = step(outline - aside, 0.07)
    met = trunk * (0.84 + 0.16 * y + 0.12 * s.fat * aside + 0.03 * noise)
    below = step(y - chest.floor, 0.05)
    met += 0.42 * below * trunk
    # stomach bubble under the left dome
    met -= 0.38 * s.stomach * below * spot(Plane(x, y * 1.7, 0), 0.36, (s.base + 0.27) * 1.7, 0.13)
    # lungs: deeper in the middle, so darker
    air = chest.lung * chest.air
    met -= air * (0.46 + 0.20 * step(chest.depth - 0.10, 0.16)) * (0.9 + 0.1 * trunk)
    met += _vessels(s, x, y, noise) * chest.lung * chest.markings
    met += chest.solid
    # mediastinum, spine and windpipe
    hourglass = s.mediastinum * (1 - 0.22 * step(y + 0.42, 0.25) + 0.35 * step(-0.62 - y, 0.2))
    middle = softmax(hourglass - aside, s.knob - np.hypot(x - 0.115, (y + 0.36) * 0.85), 0.05)
    middle = softmax(middle, _heart(s, x, y), 0.16)
    shadow = step(middle, 0.03) * (0.44 + 0.9 * np.clip(middle, 0, 0.22)) * step(y + 0.85, 0.30)
    met += shadow * (1 - 0.72 * below)
    disc = 0.5 + 0.5 * np.cos((y + 0.03 * s.rib_phase) * (6.28 / 0.155))
    met += step(0.085 - aside, 0.03) * (0.05 + 0.06 * disc)
    pipe = step(0.038 - np.abs(x + 0.012), 0.022) * step(-0.22 - y, 0.06)
    met -= 0.30 * pipe
    met += 0.14 * sum(spot(Plane(x, y * 0.75, 0), at, s.hilum * 0.75, 0.075) for at in (-0.20, 0.205))
    met += _bones(s, on, chest) * trunk
    # breasts: a soft shadow with a lower rim
    breast = np.hypot((aside - 0.46) * 0.9, y - 0.22)
    met += s.breast * step(0.33 - breast, 0.07) * trunk
    return met


def _vessels(s: ChestScenes, x: Array, y: Array, noise: Array) -> Array:
    """Branches that run out from the hila and thin out towards the wall."""
    aside = np.abs(x) - 0.15
    down = y - s.hilum
    reach = np.hypot(aside, down)
    angle = np.arctan2(down, aside) + 0.16 * noise * reach + 0.5 * (x > 0).astype(np.float32)
    bend = s.vessel_phase + 0.8 * np.sin(5 * reach + s.vessel_phase)
    near = np.square(np.square(np.maximum(np.cos(6 * angle + bend), 0)))
    far = np.square(np.square(np.maximum(np.cos(13 * angle - 2 * bend), 0)))
    spread = step(reach - 0.26, 0.16)
    return np.asarray(
        s.vessel_strength
        * ((1 - spread) * near + spread * far * 0.75)
        * np.exp(-2.1 * reach)
        * step(reach - 0.03, 0.06)
        + 0.02 * noise,
        dtype=np.float32,
    )


def _heart(s: ChestScenes, x: Array, y: Array) -> Array:
    """Depth inside the heart's outline, negative outside; a large heart is the same one, wider."""
    growth = s.severity[:, CARDIOMEGALY, None, None]
    large = (growth > 0).astype(np.float32)
    width = s.heart_width * (1 + large * 0.08 + 0.30 * growth)
    height = s.heart_height * (1 + 0.10 * growth)
    dx, dy = x - s.heart_x - 0.10 * growth * s.heart_width, y - s.heart_y
    cos, sin = np.cos(s.heart_tilt), np.sin(s.heart_tilt)
    along_axis, across_axis = dx * cos + dy * sin, dy * cos - dx * sin
    ball = 1 - np.sqrt((along_axis / (width * 1.06)) ** 2 + (across_axis / (height * 0.86)) ** 2)
    return np.asarray(ball * 0.32)


def _bones(s: ChestScenes, on: Plane, chest: _Chest) -> Array:
    """Ribs behind and in front, clavicles and shoulders."""
    y, aside = chest.height, chest.aside
    cage = step(chest.wall + 0.045, 0.03) * step(0.62 - y, 0.25)
    lateral = aside / s.half_width
    back = (y - 0.42 * (lateral - 0.42) ** 2 - 0.10 * np.square(lateral * lateral)) / s.rib_gap + s.rib_phase
    front = (y + s.rib_slope * (lateral - 1) * s.half_width * 0.8) / (1.12 * s.rib_gap) + 1.7 * s.rib_phase
    bones = cage * (
        s.rib_strength * _rib(back, 0.27) * (1 - 0.25 * lateral)
        + 0.5 * s.rib_strength * _rib(front, 0.25) * step(lateral - 0.52, 0.2)
    )
    collar = s.clavicle
    line = along(
        Plane(aside, y, on.pixel),
        [
            (np.full_like(collar, 0.085), collar + 0.13),
            (np.full_like(collar, 0.27), collar + 0.05),
            (np.full_like(collar, 0.50), collar - 0.01),
            (np.full_like(collar, 0.74), collar - 0.085),
        ],
    )
    bones = bones + 0.19 * step(0.034 - line, 0.018) * (0.72 + 0.28 * step(line - 0.018, 0.012))
    joint = np.hypot(aside - 0.93, y - collar - 0.03)
    bones += 0.24 * step(0.14 - joint, 0.04)
    blade = np.abs(aside - 0.80 * s.half_width - 0.10 - 0.16 * (y + 0.35))
    return np.asarray(bones + 0.07 * step(0.02 - blade, 0.02) * step(0.35 - np.abs(y + 0.32), 0.1))


def _rib(phase: Array, half: float) -> Array:
    """A band a period, with the brighter rims of a tube."""
    offset = np.abs(phase - np.floor(phase) - 0.5)
    return step(half - offset, 0.09) * (0.62 + 0.38 * step(offset - half * 0.55, 0.10))


def _place(s: ChestScenes, side: Array, height: Array, across: Array) -> tuple[Array, Array]:
    """A point in a lung: `height` from apex (0) to base (1), `across` from mediastinum (0) to wall (1)."""
    edge = s.half_width * np.sqrt(np.maximum(1 - (1 - height) ** 2, 0))
    x = s.mediastinum + across * (edge - s.mediastinum)
    return side * x, s.apex + height * (s.base - s.apex)


def _effusion(s: ChestScenes, on: Plane, chest: _Chest) -> _Chest:
    """Fluid fills the angle between ribs and diaphragm and climbs the wall in a meniscus."""
    amount = s.severity[:, EFFUSION, None, None]
    here = step(chest.body * s.side, 0.03)
    angle = s.base + s.base_left * chest.left + s.dome
    climb = np.exp(-np.maximum(s.half_width - chest.aside, 0) / (0.10 + 0.16 * amount))
    surface = angle - 0.44 * amount - 0.30 * amount * climb + 0.09
    fluid = here * step(chest.height - surface, 0.05)
    chest.air = chest.air * (1 - 0.93 * fluid)
    chest.markings = chest.markings * (1 - fluid)
    chest.solid = chest.solid + 0.24 * fluid * chest.lung
    return chest


def _infiltration(s: ChestScenes, on: Plane, chest: _Chest) -> _Chest:
    """Clouds without an edge in one or both lungs."""
    amount = s.severity[:, INFILTRATION, None, None]
    noise = texture(s.cloud, on.x.shape[-1])
    x, y = _place(s, s.side, 0.35 + 0.6 * s.height, s.across)
    x2, y2 = _place(s, s.other_side, 1.05 - 0.6 * s.height, 0.9 - s.across)
    area = spot(on, x, y, 0.20 + 0.09 * s.lump) + 0.7 * spot(on, x2, y2, 0.17 + 0.08 * (1 - s.lump))
    cloud = np.clip(area * (0.9 + 0.6 * noise), 0, 1.2)
    chest.solid = chest.solid + 0.50 * amount * cloud * chest.lung * chest.air
    return chest


def _nodule(s: ChestScenes, on: Plane, chest: _Chest) -> _Chest:
    """A small round spot."""
    amount = s.severity[:, NODULE, None, None]
    x, y = _place(s, s.other_side, s.height, 1.02 - s.across)
    radius = 0.090 + 0.030 * s.lump
    ball = step(radius - np.hypot(on.x - x, on.y - y), 0.030)
    chest.solid = chest.solid + 0.55 * amount * ball * chest.lung
    return chest


def _mass(s: ChestScenes, on: Plane, chest: _Chest) -> _Chest:
    """A large opacity with a lobed, spiky rim."""
    amount = s.severity[:, MASS, None, None]
    x, y = _place(s, -s.side, 1.05 - s.height, s.across)
    dx, dy = on.x - x, on.y - y
    angle = np.arctan2(dy, dx) + s.lump_phase
    rim = (
        1
        + 0.12 * np.cos(2 * angle)
        + 0.09 * np.cos(3 * angle + 2)
        + 0.06 * np.cos(7 * angle)
        + 0.04 * np.cos(13 * angle)
    )
    radius = (0.18 + 0.06 * s.lump) * rim
    ball = step(radius - np.hypot(dx, dy), 0.045)
    chest.solid = chest.solid + 0.55 * amount * ball * step(chest.depth + 0.04, 0.04)
    chest.markings = chest.markings * (1 - ball)
    return chest


def _pneumothorax(s: ChestScenes, on: Plane, chest: _Chest) -> _Chest:
    """Air outside the lung: black and without vessels, with the lung's edge as a fine line."""
    amount = s.severity[:, PNEUMOTHORAX, None, None]
    here = step(-chest.body * s.other_side, 0.02)
    # air rises: the gap is widest at the apex
    gap = (0.01 + 0.22 * amount) * (1.15 - 0.55 * step(chest.height - 0.0, 0.5))
    outside = here * step(gap - chest.wall, 0.02) * chest.lung
    line = here * ink(chest.wall - gap, 0.009, on.pixel) * chest.lung
    chest.markings = chest.markings * (1 - outside)
    chest.air = chest.air * (1 + 0.30 * outside) * (1 - 0.28 * amount * here * (1 - outside))
    chest.solid = chest.solid + 0.4 * amount * line
    return chest


def _fibrosis(s: ChestScenes, on: Plane, chest: _Chest) -> _Chest:
    """A net of fine lines, densest at the bases and under the wall."""
    amount = s.severity[:, FIBROSIS, None, None]
    noise = texture(s.net, on.x.shape[-1])
    other = texture(np.flip(s.net, axis=1).swapaxes(1, 2), on.x.shape[-1])
    lines = 0.7 * (ink(noise, 0.22, 0.0) + ink(other, 0.22, 0.0))
    where = step(chest.height + 0.25, 0.5) * (1 - 0.55 * step(chest.depth - 0.13, 0.13))
    chest.solid = chest.solid + 0.70 * amount * (lines - 0.15) * where * chest.lung * chest.air
    return chest


_IN_THE_LUNG: dict[int, Callable[[ChestScenes, Plane, _Chest], _Chest]] = {
    INFILTRATION: _infiltration,
    FIBROSIS: _fibrosis,
    MASS: _mass,
    NODULE: _nodule,
    EFFUSION: _effusion,
    PNEUMOTHORAX: _pneumothorax,
}


def _hernia(s: ChestScenes, on: Plane) -> Array:
    """A loop of stomach behind the heart: a bright wall around air over a level of fluid."""
    amount = s.severity[:, HERNIA, None, None]
    radius = 0.16 + 0.08 * amount + 0.02 * s.lump
    x, y = 0.08 + 0.06 * s.side, s.base - 0.13 - 0.05 * s.lump
    away = np.hypot((on.x - x) * 0.95, on.y - y)
    inside = step(radius - away, 0.035)
    wall = ink(away - radius, 0.020, on.pixel)
    fluid = step(on.y - y - 0.02, 0.018)
    return np.asarray(amount * (0.42 * wall + inside * (0.18 * fluid - 0.70 * (1 - fluid))))


def _pacemaker(s: ChestScenes, on: Plane) -> Array:
    """A generator under the left clavicle and its lead to the heart."""
    x, y = 0.52 + s.device_x, -0.42 + s.device_y
    box = np.maximum(np.abs(on.x - x) - 0.05, 0) ** 2 + np.maximum(np.abs(on.y - y) - 0.03, 0) ** 2
    lead = along(
        on,
        [
            (x, y - 0.06),
            (x - 0.24, y - 0.17),
            (x - 0.50, y + 0.05 + s.device_bend * 0.3),
            (x - 0.56, y + 0.45),
            (x - 0.42, y + 0.78),
        ],
    )
    return np.asarray(1.3 * step(0.06 - np.sqrt(box), 0.015) + 0.75 * ink(lead, 0.010, on.pixel))


def _tube(s: ChestScenes, on: Plane) -> Array:
    """A tube down the windpipe or the gullet."""
    x = 0.0 + s.device_x
    line = along(on, [(x + 0.06, x * 0 - 1.1), (x, x * 0 - 0.6), (x + 0.02, -0.15 + 2 * s.device_bend)])
    return 0.5 * ink(line, 0.013, on.pixel)


def _wires(s: ChestScenes, on: Plane) -> Array:
    """Electrodes on the skin with their cables."""
    met = np.zeros_like(on.x)
    for side, top in ((-1.0, -0.45), (1.0, -0.30)):
        x, y = side * 0.5 + 2 * s.device_x, top + 3 * s.device_y
        met += 0.55 * step(0.034 - np.hypot(on.x - x, on.y - y), 0.012)
        cable = along(on, [(x, y), (x + 0.10 * side + s.device_bend, y + 0.6), (x + 0.02, y * 0 + 1.1)])
        met += 0.38 * ink(cable, 0.008, on.pixel)
    return met


def _film(s: ChestScenes, flat: Plane, met: Array, noise: Array) -> Array:
    """Grey values of 0 to 1 from the tissue that the rays met."""
    light = np.exp(-1.55 * np.clip(met, 0, None) * s.exposure)
    haze = s.scatter * (0.22 + 0.10 * bell((flat.x**2 + flat.y**2) / 0.5))
    grey = 1 - light
    grey = grey * (1 - haze) + 0.62 * haze
    grey = grey + s.tilt_x * flat.x + s.tilt_y * flat.y
    # Few rays, much noise: dense parts are grainier. The last factor blurs as film does; without it a large
    # picture would be all grain.
    grey = grey + s.noise * noise * (0.65 + 0.6 * grey) * (32 * flat.pixel) ** 0.5
    grey = 0.5 + (grey - 0.5) * s.contrast * 1.12 + s.offset - 0.03
    grey = np.clip(grey, 0.0, 1.0) ** s.gamma
    if s.marker.any():
        rows = s.marker
        grey[rows] = np.maximum(grey[rows], 0.93 * _letter(take(s, rows), flat))
    edge = np.maximum(np.abs(flat.x) + 0 * s.collimated, np.abs(flat.y)) - s.collimated
    return np.asarray(grey * (1 - 0.94 * step(edge, 0.02)))


def _letter(s: ChestScenes, flat: Plane) -> Array:
    """An R or an L in lead, on the side it names."""
    side = np.where(s.marker_right, -1.0, 1.0).astype(np.float32)[:, None, None]
    x, y = side * (0.84 + 0.5 * s.device_x) - 0.035, -0.86 + s.device_y
    tall, wide = np.float32(0.12), np.float32(0.07)
    stem = along(flat, [(x, y), (x, y + tall)])
    foot = along(flat, [(x, y + tall), (x + wide, y + tall)])
    middle = y + tall * 0.5
    bowl = along(flat, [(x, y), (x + wide, y + 0.02), (x + wide, middle - 0.015), (x, middle), (x + wide, y + tall)])
    rest = np.where(side < 0, bowl, foot)
    return ink(np.minimum(stem, rest), 0.011, flat.pixel)

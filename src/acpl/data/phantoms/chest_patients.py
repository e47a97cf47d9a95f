"""Who the phantom chests belong to: each patient's findings, anatomy and pose, as numbers to draw from."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from acpl.data.phantoms.drawing import (
    MOST_IMAGES,
    Array,
    Deck,
    DeckSize,
    Flags,
    check_patients,
    deal,
    images_per_patient,
)

CHEST_FINDINGS: tuple[str, ...] = (
    "Effusion",
    "Infiltration",
    "Cardiomegaly",
    "Nodule",
    "Pneumothorax",
    "Mass",
    "Fibrosis",
    "Hernia",
)
EFFUSION, INFILTRATION, CARDIOMEGALY, NODULE, PNEUMOTHORAX, MASS, FIBROSIS, HERNIA = range(8)

PREVALENCE = np.array([0.16, 0.13, 0.09, 0.08, 0.06, 0.05, 0.03, 0.02])
# How likely a finding is still there on the patient's next image: fluid goes, a large heart stays.
_PERSISTENCE = np.array([0.80, 0.75, 0.97, 0.97, 0.80, 0.97, 0.99, 0.99])
# Some patients are sicker than others: (share, factor on every prevalence), with a mean factor of one.
_SICK_SHARE, _SICK, _WELL = 0.4, 1.6, 0.6
_EFFUSION_IF_LARGE_HEART = 0.32

_LABELS, _SCENE = 0xC4E57, 0xC4E58  # one random stream each, apart from the grain's and the lesions'
_VARIETY = 0.3  # of anatomy, pose and exposure

_WHO = DeckSize(uniforms=64, normals=1650)
_SHOT = DeckSize(uniforms=48, normals=160)


def chest_labels(patients: Sequence[int] | range, *, seed: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Who has what, without drawing: labels (images, 8) of 0 and 1, and the patient of each row.

    >>> labels, patients = chest_labels(range(3), seed=0)
    >>> labels.shape[1], sorted(set(patients.tolist()))
    (8, [0, 1, 2])
    """
    numbers = check_patients(patients, seed)
    tables = [_patient_labels(patient, seed) for patient in numbers.tolist()]
    counts = [len(table) for table in tables]
    labels = np.concatenate(tables) if tables else np.zeros((0, len(CHEST_FINDINGS)), dtype=np.uint8)
    return labels, np.repeat(numbers, counts)


def _patient_labels(patient: int, seed: int) -> NDArray[np.uint8]:
    """(images of the patient, 8)."""
    rng = np.random.default_rng([seed, _LABELS, patient])
    draws = rng.random((2 + MOST_IMAGES, len(CHEST_FINDINGS)))
    count = images_per_patient(draws[0, 0])
    rates = PREVALENCE * (_SICK if draws[0, 1] < _SICK_SHARE else _WELL)
    has = draws[1] < rates
    # The rate without a large heart makes up for the higher one with it: the prevalence stays.
    large = PREVALENCE[CARDIOMEGALY]
    if_small = (PREVALENCE[EFFUSION] - large * _EFFUSION_IF_LARGE_HEART) / (1 - large)
    lift = (_EFFUSION_IF_LARGE_HEART if has[CARDIOMEGALY] else if_small) / PREVALENCE[EFFUSION]
    has[EFFUSION] = draws[1, EFFUSION] < rates[EFFUSION] * lift
    # What goes in some patients comes in others, so that every image has the prevalence, not only the first.
    appears = rates * (1 - _PERSISTENCE) / (1 - rates)
    later = draws[2:] < np.where(has, _PERSISTENCE, appears)
    return np.asarray(np.concatenate([has[None], later[: count - 1]]), dtype=np.uint8)


@dataclasses.dataclass(frozen=True)
class ChestScenes:
    """Everything a renderer needs to know of each image; every field's first axis is the image.

    `severity` (images, 8) is 0 where a finding is absent and about 1 where it is plain to see; the rest are
    (images, 1, 1) lengths, angles and strengths, (images,) flags or (images, knots, knots) lattices of noise.
    """

    patient: NDArray[np.int64]
    severity: Array
    # pose
    turn: Array
    zoom: Array
    right: Array
    down: Array
    twist: Array
    warp_x: Array
    warp_y: Array
    # anatomy
    half_width: Array
    apex: Array
    base: Array
    base_left: Array
    dome: Array
    hilum: Array
    shoulder: Array
    heart_width: Array
    heart_height: Array
    heart_x: Array
    heart_y: Array
    heart_tilt: Array
    mediastinum: Array
    knob: Array
    rib_gap: Array
    rib_phase: Array
    rib_strength: Array
    rib_slope: Array
    clavicle: Array
    breast: Array
    stomach: Array
    fat: Array
    vessel_phase: Array
    vessel_strength: Array
    tissue: Array
    # where a finding is, if it is there
    side: Array
    other_side: Array
    across: Array
    height: Array
    lump: Array
    lump_phase: Array
    cloud: Array
    net: Array
    # the shot
    exposure: Array
    gamma: Array
    contrast: Array
    offset: Array
    scatter: Array
    tilt_x: Array
    tilt_y: Array
    noise: Array
    collimated: Array
    # distractors
    pacemaker: Flags
    tube: Flags
    wires: Flags
    marker: Flags
    marker_right: Flags
    device_x: Array
    device_y: Array
    device_bend: Array


def chest_scenes(patients: Sequence[int] | range, *, seed: int) -> ChestScenes:
    """The parameters of the patients' images, in the order of `chest_labels`."""
    numbers = check_patients(patients, seed)
    labels, owners = chest_labels(patients, seed=seed)
    counts = np.searchsorted(owners, numbers, side="right") - np.searchsorted(owners, numbers)
    who, shot = deal([seed, _SCENE], numbers, counts, _WHO, _SHOT, _VARIETY)
    return ChestScenes(
        patient=owners,
        severity=_severity(who, shot, labels),
        turn=who.normal(0, 0.025) + shot.normal(0, 0.035),
        zoom=who.normal(1.0, 0.05) + shot.normal(0, 0.035),
        right=who.normal(0, 0.03) + shot.normal(0, 0.045),
        down=who.normal(0.0, 0.04) + shot.normal(0, 0.045),
        twist=who.normal(0, 0.012) + shot.normal(0, 0.02),
        warp_x=who.lattice(5) * 0.022 + shot.lattice(5) * 0.006,
        warp_y=who.lattice(5) * 0.022 + shot.lattice(5) * 0.006,
        half_width=who.normal(0.76, 0.05),
        apex=who.normal(-0.80, 0.045),
        base=who.normal(0.46, 0.07) + shot.normal(0, 0.03),
        base_left=who.normal(0.06, 0.03),
        dome=who.normal(0.22, 0.045),
        hilum=who.normal(-0.06, 0.04),
        shoulder=who.normal(-0.72, 0.05),
        heart_width=who.normal(0.37, 0.028) + shot.normal(0, 0.008),
        heart_height=who.normal(0.30, 0.022),
        heart_x=who.normal(0.105, 0.022),
        heart_y=who.normal(0.25, 0.025),
        heart_tilt=who.normal(0.62, 0.10),
        mediastinum=who.normal(0.135, 0.018),
        knob=who.normal(0.085, 0.014),
        rib_gap=who.normal(0.172, 0.010),
        rib_phase=who.uniform(),
        rib_strength=who.uniform(0.07, 0.16),
        rib_slope=who.normal(0.55, 0.10),
        clavicle=who.normal(-0.66, 0.04) + shot.normal(0, 0.02),
        breast=np.where(who.uniform() < 0.45, 1, 0).astype(np.float32) * who.uniform(0.05, 0.22),
        stomach=np.maximum(who.uniform(-0.5, 1.0), 0) * shot.uniform(0.4, 1),
        fat=who.uniform(0.0, 1.0),
        vessel_phase=who.uniform(0, 6.28),
        vessel_strength=who.uniform(0.12, 0.26),
        tissue=who.lattice(19),
        side=who.sign(),
        other_side=who.sign(),
        across=who.uniform(0.3, 0.72),
        height=who.uniform(0.25, 0.80),
        lump=who.uniform(0.0, 1.0),
        lump_phase=who.uniform(0, 6.28),
        cloud=who.lattice(11),
        net=who.lattice(32),
        exposure=shot.normal(1.0, 0.11),
        gamma=np.exp(shot.normal(0, 0.16)),
        contrast=shot.normal(1.0, 0.10),
        offset=shot.normal(0, 0.035),
        scatter=shot.uniform(0.0, 0.28),
        tilt_x=shot.normal(0, 0.05),
        tilt_y=shot.normal(0, 0.06),
        noise=shot.uniform(0.010, 0.032),
        collimated=np.where(shot.uniform() < 0.2, shot.uniform(0.86, 0.97), np.float32(2)),
        pacemaker=who.chance(0.07),
        tube=shot.chance(0.10),
        wires=shot.chance(0.16),
        marker=shot.chance(0.55),
        marker_right=shot.chance(0.4),
        device_x=shot.normal(0, 0.03),
        device_y=shot.normal(0, 0.03),
        device_bend=shot.normal(0, 0.1),
    )


def _severity(who: Deck, shot: Deck, labels: NDArray[np.uint8]) -> Array:
    """(images, 8): how plain each finding is, about equal in a patient's images; 0 where it is absent."""
    columns = [who.uniform(0.65, 1.0) + shot.normal(0, 0.07) for _ in CHEST_FINDINGS]
    severity = np.concatenate(columns, axis=1)[:, :, 0]
    return np.asarray(np.clip(severity, 0.1, 1.1) * labels, dtype=np.float32)

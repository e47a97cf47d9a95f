"""Which runs a table needs: a cell for each of its arms, shares of labels and seeds."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from acpl import algorithms
from acpl.algorithms.budget import usual_steps
from acpl.algorithms.contract import Schedule
from acpl.config import Config, resolve
from acpl.engine.training import MAY_CHANGE, source_of
from acpl.errors import UserError
from acpl.experiments.cells import Cell, refuse_given_labels
from acpl.experiments.contents import contents
from acpl.settings import at_share, read_yaml
from acpl.task import Task

SCHEDULE = ("warmup_epochs", "stages", "stage_epochs")
"""Fields of ``Config`` that a method may be tuned by: how the steps that all are given are shared out."""
EVERYBODY = "all"
# Where a run is done does not make it another run: files count by what they hold, a zip of images by its name.
_NOT_COUNTED = (*MAY_CHANGE, "skip_bad")
# Fields that came after the first results: with these values they change nothing, and those runs are still found.
_AS_BEFORE: dict[str, Any] = {
    **{"looks": "one", "crop_size": None, "cutmix": 0.0, "phantom_errors": 0.0, "calibrate": False},
    **{"clinical": [], "group_labels": None, "group_answers": 0.0},
    **{"clinical_in": "everything", "group_pseudo_labels": 0.0},
}
_SETTINGS_AS_BEFORE = {"neighbours_by": "exact", "relabel": False, "centre": False, "teachers": 0}


@dataclass(frozen=True)
class Arm:
    """One way to train that a table compares with others."""

    row: str
    method: str
    settings: dict[str, Any] = field(default_factory=dict)
    """What makes it this arm, over everything that was asked for or tuned."""
    column: str | None = None
    """The table's column, where that is not the share of labels."""
    all_labels: bool = False
    budget: float = 1.0
    """Gradient steps, as a multiple of what all arms are given."""
    more: tuple[str, ...] = ()
    """Files of its runs that are kept besides the small ones."""


@dataclass(frozen=True)
class Ground:
    """What must be known of the data to plan."""

    task: Task
    classes: tuple[str, ...]
    train: int
    known: int
    """Training images that have labels."""
    validation: int = 0
    """Validation images that have labels."""

    def labelled(self, fraction: float) -> int:
        """How many images keep their labels."""
        return max(1, round(fraction * self.known))


@dataclass(frozen=True)
class Request:
    """What was asked for, with what the table itself would have where nothing was said."""

    name: str
    fractions: tuple[float, ...]
    seeds: int
    methods: tuple[str, ...]
    steps: int | None = None
    ks: tuple[int, ...] = ()
    tuned: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Fields of ``Config``, and ``preset``."""
    chosen: Mapping[tuple[float, str], Mapping[str, Any]] = field(default_factory=dict)
    """What a method was given on top, by share of labels and its name: chosen on validation."""

    def own(self, method: str, fraction: float) -> dict[str, Any]:
        """What the method was tuned to at this share of labels."""
        return {
            name: at_share(value, fraction) if isinstance(value, Mapping) else value
            for name, value in self.tuned.get(method, {}).items()
        }

    def shared(self, fraction: float) -> Config:
        """What every arm has in common at this share of labels."""
        return resolve(**{**self.tuned.get(EVERYBODY, {}), **self.settings, "fraction": fraction})

    def ground(self) -> Ground:
        """The data's table; no image is opened."""
        shared = self.shared(self.fractions[0])
        manifest = source_of(shared).manifest()
        refuse_given_labels(shared, manifest)
        train, validation = (manifest.only((part,)).known for part in ("train", "validation"))
        return Ground(manifest.task, manifest.classes, len(train), int(train.sum()), int(validation.sum()))

    def budget(self, ground: Ground, fraction: float) -> int:
        """Gradient steps of every arm: as asked, or as many as ACPL would take if it selected everything."""
        if self.steps is not None:
            return self.steps
        config = self.shared(fraction)
        schedule = Schedule(config.batch_size, config.warmup_epochs, config.stages, config.stage_epochs)
        labelled = ground.labelled(fraction)
        return usual_steps(schedule, labelled, ground.train - labelled)

    def cell(self, arm: Arm, fraction: float, seed: int, steps: int) -> Cell:
        """The run of an arm; its name ends in a digest of everything that decides what it does."""
        settings = {
            **self.tuned.get(EVERYBODY, {}),
            **self.settings,
            **self.own(arm.method, 1.0 if arm.all_labels else fraction),
            **({} if arm.all_labels else self.chosen.get((fraction, arm.method), {})),
            **arm.settings,
            "method": arm.method,
            "fraction": 1.0 if arm.all_labels else fraction,
            "seed": seed,
            "steps": max(1, round(steps * arm.budget)),
        }
        if arm.method == "supervised":
            settings |= _taught_nothing(resolve(**settings))
        return Cell(f"{arm.method}-{settings['fraction']:g}-{seed}-{digest(resolve(**settings))}", settings)


@dataclass(frozen=True)
class Planned:
    """A cell's place in a table."""

    arm: Arm
    fraction: float
    seed: int
    cell: Cell

    @property
    def column(self) -> str:
        """What the table's column is called."""
        return self.arm.column or percent(self.fraction)


def percent(fraction: float) -> str:
    """A share of labels as tables write it: ``2 %``."""
    return f"{100 * fraction:g} %"


def _taught_nothing(config: Config) -> dict[str, Any]:
    """Supervised training makes no pseudo-labels: what they alone would know is no setting of its runs."""
    off: dict[str, Any] = {"group_labels": None, "group_pseudo_labels": 0.0}
    return off | ({"clinical": (), "clinical_in": "everything"} if config.clinical_in == "pseudo-labels" else {})


def digest(config: Config) -> str:
    """Eight letters that differ where two configurations would train differently."""
    values = config.model_dump(mode="json")
    for key in _NOT_COUNTED:
        values.pop(key, None)
    for some, before in ((values, _AS_BEFORE), (values["settings"], _SETTINGS_AS_BEFORE)):
        for key in [key for key, value in before.items() if key in some and some[key] == value]:
            del some[key]
    values["images"] = Path(values["images"]).name if values["images"] else None
    values |= contents(config)
    if (edition := algorithms.edition(config.method)) > 1:
        values["edition"] = edition
    return sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:8]


def read_tuned(file: Path | None) -> dict[str, dict[str, Any]]:
    """A YAML file of settings: ``all`` for every method, and each method's own under its name.

    What is everybody's stays everybody's: under a method only its own settings and its schedule may stand, each a value
    or several by share of labels.
    """
    if file is None:
        return {}
    values = read_yaml(file)
    if not all(isinstance(own, dict) for own in values.values()):
        raise UserError(f"{file} should hold settings under 'all' and under names of methods")
    for method, own in values.items():
        if method == EVERYBODY:
            wrong = [key for key in own if key not in Config.model_fields]
            if wrong:
                raise UserError(f"{file}: '{wrong[0]}' under 'all' is no setting that all methods share")
            continue
        allowed = {*algorithms.find(method).Settings.model_fields, *SCHEDULE} - {"steps"}
        wrong = [key for key in own if key not in allowed]
        if wrong:
            raise UserError(
                f"{file}: '{wrong[0]}' under '{method}' is not that method's own; what all share stands under 'all'"
            )
        for key, value in own.items():
            if isinstance(value, dict) and not (value and all(_is_share(share) for share in value)):
                raise UserError(
                    f"{file}: '{key}' under '{method}' should be a value, or values by share of labels as in "
                    f"{{0.05: 20, 1.0: 50}}, but it is {value}"
                )
    return values


def _is_share(key: Any) -> bool:
    return isinstance(key, int | float) and not isinstance(key, bool) and 0 < key <= 1


def plan(arms: Sequence[Arm], request: Request, ground: Ground, fraction: float) -> list[Planned]:
    """Every cell of these arms at one share of labels."""
    steps = request.budget(ground, fraction)
    return [
        Planned(arm, fraction, seed, request.cell(arm, fraction, seed, steps))
        for arm in arms
        for seed in range(request.seeds)
    ]

"""One typed configuration for Python and the shell: defaults < preset < file < what is given."""

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BeforeValidator, Field, PositiveFloat, PositiveInt, field_validator, model_validator

from acpl import algorithms
from acpl.errors import UserError
from acpl.settings import Section, unknown

DEFAULT_PRESET = "demo"


def _split_pair(value: Any) -> Any:
    return value.split(",") if isinstance(value, str) else value


def _none(value: Any) -> Any:
    return None if isinstance(value, str) and value.lower() == "none" else value


Pair = Annotated[tuple[float, float], BeforeValidator(_split_pair)]


def _group(name: str, **rules: Any) -> Any:
    """A field shown under a heading in ``acpl train --help``."""
    return Field(json_schema_extra={"group": name}, **rules)


class Config(Section):
    """Everything that decides what a training run does."""

    data: str = _group("Data", default="phantom-chest")
    """Where the images come from: phantom-chest or phantom-lesions."""
    size: int = _group("Data", default=64, ge=32)
    """Height and width in pixels that images are brought to."""
    fraction: float = _group("Data", default=0.05, gt=0, le=1)
    """Share of the training images that keep their labels."""
    draw: Literal["groups", "images", "per-class"] = _group("Data", default="groups")
    """Who is labelled: whole patients, image by image (the paper), or a share of each class (published code)."""
    normal_output: bool = _group("Data", default=False)
    """Multi-label: train one more output, 'No Finding', that is not reported, as the published code does."""
    phantom_patients: int = _group("Data", default=2250, ge=10)
    """Phantom patients to draw, about two images each: four in ten train, one validation, five test."""
    phantom_seed: int = _group("Data", default=0, ge=0)
    """Which phantoms are drawn; independent of the run's seed, as a data set is."""
    split_checksum: Annotated[str | None, BeforeValidator(_none)] = _group("Data", default=None)
    """Refuse to train unless the split has this checksum; every run's own is written to its config.yaml."""

    method: str = _group("Method", default="acpl")
    """How to learn; `acpl methods` lists them and `acpl methods NAME` their settings."""
    settings: dict[str, Any] = _group("Method", default_factory=dict, validate_default=False)
    """The method's own settings, by name; in the shell each is an option of its own, like --k 20."""

    backbone: Literal["small", "densenet121", "densenet169"] = _group("Model", default="small")
    """The network: a small one for CPUs, or a DenseNet."""
    weights: str = _group("Model", default="none")
    """What it starts from: none (random) or imagenet (DenseNets)."""
    activation: Literal["relu", "leaky-relu"] = _group("Model", default="relu")
    """leaky-relu replaces every ReLU by LeakyReLU(0.1), as the published code does."""
    dropout: float = _group("Model", default=0.0, ge=0, lt=1)
    """Dropout before the head."""
    averaging: float = _group("Model", default=0.99, ge=0, lt=1)
    """Decay of the averaged copy that evaluates."""
    averaging_statistics: Literal["average", "copy", "forward"] = _group("Model", default="average")
    """The averaged copy's batch-norm statistics: averaged, copied, or (published code) from its own passes too."""
    keep: Literal["last", "best"] = _group("Model", default="last")
    """The model that is kept: the last, or the best on validation."""

    batch_size: int = _group("Training", default=32, ge=2)
    """Images a gradient step."""
    warmup_epochs: PositiveInt = _group("Training", default=20)
    """Passes over the labelled images before the first stage."""
    stages: int = _group("Training", default=5, ge=0)
    """Stages at most (T); fewer when no unlabelled image is left."""
    stage_epochs: PositiveInt = _group("Training", default=10)
    """Epochs a stage; one shows as many images as labelled and selected hold together."""
    validate_every: int = _group("Training", default=0, ge=0)
    """Epochs between two looks at the validation part; 0 looks at each stage's end only."""

    learning_rate: PositiveFloat = _group("Optimiser", default=1e-3)
    """Adam's step size."""
    betas: Pair = _group("Optimiser", default=(0.9, 0.999))
    """Adam's decay rates."""
    eps: PositiveFloat = _group("Optimiser", default=1e-8)
    """Adam's divisor floor; the paper's learning rate of 0.05 needs 0.1."""
    weight_decay: float = _group("Optimiser", default=0.0, ge=0)
    """Adam's L2 penalty."""
    schedule: Literal["constant", "step", "cosine"] = _group("Optimiser", default="constant")
    """Learning rate within a stage: constant, a tenth from 70 % on (published code), or half a cosine to 0."""

    crop: Pair = _group("Augmentation", default=(0.7, 1.0))
    """Least and greatest share of the area that a random crop keeps."""
    ratio: Pair = _group("Augmentation", default=(0.75, 1.3333333333333333))
    """Least and greatest width over height of a random crop."""
    flip: bool = _group("Augmentation", default=True)
    """Random horizontal flip."""

    threshold: Annotated[float | None, BeforeValidator(_none)] = _group("Judging", default=None, gt=0, lt=1)
    """Probability from which a class is called; none: the most probable (multi-class) or 0.5 (multi-label)."""

    seed: int = _group("Run", default=0, ge=0)
    """Draws the split and everything random in training."""
    device: str = _group("Run", default="auto")
    """auto, cpu, cuda, or cuda:N."""
    precision: Literal["auto", "32", "bf16-mixed"] = _group("Run", default="auto")
    """auto: bf16-mixed on a GPU, 32 on a CPU."""

    @field_validator("crop", "ratio")
    @classmethod
    def _ascending(cls, pair: tuple[float, float]) -> tuple[float, float]:
        if not 0 < pair[0] <= pair[1]:
            raise ValueError(f"the least must be above 0 and at most the greatest, but they are {pair}")
        return pair

    @field_validator("crop")
    @classmethod
    def _within_image(cls, crop: tuple[float, float]) -> tuple[float, float]:
        if crop[1] > 1:
            raise ValueError(f"a crop keeps at most all of the area, 1, but it is {crop[1]}")
        return crop

    @field_validator("betas")
    @classmethod
    def _below_one(cls, betas: tuple[float, float]) -> tuple[float, float]:
        if not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"each must be in [0, 1), but they are {betas}")
        return betas

    @model_validator(mode="after")
    def _keeps_what_was_judged(self) -> Self:
        if self.keep == "best" and self.stages == 0 and self.validate_every == 0:
            raise ValueError("keep 'best' with a single stage needs validate_every to be at least 1")
        return self

    def method_settings(self) -> Section:
        """The method's settings, checked by the method's own class."""
        return algorithms.find(self.method).Settings.parse(self.settings)


def resolve(preset: str | None = None, file: Path | None = None, **given: Any) -> Config:
    """The configuration of a run; a later source wins key by key, and None means not given.

    A key that is no field of ``Config`` is taken for a setting of the method, so that ``k=20`` works like
    ``settings={"k": 20}``.
    """
    merged: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    layers = [read_preset(preset or DEFAULT_PRESET)]
    if file is not None:
        layers.append(_read_yaml(file))
    layers.append({key: value for key, value in given.items() if value is not None})
    # A preset's method settings belong to its method: they do not follow a change of method.
    owner = None
    for layer in layers:
        fields, own = _split(layer)
        method = fields.get("method", merged.get("method", "acpl"))
        if owner is not None and method != owner:
            settings.clear()
        owner = method
        merged |= fields
        settings |= own
    allowed = algorithms.find(merged.get("method", "acpl")).Settings.model_fields
    for key in settings:
        if key not in allowed:
            raise unknown("setting", key, [*Config.model_fields, *allowed])
    config = Config.parse(merged | {"settings": settings})
    checked = config.method_settings().model_dump()
    return config.model_copy(update={"settings": checked})


def read_preset(name: str) -> dict[str, Any]:
    """A preset's settings as written in its file."""
    if name not in preset_names():
        raise unknown("preset", name, preset_names())
    text = (resources.files("acpl") / "presets" / f"{name}.yaml").read_text(encoding="utf-8")
    values: dict[str, Any] = yaml.safe_load(text)
    return values


def preset_names() -> list[str]:
    """Every preset there is."""
    folder = resources.files("acpl") / "presets"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def _split(layer: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A layer's fields of ``Config``, and the settings it has for the method."""
    nested = layer.get("settings", {})
    if not isinstance(nested, Mapping):
        raise UserError(f"settings should be a table of names and values, but it is {nested!r}")
    fields = {key: value for key, value in layer.items() if key in Config.model_fields and key != "settings"}
    own = {key: value for key, value in layer.items() if key not in Config.model_fields}
    return fields, {**nested, **own}


def _read_yaml(file: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{file} could not be read: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise UserError(f"{file} is not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise UserError(f"{file} should hold names and values, but it holds {type(values).__name__}")
    return values

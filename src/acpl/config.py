"""One typed configuration for Python and the shell: defaults < preset < file < what is given."""

from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from acpl import algorithms
from acpl.errors import UserError
from acpl.settings import Section, read_yaml, unknown
from acpl.task import Task


def _split(value: Any) -> Any:
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


def _none(value: Any) -> Any:
    return None if isinstance(value, str) and value.lower() == "none" else value


def _absolute(path: Path | None) -> Path | None:
    """A run folder is read from anywhere, so its configuration names files from the root."""
    return None if path is None else path.expanduser().absolute()


def _absolute_place(place: Path | str | None) -> Path | str | None:
    """The same; an address stays what it is."""
    return place if place is None or _is_address(str(place)) else _absolute(Path(place))


def _is_address(text: str) -> bool:
    return "://" in text


# "none" is how a file or the shell takes back what a preset set.
OptionalText = Annotated[str | None, BeforeValidator(_none)]
OptionalPath = Annotated[Path | None, BeforeValidator(_none), AfterValidator(_absolute)]
OptionalPlace = Annotated[Path | str | None, BeforeValidator(_none), AfterValidator(_absolute_place)]
OptionalCount = Annotated[PositiveInt | None, BeforeValidator(_none)]
OptionalStrength = Annotated[PositiveFloat | None, BeforeValidator(_none)]
OptionalSize = Annotated[Annotated[int, Field(ge=32)] | None, BeforeValidator(_none)]
OptionalTask = Annotated[Task | None, BeforeValidator(_none)]
Names = Annotated[tuple[str, ...], BeforeValidator(_split)]
Shares = Annotated[tuple[float, float, float], BeforeValidator(_split)]
Pair = Annotated[tuple[float, float], BeforeValidator(_split)]
ThresholdRule = Literal["argmax", "validation"] | float


# What ``data`` may be besides a path: a file of the same name does not come before it.
_NAMED_DATA = ("phantom-chest", "phantom-lesions", "chestxray14", "isic2018")


def _group(name: str, **rules: Any) -> Any:
    """A field shown under a heading in ``acpl train --help``."""
    return Field(json_schema_extra={"group": name}, **rules)


class Config(Section):
    """Everything that decides what a training run does."""

    data: str = _group("Data", default="phantom-chest")
    """Where the images come from: a .csv table, a folder with one subfolder a class, shards like
    'scans-{000..127}.tar' (here or at an address) or a .txt that lists them, chestxray14, isic2018, medmnist:NAME,
    phantom-chest or phantom-lesions."""
    images: OptionalPlace = _group("Data", default=None)
    """What a table's names are relative to (its own folder without it): a folder, a zip, shards like
    'scans-{000..127}.tar', or an address like s3://bucket/scans; the folder of a download."""
    size: int = _group("Decoding", default=64, ge=32, le=4096)
    """Height and width in pixels that images are brought to."""
    aspect: Literal["stretch", "crop", "pad"] = _group("Decoding", default="stretch")
    """How an image becomes a square: stretched, its middle, or with black beside it."""
    colour: Literal["auto", "grey", "rgb"] = _group("Decoding", default="auto")
    """auto: grey where a sample of the images is."""
    task: OptionalTask = _group("Data", default=None)
    """multi-class or multi-label; inferred from the labels without it."""
    classes: Names = _group("Data", default=())
    """A table's label columns, comma-separated; without it every column that holds 0, 1 and blanks alone
    (where there is none: yes, no; true, false)."""
    image_column: OptionalText = _group("Data", default=None)
    """A table's column of image names; found by its name without it, as the next three are."""
    labels_column: OptionalText = _group("Data", default=None)
    """A table's one column of labels, like 'Mass|Nodule'."""
    group_column: OptionalText = _group("Data", default=None)
    """A table's column of patients or lesions, whose images stay together."""
    clinical: Names = _group("Data", default=())
    """A table's columns of what is known of the patient, such as age,sex,site: what they say of each class, learnt from
    the labelled images' rows, is added to what the image says, in pseudo-labels, validation and prediction alike."""
    clinical_in: Literal["everything", "pseudo-labels"] = _group("Data", default="everything")
    """Where that is added. ``pseudo-labels``: it teaches through them alone, and the model answers by the image and
    asks for no table."""
    split_column: OptionalText = _group("Data", default=None)
    """A table's column of parts: train, validation, test."""
    split: OptionalPath = _group("Data", default=None)
    """A CSV of images and their parts or roles: a published split, or the split.csv of an earlier run."""
    parts: Shares = _group("Data", default=(0.7, 0.1, 0.2))
    """Shares of train, validation and test, by group, where nothing else says who is where."""
    validation: float = _group("Data", default=0.1, ge=0, lt=1)
    """Share of the training images, by group, that become validation where a split has none."""
    split_seed: int = _group("Data", default=0, ge=0)
    """Draws the parts; independent of the run's seed, as a published split is."""
    fraction: float = _group("Labels", default=1.0, gt=0, le=1)
    """Share of the training images with labels that keep them."""
    labelled: OptionalCount = _group("Labels", default=None)
    """Exactly this many images keep their labels, instead of a fraction."""
    draw: Literal["groups", "images", "per-class", "order"] = _group("Labels", default="groups")
    """Who is labelled: whole patients, image by image (the paper), a share of each class (published code), or the first
    of the table's column 'order' (a published split)."""
    group_labels: OptionalStrength = _group("Labels", default=None)
    """What a patient's labelled images say of the patient's unlabelled ones is added to pseudo-labels; so many of them
    weigh as much as how common each class is in all patients."""
    group_pseudo_labels: float = _group("Labels", default=0.0, ge=0, le=1)
    """Share of what the network says for a pseudo-label that is the mean over the unlabelled images of the same patient
    or lesion; 1 where they all show the same thing."""
    skip_bad: bool = _group("Decoding", default=False)
    """Go on without the images that cannot be read; they are listed either way."""
    cache: OptionalPath = _group("Decoding", default=None)
    """Where decoded images are kept (default: $ACPL_CACHE, or ~/.cache/acpl)."""
    normal_output: bool = _group("Labels", default=False)
    """Multi-label: train one more output, 'No Finding', that is not reported, as the published code does."""
    phantom_patients: int = _group("Data", default=8000, ge=10, le=1_000_000)
    """Phantom patients to draw, about two images each: four in ten train, one validation, five test."""
    phantom_seed: int = _group("Data", default=0, ge=0)
    """Which phantoms are drawn; independent of the run's seed, as a data set is."""
    phantom_errors: float = _group("Data", default=0.0, ge=0, le=0.5)
    """Share of the phantoms' findings that the training part's labels miss, with as many made up, as labels from
    reports do (lesions: that they take for any other); validation and test labels are right."""
    split_checksum: OptionalText = _group("Labels", default=None)
    """Refuse to train unless the split has this checksum; every run's own is written to its config.yaml."""

    method: str = _group("Method", default="acpl")
    """How to learn; `acpl methods` lists them and `acpl methods NAME` their settings."""
    settings: dict[str, Any] = _group("Method", default_factory=dict, validate_default=False)
    """The method's own settings, by name; in the shell each is an option of its own, like --k 20."""

    backbone: str = _group("Model", default="small")
    """The network: small (for CPUs), efficientnet-lite0, efficientnet-lite2, densenet121, densenet169, timm:NAME."""
    weights: str = _group("Model", default="none")
    """What it starts from: none (random), imagenet, or a file of weights for this backbone."""
    init_from: OptionalPath = _group("Model", default=None)
    """Start from the final weights of this run (a run folder) instead."""
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

    batch_size: int = _group("Training", default=32, ge=2, le=65_536)
    """Images a gradient step; shared out where several processes train together."""
    warmup_epochs: PositiveInt = _group("Training", default=20, le=1_000_000)
    """Passes over the labelled images before the first stage."""
    stages: int = _group("Training", default=5, ge=0, le=10_000)
    """Stages at most (T); fewer when no unlabelled image is left."""
    stage_epochs: PositiveInt = _group("Training", default=10, le=1_000_000)
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
    crop_size: OptionalSize = _group("Augmentation", default=None)
    """Pixels of a random crop's sides (default: size). Images are judged at their full size; training on smaller crops
    takes less time, and shows things at about the size that whole images will show them."""
    flip: bool = _group("Augmentation", default=True)
    """Random horizontal flip."""
    turns: bool = _group("Augmentation", default=False)
    """Random quarter turns: for pictures without an up, such as skin."""
    colours: float = _group("Augmentation", default=0.0, ge=0, le=1)
    """Greatest random change of brightness, contrast and colour, as a share."""
    distort: bool = _group("Augmentation", default=False)
    """Two random distortions of every image that is taught, and a hole, besides: labelled and pseudo-labelled ones."""
    cutmix: float = _group("Augmentation", default=0.0, ge=0, le=1)
    """Share of those images into which a patch of another is pasted; their labels mix by area (CutMix)."""

    threshold: Annotated[ThresholdRule | None, BeforeValidator(_none)] = _group("Judging", default=None)
    """When a class is called: argmax (multi-class default), validation (multi-label default: the probability with the
    best sensitivity + specificity there, class by class), or from a fixed probability on, such as 0.18."""
    calibrate: bool = _group("Judging", default=False)
    """Divide the finished model's logits by one temperature, fitted on the validation part, so that probabilities mean
    more nearly what they say."""
    group_answers: float = _group("Judging", default=0.0, ge=0, le=1)
    """Share of an answer that is the mean over the images of the same patient or lesion, in validation and judging; 1
    where they all show the same thing."""
    looks: Literal["one", "mirrored", "turned"] = _group("Judging", default="one")
    """How an image is looked at, in selection, validation and prediction alike: as it is, with its mirror image, or in
    all eight turns and mirror images (pictures without an up, such as skin), and the answers averaged."""

    seed: int = _group("Run", default=0, ge=0)
    """Draws the split and everything random in training."""
    device: str = _group("Run", default="auto")
    """auto, cpu, cuda, or cuda:N."""
    devices: int = _group("Run", default=1, ge=1, le=4096)
    """Processes on each machine that train together, one GPU each (with device cpu: that share its cores)."""
    nodes: int = _group("Run", default=1, ge=1, le=4096)
    """Machines; each starts the same command, or torchrun or srun does. Under them leave devices and nodes out."""
    precision: Literal["auto", "32", "bf16-mixed"] = _group("Run", default="auto")
    """auto: bf16-mixed on a GPU, 32 on a CPU."""
    cuda_graphs: bool = _group("Run", default=True)
    """On a GPU, record a step once and replay it: several times faster, the same results."""
    store_share: float = _group("Run", default=0.5, ge=0, le=1)
    """Share of the GPU's free memory that the images may take; more of them stay on the host and are read ahead."""
    checkpoint_minutes: float = _group("Run", default=5.0, ge=0)
    """Between two checkpoints within a stage; there is one at each stage's end besides."""

    @field_validator("data", "weights", mode="before")
    @classmethod
    def _path_as_text(cls, value: Any) -> Any:
        return str(value) if isinstance(value, Path) else value

    @field_validator("data")
    @classmethod
    def _absolute_data(cls, data: str) -> str:
        path = Path(data).expanduser()
        if data in _NAMED_DATA or _is_address(data):
            return data
        return str(path.absolute()) if path.exists() or path.suffix.lower() == ".tar" else data

    @field_validator("parts")
    @classmethod
    def _sum_to_one(cls, parts: tuple[float, float, float]) -> tuple[float, float, float]:
        if min(parts) < 0 or parts[0] == 0 or abs(sum(parts) - 1) > 1e-6:
            raise ValueError(f"train, validation and test must add up to 1, but they are {parts}")
        return parts

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

    @field_validator("threshold")
    @classmethod
    def _is_a_probability(cls, rule: ThresholdRule | None) -> ThresholdRule | None:
        if isinstance(rule, float) and not 0 < rule < 1:
            raise ValueError(f"a fixed one must be above 0 and below 1, but it is {rule}")
        return rule

    @model_validator(mode="after")
    def _crops_are_no_larger(self) -> Self:
        if self.crop_size is not None and self.crop_size > self.size:
            raise ValueError(f"crop_size must be at most size, {self.size}, but it is {self.crop_size}")
        return self

    @model_validator(mode="after")
    def _has_columns_to_teach_with(self) -> Self:
        if self.clinical_in == "pseudo-labels" and not self.clinical:
            raise ValueError("clinical_in 'pseudo-labels' needs clinical: a table's columns of what is known")
        return self

    @model_validator(mode="after")
    def _keeps_what_was_judged(self) -> Self:
        if self.keep == "best" and self.stages == 0 and self.validate_every == 0:
            raise ValueError("keep 'best' with a single stage needs validate_every to be at least 1")
        return self

    @property
    def shown_size(self) -> int:
        """Height and width in pixels of what training shows the network."""
        return self.crop_size or self.size

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
    layers = [] if file is None else [read_yaml(file)]
    layers.append({key: value for key, value in given.items() if value is not None})
    layers.insert(0, read_preset(preset or _default_preset(layers)))
    # A preset's method settings belong to its method: they do not follow a change of method.
    owner = None
    for layer in layers:
        fields, own = _divide(layer)
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


def _default_preset(layers: Sequence[Mapping[str, Any]]) -> str:
    """What a run starts from when it does not say: ``demo`` for the phantoms, ``images`` for real ones."""
    data = next((layer["data"] for layer in reversed(layers) if "data" in layer), "phantom-chest")
    return "demo" if str(data).startswith("phantom") else "images"


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


def _divide(layer: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A layer's fields of ``Config``, and the settings it has for the method."""
    nested = layer.get("settings", {})
    if not isinstance(nested, Mapping):
        raise UserError(f"settings should be a table of names and values, but it is {nested!r}")
    fields = {key: value for key, value in layer.items() if key in Config.model_fields and key != "settings"}
    own = {key: value for key, value in layer.items() if key not in Config.model_fields}
    return fields, {**nested, **own}

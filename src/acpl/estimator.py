"""A classifier in scikit-learn's style, for people whose images are arrays."""

from collections.abc import Mapping, Sequence
from math import isqrt
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from acpl.errors import UserError
from acpl.task import Task

if TYPE_CHECKING:
    from acpl.engine.loading import Model

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
except ImportError:  # the class can still be named and documented; fit says what is missing
    BaseEstimator, ClassifierMixin = type("BaseEstimator", (), {}), type("ClassifierMixin", (), {})

Array = npt.NDArray[Any]
UNLABELLED = -1
# Names of columns and files in the folder that a fit trains from.
_CLASS = "class {:04d}"


class ACPLClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Learns from few labelled and many unlabelled images.

    ``fit(X, y)`` takes images (n, height, width) or (n, height, width, channels), or flattened ones (n, pixels). ``y``
    (n,) holds classes, with -1 (or NaN, or None) where an image is unlabelled; or ``y`` (n, classes) holds 0 and 1, one
    column a finding, with NaN where an image is unlabelled.

    Pixels count by their values, never by their dtype. Where ``fit`` saw uint8, 0 to 255 is black to white; else the
    least and the greatest value of all of its images are, and what is beyond them later is cut. ``predict`` keeps that
    range and that shape of an image, and refuses values of evidently another range, such as 0 to 1 after 0 to 255.

    Args:
        method: how to learn; ``acpl.methods()`` lists the names.
        backbone, weights: the network and what it starts from.
        size: height and width in pixels that images are brought to, at least 32.
        warmup_epochs, stages, stage_epochs, batch_size, learning_rate: the schedule, as in ``acpl.train``.
        validation: share of the labelled images (by group) that thresholds are set on; 0 takes none.
        settings: any other keyword of ``acpl.train``: fields of ``acpl.Config``, and settings of the method like ``k``.
        image_shape: (height, width) or (height, width, channels) of flattened images; without it a row of pixels is
            taken for a square grey image, filled up with the least value.
        random_state: an int or a RandomState; the same number gives the same model.
        device: auto, cpu, cuda, or cuda:N.
        out: a new folder to keep the data and the run in; without it both are made in a temporary folder.

    After ``fit``: ``classes_``, ``n_features_in_``, ``task_``, ``model_`` (what ``acpl.load`` gives) and ``run_``, the
    run's folder where ``out`` was given.
    """

    def __init__(
        self,
        method: str = "acpl",
        *,
        backbone: str = "small",
        weights: str = "none",
        size: int = 64,
        warmup_epochs: int = 20,
        stages: int = 3,
        stage_epochs: int = 5,
        batch_size: int = 32,
        learning_rate: float = 1e-3,
        validation: float = 0.1,
        settings: Mapping[str, Any] | None = None,
        image_shape: tuple[int, ...] | None = None,
        random_state: Any = 0,
        device: str = "auto",
        out: str | Path | None = None,
    ) -> None:
        self.method = method
        self.backbone = backbone
        self.weights = weights
        self.size = size
        self.warmup_epochs = warmup_epochs
        self.stages = stages
        self.stage_epochs = stage_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.validation = validation
        self.settings = settings
        self.image_shape = image_shape
        self.random_state = random_state
        self.device = device
        self.out = out

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:  # noqa: N803 — scikit-learn's name
        """Train; ``groups`` (n,) are patients, whose images are never both trained and validated on."""
        validation = _scikit_learn()
        X = validation.validate_data(self, X, allow_nd=True, dtype="numeric", ensure_min_samples=2)  # noqa: N806
        self._shape = _image_shape(X)
        self._range = _Range.of(X)
        labels = self._read_labels(y, len(X), validation)
        if groups is not None and len(groups) != len(X):
            raise ValueError(f"groups has {len(groups)} entries for {len(X)} images")
        pictures = self._pictures(X)
        seed = int(validation.check_random_state(self.random_state).randint(2**31 - 1))
        if self.out is None:
            with TemporaryDirectory(prefix="acpl-") as temporary:
                self._train(Path(temporary), pictures, labels, groups, seed)
        else:
            folder = Path(self.out)
            try:
                folder.mkdir(parents=True)
            except FileExistsError:
                raise UserError(f"{folder} exists; choose another out, nothing is ever written over") from None
            self.run_ = self._train(folder, pictures, labels, groups, seed)
        return self

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:  # noqa: N803
        """(n, classes): probabilities in the order of ``classes_``; each finding's own where there may be several."""
        validation = _scikit_learn()
        validation.check_is_fitted(self, "model_")
        if len(self._shape) > 1:  # before scikit-learn counts the height for features
            self._refuse_other_shape(np.shape(X))
        X = validation.validate_data(self, X, allow_nd=True, dtype="numeric", reset=False)  # noqa: N806
        self._refuse_other_shape(X.shape)
        self._range.refuse_another(X)
        return self.model_.probabilities_of([self.model_.decoded(image) for image in self._pictures(X)])

    def predict(self, X: Any) -> Array:  # noqa: N803
        """(n,) classes, or (n, classes) of 0 and 1 at the thresholds that validation set."""
        found = self.predict_proba(X)
        if self.task_ == Task.MULTI_CLASS:
            return self.classes_[found.argmax(axis=1)]  # type: ignore[no-any-return]
        thresholds = self.model_.thresholds or {}
        return (found >= np.array([thresholds[name] for name in self.model_.classes])).astype(int)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:  # noqa: N803
        """Accuracy on the images whose labels are known; of several findings, all have to be right."""
        validation = _scikit_learn()
        truth = np.asarray(y)
        known = ~(_unlabelled(truth) if truth.ndim == 1 else np.isnan(truth.astype(float)).any(axis=1))
        weight = None if sample_weight is None else np.asarray(sample_weight)[known]
        if not known.any():
            raise ValueError("y has no labelled image to score on")
        predicted = self.predict(X)[known]
        right = truth[known].astype(predicted.dtype) if truth.dtype == object else truth[known]
        return float(validation.accuracy_score(right, predicted, sample_weight=weight))

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn may ask of it."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        tags.target_tags.multi_output = False
        return tags

    def _read_labels(self, y: Any, count: int, validation: "_ScikitLearn") -> npt.NDArray[np.float64]:
        """(n, classes) of 0, 1 and NaN."""
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        given = np.asarray(y)
        if given.ndim == 0:
            raise ValueError(f"y should be (n,) classes or (n, classes) of 0, 1 and NaN, but it is one value: {y}")
        if given.ndim == 2 and given.shape[1] == 1:
            given = validation.column_or_1d(given, warn=True)
        if len(given) != count:
            raise ValueError(f"X has {count} images, but y has {len(given)} labels: inconsistent numbers of samples")
        if given.ndim == 2:
            return self._read_findings(given)
        if given.ndim != 1:
            raise ValueError(f"y should be (n,) classes or (n, classes) of 0, 1 and NaN, but it is {given.shape}")
        if given.dtype.kind == "f" and np.isinf(given).any():
            raise ValueError("Input y contains infinity")
        unlabelled = _unlabelled(given)
        known = given[~unlabelled]
        if len(known) == 0:
            raise ValueError("y has no labelled image")
        validation.check_classification_targets(known)
        self.classes_, codes = np.unique(known, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"ACPLClassifier needs 2 classes or more, but y has one class: {self.classes_[0]}")
        self.task_ = Task.MULTI_CLASS
        labels = np.full((count, len(self.classes_)), np.nan)
        labels[~unlabelled] = np.eye(len(self.classes_))[codes]
        return labels

    def _read_findings(self, given: Array) -> npt.NDArray[np.float64]:
        labels = given.astype(np.float64)
        if not np.isin(labels[~np.isnan(labels)], (0, 1)).all():
            raise ValueError("y with a column a finding should hold 0, 1 and NaN alone")
        if not (~np.isnan(labels).any(axis=1)).any():
            raise ValueError("y has no image with all of its labels")
        self.task_ = Task.MULTI_LABEL
        self.classes_ = np.arange(labels.shape[1])
        return labels

    def _refuse_other_shape(self, shape: tuple[int, ...]) -> None:
        if shape[1:] != self._shape:
            expected = ", ".join(map(str, ("n", *self._shape)))
            raise ValueError(f"X should be ({expected}), images as in fit, but it is {shape}; one image is X[None]")

    def _pictures(self, X: Array) -> npt.NDArray[np.uint8]:  # noqa: N803
        """(n, height, width) or (n, height, width, channels)."""
        pixels = self._range.grey(X)
        if X.ndim > 2:
            return pixels
        return _unflattened(pixels, self.image_shape, self._range.grey(np.array(self._range.least)))

    def _train(self, folder: Path, pictures: Array, labels: npt.NDArray[np.float64], groups: Any, seed: int) -> Path:
        from acpl import api

        table = _write_data(folder / "data", pictures, labels, groups)
        given = dict(self.settings or {})
        own = {*self.get_params(), "data", "images", "cache", "classes", "task", "parts", "seed"}
        if taken := sorted(own & set(given)):
            raise UserError(f"settings may not hold '{taken[0]}': it is a parameter, or follows from the data")
        run = api.train(
            **{
                "preset": "images",
                **given,
                "data": str(table),
                "images": folder / "data",
                "cache": folder / "cache",
                "classes": tuple(_CLASS.format(number) for number in range(labels.shape[1])),
                "task": self.task_,
                "parts": (1 - self.validation, self.validation, 0.0),
                "out": folder / "run",
                "method": self.method,
                "backbone": self.backbone,
                "weights": self.weights,
                "size": self.size,
                "warmup_epochs": self.warmup_epochs,
                "stages": self.stages,
                "stage_epochs": self.stage_epochs,
                "batch_size": self.batch_size,
                "learning_rate": self.learning_rate,
                "seed": seed,
                "device": self.device,
            }
        )
        self.model_: Model = api.load(run, device=self.device)
        return run


class _Range(NamedTuple):
    """What ``fit`` saw of pixels, and the values that are black and white."""

    least: float
    greatest: float
    black: float
    white: float
    eight_bit: bool
    whole: bool

    @classmethod
    def of(cls, images: Array) -> "_Range":
        least, greatest = float(images.min()), float(images.max())
        eight_bit = images.dtype == np.uint8
        black, white = (0.0, 255.0) if eight_bit else (least, greatest)
        return cls(least, greatest, black, white, eight_bit, not _has_fractions(images))

    def grey(self, images: Array) -> npt.NDArray[np.uint8]:
        """0 to 255."""
        if self.eight_bit and images.dtype == np.uint8:
            return images
        span = (self.white - self.black) or 1.0
        scaled = (images.astype(np.float64) - self.black) * (255 / span)
        # To a thousandth first: what lies halfway between two levels is the same level in float32 and in float64.
        return np.clip(np.rint(np.round(scaled, 3)), 0, 255).astype(np.uint8)

    def refuse_another(self, images: Array) -> None:
        """ValueError for values that cannot be of the range that ``fit`` saw."""
        least, greatest = float(images.min()), float(images.max())
        shares = least >= 0 and greatest <= 1 and _has_fractions(images)
        many = self.least >= 0 and (self.greatest > 50 or (self.whole and self.greatest > 1))
        # A float may pass 1 a little where an image was made larger; a whole number may not.
        too_great = greatest > (2 if images.dtype.kind == "f" else 1)
        if (
            (shares and many)
            or (self.eight_bit and (least < 0 or greatest > 255))
            or (not self.eight_bit and self.greatest > 255 and images.dtype == np.uint8)
            or (self.least >= 0 and self.greatest <= 1 and not self.eight_bit and too_great)
        ):
            seen = "uint8, 0 to 255" if self.eight_bit else f"{self.least:g} to {self.greatest:g}"
            raise ValueError(
                f"X should hold pixels in the range that fit saw ({seen}), "
                f"but it is {images.dtype} from {least:g} to {greatest:g}"
            )


class _ScikitLearn:
    """What is used of scikit-learn, imported together."""

    def __init__(self) -> None:
        from sklearn.metrics import accuracy_score
        from sklearn.utils import check_random_state
        from sklearn.utils.multiclass import check_classification_targets
        from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

        self.accuracy_score = accuracy_score
        self.check_random_state = check_random_state
        self.check_classification_targets = check_classification_targets
        self.check_is_fitted = check_is_fitted
        self.column_or_1d = column_or_1d
        self.validate_data = validate_data


def _scikit_learn() -> _ScikitLearn:
    try:
        return _ScikitLearn()
    except ImportError:
        raise UserError("ACPLClassifier needs scikit-learn: pip install 'acpl[sklearn]'") from None


def _unlabelled(labels: Array) -> npt.NDArray[np.bool_]:
    """Where y says that nothing is known: -1, NaN or None."""
    if labels.dtype.kind in "iu":
        return np.asarray(labels == UNLABELLED)
    if labels.dtype.kind == "f":
        return np.asarray(np.isnan(labels) | (labels == UNLABELLED))
    if labels.dtype.kind == "O":
        return np.array([x is None or x != x or (not isinstance(x, str) and x == UNLABELLED) for x in labels], bool)
    return np.zeros(len(labels), dtype=bool)


def _has_fractions(values: Array) -> bool:
    return values.dtype.kind == "f" and bool((values != np.rint(values)).any())


def _image_shape(images: Array) -> tuple[int, ...]:
    """(pixels,), (height, width) or (height, width, channels); a ValueError for a single image, or for others."""
    shape = images.shape
    lone = images.ndim == 3 and shape[2] in (1, 3, 4) and shape[1] > 4
    if lone or images.ndim not in (2, 3, 4) or (images.ndim == 4 and shape[3] not in (1, 3)):
        hint = "; a single image is no batch" if lone else ""
        raise ValueError(f"images should be (n, height, width[, 1 or 3 channels]), but X is {shape}{hint}")
    return shape[1:]


def _unflattened(
    rows: npt.NDArray[np.uint8], shape: Sequence[int] | None, least: npt.NDArray[np.uint8]
) -> npt.NDArray[np.uint8]:
    pixels = rows.shape[1]
    if shape is not None:
        if len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] not in (1, 3)):
            raise ValueError(f"image_shape should be (height, width[, 1 or 3 channels]), but it is {tuple(shape)}")
        if int(np.prod(shape)) != pixels:
            raise ValueError(f"image_shape {tuple(shape)} has {int(np.prod(shape))} pixels, but X has {pixels} a row")
        return rows.reshape(len(rows), *shape)
    side = isqrt(pixels - 1) + 1 if pixels > 1 else 1
    square = np.full((len(rows), side * side), least, dtype=np.uint8)
    square[:, :pixels] = rows
    return square.reshape(len(rows), side, side)


def _write_data(folder: Path, pictures: Array, labels: npt.NDArray[np.float64], groups: Any) -> Path:
    """A folder of images and the table that names them, as ``acpl.train`` takes them."""
    import pandas as pd
    from PIL import Image

    folder.mkdir()
    names = [f"{number:07d}.png" for number in range(len(pictures))]
    for name, pixels in zip(names, pictures, strict=True):
        plain = pixels[:, :, 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels
        Image.fromarray(np.ascontiguousarray(plain)).save(folder / name, compress_level=1)
    table = pd.DataFrame({"image": names})
    table["group"] = names if groups is None else [f"g{group}" for group in groups]
    for column in range(labels.shape[1]):
        table[_CLASS.format(column)] = pd.array(labels[:, column]).astype("Int64")
    target = folder / "labels.csv"
    table.to_csv(target, index=False)
    return target

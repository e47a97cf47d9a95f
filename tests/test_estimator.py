"""The scikit-learn style classifier: scikit-learn's own checks, and what it promises for images."""

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

import acpl
from acpl import ACPLClassifier
from acpl.estimator import _Range

QUICK = {"size": 32, "warmup_epochs": 3, "stages": 1, "stage_epochs": 1, "device": "cpu", "batch_size": 16}
PLAIN = {"k": 3, "crop": (1.0, 1.0), "ratio": (1.0, 1.0), "flip": False, "averaging": 0.9}
EXPECTED_TO_FAIL = {
    "check_classifiers_classes": "it trains on a class called -1, which here marks unlabelled images",
    "check_methods_subset_invariance": "in batches of another size, convolutions round the seventh digit otherwise",
}


@pytest.mark.slow
@parametrize_with_checks(
    [
        ACPLClassifier(
            **{**QUICK, "warmup_epochs": 5, "batch_size": 32}, validation=0.0, learning_rate=3e-3, settings=PLAIN
        )
    ],
    expected_failed_checks=lambda _: EXPECTED_TO_FAIL,
)
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def pictures(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Images with a bright square at the left or at the right, and which."""
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 90, (count, 24, 24), dtype=np.uint8)
    side = rng.integers(0, 2, count)
    for image, right in zip(images, side, strict=True):
        image[8:16, 14 if right else 2 : 22 if right else 10] = 230
    return images, side


def quick(**given: Any) -> ACPLClassifier:
    return ACPLClassifier(**{**QUICK, "learning_rate": 3e-3, "settings": {"k": 3, "flip": False}, **given})


@pytest.mark.slow
def test_it_learns_from_few_labels_and_names_classes_as_y_does() -> None:
    images, side = pictures(80)
    names = np.array(["left", "right"], dtype=object)[side]
    names[20:] = -1
    model = quick(warmup_epochs=25, validation=0.0).fit(images, names)
    fresh, truth = pictures(40, seed=1)
    assert set(model.predict(fresh)) <= {"left", "right"}
    assert model.score(fresh, np.array(["left", "right"], dtype=object)[truth]) > 0.9
    assert model.predict_proba(fresh).sum(axis=1) == pytest.approx(1)
    assert list(model.classes_) == ["left", "right"]


def test_unlabelled_images_are_the_runs_unlabelled_pool(tmp_path: Path) -> None:
    import pandas as pd

    images, side = pictures(30)
    y = side.astype(float)
    y[10:] = np.nan
    y[10] = -1
    model = quick(validation=0.0, out=tmp_path / "kept").fit(images, y)
    roles = pd.read_csv(model.run_ / "split.csv")["role"].value_counts().to_dict()
    assert roles == {"labelled": 10, "unlabelled": 20}
    with pytest.raises(acpl.UserError, match="exists; choose another out"):
        model.fit(images, y)


def test_findings_with_nan_are_multi_label_and_thresholded() -> None:
    images, side = pictures(40)
    y = np.stack([side, 1 - side, np.ones(40) * (np.arange(40) % 2)], axis=1).astype(float)
    y[25:, 1] = np.nan
    model = quick(validation=0.2).fit(images, y)
    assert model.task_ == "multi-label"
    found = model.predict(images)
    assert found.shape == (40, 3)
    assert set(np.unique(found)) <= {0, 1}
    assert 0 <= model.score(images, y) <= 1


def test_flattened_images_give_what_the_images_give() -> None:
    images, side = pictures(24)
    whole = quick().fit(images, side).predict_proba(images)
    flat = quick().fit(images.reshape(24, -1), side).predict_proba(images.reshape(24, -1))
    shaped = quick(image_shape=(24, 24)).fit(images.reshape(24, -1), side)
    np.testing.assert_array_equal(whole, flat)
    np.testing.assert_array_equal(whole, shaped.predict_proba(images.reshape(24, -1)))
    with pytest.raises(ValueError, match="image_shape"):
        quick(image_shape=(20, 20)).fit(images.reshape(24, -1), side)


def test_colour_and_floats_are_taken() -> None:
    images, side = pictures(24)
    colour = np.repeat(images[..., None], 3, axis=3)
    colour[..., 2] //= 2
    model = quick(method="supervised", settings=None).fit(colour / 1000.0, side)
    assert model.predict_proba(colour / 1000.0).shape == (24, 2)
    with pytest.raises(ValueError, match="channels"):
        quick().fit(np.zeros((4, 8, 8, 2)), [0, 1, 0, 1])


@pytest.fixture(scope="module")
def fitted() -> ACPLClassifier:
    """From uint8 of which the brightest is 230."""
    images, side = pictures(24)
    return quick(method="supervised", settings=None).fit(images, side)


@pytest.mark.parametrize("dtype", ["int64", "uint16", "float32", "float64"])
def test_the_same_values_in_another_dtype_are_the_same_pixels(fitted: ACPLClassifier, dtype: str) -> None:
    images, _ = pictures(6, seed=2)
    np.testing.assert_array_equal(fitted.predict_proba(images.astype(dtype)), fitted.predict_proba(images))


@pytest.mark.parametrize(
    ("seen", "later"),
    [
        (np.float32, np.float64),  # shares of 1
        (np.float64, np.float32),
    ],
)
def test_shares_are_the_same_pixels_in_either_precision(seen: type, later: type) -> None:
    levels = np.arange(1, 256)[None, :, None] / 255  # one of which lies halfway between two levels of 8 bits
    known = _Range.of(levels.astype(seen))
    np.testing.assert_array_equal(known.grey(levels.astype(later)), known.grey(levels.astype(seen)))


def test_the_range_of_fit_is_kept_and_what_is_beyond_is_cut() -> None:
    known = _Range.of(np.array([-1000.0, 3000.0]))
    assert known.grey(np.array([-2000, -1000, 1000, 3000, 4000])).tolist() == [0, 0, 128, 255, 255]
    known.refuse_another(np.array([-2000.0, 0.5]))
    assert _Range.of(np.array([7.0, 7.0])).grey(np.array([7.0])).tolist() == [0]


EIGHT_BIT = np.array([3, 230], dtype=np.uint8)


@pytest.mark.parametrize(
    ("seen", "later", "message"),
    [
        (EIGHT_BIT, np.array([0.0, 0.5]), r"fit saw \(uint8, 0 to 255\), but it is float64 from 0 to 0.5"),
        (EIGHT_BIT, np.array([0, 4095]), "int64 from 0 to 4095"),
        (EIGHT_BIT, np.array([-1, 200]), "int64 from -1 to 200"),
        (np.array([0, 4095]), EIGHT_BIT, r"fit saw \(0 to 4095\), but it is uint8 from 3 to 230"),
        (np.array([0, 4095]), np.array([0.0, 0.5]), "float64 from 0 to 0.5"),
        (np.array([0.0, 250.5]), np.array([0.0, 0.5]), "float64 from 0 to 0.5"),
        (np.array([0.0, 0.9]), EIGHT_BIT, r"fit saw \(0 to 0.9\), but it is uint8 from 3 to 230"),
        (np.array([0.0, 0.9]), np.array([0.0, 255.0]), "float64 from 0 to 255"),
    ],
)
def test_values_of_evidently_another_range_are_refused(seen: np.ndarray, later: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _Range.of(seen).refuse_another(later)


@pytest.mark.parametrize(
    ("seen", "later"),
    [
        (EIGHT_BIT, np.array([0.0, 1.0])),  # dark, but whole numbers
        (EIGHT_BIT, np.array([0.25, 254.5])),
        (np.array([0.0, 0.9]), np.array([0.0, 1.04])),
        (np.array([0, 1], dtype=np.uint8), np.array([0.0, 0.5])),
        (np.array([-2.5, 3.1]), np.array([0.1, 0.9])),
        (np.array([0, 4095]), np.array([0, 200])),
    ],
)
def test_values_that_may_be_of_the_range_are_taken(seen: np.ndarray, later: np.ndarray) -> None:
    _Range.of(seen).refuse_another(later)


def test_another_range_is_refused_by_predict(fitted: ACPLClassifier) -> None:
    with pytest.raises(ValueError, match="X should hold pixels in the range that fit saw"):
        fitted.predict(pictures(2)[0] / 255)


@pytest.mark.parametrize("shape", [(24, 24), (24, 24, 3), (24, 24, 1), (1, 24, 24, 3), (2, 576), (2, 24, 30)])
def test_predict_takes_the_shape_of_fit_alone_and_says_which(fitted: ACPLClassifier, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"X should be \(n, 24, 24\), images as in fit, but it is \("):
        fitted.predict_proba(np.zeros(shape, dtype=np.uint8))
    assert fitted.predict_proba(pictures(1)[0]).shape == (1, 2)


@pytest.mark.parametrize("shape", [(24, 24, 3), (24, 24, 1), (4, 3, 24, 24), (24,), (2, 2, 24, 24, 3)])
def test_fit_says_which_shape_a_batch_has(shape: tuple[int, ...]) -> None:
    expected = r"\(n, height, width\[, 1 or 3 channels\]\), but X is|Reshape your data|Expected 2D array"
    with pytest.raises(ValueError, match=expected):
        quick().fit(np.zeros(shape, dtype=np.uint8), np.arange(shape[0]) % 2)


def test_one_image_with_one_label_is_no_batch() -> None:
    with pytest.raises(ValueError, match="X has 24 images, but y has 1 labels"):
        quick().fit(np.zeros((24, 24)), [0])
    with pytest.raises(ValueError, match="but it is one value: 1"):
        quick().fit(np.zeros((24, 24)), 1)


def test_rows_are_filled_up_with_the_least_value_whatever_the_dtype() -> None:
    model = quick()
    rows = np.array([[-3.5, 1.0, 2.0], [4.5, 0.0, 1.0]])
    model._range = _Range.of(rows)
    assert model._pictures(rows.astype(np.int64))[0, 1, 1] == 0
    assert model._pictures(np.array([[4, 0, 1]], dtype=np.uint8))[0, 1, 1] == 0
    with pytest.raises(ValueError, match="image_shape should be"):
        model.set_params(image_shape=(1, 1, 3, 1))._pictures(rows)


def test_the_same_random_state_gives_the_same_model_and_a_pickle_too() -> None:
    images, side = pictures(24)
    first = quick(random_state=3).fit(images, side)
    again = clone(first).fit(images, side)
    np.testing.assert_array_equal(first.predict_proba(images), again.predict_proba(images))
    np.testing.assert_array_equal(first.predict_proba(images), pickle.loads(pickle.dumps(first)).predict_proba(images))
    other = clone(first).set_params(random_state=4).fit(images, side)
    assert (first.predict_proba(images) != other.predict_proba(images)).any()


def test_groups_never_stand_on_two_sides(tmp_path: Path) -> None:
    import pandas as pd

    images, side = pictures(30)
    model = quick(validation=0.3, out=tmp_path / "kept").fit(images, side, groups=np.arange(30) // 3)
    split = pd.read_csv(model.run_ / "split.csv")
    parts = split["role"].eq("validation").groupby(split["id"] // 3).nunique()
    assert (parts == 1).all()
    assert split["role"].eq("validation").sum() == 9


def test_a_wrong_setting_is_named() -> None:
    images, side = pictures(8)
    with pytest.raises(acpl.UserError, match="unknown setting 'kk'"):
        quick(settings={"kk": 3}).fit(images, side)
    with pytest.raises(acpl.UserError, match="settings may not hold 'size'"):
        quick(settings={"size": 40}).fit(images, side)


def test_without_scikit_learn_fit_names_the_extra() -> None:
    script = (
        "import sys; sys.modules['sklearn'] = None\n"
        "from acpl import ACPLClassifier, UserError\n"
        "try:\n    ACPLClassifier().fit([[0.0]], [0])\nexcept UserError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "ACPLClassifier needs scikit-learn: pip install 'acpl[sklearn]'"

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

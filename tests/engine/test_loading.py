"""A trained model in Python's hands."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import acpl
from acpl.data.phantoms import draw_chest, draw_lesions
from acpl.engine.run_folder import RunFolder


@pytest.fixture(scope="module")
def grey() -> np.ndarray:
    """Grey images (n, height, width)."""
    return draw_chest([7, 9], size=48).images[:, 0]


def test_files_arrays_and_pil_images_give_what_predict_gives(chest_run: Path, grey: np.ndarray, tmp_path: Path) -> None:
    for number, pixels in enumerate(grey):
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    expected, _ = acpl.predict(chest_run, [tmp_path], device="cpu")
    model = acpl.load(chest_run, device="cpu")
    pd.testing.assert_frame_equal(model(tmp_path), expected)
    pd.testing.assert_frame_equal(model([tmp_path / f"{n}.png" for n in range(len(grey))]), expected)
    figures = expected.drop(columns="id")
    for images in (
        grey,
        list(grey),
        grey[..., None],
        np.repeat(grey[..., None], 3, axis=3),
        [Image.fromarray(pixels) for pixels in grey],
        [Image.fromarray(grey[0]), *(str(tmp_path / f"{n}.png") for n in range(1, len(grey)))],
        grey / 255.0,
    ):
        pd.testing.assert_frame_equal(model(images).drop(columns="id"), figures)
    pd.testing.assert_frame_equal(model(grey[0]).drop(columns="id"), figures[:1])
    assert model(grey)["id"].tolist() == list(range(len(grey)))


def test_colour_images_and_one_class_an_image(lesions_run: Path, tmp_path: Path) -> None:
    pixels = draw_lesions([3], size=40).images[0].transpose(1, 2, 0)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    model = acpl.load(lesions_run, device="cpu")
    expected, _ = acpl.predict(lesions_run, [tmp_path / "a.png"], device="cpu")
    pd.testing.assert_frame_equal(model(pixels).drop(columns="id"), expected.drop(columns="id"))
    assert model.classes == RunFolder.open(lesions_run).card().classes
    assert model.task == "multi-class"
    assert model.thresholds is None


def test_sixteen_bits_are_read_as_a_file_of_sixteen_bits_is(chest_run: Path, tmp_path: Path) -> None:
    wide = np.random.default_rng(0).integers(1000, 3000, (40, 50), dtype=np.uint16)
    Image.fromarray(wide).save(tmp_path / "wide.png")
    model = acpl.load(chest_run, device="cpu")
    from_file, from_array = model(tmp_path / "wide.png"), model(wide)
    pd.testing.assert_frame_equal(from_file.drop(columns="id"), from_array.drop(columns="id"))


def test_a_photograph_on_its_side_is_turned_and_left_as_it_was(lesions_run: Path, tmp_path: Path) -> None:
    pixels = draw_lesions([3], size=40).images[0].transpose(1, 2, 0)
    exif = Image.Exif()
    exif[274] = 6
    Image.fromarray(np.rot90(pixels)).save(tmp_path / "side.png", exif=exif)
    model = acpl.load(lesions_run, device="cpu")
    with Image.open(tmp_path / "side.png") as image:
        turned = model(image)
        assert image.getexif()[274] == 6
    pd.testing.assert_frame_equal(turned.drop(columns="id"), model(pixels).drop(columns="id"))


@pytest.mark.parametrize(
    ("images", "sentence"),
    [
        (np.zeros((4, 4)) - 1, "floats should lie in"),
        (np.full((4, 4), np.nan), "not numbers"),
        (np.zeros(5, dtype=np.uint8), "an array should be"),
        (np.zeros((2, 4, 4, 2), dtype=np.uint8), "1, 3 or 4 channels"),
        ([object()], "it is no path, PIL image or array"),
        ([], "there is no image"),
        (3, "images should be paths"),
        ("/nowhere.png", "does not exist"),
    ],
)
def test_what_is_no_image_is_refused_in_a_sentence(chest_run: Path, images: object, sentence: str) -> None:
    with pytest.raises(acpl.UserError, match=sentence):
        acpl.load(chest_run, device="cpu")(images)


def test_a_bad_file_is_named_or_left_out(chest_run: Path, grey: np.ndarray, tmp_path: Path) -> None:
    Image.fromarray(grey[0]).save(tmp_path / "good.png")
    (tmp_path / "bad.png").write_text("no image")
    model = acpl.load(chest_run, device="cpu")
    with pytest.raises(acpl.UserError, match=r"1 of 2 images cannot be read: .*bad\.png"):
        model(tmp_path)
    assert model(tmp_path, skip_bad=True)["id"].tolist() == [str(tmp_path / "good.png")]

"""One configuration, and every mistake told by name."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from acpl.config import Config, preset_names, read_preset, resolve
from acpl.errors import UserError


def test_later_sources_win_key_by_key(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text("batch_size: 8\nstages: 3\nsettings: {k: 7}\n")
    config = resolve("isic2018", file, stages=2)
    assert (config.size, config.batch_size, config.stages) == (224, 8, 2)
    assert config.settings["k"] == 7


def test_a_setting_of_the_method_may_be_given_flat_or_nested() -> None:
    assert resolve(k=7).settings == resolve(settings={"k": 7}).settings


def test_a_presets_method_settings_do_not_follow_a_change_of_method() -> None:
    assert resolve("demo", method="supervised").settings == {"steps": None}


def test_words_from_the_shell_become_numbers() -> None:
    config = resolve(betas="0.8,0.9", seed="3", threshold="none", k="4", flip="false")
    assert (config.betas, config.seed, config.threshold, config.flip) == ((0.8, 0.9), 3, None, False)
    assert config.settings["k"] == 4


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"method": "acl"}, "unknown method 'acl'; did you mean 'acpl'?"),
        ({"preset": "dmo"}, "unknown preset 'dmo'; did you mean 'demo'?"),
        ({"learning_rat": 1}, "unknown setting 'learning_rat'; did you mean 'learning_rate'?"),
        ({"k": 0}, "k should be greater than 0, but it is 0"),
        ({"fraction": 1.5}, "fraction should be less than or equal to 1, but it is 1.5"),
        ({"fraction": 0}, "fraction should be greater than 0, but it is 0"),
        ({"parts": (0.5, 0.1, 0.1)}, "parts: train, validation and test must add up to 1"),
        ({"task": "ranking"}, "task should be 'multi-class' or 'multi-label', but it is 'ranking'"),
        ({"labelled": 0}, "labelled should be greater than 0, but it is 0"),
        ({"crop": (0.9, 0.5)}, "crop: the least must be above 0 and at most the greatest"),
        ({"crop_size": 80}, "crop_size must be at most size, 64, but it is 80"),
        ({"crop": (0.5, 2)}, "crop: a crop keeps at most all of the area"),
        ({"betas": (1, 0.9)}, "betas: each must be in [0, 1)"),
        ({"threshold": 1.5}, "threshold: a fixed one must be above 0 and below 1, but it is 1.5"),
        ({"threshold": "top"}, "threshold should be 'argmax' or 'validation', but it is 'top'"),
        ({"learning_rate": "fast"}, "learning_rate should be a valid number"),
        ({"settings": 3}, "settings should be a table of names and values"),
    ],
)
def test_a_mistake_is_one_sentence_that_names_it(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError) as refusal:
        resolve(**wrong)
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_file_that_is_no_table_is_refused(tmp_path: Path) -> None:
    for text, sentence in [("- 1", "should hold names and values"), ("a: [", "is not valid YAML")]:
        (tmp_path / "x.yaml").write_text(text)
        with pytest.raises(UserError, match=sentence):
            resolve(file=tmp_path / "x.yaml")
    with pytest.raises(UserError, match="could not be read"):
        resolve(file=tmp_path / "none.yaml")


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_resolves_and_survives_a_round_trip(name: str) -> None:
    config = resolve(name)
    again = yaml.safe_load(yaml.safe_dump(config.model_dump(mode="json")))
    assert Config.parse(again).method_settings() == config.method_settings()


def test_the_papers_numbers_are_in_the_presets() -> None:
    chest, isic = resolve("chestxray14"), resolve("isic2018")
    assert (chest.size, chest.batch_size, chest.learning_rate, chest.eps) == (512, 16, 0.05, 0.1)
    assert (chest.warmup_epochs, chest.stages, chest.stage_epochs) == (20, 5, 10)
    assert chest.settings["k"] == {0.05: 200, 1.0: 50}
    assert (isic.size, isic.batch_size, isic.learning_rate) == (224, 32, 0.001)
    assert (isic.warmup_epochs, isic.stages, isic.stage_epochs, isic.settings["k"]) == (40, 5, 20, 100)
    assert chest.backbone == isic.backbone == "densenet121"
    assert chest.weights == isic.weights == "imagenet"


def test_a_preset_sets_only_what_exists() -> None:
    for name in preset_names():
        assert set(read_preset(name)) <= set(Config.model_fields)


def test_phantoms_start_from_demo_and_real_images_from_images(tmp_path: Path) -> None:
    assert resolve().fraction == 0.05
    assert resolve(data="phantom-lesions").backbone == "small"
    assert resolve(data="scans.csv").weights == "imagenet"
    assert resolve(data="scans.csv").fraction == 1
    file = tmp_path / "own.yaml"
    file.write_text("data: scans.csv\n", encoding="utf-8")
    assert resolve(file=file).backbone == "efficientnet-lite0"
    assert resolve(preset="demo", data="scans.csv").backbone == "small"


def test_paths_are_kept_from_the_root_so_that_a_run_is_read_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "labels.csv").touch()
    (tmp_path / "scans").mkdir()
    config = resolve(data="labels.csv", images="scans", split="split.csv", cache="none")
    assert config.data == str(tmp_path / "labels.csv")
    assert config.images == tmp_path / "scans"
    assert config.split == tmp_path / "split.csv"
    assert config.cache is None
    assert resolve(data="scans").data == str(tmp_path / "scans")
    (tmp_path / "isic2018").mkdir()
    assert resolve(data="isic2018").data == "isic2018"


def test_lists_come_from_the_shell_as_text() -> None:
    config = resolve(classes="Mass, Nodule", parts="0.6,0.2,0.2", crop="0.5,1")
    assert config.classes == ("Mass", "Nodule")
    assert config.parts == (0.6, 0.2, 0.2)
    assert config.crop == (0.5, 1)

"""Configurations made to deceive; tests/test_config.py has the ordinary mistakes."""

from pathlib import Path

import pytest

from acpl.config import resolve
from acpl.errors import UserError
from acpl.settings import read_yaml

LAUGHS = "\n".join(
    ["a0: &a0 [lol]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)), "seed: *a9"]
)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("seed: !!python/object/apply:os.system ['touch ran']", "could not determine a constructor"),
        ("!!python/object/new:type {}", "could not determine a constructor"),
        ("seed: !include /etc/passwd", "could not determine a constructor"),
        (LAUGHS, "anchors with aliases (&name, *name) are not read"),
        ("&a [*a]", "anchors with aliases"),
        ("seed: " + "[" * 5000, "nested more than 20 deep"),
        ("seed: " + "{a: " * 5000, "nested more than 20 deep"),
        ("seed: 1\nseed: 2", "'seed' stands 2 times"),
        ("1: 2", "1 should be the name of a setting, but it is int"),
        ("null: 2", "None should be the name of a setting"),
        ("? [a]\n: 2", "unhashable"),
        ("seed: 2024-99-99", "month must be in 1..12"),
        ("seed: " + "9" * 5000, "not valid YAML"),
        ("seed: " + "9" * 40, "seed should be at most 9223372036854775807, but it is 9999"),
        ("seed: 0x" + "f" * 5000, "seed should be at most 9223372036854775807"),
        ("size: 1000000000", "size should be less than or equal to 4096"),
        ("phantom_patients: 1000000000000", "phantom_patients should be less than or equal to 1000000"),
        ("batch_size: 1000000000000", "batch_size should be less than or equal to 65536"),
        ("stages: 1000000000000", "stages should be less than or equal to 10000"),
        ("learning_rate: .inf", "learning_rate should be a finite number"),
        ("learning_rate: .nan", "learning_rate should be"),
        ("betas: [.nan, 0.9]", "betas should be a finite number"),
        ("weight_decay: .inf", "weight_decay should be a finite number"),
        ("learning_rate: 1.0e+999", "learning_rate should be a finite number"),
        ("seed: {a: 1}", "seed should be a valid integer"),
        ("flip: [yes]", "flip should be a valid boolean"),
        ("data: [a, b]", "data should be a valid string"),
        ("settings: [k]", "settings should be a table of names and values"),
        ("seed: " + "x" * 100_000, "seed should be a valid integer"),
        ("x" * 1000 + ": 1", "unknown setting"),
        ("a: \x1b[2J", "special characters are not allowed"),
        ("--- {seed: 1}\n--- {seed: 2}", "expected a single document"),
        ("# " + "x" * 2**20, "longer than the 1,048,576 bytes"),
        ("", "should hold names and values, but it holds NoneType"),
    ],
    ids=lambda value: value[:30].strip(),
)
def test_a_hostile_file_of_settings_is_one_short_sentence(text: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(text)
    with pytest.raises(UserError) as refused:
        resolve(file=tmp_path / "own.yaml")
    said = str(refused.value)
    assert sentence in said
    assert said.isprintable()
    assert len(said) < 1200
    assert not Path("ran").exists()


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_bytes(b"seed: 1\n\xff\xfe\x00")
    with pytest.raises(UserError, match="is not UTF-8 text"):
        read_yaml(tmp_path / "own.yaml")


def test_what_an_ordinary_file_holds_is_read(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(
        "\ufeffseed: 3 # a note\nbetas: [0.8, 0.9]\nsettings:\n  k: 7\n", encoding="utf-8"
    )
    config = resolve(file=tmp_path / "own.yaml")
    assert (config.seed, config.betas, config.settings["k"]) == (3, (0.8, 0.9), 7)

"""A table is renewed by one of the same data, and never by one of others."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import SMALLEST

import acpl
from acpl.config import Config, resolve
from acpl.errors import UserError
from acpl.experiments.contents import data_digest
from acpl.experiments.reproduce.renewing import MADE, refuse_other_data

ROWS = "image,a\n1.png,1\n"


def table_of(place: Path, rows: str = ROWS) -> Config:
    place.mkdir(exist_ok=True)
    (place / "labels.csv").write_text(rows)
    return resolve(data=str(place / "labels.csv"), images=place / "images.zip")


def made(target: Path, data: str, digest: str | None = None, run: str = "acpl-0.2-0-abc") -> None:
    target.mkdir(parents=True, exist_ok=True)
    known = {} if digest is None else {"data_digest": digest}
    (target / MADE).write_text(json.dumps({"data": data, **known, "runs": [{"run": run}]}))


def test_data_are_the_same_wherever_they_lie_and_whatever_is_done_with_them(tmp_path: Path) -> None:
    here, there = table_of(tmp_path / "here"), table_of(tmp_path / "there")
    other = table_of(tmp_path / "other", ROWS + "2.png,0\n")
    assert data_digest(here) == data_digest(there) != data_digest(other)
    assert data_digest(here.model_copy(update={"size": 64, "fraction": 0.5})) == data_digest(here)
    assert data_digest(here.model_copy(update={"images": str(tmp_path / "larger.zip")})) != data_digest(here)
    drawn = [resolve(data="phantom-chest", **more) for more in ({}, {"seed": 3}, {"phantom_seed": 1})]
    assert data_digest(drawn[0]) == data_digest(drawn[1]) != data_digest(drawn[2])
    named = [resolve(data=f"medmnist:{name}mnist", images=tmp_path) for name in ("pneumonia", "breast")]
    assert data_digest(named[0]) != data_digest(named[1])
    assert data_digest(named[0]) == data_digest(resolve(data="medmnist:pneumoniamnist", images=tmp_path / "here"))


def test_a_table_of_the_same_data_is_renewed(tmp_path: Path) -> None:
    config, target = table_of(tmp_path / "chest"), tmp_path / "results/table4"
    refuse_other_data(target, config, ())  # nothing is there yet
    made(target, "elsewhere/labels.csv", data_digest(config))
    refuse_other_data(target, config, ())


def test_a_table_of_other_data_is_refused_with_a_place_that_is_free(tmp_path: Path) -> None:
    config, target = table_of(tmp_path / "chest"), tmp_path / "results/table4"
    made(target, "skin/labels.csv", "another")
    wanted = r"has a table of skin/labels\.csv, not of chest/labels\.csv; .* --out .*results/chest$"
    with pytest.raises(UserError, match=wanted):
        refuse_other_data(target, config, ())
    made(target, "chest/labels.csv", "another")
    with pytest.raises(UserError, match=r"of chest/labels\.csv with other content"):
        refuse_other_data(target, config, ())
    nested = tmp_path / "results/chest/table4"
    made(nested, "skin/labels.csv", "another")
    with pytest.raises(UserError, match=r"results/chest-2$"):
        refuse_other_data(nested, config, ())
    named = resolve(data="medmnist:pneumoniamnist")
    with pytest.raises(UserError, match=r"results/pneumoniamnist$"):
        refuse_other_data(target, named, ())


def test_in_a_table_without_a_digest_a_run_that_both_have_tells_or_else_the_name(tmp_path: Path) -> None:
    config, target = table_of(tmp_path / "moved"), tmp_path / "results/table4"
    made(target, "chest/labels.csv", run="acpl-0.2-0-abc")
    refuse_other_data(target, config, {"acpl-0.2-0-abc", "acpl-0.2-1-def"})
    with pytest.raises(UserError, match=r"of chest/labels\.csv, not of moved/labels\.csv"):
        refuse_other_data(target, config, {"acpl-0.2-1-def"})
    made(target, "moved/labels.csv")
    refuse_other_data(target, config, ())


@pytest.mark.parametrize("text", ["<<<<<<< ours", "[]"])
def test_what_says_nothing_of_its_table_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / MADE).write_text(text)
    with pytest.raises(UserError, match=r"made\.json should say what the table beside it was made of; remove it"):
        refuse_other_data(tmp_path, resolve(data="phantom-chest"), ())


@pytest.mark.parametrize("how", [{"run": True}, {"run": False}, {"dry_run": True}])
def test_a_call_for_other_data_writes_and_trains_nothing(how: dict[str, Any], tmp_path: Path) -> None:
    target = tmp_path / "results/table1"
    made(target, "cxr/labels.csv", "another")
    given = {**SMALLEST, "data": "phantom-chest", "methods": ["acpl"], "fractions": [0.3], "tune": 2}
    with pytest.raises(UserError, match=r"has a table of cxr/labels\.csv, not of phantom-chest"):
        acpl.reproduce("table1", tmp_path / "results", work=tmp_path / "work", say=pytest.fail, **given, **how)
    assert [file.name for file in target.iterdir()] == [MADE]
    assert not (tmp_path / "work").exists()

"""Columns of what is known of the patient, as numbers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from acpl.data.clinical import FARTHEST, MOST_WORDS, ClinicalColumn, clinical_numbers, find_clinical
from acpl.data.tables import Columns, read_table
from acpl.errors import UserError


def column(cells: Any, name: str = "it", dtype: Any = None) -> ClinicalColumn:
    """How these cells would be read."""
    (found,) = find_clinical(pd.DataFrame({name: pd.Series(cells, dtype=dtype)}), [name])
    return found


def read(found: ClinicalColumn, cells: Any, dtype: Any = None) -> list[list[float]]:
    return found.numbers(pd.Series(cells, dtype=dtype)).tolist()


# Numbers.


def test_numbers_are_scaled_beside_their_square_and_a_place_for_blanks() -> None:
    ages = [20.0, 40.0, 60.0, np.nan]
    found = column(ages)
    assert (found.mean, found.spread, found.words) == (40.0, pytest.approx(np.std([20, 40, 60])), None)
    step = 20 / found.spread
    expected = [[-step, step**2 - 1, 0], [0, -1, 0], [step, step**2 - 1, 0], [0, 0, 1]]
    np.testing.assert_allclose(read(found, ages), expected)
    seen = np.array(read(found, ages[:3]))
    np.testing.assert_allclose(seen.mean(axis=0), 0, atol=1e-12)  # so that a blank says no more than 'blank'


@pytest.mark.parametrize("dtype", ["int64", "float32", "Int64", "Float64", object, str])
def test_numbers_are_the_same_in_every_dress(dtype: Any) -> None:
    plain = column([20.0, 40.0, 60.0])
    cells = ["20", "40", "60"] if dtype is str else [20, 40, 60]
    assert column(cells, dtype=dtype) == plain
    assert read(plain, cells, dtype=dtype) == read(plain, [20.0, 40.0, 60.0])


@pytest.mark.parametrize("dtype", ["Int64", "Float64", object])
def test_blanks_among_whole_numbers_are_blanks(dtype: Any) -> None:
    found = column([20, None, 60], dtype=dtype)
    assert found.mean == 40
    assert [row[2] for row in read(found, [20, None, 60], dtype=dtype)] == [0, 1, 0]


def test_numbers_may_come_as_text_when_a_table_is_read_anew() -> None:
    found = column([20, 40, 60])
    assert read(found, [" 20", "40.0", "6e1"]) == read(found, [20, 40, 60])
    for strange in ("", "nan", "unknown", "sixty", "1,5", "inf", "-inf", "1e300", None, np.nan, np.inf):
        assert read(found, [strange], dtype=object) == [[0, 0, 1]]


def test_a_column_of_numbers_as_text_is_one_of_numbers_even_where_some_are_not_known() -> None:
    found = column(["63", "48", "unknown", "?", "", "71"])
    assert found.words is None
    assert found.mean == pytest.approx((63 + 48 + 71) / 3)
    assert column(["63", "48", "old"]).words == ("48", "63", "old")
    assert column(["unknown", "?"]).words == ("?", "unknown")


def test_a_slip_counts_as_if_it_were_near_and_does_not_make_all_others_alike() -> None:
    ages = list(range(30, 70))
    found, with_slip = column(ages), column([*ages, 999])
    assert with_slip == found
    assert read(found, [999, -999]) == [[FARTHEST, FARTHEST**2 - 1, 0], [-FARTHEST, FARTHEST**2 - 1, 0]]
    assert column([*ages, 1e200, np.inf, -np.inf]) == found


def test_a_rare_yes_among_zeros_is_no_slip() -> None:
    cells = [0] * 99 + [1]
    found = column(cells)
    assert found.mean == pytest.approx(0.01)
    assert read(found, [1])[0][0] == FARTHEST
    assert abs(read(found, [0])[0][0]) < 0.2


@pytest.mark.parametrize("value", [0.1, 0.0, -3.0, 1e-12, 1e9])
def test_a_number_that_never_changes_says_nothing(value: float) -> None:
    found = column([value] * 7)
    assert found.spread == 1
    np.testing.assert_allclose(read(found, [value, value]), [[0, -1, 0]] * 2, atol=1e-6)


def test_numbers_of_any_size_are_told_apart() -> None:
    for size in (1e-12, 1.0, 1e12):
        assert column([size, 2 * size, 3 * size]).spread == pytest.approx(size * np.std([1, 2, 3]))


# Words.


def test_each_word_has_a_place_and_the_last_is_for_blanks() -> None:
    found = column(["m", "f", "m", None])
    assert found.words == ("f", "m")
    assert read(found, ["f", "m", None]) == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]


def test_words_are_compared_without_case_and_space_around() -> None:
    found = column([" Male", "FEMALE ", "male", "female", "Back of hand"])
    assert found.words == ("back of hand", "female", "male")
    assert read(found, ["MALE "]) == [[0, 0, 1, 0]]


def test_a_word_that_was_never_seen_is_a_blank() -> None:
    found = column(["m", "f"])
    for blank in ("x", "", " ", "NaN", "n/a", None, np.nan):
        assert read(found, [blank], dtype=object) == [[0, 0, 1]]
    assert column(["m", "", "NA", "nan", " "]).words == ("m",)


@pytest.mark.parametrize("dtype", [bool, "boolean", object])
def test_yes_and_no_are_words_however_they_come(dtype: Any) -> None:
    found = column([True, False, True], dtype=dtype)
    assert found.words == ("false", "true")
    assert read(found, ["True", "FALSE", ""]) == [[0, 1, 0], [1, 0, 0], [0, 0, 1]]


def test_a_category_is_its_words() -> None:
    found = column(["a", "b", None], dtype="category")
    assert found.words == ("a", "b")
    assert read(found, ["b", None], dtype="category") == [[0, 1, 0], [0, 0, 1]]


def test_a_number_among_words_is_the_same_word_when_it_is_read_as_a_number() -> None:
    """A table of the sites 1 and 2 alone is read as numbers; one that has a 3a is not."""
    found = column(["1", "2", "3a"])
    assert found.words == ("1", "2", "3a")
    assert read(found, [1.0, 2.0]) == read(found, [1, 2]) == read(found, ["1.0", "2"]) == [[1, 0, 0, 0], [0, 1, 0, 0]]


def test_too_many_words_are_refused_with_their_number() -> None:
    assert len(column([f"w{number}" for number in range(MOST_WORDS)]).words or ()) == MOST_WORDS
    with pytest.raises(UserError, match="column 'name' holds 101 different words, as names or texts do; it may hold"):
        column([f"w{number}" for number in range(MOST_WORDS + 1)], "name")
    assert column(list(range(MOST_WORDS + 1))).words is None


# Tables.


@pytest.mark.parametrize("cells", [["", " ", "NA"], [None, None, None], [np.nan] * 3, []], ids=str)
def test_a_column_that_is_all_blank_can_be_read(cells: list[Any]) -> None:
    for dtype in (object, "float64") if cells != ["", " ", "NA"] else (object,):
        found = column(cells, dtype=dtype)
        assert (found.mean, found.spread) == (0, 1)
        assert read(found, cells, dtype=dtype) == [[0, 0, 1]] * len(cells)


def test_a_card_with_a_column_of_no_words_can_be_read() -> None:
    assert read(ClinicalColumn("it", words=()), ["a", ""]) == [[1], [1]]


def test_columns_stand_side_by_side_in_the_order_they_are_named() -> None:
    table = pd.DataFrame({"sex": ["m", "f"], "age": [40, 60], "other": [1, 2]})
    found = find_clinical(table, ["age", "sex"])
    assert [one.name for one in found] == ["age", "sex"]
    assert clinical_numbers(table, found).tolist() == [[-1, 0, 0, 0, 1, 0], [1, 0, 0, 1, 0, 0]]
    assert clinical_numbers(table, []).shape == (2, 0)
    assert clinical_numbers(table.iloc[::-1], found).tolist() == clinical_numbers(table, found).tolist()[::-1]
    assert clinical_numbers(table.iloc[:0], found).shape == (0, 6)


def test_a_column_that_is_not_there_is_refused_with_the_nearest() -> None:
    table = pd.DataFrame({"image": ["a"], "group": ["g"], "part": ["train"], "age_approx": [40], "sex": ["m"]})
    with pytest.raises(UserError, match="unknown clinical column 'age_aprox'; did you mean 'age_approx'"):
        find_clinical(table, ["sex", "age_aprox"])
    for own in ("image", "group", "part", "role"):
        with pytest.raises(UserError, match=f"unknown clinical column '{own}'; there are: age_approx, sex"):
            find_clinical(table, [own])


def test_a_table_without_a_column_that_the_model_needs_is_refused_by_name() -> None:
    with pytest.raises(UserError, match="the model needs the column 'age' beside the images, and the table has none"):
        clinical_numbers(pd.DataFrame({"sex": ["m"]}), [ClinicalColumn("sex", words=("m",)), ClinicalColumn("age")])


@pytest.mark.parametrize("cells", [[20.5, 40.1, None], ["m", "f", "ä ö"], [None, None], [True, False]])
def test_a_column_comes_back_from_json_as_it_was(cells: list[Any]) -> None:
    found = column(cells)
    back = ClinicalColumn.of_json(json.loads(json.dumps(found.as_json())))
    assert back == found
    assert read(back, cells) == read(found, cells)


def test_a_file_that_is_read_gives_the_numbers_of_its_cells(tmp_path: Path) -> None:
    file = tmp_path / "labels.csv"
    file.write_text(
        "image,Mass,age,sex,smoker,site\n1.png,0,63,M,True,1\n2.png,1,,f,False,2\n3.png,0,51,m,,3a\n4.png,1,48,,True,2\n"
    )
    table = read_table(file, Columns(classes=("Mass",))).table
    found = find_clinical(table, ["age", "sex", "smoker", "site"])
    assert [one.words for one in found] == [None, ("f", "m"), ("false", "true"), ("1", "2", "3a")]
    anew = pd.read_csv(file, dtype=str)
    assert clinical_numbers(anew, found).tolist() == clinical_numbers(table, found).tolist()
    anew = pd.read_csv(file)
    assert clinical_numbers(anew, found).tolist() == clinical_numbers(table, found).tolist()
    assert clinical_numbers(anew.iloc[:2], found).tolist() == clinical_numbers(table, found)[:2].tolist()

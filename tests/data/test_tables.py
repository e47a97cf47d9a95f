"""CSV tables: what they may look like, what is inferred, and how the wrong ones are refused."""

import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acpl.data.tables import Columns, Reading, read_table
from acpl.errors import UserError
from acpl.task import Task


def read(tmp_path: Path, text: str | bytes, columns: Columns = Columns(), name: str = "table.csv") -> Reading:  # noqa: B008
    file = tmp_path / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_table(file, columns)


def refusal(tmp_path: Path, text: str | bytes, columns: Columns = Columns()) -> str:  # noqa: B008
    with pytest.raises(UserError) as caught:
        read(tmp_path, text, columns)
    return str(caught.value).replace(f"{tmp_path}/", "")


SIX_ROWS = """image,patient,split,Mass,Nodule
a.png,1,train,1,0
b.png,1,train,0,0
c.png,2,train,,
d.png,3,val,0,1
e.png,4,test,1,1
f.png,4,test,0,0
"""


def test_a_plain_table_is_read_as_it_stands(tmp_path: Path) -> None:
    reading = read(tmp_path, SIX_ROWS)
    assert reading.classes == ("Mass", "Nodule")
    assert reading.task is Task.MULTI_LABEL
    assert list(reading.table["image"]) == [f"{letter}.png" for letter in "abcdef"]
    assert list(reading.table["group"]) == ["1", "1", "2", "3", "4", "4"]
    assert reading.parts is not None
    assert list(reading.parts) == ["train"] * 3 + ["validation"] + ["test"] * 2
    expected = [[1, 0], [0, 0], [np.nan] * 2, [0, 1], [1, 1], [0, 0]]
    assert np.array_equal(reading.labels, np.array(expected, dtype=np.float32), equal_nan=True)


def test_what_was_inferred_is_said(tmp_path: Path) -> None:
    assert read(tmp_path, SIX_ROWS).said == [
        "images from column 'image', groups from 'patient', parts from 'split'",
        "2 label columns: Mass, Nodule",
        "task: multi-label, for 3 of 5 labelled rows have none or several",
        "1 of 6 rows have blank labels and count as unlabelled",
    ]
    partly = read(tmp_path, "image,A,B\na,1,\nb,0,1\nc,1,0\n")
    assert partly.said[-1] == (
        "1 of 3 rows have blank labels and count as unlabelled; 1 of them have some labels, which are not used"
    )
    assert "no group column: each image is its own group" in partly.said[0]
    assert list(partly.table["group"]) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff" + SIX_ROWS,
        SIX_ROWS.replace("\n", "\r\n"),
        SIX_ROWS.replace("\n", "\r\n").removesuffix("\r\n"),
        SIX_ROWS.replace(",", ";"),
        SIX_ROWS.replace(",", "\t"),
        SIX_ROWS.replace(",", " , "),
        '"' + SIX_ROWS.replace(",", '", "').replace("\n", '"\n"').removesuffix('"'),
        "\n\n" + SIX_ROWS.replace("\n", "\n\n"),
        SIX_ROWS.replace("\n", ",\n"),
        ",".join(["", *SIX_ROWS.splitlines()[:1]]) + "\n" + "".join(f"7,{row}\n" for row in SIX_ROWS.splitlines()[1:]),
        SIX_ROWS.replace("1\n", "1.0\n").replace(",0,", ",0.0,"),
        SIX_ROWS.replace("train,,\n", "train,NaN, nan \n"),
        SIX_ROWS.replace("split", "Split")
        .replace("train", "Training")
        .replace("val", "DEV")
        .replace("test", "Testing"),
    ],
    ids=[
        *("BOM", "CRLF", "no newline at the end", "semicolons", "tabs", "spaces", "quotes", "blank lines"),
        *("a comma at each end", "an index written along", "floats", "words for nothing", "other words for parts"),
    ],
)
def test_the_same_table_in_another_dress_reads_the_same(tmp_path: Path, text: str) -> None:
    plain, dressed = read(tmp_path, SIX_ROWS), read(tmp_path, text)
    assert dressed.table.equals(plain.table)
    assert np.array_equal(dressed.labels, plain.labels, equal_nan=True)
    assert dressed.classes == plain.classes
    assert dressed.parts is not None
    assert plain.parts is not None
    assert list(dressed.parts) == list(plain.parts)


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path: Path) -> None:
    assert read(tmp_path, "\ufeff" + SIX_ROWS, Columns(image="image")).table["image"][0] == "a.png"


def test_a_field_may_hold_the_separator_quotes_and_a_line_break(tmp_path: Path) -> None:
    reading = read(tmp_path, 'image,note,A\n"a,1.png","said ""no""\nand left",1\nb.png,,0\n')
    assert list(reading.table["image"]) == ["a,1.png", "b.png"]
    assert reading.table["note"][0] == 'said "no"\nand left'


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "table.csv is empty"),
        ("\n \n", "table.csv is empty"),
        ("image,A\n", "table.csv has no rows below its header"),
        ("image,A,A\na,1,0\n", "table.csv has the column 'A' 2 times; each name may stand once"),
        (
            "image,A\na,1\nb,0\na,0\n",
            "table.csv names images twice: 'a' (row 4); each image is one row",
        ),
        (
            "image,A\n" + "".join(f"i{n % 7},1\n" for n in range(14)),
            "table.csv names images twice: 'i0' (row 9), 'i1' (row 10), 'i2' (row 11), 'i3' (row 12), "
            "'i4' (row 13) and 2 more; each image is one row",
        ),
        ("image,A\na,1\n,0\n", "table.csv, row 3: column 'image' is blank"),
        (
            "image,patient,A\na,1,1\n\nb,,0\n",
            "table.csv, row 4: column 'patient' is blank; write there whose image it is, such as the image's own name "
            "where it is the only one",
        ),
        ("image,A,B\na,1,0\nb,1\n", "table.csv, row 3 has 2 fields, but the header has 3"),
        ("image,A\na,1\nb,1,0\n", "table.csv, row 3 has 3 fields, but the header has 2"),
        ('image,A\na,1\n"b,1\n', "table.csv, row 3 opens a quotation mark that is never closed"),
        ('image,A\na,1\n"b"c,1\n', "table.csv, row 3 cannot be read: ',' expected after '\"'"),
        (
            "image,split,A\na,train,1\nb,holdout,0\n",
            "table.csv, row 3, column 'split': 'holdout' is no part; "
            "train, val (or valid, validation, dev) and test are",
        ),
        (
            "image,split,A\na,train,1\nb,,0\n",
            "table.csv, row 3, column 'split': '' is no part; train, val (or valid, validation, dev) and test are",
        ),
        (
            "picture,A\na,1\n",
            "table.csv has no column that names the images, like 'image'; say which with image_column: picture, A",
        ),
        (
            "image,age\na,50\n",
            "table.csv has no labels: neither a column that holds only 0, 1 (or yes, no; true, false) and blanks, "
            "nor one called 'labels'",
        ),
        (b"image,A\nm\xfcller.png,1\n", "table.csv is not UTF-8 text; save it as 'CSV UTF-8'"),
        ("image,A\na,1\n".encode("utf-16"), "table.csv is not UTF-8 text; save it as 'CSV UTF-8'"),
        (b"PK\x03\x04rest", "table.csv is a workbook or a zip, not a CSV table; save it as 'CSV UTF-8'"),
        (
            "image,A,B\na,1,\nb,,1\n",
            "table.csv has no row with all of its labels, so there is nothing to learn from",
        ),
        ("image,label\na,cat\nb,cat\n", "table.csv has one class, cat, but multi-class needs at least two"),
        (
            "image,labels\na,Mass\nb,Mass|No Finding\n",
            "table.csv, row 3, column 'labels': 'Mass|No Finding' is no label, for 'No Finding' excludes every other, "
            "and none between two '|' is blank",
        ),
    ],
)
def test_a_hostile_table_is_refused_in_one_sentence(tmp_path: Path, text: str | bytes, sentence: str) -> None:
    assert refusal(tmp_path, text) == sentence


def test_a_quotation_mark_that_swallows_the_rest_is_named(tmp_path: Path) -> None:
    text = 'image,A\na,1\n"' + "b,0\n" * 50_000
    assert refusal(tmp_path, text) == "table.csv, row 3 has a field without end; is a quotation mark open?"


@pytest.mark.parametrize("value", ["2", "perhaps", "-1", "0.5", "01"])
def test_what_is_no_label_is_refused_by_row_in_a_named_column(tmp_path: Path, value: str) -> None:
    text = f"image,A,B\na,1,0\nb,0,{value}\n"
    expected = f"table.csv, row 3, column 'B': '{value}' is no label; 0, 1 or blank is (blank where nobody knows)"
    assert refusal(tmp_path, text, Columns(classes=("A", "B"))) == expected
    assert read(tmp_path, text).classes == ("A",)


def test_a_missing_file_is_refused() -> None:
    with pytest.raises(UserError, match=r"nothing\.csv could not be read: No such file"):
        read_table(Path("nothing.csv"), Columns())


def test_columns_can_be_named(tmp_path: Path) -> None:
    text = "image,scan,who,fold,Mass,sex,group\nx,a,1,train,1,0,g\ny,b,2,test,0,1,h\n"
    columns = Columns(image="scan", group="who", split="fold", classes=("sex", "Mass"))
    reading = read(tmp_path, text, columns)
    assert list(reading.table["image"]) == ["a", "b"]
    assert list(reading.table["group"]) == ["1", "2"]
    assert reading.classes == ("sex", "Mass")
    assert list(reading.table["group (table)"]) == ["g", "h"]
    assert "the column 'image' is kept as 'image (table)'" in reading.said
    assert refusal(tmp_path, text, Columns(image="scans")) == (
        "unknown image_column in table.csv: 'scans'; did you mean 'scan'?"
    )
    assert "did you mean 'Mass'?" in refusal(tmp_path, text, Columns(classes=("Masss",)))


def test_a_description_of_noughts_and_ones_is_no_label_unless_it_is_named(tmp_path: Path) -> None:
    reading = read(tmp_path, "image,sex,order,Mass\na,0,1,1\nb,1,0,0\n")
    assert reading.classes == ("Mass",)
    assert "not taken for labels: sex, order (to use one, name it in classes)" in reading.said
    assert list(reading.table["order"]) == [1, 0]


def test_a_label_column_with_a_slip_is_said(tmp_path: Path) -> None:
    rows = [f"i{n},{n % 2},{n % 3 == 0:d},{n % 4}\n" for n in range(30)]
    rows[7] = "i7,1,11,3\n"
    reading = read(tmp_path, "image,A,B,count\n" + "".join(rows))
    assert reading.classes == ("A",)
    assert [sentence for sentence in reading.said if "not taken" in sentence] == [
        "not taken for a label: 'B', for it holds '11' in row 9 "
        "(write 0, 1 or nothing, or name all label columns in classes)"
    ]


def test_yes_and_no_are_labels_where_nothing_else_is_or_they_are_named(tmp_path: Path) -> None:
    text = "image,A,B,sex\na,yes,TRUE,true\nb,No,false,false\nc,,False,true\n"
    expected = np.array([[1, 1], [0, 0], [np.nan, 0]], dtype=np.float32)
    reading = read(tmp_path, text)
    assert reading.classes == ("A", "B")
    assert np.array_equal(reading.labels, expected, equal_nan=True)
    mixed = "image,A,contrast\na,1,yes\nb,0,no\nc,1,no\n"
    reading = read(tmp_path, mixed)
    assert reading.classes == ("A",)
    assert any(sentence.startswith("not taken for a label: 'contrast'") for sentence in reading.said)
    assert read(tmp_path, mixed, Columns(classes=("A", "contrast"))).labels.tolist() == [[1, 1], [0, 0], [1, 0]]


def test_a_decimal_comma_is_a_number(tmp_path: Path) -> None:
    assert read(tmp_path, "image;A\na;1,0\nb;0,0\n").labels.tolist() == [[1], [0]]


def test_a_column_with_many_that_are_not_sure_is_said(tmp_path: Path) -> None:
    reading = read(tmp_path, "image,A,B\na,1,-1\nb,0,-1\nc,1,0\nd,0,1\n")
    assert reading.classes == ("A",)
    assert any(
        sentence.startswith("not taken for a label: 'B', for it holds '-1' in row 2") for sentence in reading.said
    )


def test_a_column_of_diagnoses_beside_noughts_and_ones_is_said(tmp_path: Path) -> None:
    reading = read(tmp_path, "image,dx,urgent\na,nevus,1\nb,melanoma,0\n")
    assert reading.classes == ("urgent",)
    assert "not taken for labels: dx (to use it instead, name it as labels_column)" in reading.said


@pytest.mark.parametrize("word", ["#N/A", "n/a", "NULL", "<NA>", "NaN", ""])
def test_what_programs_write_for_nothing_is_blank(tmp_path: Path, word: str) -> None:
    reading = read(tmp_path, f"image,label\na,x\nb,y\nc,{word}\n")
    assert reading.classes == ("x", "y")
    assert np.isnan(reading.labels[2]).all()
    where = refusal(tmp_path, f"image,patient,A\na,1,1\nb,{word},0\nc,{word},0\n")
    assert where.startswith("table.csv, row 3: column 'patient' is blank (and in 1 more rows); write there whose")


def test_a_word_for_not_knowing_that_becomes_a_class_is_said(tmp_path: Path) -> None:
    reading = read(tmp_path, "image,label\na,0\nb,1\nc,-1\n")
    assert "'-1' is taken for a class; leave the cell blank where nobody knows" in reading.said


@pytest.mark.parametrize("joint", [", ", ";", "/", " + ", "&"])
def test_classes_joined_in_another_way_are_refused(tmp_path: Path, joint: str) -> None:
    text = f'image,labels\na,Mass\nb,Nodule\nc,"Mass{joint}Nodule"\nd,No Finding\n'
    assert refusal(tmp_path, text) == (
        f"table.csv, row 4, column 'labels': 'Mass{joint}Nodule' is no label, for it is several classes; they are "
        "joined by '|'"
    )
    assert read(tmp_path, f'image,labels\na,"Mass{joint}large"\nb,Nodule\n').task is Task.MULTI_CLASS


@pytest.mark.parametrize("hint", ["sep=;", '"sep=;"', "sep=,"])
def test_a_hint_for_spreadsheets_is_no_header(tmp_path: Path, hint: str) -> None:
    reading = read(tmp_path, f"{hint}\nimage;A\na;1\nb;0\n")
    assert (reading.classes, reading.labels.tolist()) == (("A",), [[1], [0]])


def test_other_columns_are_kept_as_numbers_where_they_are(tmp_path: Path) -> None:
    table = read(tmp_path, "image,age,site,empty,A\na,50.5,trunk,,1\nb,,back,,0\n").table
    assert list(table.columns) == ["image", "group", "age", "site", "empty"]
    assert table["age"][0] == 50.5
    assert np.isnan(table["age"][1])
    assert list(table["site"]) == ["trunk", "back"]


def test_a_column_of_findings_is_multi_label(tmp_path: Path) -> None:
    reading = read(tmp_path, "image,labels\na,Mass|Nodule\nb,No Finding\nc,\nd,Nodule\n")
    assert (reading.task, reading.classes) == (Task.MULTI_LABEL, ("Mass", "Nodule"))
    expected = np.array([[1, 1], [0, 0], [np.nan, np.nan], [0, 1]], dtype=np.float32)
    assert np.array_equal(reading.labels, expected, equal_nan=True)
    assert "task: multi-label, for labels are joined by '|' or say 'No Finding'" in reading.said


def test_a_column_of_single_words_is_multi_class(tmp_path: Path) -> None:
    reading = read(tmp_path, "image,label\na,nevus\nb,melanoma\nc,\nd,nevus\n")
    assert (reading.task, reading.classes) == (Task.MULTI_CLASS, ("melanoma", "nevus"))
    assert list(np.nan_to_num(reading.labels, nan=-1)[:, 1]) == [1, 0, -1, 1]
    assert "task: multi-class, for each label is one word" in reading.said
    numbers = read(tmp_path, "image,label\na,10\nb,9\nc,0\n")
    assert numbers.classes == ("0", "9", "10")


def test_classes_choose_findings_and_set_their_order(tmp_path: Path) -> None:
    text = "image,labels\na,Mass|Nodule\nb,No Finding\nc,Hernia\n"
    reading = read(tmp_path, text, Columns(classes=("Nodule", "Mass")))
    assert reading.classes == ("Nodule", "Mass")
    assert reading.labels.tolist() == [[1, 1], [0, 0], [0, 0]]
    assert "findings left out of account: Hernia" in reading.said
    assert "did you mean 'Mass'?" in refusal(tmp_path, text, Columns(classes=("Mas",)))
    single = "image,label\na,x\nb,y\nc,z\n"
    assert "row 4, column 'label': 'z' is no label, for 'z' is none of the classes x, y" in refusal(
        tmp_path, single, Columns(classes=("x", "y"))
    )


def test_free_text_is_not_taken_for_classes(tmp_path: Path) -> None:
    text = "image,diagnosis\n" + "".join(f"i{n},story {n}\n" for n in range(30))
    assert "30 different classes in 30 rows are no classes" in refusal(tmp_path, text)


def test_the_task_is_inferred_and_can_be_set(tmp_path: Path) -> None:
    one_each = "image,A,B\na,1,0\nb,0,1\nc,,\n"
    assert read(tmp_path, one_each).task is Task.MULTI_CLASS
    assert read(tmp_path, one_each, Columns(task=Task.MULTI_LABEL)).task is Task.MULTI_LABEL
    assert read(tmp_path, "image,A\na,1\nb,0\n").task is Task.MULTI_LABEL
    words = "image,label\na,x\nb,y\n"
    assert read(tmp_path, words, Columns(task=Task.MULTI_LABEL)).task is Task.MULTI_LABEL
    normal = "image,labels\na,No Finding\nb,Mass\n"
    assert read(tmp_path, normal, Columns(task=Task.MULTI_CLASS)).classes == ("Mass", "No Finding")


@pytest.mark.parametrize(("cells", "count"), [("1,1", 2), ("0,0", 0)])
def test_labels_that_contradict_the_task_asked_for_are_refused_by_row(tmp_path: Path, cells: str, count: int) -> None:
    text = f"image,A,B\na,1,0\nb,{cells}\n"
    assert refusal(tmp_path, text, Columns(task=Task.MULTI_CLASS)) == (
        f"table.csv, row 3: {count} classes are positive, but multi-class needs exactly one"
    )


CELLS = {"0": 0.0, "1": 1.0, "": np.nan, "0.0": 0.0, "1.0": 1.0, " ": np.nan, "NaN": np.nan}


@given(rows=st.lists(st.lists(st.sampled_from(sorted(CELLS)), min_size=3, max_size=3), min_size=1, max_size=30))
def test_cells_mean_what_they_say_and_the_task_follows_the_known_rows(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]]
) -> None:
    rows = [["1", "0", "0"], *rows]
    text = "image,A,B,C\n" + "".join(f"i{n},{','.join(cells)}\n" for n, cells in enumerate(rows))
    reading = read(tmp_path_factory.mktemp("table"), text, Columns(classes=("A", "B", "C")))
    expected = np.array([[CELLS[cell] for cell in cells] for cells in rows], dtype=np.float32)
    assert np.array_equal(reading.labels, expected, equal_nan=True)
    known = expected[~np.isnan(expected).any(axis=1)]
    assert reading.task is (Task.MULTI_CLASS if (known.sum(axis=1) == 1).all() else Task.MULTI_LABEL)


def test_a_hundred_thousand_rows_are_read_in_seconds(tmp_path: Path) -> None:
    row = ",".join("01"[n % 3 == 0] for n in range(14))
    names = ",".join(f"finding {n}" for n in range(14))
    lines = (f"images/{n:08d}.png,{n // 4},train,{n % 90},{row}\n" for n in range(100_000))
    file = tmp_path / "large.csv"
    file.write_text(f"image,patient,split,age,{names}\n" + "".join(lines))
    start = time.process_time()
    reading = read_table(file, Columns())
    assert time.process_time() - start < 3
    assert reading.labels.shape == (100_000, 14)

"""Tables made to deceive; tests/data/test_tables.py has the ordinary mistakes, tests/data/test_files.py the names."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from acpl.config import resolve
from acpl.data.files import BadImage, ImageFiles
from acpl.data.sources import SourceOptions, find_source
from acpl.data.tables import Columns, Reading, read_table
from acpl.engine.roles import draw_split
from acpl.errors import UserError
from tests.hostile.corpus import sound


def read(tmp_path: Path, text: str, **columns: object) -> Reading:
    (tmp_path / "table.csv").write_text(text, encoding="utf-8")
    return read_table(tmp_path / "table.csv", Columns(**columns))  # type: ignore[arg-type]


def refusal(tmp_path: Path, text: str, **columns: object) -> str:
    with pytest.raises(UserError) as caught:
        read(tmp_path, text, **columns)
    assert str(caught.value).isprintable()
    return str(caught.value).replace(f"{tmp_path}/", "")


@pytest.mark.parametrize("content", [b"", b"\xef\xbb", b"\xef\xbb\xbf", b"\xef\xbb\xbf\r\n", b" , ,\n,,\n"])
def test_a_table_of_nothing_is_empty(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_bytes(content)
    with pytest.raises(UserError, match=r"table\.csv is empty"):
        read_table(tmp_path / "table.csv", Columns())


@pytest.mark.parametrize("name", ["id", "part", "role", "group", "order", "labelled", "index", "selected"])
def test_a_column_named_like_ours_is_kept_and_decides_nothing(name: str, tmp_path: Path) -> None:
    for row in range(6):
        (tmp_path / f"{row}.png").write_bytes(sound()["png grey"])
    parts = ("train", "train", "val", "train", "test", "train")
    rows = [f"{row}.png,p{row},{part},{row % 2},x{row}" for row, part in enumerate(parts)]
    (tmp_path / "labels.csv").write_text("\n".join([f"image,patient,split,Mass,{name}", *rows]))
    source = find_source(SourceOptions(data=str(tmp_path / "labels.csv"), cache=tmp_path / "cache"))
    manifest = source.open(("train", "validation")).manifest
    assert manifest.ids.tolist() == [0, 1, 2, 3, 5]
    assert list(manifest.table["part"]) == ["train", "train", "validation", "train", "train"]
    kept = [column for column in manifest.table.columns if column in (name, f"{name} (table)")]
    assert list(manifest.table[kept[-1]]) == ["x0", "x1", "x2", "x3", "x5"]
    split = draw_split(manifest, resolve(data=str(tmp_path / "labels.csv")))
    assert list(split["role"]) == ["labelled", "labelled", "validation", "labelled", "labelled"]


def test_a_column_that_is_renamed_does_not_take_another_ones_name(tmp_path: Path) -> None:
    reading = read(tmp_path, "image,part,part (table),A\na,x,y,1\nb,z,w,0\n")
    assert list(reading.table.columns) == ["image", "group", "part (table) (table)", "part (table)"]
    assert list(reading.table["part (table)"]) == ["y", "w"]


@pytest.mark.parametrize("name", ["id", "decision"])
def test_a_class_named_like_a_column_of_the_predictions_is_refused(name: str, tmp_path: Path) -> None:
    sentence = f"a class cannot be called '{name}', for predictions have a column of that name"
    assert sentence in refusal(tmp_path, f"image,{name},B\na,1,0\nb,0,1\n", classes=(name, "B"))
    assert sentence in refusal(tmp_path, f"image,label\na,{name}\nb,other\n")


@pytest.mark.parametrize("column", ["image", "patient"])
def test_a_name_that_would_move_the_terminal_is_refused_by_its_row(column: str, tmp_path: Path) -> None:
    row = {"image": "b", "patient": "p"} | {column: "b\x1b[2J"}
    text = f"image,patient,A\na,q,1\n{row['image']},{row['patient']},0\n"
    assert refusal(tmp_path, text) == f"table.csv, row 3, column '{column}': 'b\\x1b[2J' holds control characters"


@pytest.mark.parametrize("name", ["a\x1b[31mb", "x" * 300, "Mass\u202e"])
def test_a_class_that_would_move_the_terminal_or_fill_it_is_refused(name: str, tmp_path: Path) -> None:
    assert "is no class" in refusal(tmp_path, f"image,label\na,{name}\nb,other\n")
    assert "is no class" in refusal(tmp_path, f'image,"{name}"\na,1\nb,0\n')


def test_classes_without_number_are_refused_before_they_take_memory(tmp_path: Path) -> None:
    words = "".join(f"i{n},c{n % 3000}\n" for n in range(9000))
    assert "3000 classes; at most 1,000 are learnt" in refusal(tmp_path, "image,label\n" + words)
    columns = ",".join(f"c{n}" for n in range(1500))
    assert "1500 classes" in refusal(tmp_path, f"image,{columns}\na{',1' * 1500}\nb{',0' * 1500}\n")


def test_columns_without_number_are_refused_at_once(tmp_path: Path) -> None:
    header = ",".join(f"c{n}" for n in range(200_000))
    assert "200001 columns; at most 10,000 are read" in refusal(tmp_path, f"image,{header}\n")


def test_a_table_that_is_too_long_or_a_pipe_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "long.csv").open("wb") as file:
        file.truncate(2**28 + 1)
    with pytest.raises(UserError, match="longer than the 268,435,456 bytes"):
        read_table(tmp_path / "long.csv", Columns())
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(UserError, match="is not a plain file"):
        read_table(tmp_path / "pipe.csv", Columns())


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("http://127.0.0.1:9/a.png", "address on a network"),
        ("s3://bucket/a.png", "address on a network"),
        ("file:///etc/passwd", "address on a network"),
        ("//server/share/a.png", "absolute"),
        ("\\\\server\\share\\a.png", "absolute"),
        ("~root/a.png", "missing"),
        ("$HOME/a.png", "missing"),
        ("/proc/self/environ", "absolute"),
        ("../../../../etc/passwd", "outside"),
    ],
)
def test_a_name_that_is_no_file_below_the_folder_is_refused_for_that(name: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(BadImage, match=reason):
        ImageFiles.open(tmp_path).find(name)


@pytest.mark.slow
def test_a_million_rows_are_read_within_two_gigabytes(tmp_path: Path) -> None:
    """In a process of its own, whose memory is told by the system."""
    findings = ",".join(f"finding {n}" for n in range(14))
    row = ",".join("01"[n % 3 == 0] for n in range(14))
    with (tmp_path / "large.csv").open("w") as file:
        file.write(f"image,patient,split,age,{findings}\n")
        file.writelines(f"images/{n:08d}.png,{n // 4},train,{n % 90},{row}\n" for n in range(1_000_000))
    code = (
        "import re, sys; from pathlib import Path; from acpl.data.tables import Columns, read_table\n"
        "shape = read_table(Path(sys.argv[1]), Columns()).labels.shape\n"
        # Not getrusage: what that tells includes the peak of the process that started this one.
        "print(*shape, re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1])"
    )
    told = subprocess.check_output([sys.executable, "-c", code, str(tmp_path / "large.csv")], text=True).split()
    assert told[:2] == ["1000000", "14"]
    assert int(told[2]) < 2_000_000

"""Tables as strangers write them, through the command that users type: used, or refused in one sentence."""

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from acpl.cli import main
from tests.hostile.corpus import sound

Told = tuple[int, str, str]
ROWS = 12
PARTS = ("train", "train", "train", "val", "train", "test")
HEADER = ("image", "patient", "split", "Mass", "Nodule")


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Told:
    """Exit code, and what was said in trouble and besides."""
    said, heard, code = io.StringIO(), io.StringIO(), 0
    monkeypatch.setattr(sys, "argv", ["acpl", *arguments])
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(heard):
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
    return code, said.getvalue().strip(), heard.getvalue().strip()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twelve images."""
    (tmp_path / "images").mkdir()
    for row in range(ROWS):
        (tmp_path / "images" / f"{row}.png").write_bytes(sound()["png grey"])
    return tmp_path


def rows(**changed: str) -> list[list[str]]:
    """A sound table's cells; ``changed`` are the second row's."""
    cells = [[f"{n}.png", f"p{n}", PARTS[n % 6], str(n % 2), str(n // 2 % 2)] for n in range(ROWS)]
    cells[1] = [changed.get(name, cell) for name, cell in zip(HEADER, cells[1], strict=True)]
    return [list(HEADER), *cells]


def text(cells: list[list[str]], separator: str = ",", end: str = "\n") -> str:
    return end.join(separator.join(row) for row in cells) + end


Check = Callable[[str | bytes], Told]
Train = Callable[[str | bytes], Told]


@pytest.fixture
def check(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    """``acpl data check`` on a table beside the images."""

    def run(table: str | bytes) -> Told:
        file = folder / "labels.csv"
        file.write_bytes(table.encode() if isinstance(table, str) else table)
        return command(monkeypatch, "data", "check", "--data", str(file), "--images", str(folder / "images"), "--json")

    return run


@pytest.fixture
def train(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Train:
    """``acpl train`` on it."""

    def run(table: str | bytes) -> Told:
        file = folder / "labels.csv"
        file.write_bytes(table.encode() if isinstance(table, str) else table)
        monkeypatch.setenv("ACPL_CACHE", str(folder / "cache"))
        where = ["--data", str(file), "--images", str(folder / "images"), "--out", str(folder / "run")]
        how = (
            "--method supervised --warmup-epochs 1 --stages 0 --size 32 --labelled 5 --device cpu --quiet --draw images"
        )
        return command(monkeypatch, "train", *where, *how.split())

    return run


SOUND = {
    "plain": text(rows()),
    "a byte-order mark": "\ufeff" + text(rows()),
    "CRLF": text(rows(), end="\r\n"),
    "semicolons": text(rows(), ";"),
    "quotes": text([[f'"{cell}"' for cell in row] for row in rows()]),
    "blanks around": text(rows(), " , "),
    "NaN for a label that is not known": text(rows(Mass="NaN", Nodule="nan")),
    "a column named like ours": text([[*row, "id" if n == 0 else "9"] for n, row in enumerate(rows())]),
}


@pytest.mark.parametrize("name", SOUND)
def test_a_table_in_any_usual_dress_is_used(name: str, check: Check) -> None:
    code, said, heard = check(SOUND[name])
    assert code in (0, 1), said  # 1: that all its images are the same is worth a word
    found = json.loads(heard)
    assert [part["images"] for part in found["parts"].values()] == [8, 2, 2]
    assert found["classes"] == ["Mass", "Nodule"]


@pytest.mark.parametrize("name", ["a byte-order mark", "semicolons", "a column named like ours"])
def test_a_table_in_another_dress_trains(name: str, train: Train, folder: Path) -> None:
    code, said, _ = train(SOUND[name])
    assert code == 0, said
    assert (folder / "run" / "model.safetensors").exists()


WRONG = {
    "a column twice": (text([[*row, row[3]] for row in rows()]), "has the column 'Mass' 2 times"),
    "an image twice": (text([*rows(), rows()[1]]), "names images twice: '0.png' (row 14)"),
    "a blank name": (text(rows(image="")), "row 3: column 'image' is blank"),
    "an open quote": (text(rows(image='"1.png')), "quotation mark"),
    "a field too many": (text(rows(Nodule="1,1")), "row 3 has 6 fields, but the header has 5"),
    "not UTF-8": (text(rows(patient="müller")).encode("latin-1"), "is not UTF-8 text"),
    "letters that move a terminal": (text(rows(image="a\x1b[2J.png")), "holds control characters"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_table_that_cannot_be_meant_is_refused_in_one_sentence(name: str, check: Check, train: Train) -> None:
    table, words = WRONG[name]
    for verb in (check, train):
        code, said, heard = verb(table)
        assert code == 2, (said, heard)
        assert said.startswith("acpl: ")
        assert "\n" not in said
        assert said.isprintable()
        assert words in said


@pytest.mark.parametrize("cell", ["2", "-1", "0.5", "perhaps"])
def test_a_label_that_is_none_is_said_and_refused_where_its_class_is_named(
    cell: str, folder: Path, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, heard = check(text(rows(Mass=cell)))
    found = json.loads(heard)
    assert found["classes"] == ["Nodule"]
    words = f"not taken for a label: 'Mass', for it holds '{cell}' in row 3 "
    assert any(sentence.startswith(words) for sentence in found["said"])
    named = ["--data", str(folder / "labels.csv"), "--images", str(folder / "images"), "--classes", "Mass,Nodule"]
    code, said, _ = command(monkeypatch, "train", *named, "--out", str(folder / "run"))
    assert code == 2
    assert said.endswith(f"row 3, column 'Mass': '{cell}' is no label; 0, 1 or blank is (blank where nobody knows)")


OUTSIDE = {
    "up": ("../secret.png", "leads outside"),
    "up and down": ("../images/../secret.png", "leads outside"),
    "absolute": ("{folder}/secret.png", "absolute"),
    "a link": ("link.png", "a link leads outside"),
    "a linked folder": ("away/secret.png", "a link leads outside"),
    "an address": ("https://example.org/secret.png", "address on a network"),
    "a file address": ("file://{folder}/secret.png", "address on a network"),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_name_that_leads_outside_is_named_and_nothing_is_opened(
    name: str, folder: Path, check: Check, train: Train
) -> None:
    (folder / "secret.png").write_bytes(sound()["png grey"])
    (folder / "images" / "link.png").symlink_to(folder / "secret.png")
    (folder / "images" / "away").symlink_to(folder)
    image, reason = OUTSIDE[name]
    image = image.format(folder=folder)
    table = text(rows(image=image))
    code, _, heard = check(table)
    assert code == 1
    (finding,) = (one for one in json.loads(heard)["findings"] if one["kind"] == "bad-file")
    assert [(item["image"], reason in item["reason"]) for item in finding["items"]] == [(image, True)]
    code, said, _ = train(table)
    assert code == 2
    (line,) = (line for line in said.splitlines() if image in line)
    assert reason in line
    assert not (folder / "run").exists()


@pytest.mark.slow
def test_a_million_rows_are_checked_by_the_command(folder: Path) -> None:
    """Whose images are missing, so that a sentence comes of it, in a process whose memory is told by the system."""
    with (folder / "large.csv").open("w") as file:
        file.write("image,patient,split,Mass,Nodule\n")
        file.writelines(f"{n:08d}.png,{n // 4},{PARTS[n // 4 % 6]},{n % 2},{n // 2 % 2}\n" for n in range(1_000_000))
    code = (
        "import re, sys\nfrom pathlib import Path\nfrom acpl.cli import main\n"
        "try:\n    main()\nfinally:\n"
        "    print(re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1], file=sys.stderr)"
    )
    arguments = ["data", "check", "--data", str(folder / "large.csv"), "--images", str(folder / "images"), "--json"]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 1, done.stderr[-500:]
    (finding,) = (one for one in json.loads(done.stdout)["findings"] if one["kind"] == "bad-file")
    assert len(finding["items"]) == 1_000_000
    assert int(done.stderr.split()[-1]) < 4_000_000

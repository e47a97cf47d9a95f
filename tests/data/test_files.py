"""Images in folders and zips: found by the names that tables use, and never outside."""

import os
import pickle
import stat
import warnings
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acpl.data import files as module
from acpl.data.files import BadImage, ImageFiles
from acpl.errors import UserError

CONTENT = {
    "a.png": b"a",
    "b.JPG": b"bb",
    "x/c.dcm": b"ccc",
    "x/y/d.png": b"dddd",
    "p1/im.png": b"1",
    "p2/im.png": b"2",
    "IM0001": bytes(128) + b"DICM" + b"pixels",
    "1.2.840.55": bytes(128) + b"DICM",
}
LEFT_OUT = {
    "labels.csv": b"image",
    "notes": b"no picture",
    ".hidden.png": b"h",
    ".git/e.png": b"e",
    "__MACOSX/a.png": b"m",
    "DICOMDIR": bytes(128) + b"DICM",
}


def write_folder(root: Path) -> Path:
    for name, content in (CONTENT | LEFT_OUT).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


def write_zip(path: Path, content: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in content.items():
            file.writestr(name, data)
    return path


@pytest.fixture(params=["folder", "zip"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> ImageFiles:
    if request.param == "folder":
        return ImageFiles.open(write_folder(tmp_path / "images"))
    return ImageFiles.open(write_zip(tmp_path / "images.zip", CONTENT | LEFT_OUT))


def test_every_image_is_listed_and_read_and_nothing_else(files: ImageFiles) -> None:
    assert files.names() == sorted(CONTENT)
    assert {name: files.read(name) for name in files.names()} == CONTENT


@pytest.mark.parametrize(
    ("asked", "stored"),
    [
        ("a.png", "a.png"),
        ("a", "a.png"),
        ("b", "b.JPG"),
        ("./x//c.dcm", "x/c.dcm"),
        ("x/y/../c", "x/c.dcm"),
        ("x\\c.dcm", "x/c.dcm"),
        ("d.png", "x/y/d.png"),
        ("d", "x/y/d.png"),
        ("y/d", "x/y/d.png"),
        ("p2/im", "p2/im.png"),
    ],
)
def test_a_name_is_found_as_tables_write_it(files: ImageFiles, asked: str, stored: str) -> None:
    assert files.find(asked) == stored
    assert files.read(files.find(asked)) == CONTENT[stored]


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ("none.png", "missing"),
        ("p3/im.png", "missing"),
        ("y.png/d.png", "missing"),
        ("x", "missing"),
        ("im.png", "twice: p1/im.png, p2/im.png"),
        ("im", "twice"),
        ("../a.png", "outside"),
        ("x/../../images/a.png", "outside"),
        ("..\\a.png", "outside"),
        ("/etc/passwd", "absolute"),
        ("C:\\a.png", "absolute"),
        ("", "empty"),
        (" ", "empty"),
        ("a\0.png", "zero byte"),
        ("n" * 5000, "missing"),
        ("\ud800.png", "letters"),
    ],
)
def test_a_name_that_is_not_one_image_inside_is_refused(files: ImageFiles, asked: str, reason: str) -> None:
    with pytest.raises(BadImage, match=reason):
        files.find(asked)
    with pytest.raises(BadImage):
        files.read(asked)


@given(name=st.text(max_size=20) | st.lists(st.sampled_from(["..", ".", "a.png", "", "in", "out"])).map("/".join))
def test_whatever_name_is_asked_for_nothing_outside_is_read(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.getbasetemp() / "given"
    (root / "in").mkdir(parents=True, exist_ok=True)
    (root / "a.png").write_bytes(b"outside")
    (root / "in" / "a.png").write_bytes(b"inside")
    inside = ImageFiles.open(root / "in")
    with suppress(BadImage):
        assert inside.read(inside.find(name)) == b"inside"


@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_case_and_the_way_an_accent_is_written_do_not_count_where_nothing_else_is_found(
    kind: str, tmp_path: Path
) -> None:
    content = {
        "R\u00f6ntgen 1.PNG": b"r",
        "p1/A.png": b"A",
        "p2/a.png": b"a",
        "B.png": b"B",
        "b.png": b"b",
        "c.PNG": b"c",
    }
    root = tmp_path / "images"
    for name, data in content.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    if (root / "B.png").read_bytes() == b"b.png":
        pytest.skip("this file system does not tell names by their case")
    files = ImageFiles.open(root if kind == "folder" else write_zip(tmp_path / "images.zip", content))
    assert files.find("Ro\u0308ntgen 1.png") == "R\u00f6ntgen 1.PNG"
    assert files.find("ro\u0308ntgen 1") == "R\u00f6ntgen 1.PNG"
    assert files.find("P1/a.PNG") == "p1/A.png"
    assert files.find("C.png") == "c.PNG"
    assert files.find("B.png") == "B.png"  # as it is, first
    assert files.find("b.png") == "b.png"
    for asked, reason in (("B.PNG", "it is there twice: B.png, b.png"), ("p3/a.png", "missing"), ("d.png", "missing")):
        with pytest.raises(BadImage, match=reason):
            files.find(asked)


def test_a_name_with_a_space_of_another_kind_is_read_and_shown_written_out(tmp_path: Path) -> None:
    name = "Screenshot at 10.00\u202fAM.png"
    (tmp_path / name).write_bytes(b"x")
    files = ImageFiles.open(tmp_path)
    assert files.read(files.find(name)) == b"x"
    assert module.printable(name) == "Screenshot at 10.00\\u202fAM.png"


def test_links_are_followed_inside_and_refused_outside(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "images")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "s.png").write_bytes(b"secret")
    (root / "in.png").symlink_to(root / "a.png")
    (root / "out.png").symlink_to(tmp_path / "outside" / "s.png")
    (root / "away").symlink_to(tmp_path / "outside")
    (root / "round.png").symlink_to(root / "round.png")
    files = ImageFiles.open(root)
    assert files.read(files.find("in")) == b"a"
    for name in ("out.png", "out", "away/s.png", "away/s"):
        with pytest.raises(BadImage, match="outside"):
            files.find(name)
    for name in ("out.png", "away/s.png"):
        with pytest.raises(BadImage, match="outside"):
            files.read(name)
    with pytest.raises(BadImage):
        files.find("round.png")
    assert "away/s.png" not in files.names()


def test_a_folder_that_is_itself_a_link_is_as_good(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(write_folder(tmp_path / "images"))
    files = ImageFiles.open(tmp_path / "link")
    assert files.names() == sorted(CONTENT)
    assert files.read("a.png") == b"a"


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(BadImage, match="plain file"):
        ImageFiles.open(tmp_path).read("pipe.png")


def test_hostile_members_of_a_zip_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "images.zip"
    link = zipfile.ZipInfo("link.png")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w") as file:
        warnings.simplefilter("ignore")
        for name in ("../out.png", "/abs.png", "twice.png", "twice.png"):
            file.writestr(name, b"x")
        file.writestr(link, "/etc/passwd")
    files = ImageFiles.open(path)
    for name, reason in {
        "../out.png": "outside",
        "/abs.png": "absolute",
        "twice.png": "twice",
        "link.png": "link",
    }.items():
        assert name in files.names()
        for ask in (files.find, files.read):
            with pytest.raises(BadImage, match=reason):
                ask(name)
    assert not (tmp_path.parent / "out.png").exists()


def test_a_damaged_member_is_bad_and_the_others_are_not(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "images.zip", {"a.png": os.urandom(500), "b.png": b"b"})
    content = bytearray(path.read_bytes())
    content[200] ^= 255
    path.write_bytes(content)
    files = ImageFiles.open(path)
    with pytest.raises(BadImage, match="cannot be read from the zip"):
        files.read("a.png")
    assert files.read("b.png") == b"b"


def test_what_is_neither_folder_nor_zip_is_a_users_mistake(tmp_path: Path) -> None:
    (tmp_path / "text.zip").write_text("no zip")
    locked = write_zip(tmp_path / "locked.zip", {"a.png": b"a"})
    content = bytearray(locked.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1
    locked.write_bytes(content)
    for name, reason in {"none": "does not exist", "text.zip": "neither", "locked.zip": "encrypted"}.items():
        with pytest.raises(UserError, match=reason):
            ImageFiles.open(tmp_path / name)


def test_a_fingerprint_changes_with_the_file_and_only_then(files: ImageFiles) -> None:
    before = files.fingerprint("a.png")
    assert before == ImageFiles.open(files.path).fingerprint("a.png")
    if files.path.is_dir():
        (files.path / "a.png").write_bytes(b"other")
    else:
        write_zip(files.path, {"a.png": b"z"})
    assert ImageFiles.open(files.path).fingerprint("a.png") != before


def test_files_travel_to_another_process_without_their_handles(files: ImageFiles) -> None:
    files.names()
    sent = pickle.dumps(files)
    assert len(sent) < 1000
    assert pickle.loads(sent).read("a.png") == b"a"


def test_a_file_that_is_too_long_is_not_read(files: ImageFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FILE_BYTES", 3)
    assert files.read("x/c.dcm") == b"ccc"
    with pytest.raises(BadImage, match="longer than the 3 bytes"):
        files.read("x/y/d.png")

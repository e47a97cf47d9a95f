"""What a user types for shards: braces, stars, lists and addresses; what is wrong is said in one sentence."""

from pathlib import Path

import fsspec
import pytest

from acpl.data import addresses
from acpl.data.addresses import find_shards, names_shards, shown
from acpl.errors import UserError


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"tar")


def found(text: object) -> list[str]:
    return [shard.name for shard in find_shards(str(text))]


def test_braces_stars_and_lists_mean_shards_in_their_order(tmp_path: Path) -> None:
    write(tmp_path, "a-08.tar", "a-09.tar", "a-10.tar", "b-1.tar", "c-1.tar")
    assert found(tmp_path / "a-{08..10}.tar") == ["a-08.tar", "a-09.tar", "a-10.tar"]
    assert found(tmp_path / "{c,b}-1.tar") == ["c-1.tar", "b-1.tar"]
    assert found(tmp_path / "?-1.tar") == ["b-1.tar", "c-1.tar"]
    assert found(tmp_path / "{b,a}-*.tar") == ["b-1.tar", "a-08.tar", "a-09.tar", "a-10.tar"]
    (tmp_path / "all.txt").write_text("# the second half first\n\nb-1.tar\na-{08..09}.tar\n")
    assert found(tmp_path / "all.txt") == ["b-1.tar", "a-08.tar", "a-09.tar"]


def test_a_file_with_braces_in_its_name_is_itself(tmp_path: Path) -> None:
    write(tmp_path, "a-{1..2}.tar")
    assert found(tmp_path / "a-{1..2}.tar") == ["a-{1..2}.tar"]


def test_shards_of_one_name_in_two_folders_are_told_apart(tmp_path: Path) -> None:
    write(tmp_path, "x/1.tar", "y/1.tar", "y/2.tar")
    assert found(tmp_path / "{x,y}/*.tar") == [f"{tmp_path}/x/1.tar", f"{tmp_path}/y/1.tar", "2.tar"]


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ("a-{0..2}.tar", "2 of 3 shards are not there: the first is .*a-1.tar"),
        ("b.tar", "the shard is not there: .*b.tar"),
        ("b-*.tar", "no shard is called like .*b-"),
        ("a-{2..0}.tar", "counts down"),
        ("a-{x}.tar", r"should be like \{000..127\} or \{a,b\}"),
        ("a-{0..99999999}.tar", "more than 1,000,000 shards"),
        ("a-{0..9999}{0..9999}.tar", "more than 1,000,000 shards"),
        ("{a-0,a-0}.tar", "names the shard .*a-0.tar twice"),
        ("a-0.tar.gz", "a-0.tar.gz is a compressed tar"),
        ("folder.tar", "folder.tar is not a plain file"),
        ("none.txt", "list of shards .*none.txt could not be read: No such file"),
        ("empty.txt", "empty.txt names none"),
        ("wrong.txt", "should name one .tar a line, but it holds 'picture.png'"),
    ],
)
def test_what_is_not_there_or_no_shard_is_said_in_one_sentence(typed: str, sentence: str, tmp_path: Path) -> None:
    write(tmp_path, "a-0.tar", "a-0.tar.gz")
    (tmp_path / "folder.tar").mkdir()
    (tmp_path / "empty.txt").write_text("# nothing\n")
    (tmp_path / "wrong.txt").write_text("picture.png\n")
    with pytest.raises(UserError, match=sentence) as refused:
        find_shards(str(tmp_path / typed))
    assert "\n" not in str(refused.value)


def test_a_store_is_asked_for_names_sizes_and_versions_and_not_for_content(
    memory: fsspec.AbstractFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        memory.pipe(f"/scans/a-{number}.tar", b"x" * number)
    memory.pipe("/scans/all.txt", b"a-{0..1}.tar\nmemory://scans/a-2.tar\n")
    for typed in ("memory://scans/a-{0..2}.tar", "memory://scans/a-*.tar", "memory://scans/all.txt"):
        assert found(typed) == ["a-0.tar", "a-1.tar", "a-2.tar"]
    monkeypatch.setattr(type(memory), "open", lambda *_, **__: pytest.fail("opened"))
    before = find_shards("memory://scans/a-*.tar")
    assert [shard.size for shard in before] == [0, 1, 2]
    monkeypatch.undo()
    memory.pipe("/scans/a-1.tar", b"y")
    after = find_shards("memory://scans/a-*.tar")
    assert [one.key == other.key for one, other in zip(before, after, strict=True)] == [True, False, True]
    with pytest.raises(UserError, match=r"1 of 4 shards are not there: memory://scans/a-3\.tar"):
        find_shards("memory://scans/a-{0..3}.tar")


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ("nonsense://x/a.tar", "begins with nonsense://, which fsspec does not know"),
        ("simplecache::s3://x/a.tar", "joins addresses with '::'"),
        ("https://me:secret@host/a.tar", "holds a password"),
        ("s3a://bucket/a.tar", "needs a package that is not installed: Install s3fs"),
        ("http://127.0.0.1:9/a-{0..3}.tar", "127.0.0.1:9/a-0.tar: it cannot be reached"),
    ],
)
def test_an_address_that_cannot_be_read_is_said_in_one_sentence(typed: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence) as refused:
        find_shards(typed)
    assert "\n" not in str(refused.value)
    assert "secret" not in str(refused.value)


def test_what_may_be_a_key_is_not_shown() -> None:
    assert shown("https://me:secret@host/a.tar?signature=secret") == "https://…@host/a.tar"
    assert names_shards("https://host/a-{0..3}.tar?signature=x")
    assert not names_shards("s3://bucket/prefix")


def test_what_a_store_says_of_a_version_comes_before_its_times() -> None:
    assert addresses.mark_of({"ETag": "abc", "LastModified": "now", "size": 3}) == "ETag=abc"
    assert addresses.mark_of({"mtime": 5.5}) == "mtime=5.5"
    assert addresses.mark_of({"size": 3}) == ""

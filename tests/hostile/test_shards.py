"""Tars made to deceive: what they hold is used or named, nothing is unpacked to disk, nothing outside is opened."""

import gzip
import io
import json
import random
import tarfile
from pathlib import Path

import pytest

from acpl.data.files import MAX_FILE_BYTES, BadImage
from acpl.data.sources import SourceOptions, find_source
from acpl.data.streams import Stream
from acpl.data.tars import BadShard, members
from acpl.errors import UserError
from tests.hostile.breaking import cuts, mutated
from tests.hostile.corpus import sound


def tar(*entries: tuple[tarfile.TarInfo | str, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as packed:
        for entry, content in entries:
            info = tarfile.TarInfo(entry) if isinstance(entry, str) else entry
            info.size = len(content)
            packed.addfile(info, io.BytesIO(content))
    return file.getvalue()


def kind(name: str, letter: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = letter, target
    return info


def whole() -> bytes:
    """A sound shard of two samples."""
    image = sound()["png grey"]
    return tar(("a.png", image), ("a.json", b'{"label": "x"}'), ("b.png", image), ("b.json", b'{"label": "y"}'))


def read(content: bytes, tmp_path: Path) -> dict[str, bytes | str | None]:
    """What each member is, or why it is refused; under '' what is wrong with the tar."""
    file = tmp_path / "s.tar"
    file.write_bytes(content)
    stream, found = Stream(str(file)), {}
    try:
        for member in members(stream):
            try:
                found[member.name] = member.read()
            except BadImage as bad:
                found[member.name] = str(bad)
    except BadShard as bad:
        found[""] = str(bad)
    stream.close()
    return found


@pytest.mark.parametrize(
    ("entry", "name", "reason"),
    [
        ("../out.png", "../out.png", "the path leads outside of the images' folder with '..'"),
        ("/etc/passwd.png", "/etc/passwd.png", "the path is absolute"),
        ("http://host/a.png", "http://host/a.png", "it is an address on a network"),
        ("a\x1b[2J.png", "a\\x1b[2J.png", "the name holds control characters"),
        (b"\xff\xfe.png".decode(errors="surrogateescape"), "\\udcff\\udcfe.png", "the name is not UTF-8"),
        (kind("link.png", tarfile.SYMTYPE, "/etc/passwd"), "link.png", "it is a link"),
        (kind("hard.png", tarfile.LNKTYPE, "../secret.png"), "hard.png", "it is a link"),
        (kind("pipe.png", tarfile.FIFOTYPE), "pipe.png", "it is not a plain file"),
        (kind("disk.png", tarfile.BLKTYPE), "disk.png", "it is not a plain file"),
    ],
)
def test_a_member_that_is_no_file_inside_is_refused_by_name(
    entry: tarfile.TarInfo | str, name: str, reason: str, tmp_path: Path
) -> None:
    found = read(tar((entry, b""), ("a.png", b"pixels"), form=tarfile.GNU_FORMAT), tmp_path)
    assert str(found[name]).startswith(reason)
    assert found["a.png"] == b"pixels"


def test_links_and_climbing_members_are_named_with_their_shard(tmp_path: Path) -> None:
    image = sound()["png grey"]
    (tmp_path / "secret.png").write_bytes(image)
    (tmp_path / "in").mkdir()
    entries = [
        ("a.png", image),
        ("a.cls", b"x"),
        ("b.png", image),
        ("b.cls", b"y"),
        (kind("c.png", tarfile.SYMTYPE, "../secret.png"), b""),
        ("../../climbs.png", image),
    ]
    (tmp_path / "in" / "s.tar").write_bytes(tar(*entries))
    before = sorted(path.name for path in tmp_path.rglob("*"))
    options = SourceOptions(str(tmp_path / "in" / "s.tar"), size=32, colour="grey", cache=tmp_path / "cache")
    with pytest.raises(UserError) as refused:
        find_source(options).open(("train", "validation", "test"))
    lines = str(refused.value).splitlines()
    assert "  s.tar/c.png: it is a link, and links in a tar are not followed" in lines
    assert "  s.tar/../../climbs.png: the path leads outside of the images' folder with '..'" in lines
    after = {path.name for path in tmp_path.rglob("*") if "cache" not in path.parts}
    assert after == set(before)


def test_a_member_that_claims_too_much_is_not_read(tmp_path: Path) -> None:
    info = tarfile.TarInfo("huge.png")
    info.size = MAX_FILE_BYTES + 1
    found = read(info.tobuf() + bytes(1024), tmp_path)
    assert "longer than" in str(found["huge.png"])
    assert "truncated" in str(found[""])


def test_a_sparse_bomb_is_refused_by_its_stated_size(tmp_path: Path) -> None:
    info = tarfile.TarInfo("sparse.png")
    info.pax_headers = {"GNU.sparse.map": "0,1", "GNU.sparse.size": str(2**50), "GNU.sparse.name": "sparse.png"}
    found = read(tar((info, b"x"), ("a.png", b"pixels")), tmp_path)
    assert "longer than" in str(found["sparse.png"])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is empty"),
        (b"no tar at all" * 100, "it is damaged, or no tar"),
        (gzip.compress(b"x" * 2000, mtime=0), "it is packed with gzip; a shard is a plain .tar"),
        (b"PK\x03\x04" + bytes(2000), "it is packed with zip"),
        (b"\x28\xb5\x2f\xfd" + bytes(2000), "it is packed with zstd"),
    ],
    ids=["empty", "text", "gzip", "zip", "zstd"],
)
def test_what_is_no_plain_tar_is_said(content: bytes, reason: str, tmp_path: Path) -> None:
    assert str(read(content, tmp_path)[""]).startswith(reason)
    options = SourceOptions(str(tmp_path / "s.tar"), cache=tmp_path / "cache", colour="grey")
    with pytest.raises(UserError, match=r"holds no images; the first fault is s\.tar: it is"):
        find_source(options).manifest()


def test_a_tar_that_ends_early_is_never_taken_for_whole(tmp_path: Path) -> None:
    content = whole()
    members_end = content.rindex(b'{"label": "y"}') + 512
    for place in {0, 1, 511, 512, 513, 1000, *(512 * n for n in range(members_end // 512)), members_end - 1}:
        if place <= members_end // 512 * 512:
            assert "" in read(content[:place], tmp_path), place
    assert "" not in read(content, tmp_path)
    assert "" not in read(content[: members_end // 512 * 512 + 1024], tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        '{"label": ',
        "[1, 2]",
        "nonsense",
        "\xff",
        "[" * 100_000,
        '{"label": ' + "9" * 5000 + "}",
        '{"a": "' + "x" * 2**20 + '"}',
    ],
    ids=["cut", "list", "words", "not UTF-8", "deep", "long number", "too long"],
)
def test_a_sidecar_that_is_no_object_is_named(text: str, tmp_path: Path) -> None:
    image = sound()["png grey"]
    entries = [("a.png", image), ("a.json", text.encode("latin-1")), ("b.png", image), ("b.json", b'{"label": "y"}')]
    entries += [("c.png", image), ("c.json", json.dumps({"label": "x", "\x1b[2J": {"nested": [1]}}).encode())]
    (tmp_path / "s.tar").write_bytes(tar(*entries))
    options = SourceOptions(str(tmp_path / "s.tar"), size=32, colour="grey", cache=tmp_path / "cache")
    with pytest.raises(UserError, match=r"1 of 3 images cannot be used:\s+s\.tar/a\.json: it "):
        find_source(options).open(("train", "validation", "test"))


def test_a_chain_of_headers_does_not_exhaust_the_reader(tmp_path: Path) -> None:
    chain = b"".join(kind("x", tarfile.GNUTYPE_LONGNAME).tobuf() for _ in range(5000))
    assert "" in read(chain + whole(), tmp_path)


def test_whatever_becomes_of_the_bytes_it_is_read_or_refused(tmp_path: Path) -> None:
    chance = random.Random(11)
    content = whole()
    for broken in (*cuts(content), *(mutated(content, [content], chance) for _ in range(400))):
        for name, outcome in read(broken, tmp_path).items():
            assert outcome is None or isinstance(outcome, bytes) or ("\n" not in outcome and outcome)
            assert name == "" or name.isprintable() or "\\" in name

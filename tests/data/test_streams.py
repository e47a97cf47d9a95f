"""A stream of a shard's bytes: in order, from any place, whatever the server can do."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.data.stores import Server, serving

from acpl.data import streams
from acpl.data.streams import Stream, Unreachable

CONTENT = bytes(range(256)) * 200


@pytest.fixture(params=[True, False], ids=["ranges", "no ranges"])
def server(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    (tmp_path / "a.tar").write_bytes(CONTENT)
    monkeypatch.setattr(streams, "BLOCK", 5000)
    monkeypatch.setattr(streams, "WAITS", (0.0, 0.0))
    with serving(tmp_path, ranges=request.param) as running:
        yield running


@pytest.mark.parametrize("start", [0, 1, 4999, 5000, 20_001])
def test_all_bytes_come_in_order_from_where_they_are_asked_for(start: int, server: Server, tmp_path: Path) -> None:
    for address in (f"{server.address}/a.tar", str(tmp_path / "a.tar")):
        stream, found = Stream(address, start), b""
        while piece := stream.read(3000):
            assert len(piece) == 3000 or len(found) + len(piece) == len(CONTENT) - start
            found += piece
        assert found == CONTENT[start:]
        assert stream.position == len(CONTENT)
        stream.close()


def test_what_is_not_there_is_not_tried_again(server: Server, tmp_path: Path) -> None:
    for address in (f"{server.address}/none.tar", str(tmp_path / "none.tar")):
        with pytest.raises(Unreachable, match="the file is missing"):
            Stream(address).read(10)


def test_a_break_is_mended_from_where_it_was(server: Server) -> None:
    stream = Stream(f"{server.address}/a.tar")
    found = stream.read(2000)
    if stream._file is not None:
        stream._file.close()
    stream._file = None  # as after an error
    assert found + stream.read(len(CONTENT)) == CONTENT

"""Images in tars: read once, as streams, several at a time; the same data set as files in a folder would be."""

import io
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import fsspec
import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from tests.data.stores import Server, serving
from tests.data.tars import picture, samples, tarred, write_shards

import acpl
from acpl.data import shard_store, workers
from acpl.data.addresses import find_shards
from acpl.data.check import check_source
from acpl.data.decode import Decoding, decode
from acpl.data.limits import Limits
from acpl.data.shard_job import INDEX
from acpl.data.sources import Dataset, SourceOptions, find_source
from acpl.data.workers import CRASHED
from acpl.errors import UserError
from acpl.task import Task

ALL = ("train", "validation", "test")
SIZE = 32


@pytest.fixture
def options(tmp_path: Path) -> Callable[..., SourceOptions]:
    """Of small grey images, kept in a cache of the test's own."""

    def made(data: object, **more: Any) -> SourceOptions:
        return SourceOptions(str(data), **{"size": SIZE, "colour": "grey", "cache": tmp_path / "cache", **more})

    return made


Options = Callable[..., SourceOptions]


@pytest.fixture
def no_reading(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From now on no shard may be read."""
    return lambda: monkeypatch.setattr(shard_store, "do_all", lambda *_, **__: pytest.fail("a shard was read again"))


def pixels(dataset: Dataset) -> dict[str, np.ndarray[Any, Any]]:
    names = dataset.manifest.table["image"]
    return {name: dataset.images.gather(torch.tensor([int(key)]))[0].numpy() for key, name in names.items()}


def test_labels_patients_and_parts_come_from_beside_the_images(tmp_path: Path, options: Options) -> None:
    source = find_source(options(write_shards(tmp_path)))
    manifest = source.manifest()
    assert manifest.task is Task.MULTI_CLASS
    assert manifest.classes == ("clear", "mass")
    assert list(manifest.table["image"]) == [f"s{number:03d}.png" for number in range(40)]
    assert list(manifest.table["group"]) == [f"p{number // 2}" for number in range(40)]
    assert [part == "test" for part in manifest.table["part"]] == [number % 10 < 2 for number in range(40)]
    assert manifest.known.tolist() == [number % 3 != 2 for number in range(40)]
    assert any("4 shards" in sentence for sentence in source.said)


def test_each_part_has_its_own_images_as_a_decoder_alone_would_give_them(tmp_path: Path, options: Options) -> None:
    source = find_source(options(write_shards(tmp_path)))
    for parts in (("train", "validation"), ("test",)):
        dataset = source.open(parts)
        assert set(dataset.manifest.table["part"]) <= set(parts)
        assert len(dataset.images.ids) == len(dataset.manifest.table) > 0
        for name, seen in pixels(dataset).items():
            assert (seen == decode(picture(int(name[1:4])), Decoding(SIZE, 1))).all()
        there = dataset.images.on(torch.device("cpu"))
        assert torch.equal(there.gather(dataset.images.ids), dataset.images.gather(dataset.images.ids))
        assert len(there.images) == len(there.ids)
        assert dataset.images.nbytes == len(there.ids) * SIZE**2
        assert there.statistics() == dataset.images.statistics()


def test_a_table_names_images_in_shards_as_it_would_in_a_folder(tmp_path: Path, options: Options) -> None:
    shards = write_shards(tmp_path / "shards")
    folder = tmp_path / "folder"
    folder.mkdir()
    for number in range(40):
        (folder / f"s{number:03d}.png").write_bytes(picture(number))
    rows = [(f"s{number:03d}", f"p{number // 2}", number % 2) for number in range(0, 40, 2)]
    table = tmp_path / "labels.csv"
    pd.DataFrame(rows, columns=["image", "patient", "mass"]).to_csv(table, index=False)
    in_shards = find_source(options(table, images=shards)).open(ALL)
    in_folder = find_source(options(table, images=folder)).open(ALL)
    pd.testing.assert_frame_equal(in_shards.manifest.table, in_folder.manifest.table)
    one, other = pixels(in_shards), pixels(in_folder)
    assert one.keys() == other.keys()
    assert all((one[name] == other[name]).all() for name in one)
    assert len(in_shards.images.images) == 20, "only what the table names is decoded"


def test_shards_are_read_once_and_only_new_ones_later(
    tmp_path: Path, options: Options, no_reading: Callable[[], None]
) -> None:
    write_shards(tmp_path, shards=2)
    first = pixels(find_source(options(tmp_path / "scans-*.tar")).open(ALL))
    (index,) = (tmp_path / "cache").glob("shards-*")
    times = {path.name: path.stat().st_mtime_ns for path in index.glob(f"*{INDEX}")}
    (tmp_path / "scans-002.tar").write_bytes(tarred(samples(20, 10)))
    more = pixels(find_source(options(tmp_path / "scans-*.tar")).open(ALL))
    assert len(more) == 30
    assert all((more[name] == first[name]).all() for name in first)
    assert {name: (index / name).stat().st_mtime_ns for name in times} == times
    no_reading()
    assert len(pixels(find_source(options(tmp_path / "scans-*.tar")).open(ALL))) == 30


def test_processes_that_want_the_same_shards_wait_for_the_first(tmp_path: Path, options: Options) -> None:
    data = write_shards(tmp_path)
    told: list[tuple[int, str, int]] = []
    found: dict[int, set[str]] = {}

    def one(number: int) -> None:
        def progress(what: str, done: int, total: int) -> None:
            told.append((number, what, done))

        found[number] = set(pixels(find_source(options(data, progress=progress)).open(ALL)))

    threads = [threading.Thread(target=one, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [len(found[number]) for number in range(3)] == [40, 40, 40]
    readers = {number for number, what, done in told if what == "decoding shards" and done < 4}
    assert len(readers) == 1, "only one of them read"
    (folder,) = (tmp_path / "cache").glob("shards-*")
    assert (folder / "images.u8").stat().st_size == 40 * SIZE**2


def test_what_is_done_when_reading_is_stopped_is_not_read_again(tmp_path: Path, options: Options) -> None:
    data = write_shards(tmp_path, shards=12)
    slow = io.BytesIO()  # the last shard is still being read when the others are done
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (2000, 2000), dtype=np.uint8)).save(slow, "PNG")
    last = [(name, slow.getvalue() if name.endswith(".png") else rest) for name, rest in samples(110, 10)]
    (tmp_path / "scans-011.tar").write_bytes(tarred(last))

    def stop(what: str, done: int, total: int) -> None:
        if 0 < done < total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        find_source(options(data, progress=stop)).open(ALL)
    (folder,) = (tmp_path / "cache").glob("shards-*")
    done = {path.name: path.stat().st_mtime_ns for path in folder.glob(f"*{INDEX}")}
    assert 0 < len(done) < 12
    assert not list(folder.glob("*.part-*"))
    seen = pixels(find_source(options(data)).open(ALL))
    assert {name: (folder / name).stat().st_mtime_ns for name in done} == done
    small = [name for name in seen if int(name[1:4]) < 110]
    assert all((seen[name] == decode(picture(int(name[1:4])), Decoding(SIZE, 1))).all() for name in small)
    assert (len(small), len(seen)) == (110, 120)


def test_a_shard_that_has_changed_is_read_again(tmp_path: Path, options: Options) -> None:
    data = write_shards(tmp_path, shards=2)
    find_source(options(data)).open(ALL)
    changed = [(name, picture(999) if name == "s013.png" else content) for name, content in samples(10, 10)]
    (tmp_path / "scans-001.tar").write_bytes(tarred(changed))
    seen = pixels(find_source(options(data)).open(ALL))
    assert (seen["s013.png"] == decode(picture(999), Decoding(SIZE, 1))).all()
    assert (seen["s003.png"] == decode(picture(3), Decoding(SIZE, 1))).all()


def test_classes_may_be_numbers_and_images_may_stand_alone(tmp_path: Path, options: Options) -> None:
    members = [(f"{n}.jpg", picture(n, "JPEG")) for n in range(12)]
    members += [(f"{n}.cls", f"{n % 3}\n".encode()) for n in range(9)] + [("readme.txt", b"hello")]
    (tmp_path / "a.tar").write_bytes(tarred(members))
    source = find_source(options(tmp_path / "a.tar", parts=(1, 0, 0), validation=0))
    assert source.manifest().classes == ("0", "1", "2")
    assert source.manifest().known.sum() == 9
    assert any("3 images have neither .json nor .cls" in sentence for sentence in source.said)
    assert any(".txt" in sentence for sentence in source.said)


def test_a_list_of_labels_is_multi_label_and_an_empty_one_says_that_there_is_none(
    tmp_path: Path, options: Options
) -> None:
    found = [["Mass", "Nodule"], ["Mass"], [], None]
    members = [
        (f"1.2.{n}{suffix}", picture(n) if suffix == ".png" else {"labels": found[n]})
        for n in range(4)
        for suffix in (".json", ".png")
    ]
    (tmp_path / "a.tar").write_bytes(tarred(members))
    manifest = find_source(options(tmp_path / "a.tar")).manifest()
    assert manifest.task is Task.MULTI_LABEL
    assert manifest.labels[:3].tolist() == [[1, 1], [1, 0], [0, 0]]
    assert np.isnan(manifest.labels[3]).all()
    assert list(manifest.table["image"]) == ["1.2.0.png", "1.2.1.png", "1.2.2.png", "1.2.3.png"]


def test_colour_is_found_from_the_first_images(tmp_path: Path, options: Options) -> None:
    data = write_shards(tmp_path)
    assert find_source(options(data, colour="auto")).open(ALL).images.channels == 1
    assert find_source(options(data, colour="rgb")).open(ALL).images.channels == 3


class TestWhatIsBad:
    def broken(self, tmp_path: Path) -> Path:
        members = samples(10, 10)
        members[4] = ("s012.png", b"no picture")
        members[7] = ("s013.json", "[1, 2")
        write_shards(tmp_path, shards=1)
        (tmp_path / "scans-001.tar").write_bytes(tarred([*members, ("s003.png", picture(7))]))
        return tmp_path / "scans-{000..001}.tar"

    def test_every_bad_member_is_named_with_its_shard(self, tmp_path: Path, options: Options) -> None:
        with pytest.raises(UserError) as refused:
            find_source(options(self.broken(tmp_path))).open(ALL)
        assert str(refused.value).splitlines()[:4] == [
            "3 of 20 images cannot be used:",
            "  scans-000.tar/s003.png: its key is there twice: scans-000.tar/s003.png and scans-001.tar/s003.png",
            "  scans-001.tar/s012.png: it is not an image that can be read",
            "  scans-001.tar/s013.json: it is not JSON",
        ]
        left = find_source(options(self.broken(tmp_path), skip_bad=True)).open(ALL)
        assert len(left.images.ids) == 17
        assert len(left.bad) == 3

    def test_the_check_finds_them_and_keeps_what_it_saw(
        self, tmp_path: Path, options: Options, no_reading: Callable[[], None]
    ) -> None:
        data = self.broken(tmp_path)
        (tmp_path / "scans-001.tar").write_bytes((tmp_path / "scans-001.tar").read_bytes()[:-12_000])
        result = check_source(find_source(options(data)))
        kinds = {finding.kind: finding for finding in result.findings}
        assert {item["image"] for item in kinds["bad-file"].items} >= {"s012.png", "s013.png"}
        assert kinds["damaged-shard"].items[0]["shard"] == "scans-001.tar"
        assert result.sizes is not None
        assert result.sizes.median == (24, 20)
        no_reading()
        assert check_source(find_source(options(data))) == result

    def test_a_bad_test_image_does_not_concern_training(self, tmp_path: Path, options: Options) -> None:
        members = [(name, b"poison" if name == "s001.png" else content) for name, content in samples(0, 20)]
        (tmp_path / "a.tar").write_bytes(tarred(members))
        source = find_source(options(tmp_path / "a.tar"))
        assert source.open(("train", "validation")).bad == []
        with pytest.raises(UserError, match=r"a\.tar/s001\.png"):
            source.open(("test",))

    def test_an_image_that_crashes_its_process_is_named_and_those_behind_it_are_read(
        self, tmp_path: Path, options: Options, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        crashing = (
            "import sys, os; sys.path[:] = sys.argv[1:]; import acpl.data.shard_job as job; real = job.decode; "
            "job.decode = lambda content, how: os.abort() if content[:4] == b'DIE!' else real(content, how); "
            "from acpl.data.workers import serve; serve()"
        )
        monkeypatch.setattr(workers, "START", crashing)
        deadly = [(name, b"DIE!" if name in ("s004.png", "s005.png") else content) for name, content in samples(0, 20)]
        (tmp_path / "a.tar").write_bytes(tarred(deadly))
        dataset = find_source(options(tmp_path / "a.tar", skip_bad=True)).open(ALL)
        assert dataset.bad == [("a.tar/s004.png", CRASHED), ("a.tar/s005.png", CRASHED)]
        assert len(dataset.images.ids) == 18
        for name, seen in pixels(dataset).items():
            assert (seen == decode(picture(int(name[1:4])), Decoding(SIZE, 1))).all()


def test_the_time_of_an_image_is_bounded_and_not_that_of_its_whole_shard(tmp_path: Path) -> None:
    armed = []

    class Row(NamedTuple):
        names: list[str]

        def do(self, rows: range) -> list[None]:
            armed.append(signal.getitimer(signal.ITIMER_REAL)[0])
            return [None]

        def failed(self, reason: str) -> None:
            return None

    class Shard(Row):
        def again(self, row: int, reason: str) -> bool:
            return False

    for job in (Row(["a"]), Shard(["a"])):
        workers._bounded(job, 0, Limits(seconds=50))
    assert 0 < armed[0] <= 50
    assert armed[1] == 0


@pytest.fixture(params=[True, False], ids=["ranges", "no ranges"])
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Server]:
    write_shards(tmp_path / "served")
    with serving(tmp_path / "served", ranges=request.param) as running:
        yield running


class TestAddresses:
    def test_shards_on_a_web_server_are_fetched_once(self, tmp_path: Path, server: Server, options: Options) -> None:
        data = f"{server.address}/scans-{{000..003}}.tar"
        far = pixels(find_source(options(data)).open(ALL))
        near = pixels(find_source(options(tmp_path / "served" / "scans-*.tar")).open(ALL))
        assert all((far[name] == near[name]).all() for name in near)
        assert len(far) == len(near) == 40
        assert set(server.fetched.values()) == {1}
        find_source(options(data)).open(ALL)
        assert set(server.fetched.values()) == {1}

    def test_a_store_that_breaks_off_is_said_and_what_is_done_is_not_fetched_again(
        self, server: Server, options: Options
    ) -> None:
        data = f"{server.address}/scans-{{000..003}}.tar"
        server.broken = {"scans-002.tar"}
        with pytest.raises(
            UserError, match=r"scans-002\.tar: it .*; 3 of 4 shards are done and will not be read again"
        ):
            find_source(options(data)).open(ALL)
        server.broken = set()
        done = server.fetched.copy()
        assert len(find_source(options(data)).open(ALL).images.ids) == 40
        assert set(server.fetched - done) == {"scans-002.tar"}

    @pytest.mark.parametrize(
        ("status", "sentence"),
        [(403, "it may not be read: "), (500, "it could not be fetched: "), (404, "1 of 4 shards are not there")],
    )
    def test_what_a_server_refuses_is_said(self, status: int, sentence: str, server: Server) -> None:
        server.refused = {"scans-002.tar": status}
        with pytest.raises(UserError, match=sentence) as refused:
            find_shards(f"{server.address}/scans-{{000..003}}.tar")
        assert "scans-002.tar" in str(refused.value)

    def test_a_table_names_images_on_a_web_server(self, tmp_path: Path, server: Server, options: Options) -> None:
        for number in range(6):
            (tmp_path / "served" / f"{number}.png").write_bytes(picture(number))
        table = tmp_path / "labels.csv"
        table.write_text("image,mass\n" + "".join(f"{number}.png,{number % 2}\n" for number in range(7)))
        with pytest.raises(UserError, match=r"1 of 7 images cannot be used:\s+6\.png: the file is missing"):
            find_source(options(table, images=server.address)).open(ALL)
        dataset = find_source(options(table, images=server.address, skip_bad=True)).open(ALL)
        assert (pixels(dataset)["3.png"] == decode(picture(3), Decoding(SIZE, 1))).all()
        done = server.fetched.copy()
        find_source(options(table, images=server.address, skip_bad=True)).open(ALL)
        assert not any(name != "6.png" for name in server.fetched - done), "a version is asked for without the content"


def test_shards_and_images_in_a_store(tmp_path: Path, memory: fsspec.AbstractFileSystem, options: Options) -> None:
    for number in range(2):
        memory.pipe(f"/scans/a-{number}.tar", tarred(samples(number * 10, 10)))
        memory.pipe(f"/scans/deep/{number}.png", picture(number))
    found = pixels(find_source(options("memory://scans/a-*.tar")).open(ALL))
    assert (found["s013.png"] == decode(picture(13), Decoding(SIZE, 1))).all()
    table = tmp_path / "labels.csv"
    table.write_text("image,mass\ndeep/0.png,1\ndeep/1.png,0\n")
    dataset = find_source(options(table, images="memory://scans", colour="auto")).open(ALL)
    assert (pixels(dataset)["deep/1.png"] == decode(picture(1), Decoding(SIZE, 1))).all()
    assert check_source(find_source(options(table, images="memory://scans"))).sizes is not None
    memory.pipe("/scans/deep/1.png", picture(5))
    again = find_source(options(table, images="memory://scans")).open(ALL)
    assert (pixels(again)["deep/1.png"] == decode(picture(5), Decoding(SIZE, 1))).all()


@pytest.mark.parametrize("cell", ["http://127.0.0.1:9/a.png", "memory://scans/a.png", "../a.png", "/etc/passwd"])
def test_addresses_and_paths_in_a_table_stay_refused(
    cell: str, tmp_path: Path, memory: fsspec.AbstractFileSystem, options: Options
) -> None:
    memory.pipe("/scans/a.png", picture(1))
    memory.pipe("/scans/in/b.png", picture(2))
    (tmp_path / "in.tar").write_bytes(tarred([("b.png", picture(2))]))
    table = tmp_path / "labels.csv"
    table.write_text(f"image,mass\n{cell},1\nb.png,0\n")
    for images in ("memory://scans/in", tmp_path / "in.tar"):
        with pytest.raises(UserError, match=r"1 of 2 images cannot be used") as refused:
            find_source(options(table, images=images)).open(ALL)
        assert any(word in str(refused.value) for word in ("address", "outside", "absolute"))


@pytest.mark.slow
def test_a_run_trains_judges_and_is_reviewed_on_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACPL_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    write_shards(tmp_path, shards=4, each=20)
    tiny = {"size": 32, "warmup_epochs": 1, "stages": 1, "stage_epochs": 1, "device": "cpu", "k": 3, "batch_size": 8}
    run = acpl.train(out=tmp_path / "run", preset="demo", data="scans-{000..003}.tar", **tiny)
    monkeypatch.chdir("/")
    figures = acpl.evaluate(run, resamples=20)
    assert figures
    assert len(acpl.suggest(run, budget=3, device="cpu")) == 3
    shutil.rmtree(tmp_path / "cache")
    assert acpl.evaluate(run, resamples=20) == figures

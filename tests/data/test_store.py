"""Images by id, and decoded once."""

import io
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from acpl.data import cache as module
from acpl.data import journal, workers
from acpl.data.decode import Decoding, decode
from acpl.data.decode_job import DecodeJob, Outcome
from acpl.data.files import ImageFiles
from acpl.data.store import ImageStore, Stored, build_store
from acpl.errors import UserError


def test_an_image_is_found_by_its_id_whatever_its_place() -> None:
    ids = torch.tensor([10, 3, 7])
    store = ImageStore(ids, ids.view(3, 1, 1, 1).expand(3, 1, 2, 2).to(torch.uint8))
    assert store.gather(torch.tensor([7, 10, 7]))[:, 0, 0, 0].tolist() == [7, 10, 7]


@pytest.mark.parametrize("missing", [0, 8, 99])
def test_what_was_not_loaded_cannot_be_read(missing: int) -> None:
    store = ImageStore(torch.tensor([10, 3]), torch.zeros(2, 1, 2, 2, dtype=torch.uint8))
    with pytest.raises(KeyError, match="not in this store"):
        store.require(torch.tensor([3, missing]))


def test_images_must_be_bytes_one_for_each_id() -> None:
    with pytest.raises(ValueError, match="uint8"):
        ImageStore(torch.tensor([1]), torch.zeros(1, 1, 2, 2))
    with pytest.raises(ValueError, match="uint8"):
        ImageStore(torch.tensor([1]), torch.zeros(2, 1, 2, 2, dtype=torch.uint8))


def test_statistics_are_of_pixels_between_0_and_1() -> None:
    images = torch.randint(0, 256, (50, 3, 8, 8), dtype=torch.uint8)
    mean, std = ImageStore(torch.arange(50), images).statistics()
    pixels = (images / 255).transpose(0, 1).flatten(1)
    assert torch.allclose(torch.tensor(mean), pixels.mean(dim=1), atol=1e-5)
    assert torch.allclose(torch.tensor(std), pixels.std(dim=1), atol=1e-4)


def test_a_store_of_what_could_be_read_keeps_the_ids_of_the_rest(tmp_path: Path) -> None:
    files = some_images(tmp_path / "images", 4)
    stored = build_store(files, ["0.png", "none.png", "2.png"], HOW, cache=tmp_path / "cache")
    store = ImageStore.of(stored, torch.tensor([7, 8, 9]))
    assert store.ids.tolist() == [7, 9]
    assert (store.gather(torch.tensor([9]))[0].numpy() == plainly(files, "2.png")).all()


def test_a_store_may_be_larger_than_memory(tmp_path: Path) -> None:
    count = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 2 // 1024**2
    with (tmp_path / "images.u8").open("wb") as file:
        file.truncate(count * 1024**2)  # of nothing: it takes no room
    images = module.mapped(tmp_path / "images.u8", Decoding(1024, 1), count)
    assert images.shape == (count, 1, 1024, 1024)
    assert torch.from_numpy(images)[-1].sum() == 0


HOW = Decoding(16, 3)
MANY = 200
COUNTED = [f"{number}.png" for number in range(MANY)]


def picture(seed: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (20, 24, 3), dtype=np.uint8)).save(file, "PNG")
    return file.getvalue()


def some_images(folder: Path, count: int) -> ImageFiles:
    folder.mkdir()
    for number in range(count):
        (folder / f"{number}.png").write_bytes(picture(number))
    return ImageFiles.open(folder)


def plainly(files: ImageFiles, name: str) -> np.ndarray:
    return decode(files.read(name), HOW)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> ImageFiles:
    """More than are decoded in one process; some of them bad."""
    files = some_images(tmp_path_factory.mktemp("many") / "images", MANY)
    (files.path / "3.png").write_bytes(b"")
    (files.path / "70.png").write_text("a note")
    return ImageFiles.open(files.path)


def no_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> bytes:
        raise AssertionError("a file was read")

    monkeypatch.setattr(ImageFiles, "read", refuse)


def rows_read(monkeypatch: pytest.MonkeyPatch, folder: Path, then: str = "None") -> Callable[[], list[int]]:
    """Make the processes do this before each row; what is returned tells which rows they were given, sorted."""
    log = folder / "rows.txt"
    log.write_text("")
    start = (
        "import sys; sys.path[:] = sys.argv[1:]\n"
        "import os, time\n"
        "from acpl.data.decode_job import DecodeJob\n"
        "from acpl.data.workers import serve\n"
        "real = DecodeJob.do\n"
        "def do(job, rows):\n"
        "    row = rows[0]\n"
        f"    with open({str(log)!r}, 'a') as file: file.write(f'{{row}}\\n')\n"
        f"    {then}\n"
        "    return real(job, rows)\n"
        "DecodeJob.do = do\n"
        "serve()"
    )
    monkeypatch.setattr(workers, "START", start)
    return lambda: sorted(map(int, log.read_text().split()))


def assert_whole(stored: Stored, files: ImageFiles) -> None:
    """All of ``many`` but the two bad ones, each image where it belongs."""
    assert stored.rows.tolist() == [row for row in range(MANY) if row not in (3, 70)]
    for row, image in zip(stored.rows, stored.images, strict=True):
        assert (image == plainly(files, COUNTED[row])).all()
    assert [bad.name for bad in stored.bad] == ["3.png", "70.png"]


class TestBuild:
    @pytest.mark.parametrize("packed", [False, True])
    def test_several_processes_make_what_one_loop_would(self, packed: bool, many: ImageFiles, tmp_path: Path) -> None:
        files = many
        if packed:
            shutil.make_archive(str(tmp_path / "images"), "zip", many.path)
            files = ImageFiles.open(tmp_path / "images.zip")
        names = [*COUNTED[:100], "none.png", *COUNTED[100:], COUNTED[5]]
        stored = build_store(files, names, HOW, cache=tmp_path / "cache", workers=2)
        assert [bad.name for bad in stored.bad] == ["3.png", "70.png", "none.png"]
        assert [bad.reason.split()[-1] for bad in stored.bad] == ["empty", "read", "missing"]
        assert stored.rows.tolist() == [row for row in range(len(names)) if row not in (3, 70, 100)]
        assert stored.images.shape == (len(names) - 3, 3, 16, 16)
        for row, image in zip(stored.rows, stored.images, strict=True):
            assert (image == plainly(files, names[row])).all()
        assert len(set(stored.digests)) == len(names) - 4
        assert stored.digests[-1] == stored.digests[names.index(COUNTED[5]) - 1]

    def test_a_second_run_reads_nothing(
        self, many: ImageFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = build_store(many, COUNTED, HOW, cache=tmp_path, workers=2)
        no_reading(monkeypatch)
        again = build_store(ImageFiles.open(many.path), COUNTED, HOW, cache=tmp_path)
        assert (again.images == first.images).all()
        assert again.rows.tolist() == first.rows.tolist()
        assert again.bad == first.bad
        assert again.digests == first.digests

    @pytest.mark.parametrize("how", [Decoding(17, 3), Decoding(16, 1), Decoding(16, 3, "pad")])
    def test_other_settings_are_another_store(self, how: Decoding, tmp_path: Path) -> None:
        files = some_images(tmp_path / "images", 2)
        for settings in (HOW, how):
            images = build_store(files, files.names(), settings, cache=tmp_path / "cache").images
            assert (images[1] == decode(files.read("1.png"), settings)).all()
        assert len(list((tmp_path / "cache").iterdir())) == 2

    def test_a_changed_file_is_decoded_anew(self, tmp_path: Path) -> None:
        files = some_images(tmp_path / "images", 3)
        build_store(files, files.names(), HOW, cache=tmp_path / "cache")
        (files.path / "1.png").write_bytes(picture(99))
        images = build_store(ImageFiles.open(files.path), files.names(), HOW, cache=tmp_path / "cache").images
        assert (images[1] == plainly(files, "1.png")).all()

    def test_another_decoder_is_another_store(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        files = some_images(tmp_path / "images", 1)
        build_store(files, files.names(), HOW, cache=tmp_path / "cache")
        monkeypatch.setattr(module, "_version", lambda package: "next")
        build_store(files, files.names(), HOW, cache=tmp_path / "cache")
        assert len(list((tmp_path / "cache").iterdir())) == 2

    def test_the_same_zip_elsewhere_is_the_same_store(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("here.zip", "there.zip"):
            with zipfile.ZipFile(tmp_path / name, "w") as file:
                file.writestr("a.png", picture(1))
        build_store(ImageFiles.open(tmp_path / "here.zip"), ["a"], HOW, cache=tmp_path / "cache")
        no_reading(monkeypatch)
        build_store(ImageFiles.open(tmp_path / "there.zip"), ["a"], HOW, cache=tmp_path / "cache")

    def test_a_damaged_store_is_built_anew(self, tmp_path: Path) -> None:
        files = some_images(tmp_path / "images", 3)
        for name in ("images.u8", "index.json"):
            build_store(files, files.names(), HOW, cache=tmp_path / "cache")
            (folder,) = (tmp_path / "cache").iterdir()
            (folder / name).write_bytes(b"{")
            images = build_store(files, files.names(), HOW, cache=tmp_path / "cache").images
            assert (images[2] == plainly(files, "2.png")).all()

    def test_what_could_not_be_read_is_tried_again(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        files = some_images(tmp_path / "images", 2)
        with monkeypatch.context() as broken:
            broken.setattr(module, "do_all", lambda *_, **more: [Outcome(None, "the disk was gone")] * 2)
            assert len(build_store(files, files.names(), HOW, cache=tmp_path / "cache").bad) == 2
        assert not build_store(files, files.names(), HOW, cache=tmp_path / "cache").bad

    @pytest.mark.parametrize("names", [[], ["none.png"], ["empty.png"]])
    def test_nothing_good_is_an_empty_store(self, names: list[str], tmp_path: Path) -> None:
        (tmp_path / "empty.png").touch()
        for _ in range(2):
            stored = build_store(ImageFiles.open(tmp_path), names, HOW, cache=tmp_path / "cache")
            assert stored.images.shape == (0, 3, 16, 16)
            assert [bad.name for bad in stored.bad] == names

    def test_progress_ends_with_everything_done(self, many: ImageFiles, tmp_path: Path) -> None:
        seen: list[tuple[str, int, int]] = []
        build_store(many, COUNTED, HOW, cache=tmp_path, progress=lambda *step: seen.append(step))
        assert seen[-1] == ("decoding", MANY, MANY)
        assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)

    def test_what_is_written_to_the_images_stays_out_of_the_store(self, tmp_path: Path) -> None:
        files = some_images(tmp_path / "images", 1)
        first = build_store(files, ["0.png"], HOW, cache=tmp_path / "cache").images
        first[:] = 0
        assert build_store(files, ["0.png"], HOW, cache=tmp_path / "cache").images.any()


class TestTrouble:
    def test_a_killed_build_leaves_nothing_half_made(self, many: ImageFiles, tmp_path: Path) -> None:
        code = (
            "import sys, pathlib\n"
            "from acpl.data.cache import build_store\n"
            "from acpl.data.files import ImageFiles\n"
            "from acpl.data.decode import Decoding\n"
            "def stay(*_):\n"
            "    print('building', flush=True)\n"
            "    sys.stdin.read()\n"
            "files = ImageFiles.open(pathlib.Path(sys.argv[1]))\n"
            "names = [f'{n}.png' for n in range(200)]\n"
            "build_store(files, names, Decoding(16, 3), cache=pathlib.Path(sys.argv[2]), workers=2, progress=stay)\n"
        )
        command = [sys.executable, "-c", code, str(many.path), str(tmp_path)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"building\n"
            (part,) = tmp_path.iterdir()
            assert f".part-{process.pid}-" in part.name
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert list(tmp_path.iterdir()) == [part]
        stored = build_store(many, COUNTED, HOW, cache=tmp_path)
        assert len(stored.rows) == MANY - 2
        (folder,) = tmp_path.iterdir()
        assert ".part-" not in folder.name

    @pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="another process can only be waited for on Linux")
    def test_workers_end_with_whoever_started_them(self, many: ImageFiles, tmp_path: Path) -> None:
        code = (
            "import sys, pathlib\n"
            "from acpl.data.decode_job import DecodeJob, Decoding, ImageFiles\n"
            "from acpl.data.workers import _Worker\n"
            "files = ImageFiles.open(pathlib.Path(sys.argv[1]))\n"
            "worker = _Worker(DecodeJob(files, ['1.png'], Decoding(16, 3), pathlib.Path(sys.argv[2])))\n"
            "worker.brief()\n"
            "print(worker.process.pid, flush=True)\n"
            "sys.stdin.read()\n"
        )
        (tmp_path / "images.u8").touch()
        command = [sys.executable, "-c", code, str(many.path), str(tmp_path / "images.u8")]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            worker = os.pidfd_open(int(process.stdout.readline()))
            process.kill()
        assert select.select([worker], [], [], 30)[0]
        os.close(worker)

    def test_the_part_of_a_living_process_is_left_alone(self, tmp_path: Path) -> None:
        files = some_images(tmp_path / "images", 1)
        host = module.socket.gethostname()
        living = tmp_path / "cache" / f"key.part-{os.getppid()}-1@{host}"
        elsewhere = tmp_path / "cache" / "key.part-1-1@another-machine"
        forgotten = tmp_path / "cache" / "key.part-2-1@another-machine"
        for folder in (living, elsewhere, forgotten):
            folder.mkdir(parents=True)
        os.utime(forgotten, (0, 0))
        build_store(files, ["0.png"], HOW, cache=tmp_path / "cache")
        assert living.exists()
        assert elsewhere.exists()
        assert not forgotten.exists()

    def test_the_slower_of_two_builds_takes_the_faster_ones_store(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        files = some_images(tmp_path / "images", 2)
        real = module.do_all

        def overtaken(job: DecodeJob, what: str, **more: Any) -> list[Outcome]:
            monkeypatch.setattr(module, "do_all", real)
            monkeypatch.setattr(module, "threading", SimpleNamespace(get_ident=lambda: 1))
            build_store(files, files.names(), HOW, cache=tmp_path / "cache")
            return real(job, what, **more)

        monkeypatch.setattr(module, "do_all", overtaken)
        stored = build_store(files, files.names(), HOW, cache=tmp_path / "cache")
        assert len(stored.images) == 2
        assert len(list((tmp_path / "cache").iterdir())) == 1

    def test_an_interrupted_build_is_gone_on_with(
        self, many: ImageFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupt(what: str, done: int, total: int) -> None:
            if done > 100:
                raise KeyboardInterrupt

        rows_read(monkeypatch, tmp_path, "time.sleep(2) if row == 120 else None")
        with pytest.raises(KeyboardInterrupt):
            build_store(many, COUNTED, HOW, cache=tmp_path / "cache", workers=1, progress=interrupt)
        (part,) = (tmp_path / "cache").iterdir()
        done = {json.loads(line)[0] for line in (part / journal.NAME).read_text().splitlines()}
        assert done == set(range(120))
        read = rows_read(monkeypatch, tmp_path)
        stored = build_store(many, COUNTED, HOW, cache=tmp_path / "cache", workers=2)
        assert read() == [row for row in range(MANY) if row not in done]
        assert_whole(stored, many)

    def test_a_killed_build_is_gone_on_with_and_no_image_is_decoded_twice(
        self, many: ImageFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        code = (
            "import sys, pathlib\n"
            "from acpl.data import journal, workers\n"
            "from acpl.data.cache import build_store\n"
            "from acpl.data.files import ImageFiles\n"
            "from acpl.data.decode import Decoding\n"
            "journal.KEPT_EVERY = 0\n"
            "workers.START = sys.argv[3]\n"
            "def stay(what, done, total):\n"
            "    if done > 100:\n"
            "        print('half', flush=True)\n"
            "        sys.stdin.read()\n"
            "files = ImageFiles.open(pathlib.Path(sys.argv[1]))\n"
            "names = [f'{n}.png' for n in range(200)]\n"
            "build_store(files, names, Decoding(16, 3), cache=pathlib.Path(sys.argv[2]), workers=1, progress=stay)\n"
        )
        rows_read(monkeypatch, tmp_path, "time.sleep(2) if row == 120 else None")
        command = [sys.executable, "-c", code, str(many.path), str(tmp_path / "cache"), workers.START]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"half\n"
            process.send_signal(signal.SIGKILL)
            process.wait()
        (part,) = (tmp_path / "cache").iterdir()
        done = {json.loads(line)[0] for line in (part / journal.NAME).read_text().splitlines()}
        assert done == set(range(120))
        with (part / journal.NAME).open("a") as torn:
            torn.write("[199, null")
        read = rows_read(monkeypatch, tmp_path)
        seen: list[int] = []
        stored = build_store(many, COUNTED, HOW, cache=tmp_path / "cache", progress=lambda _, n, total: seen.append(n))
        assert read() == [row for row in range(MANY) if row not in done]
        assert seen[0] >= len(done)
        assert_whole(stored, many)
        assert [folder.name for folder in (tmp_path / "cache").iterdir()] == [part.name.partition(".part-")[0]]

    def test_a_build_that_is_cut_off_when_it_closes_gaps_begins_again(
        self, many: ImageFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its images no longer lie where its journal said."""

        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as cut:
            cut.setattr(journal, "KEPT_EVERY", 0)
            cut.setattr(module, "_publish", interrupt)
            with pytest.raises(KeyboardInterrupt):
                build_store(many, COUNTED, HOW, cache=tmp_path / "cache", workers=2)
        assert_whole(build_store(many, COUNTED, HOW, cache=tmp_path / "cache", workers=2), many)

    def test_a_journal_s_lines_come_after_their_pixels(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "images.u8").write_bytes(b"pixels")
        kept = journal.Journal(tmp_path, tmp_path / "images.u8")
        kept.note(3, Outcome("digest", None))
        kept.note(4, Outcome(None, "not read"))
        synced: list[tuple[str, bool]] = []
        honest = os.fsync

        def sync(handle: int) -> None:
            path = Path(f"/proc/self/fd/{handle}").readlink()
            synced.append((path.name, (tmp_path / journal.NAME).exists()))
            honest(handle)

        monkeypatch.setattr(os, "fsync", sync)
        kept.keep()
        assert synced == [("images.u8", False), (journal.NAME, True)]
        assert journal.Journal(tmp_path, tmp_path / "images.u8").read() == {3: Outcome("digest", None)}

    def test_what_a_dead_build_left_stays_for_a_day_unless_the_room_is_needed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        files = some_images(tmp_path / "images", 2)
        host = module.socket.gethostname()
        dead, old = (tmp_path / "cache" / f"key-{n}{module.PART}{module.LEFT}@{host}" for n in (1, 2))
        for part in (dead, old):
            part.mkdir(parents=True)
            (part / journal.NAME).touch()
        for path in (old, old / journal.NAME):
            os.utime(path, (0, 0))
        build_store(files, ["0.png"], HOW, cache=tmp_path / "cache")
        assert dead.exists()
        assert not old.exists()
        free = iter((0, 10**9))
        monkeypatch.setattr(module.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 10, next(free)))
        build_store(files, ["1.png"], HOW, cache=tmp_path / "cache")
        assert not dead.exists()

    def test_an_image_that_crashes_its_process_is_bad_and_the_rest_is_not(
        self, many: ImageFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        read = rows_read(monkeypatch, tmp_path, "os.abort() if row == 50 else None")
        stored = build_store(many, COUNTED, HOW, cache=tmp_path / "cache", workers=2)
        assert [bad.name for bad in stored.bad] == ["3.png", "50.png", "70.png"]
        assert "crashed" in stored.bad[1].reason
        assert read() == sorted([*range(MANY), 50])  # that one twice, for it may not have been its fault; no other

    def test_only_what_crashed_its_process_is_tried_again(
        self, many: ImageFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rows_read(monkeypatch, tmp_path, "os.abort() if row in (50, 60) else None")
        build_store(many, COUNTED, HOW, cache=tmp_path / "cache", workers=2)
        (folder,) = (tmp_path / "cache").iterdir()
        before = (folder / "images.u8").stat()
        read = rows_read(monkeypatch, tmp_path, "os.abort() if row in (50, 60) else None")
        stored = build_store(many, COUNTED, HOW, cache=tmp_path / "cache", workers=2)
        assert read() == [50, 50, 60, 60]
        assert [bad.name for bad in stored.bad] == ["3.png", "50.png", "60.png", "70.png"]
        assert (folder / "images.u8").stat().st_ino == before.st_ino  # nothing new, so nothing is written
        read = rows_read(monkeypatch, tmp_path, "os.abort() if row == 60 else None")
        stored = build_store(many, COUNTED, HOW, cache=tmp_path / "cache", workers=2)
        assert read() == [50, 60, 60]
        assert [bad.name for bad in stored.bad] == ["3.png", "60.png", "70.png"]
        read = rows_read(monkeypatch, tmp_path)
        assert_whole(build_store(many, COUNTED, HOW, cache=tmp_path / "cache", workers=2), many)
        assert read() == [60]
        assert [path.name for path in (tmp_path / "cache").iterdir()] == [folder.name]

    def test_a_file_that_is_too_slow_is_tried_once(
        self, many: ImageFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("ACPL_FILE_SECONDS", "0.5")
        read = rows_read(monkeypatch, tmp_path, "time.sleep(60) if row == 1 else None")
        stored = build_store(many, COUNTED[:3], HOW, cache=tmp_path / "cache")
        assert [bad.name for bad in stored.bad] == ["1.png"]
        assert "within 0.5 seconds" in stored.bad[0].reason
        assert read() == [0, 1, 2]

    def test_a_process_that_does_not_start_says_why(
        self, many: ImageFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(workers, "START", "raise SystemExit('no such luck')")
        with pytest.raises(RuntimeError, match="no such luck"):
            build_store(many, COUNTED, HOW, cache=tmp_path, workers=2)
        assert not list(tmp_path.iterdir())

    def test_workers_do_not_import_torch(self) -> None:
        code = "import sys, acpl.data.decode_job; print(sorted({'torch', 'pandas', 'pydicom'} & set(sys.modules)))"
        assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"

    def test_a_script_without_a_main_guard_builds_too(self, many: ImageFiles, tmp_path: Path) -> None:
        script = tmp_path / "script.py"
        script.write_text(
            "from pathlib import Path\n"
            "from acpl.data.cache import build_store\n"
            "from acpl.data.files import ImageFiles\n"
            "from acpl.data.decode import Decoding\n"
            f"files = ImageFiles.open(Path({str(many.path)!r}))\n"
            f"cache = Path({str(tmp_path / 'cache')!r})\n"
            "stored = build_store(files, files.names(), Decoding(16, 3), cache=cache, workers=2)\n"
            "print(len(stored.images))\n"
        )
        assert subprocess.check_output([sys.executable, str(script)], text=True) == f"{MANY - 2}\n"

    def test_a_cache_that_cannot_be_written_is_a_users_mistake(self, tmp_path: Path) -> None:
        files = some_images(tmp_path / "images", 1)
        (tmp_path / "file").touch()
        with pytest.raises(UserError, match=r"cannot be kept in .*file.*ACPL_CACHE"):
            build_store(files, ["0.png"], HOW, cache=tmp_path / "file" / "cache")

    def test_a_disk_that_is_too_small_is_told_before_decoding(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        files = some_images(tmp_path / "images", 1)
        monkeypatch.setattr(module.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 10, 0))
        no_reading(monkeypatch)
        with pytest.raises(UserError, match="GB are needed"):
            build_store(files, ["0.png"], HOW, cache=tmp_path / "cache")

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full on this system")
    @pytest.mark.parametrize("count", [2, MANY])
    def test_a_disk_that_fills_up_is_a_users_mistake(
        self, count: int, tmp_path: Path, many: ImageFiles, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real: Callable[..., list[Outcome]] = module.do_all
        full = Path("/dev/full")
        monkeypatch.setattr(module, "do_all", lambda job, *what, **more: real(job._replace(target=full), *what, **more))
        with pytest.raises(UserError, match="No space left"):
            build_store(many, COUNTED[:count], HOW, cache=tmp_path)
        assert not list(tmp_path.iterdir())

"""Features and probabilities of pools larger than memory: in files of a folder of their own, read when asked for.

A stage goes over them block by block, so that only a block is ever in memory. The folder is made beside the run's
files, which lie where there is room, and is gone when nobody holds the rows any more.
"""

import shutil
import tempfile
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from acpl.algorithms.contract import StoredViews, Views
from acpl.engine.run_folder import FEATURES

SHARE = 0.25
"""Of the free memory; what would take more is stored."""
SHARD_BYTES = 2**30


class ShardedRows:
    """float32 rows in files, one after the other; a part of them is a tensor of its own."""

    def __init__(self, files: list[Path], rows: list[int], width: int) -> None:
        self._files, self._width = files, width
        self._starts = np.concatenate([[0], np.cumsum(rows)]).astype(int).tolist()

    @property
    def shape(self) -> torch.Size:
        """``(rows, columns)``."""
        return torch.Size((self._starts[-1], self._width))

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, part: Any, /) -> Tensor:
        """The rows of a slice, or of an int64 tensor of row numbers, in memory."""
        if isinstance(part, slice):
            start, stop, step = part.indices(len(self))
            if step == 1:
                return self._between(start, max(start, stop))
            part = torch.arange(start, stop, step)
        numbers = torch.as_tensor(part).long()
        found = torch.empty(len(numbers), self._width)
        for number in range(len(self._files)):
            first, last = self._starts[number], self._starts[number + 1]
            here = ((numbers >= first) & (numbers < last)).nonzero().flatten()
            if len(here):
                found.numpy()[here.numpy()] = self._mapped(number)[(numbers[here] - first).numpy()]
        return found

    def _between(self, start: int, stop: int) -> Tensor:
        found = torch.empty(stop - start, self._width)
        while start < stop:
            number = bisect_right(self._starts, start) - 1
            end = min(stop, self._starts[number + 1])
            place = len(found) - (stop - start)
            # Mapped for this part alone: pages of a map that lives on count as this process's memory.
            here = slice(start - self._starts[number], end - self._starts[number])
            found.numpy()[place : place + end - start] = self._mapped(number)[here]
            start = end
        return found

    def _mapped(self, number: int) -> np.ndarray[Any, np.dtype[np.float32]]:
        shape = (self._starts[number + 1] - self._starts[number], self._width)
        return np.memmap(self._files[number], np.float32, "r", shape=shape)


class RowsWriter:
    """Rows to files of at most ``shard_bytes``, in the order they come."""

    def __init__(self, folder: Path, name: str, width: int, shard_bytes: int = SHARD_BYTES) -> None:
        self._folder, self._name, self._width = folder, name, width
        self._most = max(1, shard_bytes // (4 * max(1, width)))
        self._files: list[Path] = []
        self._rows: list[int] = []

    def add(self, rows: Tensor) -> None:
        """Write the next rows ``(rows, width)``."""
        rows = rows.detach().float().cpu().contiguous()
        while len(rows):
            if not self._rows or self._rows[-1] == self._most:
                self._files.append(self._folder / f"{self._name}-{len(self._files):05d}.f32")
                self._rows.append(0)
            here, rows = rows[: self._most - self._rows[-1]], rows[self._most - self._rows[-1] :]
            with self._files[-1].open("ab") as file:
                here.numpy().tofile(file)
            self._rows[-1] += len(here)

    def rows(self) -> ShardedRows:
        """All that was written."""
        return ShardedRows(self._files, self._rows, self._width)


def stored(batches: Iterable[Views], count: int, beside: Path) -> StoredViews:
    """The first ``count`` rows of many batches' views in files beside a run's; deleted with what is returned."""
    folder = Path(tempfile.mkdtemp(prefix=FEATURES, dir=beside))
    writers: list[RowsWriter] = []
    left = count
    try:
        for views in batches:
            writers = writers or [
                RowsWriter(folder, name, part.shape[1]) for name, part in zip(Views._fields, views, strict=True)
            ]
            for writer, part in zip(writers, views, strict=True):
                writer.add(part[:left])
            left -= min(left, len(views.features))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    features, probabilities = (writer.rows() for writer in writers)
    _delete_with((features, probabilities), lambda: shutil.rmtree(folder, ignore_errors=True))
    return StoredViews(features, probabilities)


def _delete_with(holders: tuple[ShardedRows, ...], delete: Callable[[], None]) -> None:
    """Delete when the last of ``holders`` is gone, or the process ends."""
    left = [len(holders)]

    def one_less() -> None:
        left[0] -= 1
        if left[0] == 0:
            delete()

    for holder in holders:
        weakref.finalize(holder, one_less)


def is_too_large(rows: int, width: int, device: torch.device) -> bool:
    """Say whether float32 ``(rows, width)`` would take more than ``SHARE`` of the device's free memory."""
    free = free_memory(device)
    return free is not None and 4 * rows * width > SHARE * free


def free_memory(device: torch.device) -> int | None:
    """Bytes that are free where tensors of this device lie; None where the system does not say."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    found = []
    table = Path("/proc/meminfo")
    if table.exists():
        lines = dict(line.split(":") for line in table.read_text(encoding="ascii").splitlines())
        found.append(1024 * int(lines["MemAvailable"].split()[0]))
    limit, used = (Path("/sys/fs/cgroup") / name for name in ("memory.max", "memory.current"))
    if limit.exists() and used.exists() and (most := limit.read_text(encoding="ascii").strip()).isdigit():
        found.append(int(most) - int(used.read_text(encoding="ascii")))
    return min(found, default=None)

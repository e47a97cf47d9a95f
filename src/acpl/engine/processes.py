"""The processes that train together: what each holds a part of, exchanged over torch.distributed."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor

from acpl.engine.crew import PATIENCE, Crew
from acpl.engine.watch import Watch
from acpl.errors import SaidElsewhereError, UserError
from acpl.functional.group import Alone

_FAILED, _OPENED, _KNOWING = "failed", "opened", "knowing"
_POLL = 0.1  # seconds
_FAREWELL = 3.0  # seconds that process 0, which has the store, stays for the others to hear why all end
# What torch says when a process is not there any more, besides errors of its own kind.
_LOST = ("by peer", "gloo", "nccl", "socket", "connection refused", "timed out waiting", "broken pipe")


class OneProcess(Alone):
    """A run of one process: nothing is exchanged."""

    local_rank = 0

    def told(self, value: Any) -> Any:
        """The value."""
        return value

    def agree(self, *flags: bool) -> tuple[bool, ...]:
        """The flags."""
        return flags

    def flag(self, raised: bool) -> bool:
        """The flag."""
        return raised

    @contextmanager
    def first_opens(self) -> Iterator[None]:
        """At once."""
        yield


class Processes:
    """A group over torch.distributed: gloo for what lies on the host, NCCL for what lies on a GPU.

    Every operation must be called by all processes, in one order.
    """

    def __init__(self, crew: Crew, watch: Watch) -> None:
        self.crew = crew
        self._gpus: dist.ProcessGroup | None = None
        self._store = dist.distributed_c10d.PrefixStore("acpl", dist.distributed_c10d._get_default_store())
        self._watch = watch
        self._coming: tuple[dist.Work, Tensor] | None = None
        self.folder: Path | None = None
        """The run's, once it is known: to say how to go on."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # networks are copied; the processes they are trained by are not

    @property
    def rank(self) -> int:
        """This process's number, from 0."""
        return self.crew.rank

    @property
    def size(self) -> int:
        """How many processes there are."""
        return self.crew.size

    @property
    def local_rank(self) -> int:
        """This process's number on its machine."""
        return self.crew.local_rank

    def use(self, device: torch.device) -> None:
        """Tensors on this device will be exchanged, too."""
        if device.type == "cuda":
            # Made on all processes at once; gloo copies to the host and back where a build has no NCCL.
            backend = "nccl" if dist.is_nccl_available() else "gloo"
            self._gpus = dist.new_group(backend=backend, timeout=PATIENCE)
            self._watch.group = self._gpus

    def sum(self, values: Tensor) -> Tensor:
        """Element-wise over processes; the same on all, exact for integers."""
        return self._reduced(values, dist.ReduceOp.SUM)

    def least(self, values: Tensor) -> Tensor:
        """The element-wise minimum over processes; the same on all."""
        return self._reduced(values, dist.ReduceOp.MIN)

    def sum_in_place(self, values: Tensor) -> None:
        """``values``, contiguous, become their sum over processes."""
        dist.all_reduce(values, group=self._group(values))

    def stack(self, values: Tensor) -> Tensor:
        """(processes, …): the values of each, all of one shape; the same on all."""
        values = values.contiguous()
        found = values.new_empty(self.size, *values.shape)
        dist.all_gather(list(found.unbind()), values, group=self._group(values))
        return found

    def gather(self, rows: Tensor) -> Tensor:
        """All parts, one after another in rank order; parts may be uneven or empty. The same on all."""
        plain = _plain(rows)
        counts = self._counts(len(rows))
        most = max(counts)
        if most == 0:
            return rows
        padded = plain.new_zeros(most, *plain.shape[1:])
        padded[: len(plain)] = plain
        parts = [part[:count] for part, count in zip(self.stack(padded), counts, strict=True)]
        return torch.cat(parts).to(rows.dtype)

    def pass_on(self, rows: Tensor) -> Tensor:
        """Rows go to the next process, those of the one before come back; uneven or empty ones, too."""
        plain, counts = _plain(rows), self._counts(len(rows))
        before, after = (self.rank - 1) % self.size, (self.rank + 1) % self.size
        taken = plain.new_empty(counts[before], *plain.shape[1:])
        group, exchanges = self._group(plain), []
        if counts[self.rank]:
            exchanges.append(dist.P2POp(dist.isend, plain, after, group))
        if counts[before]:
            exchanges.append(dist.P2POp(dist.irecv, taken, before, group))
        for work in dist.batch_isend_irecv(exchanges) if exchanges else ():
            work.wait()
        return taken.to(rows.dtype)

    def told(self, value: Any) -> Any:
        """What process 0 gives, on all; plain data and tensors on the host."""
        box = [value if self.rank == 0 else None]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def agree(self, *flags: bool) -> tuple[bool, ...]:
        """Each flag, raised where any process raises it."""
        self.flag(False)  # takes in what ``flag`` has sent before, so that all are in step
        return tuple(bool(value) for value in self.sum(torch.tensor(flags, dtype=torch.int32)))

    def flag(self, raised: bool) -> bool:
        """Whether any process raised its flag at the last call; this one's is sent, and known at the next.

        So nobody waits: the answer has a whole step to arrive in, and all hear it at the same step.
        """
        coming, self._coming = self._coming, None
        heard = False
        if coming is not None:
            coming[0].wait()
            heard = bool(coming[1])
        mine = torch.tensor(int(raised), dtype=torch.int32)
        work = dist.all_reduce(mine, async_op=True)
        assert work is not None
        self._coming = work, mine
        return heard

    @contextmanager
    def first_opens(self) -> Iterator[None]:
        """Process 0 goes first, then the first of each other machine, then all: a cache is built once.

        There is no limit to how long that may take.
        """
        if self.rank > 0:
            self._await(f"{_OPENED}/0")
        if self.local_rank > 0:
            self._await(f"{_OPENED}/{self.rank - self.local_rank}")
        yield
        self._store.set(f"{_OPENED}/{self.rank}", "yes")

    @contextmanager
    def together(self) -> Iterator[None]:
        """The run: whatever ends it on one process ends it on all, and one of them says why, in one sentence."""
        try:
            yield
            if self._coming is not None:
                self._coming[0].wait()
        except SaidElsewhereError:
            raise
        except UserError as error:
            self._leave(str(error))
            raise (error if self.rank == 0 else SaidElsewhereError(str(error))) from None
        except Exception as error:
            if not _is_lost(error):
                self._leave(f"process {self.rank} failed: {type(error).__name__}: {' '.join(str(error).split())}")
                raise
            last_word = self._last_word()
            if self.rank == 0:
                self._leave(str(last_word))
            raise last_word from error
        except BaseException:  # a second Ctrl-C does not wait
            self._leave("interrupted", farewell=0.0)
            raise
        finally:
            self._watch.over.set()

    def _group(self, values: Tensor) -> dist.ProcessGroup | None:
        """Which group carries this tensor; None is the host's."""
        return self._gpus if values.is_cuda else None

    def _reduced(self, values: Tensor, how: Any) -> Tensor:
        found = _plain(values).clone()
        dist.all_reduce(found, how, group=self._group(found))
        return found if values.dtype == torch.bool and how == dist.ReduceOp.SUM else found.to(values.dtype)

    def _counts(self, own: int) -> list[int]:
        counts: list[int] = self.stack(torch.tensor(own)).tolist()
        return counts

    def _await(self, key: str) -> None:
        while not self._store.check([key]):
            if (said := self._heard()) is not None:
                raise SaidElsewhereError(said)
            time.sleep(_POLL)

    def _heard(self) -> str | None:
        """Why another process ended, if one has said it; that this one knows is told in turn."""
        if not self._store.check([_FAILED]):
            return None
        said = self._store.get(_FAILED).decode()
        self._store.set(f"{_KNOWING}/{self.rank}", "yes")
        return said

    def _leave(self, sentence: str, farewell: float = _FAREWELL) -> None:
        """Tell the others why; the first to say it is heard. The store goes with process 0, which lets them hear it."""
        with suppress(Exception):
            self._store.compare_set(_FAILED, "", sentence)
            self._store.set(f"{_KNOWING}/{self.rank}", "yes")
            if self.rank > 0:
                return
            self._coming = None  # it would hold the connections
            dist.destroy_process_group()  # who waits in an exchange finds it broken, and asks the store why
            all_know, until = [f"{_KNOWING}/{rank}" for rank in range(self.size)], time.monotonic() + farewell
            while not self._store.check(all_know) and time.monotonic() < until:
                time.sleep(_POLL)

    def _last_word(self) -> UserError:
        """What to say when another process is not there any more: its own word, if it left one."""
        try:
            said = self._said_within(2.0)
        except Exception:  # process 0 has the store: it is gone
            word = self._gone("process 0 of the run ended without a word")
            return UserError(word) if self.rank == 1 else SaidElsewhereError(word)
        if self.rank > 0:
            return SaidElsewhereError(said or "another process is gone")
        return UserError(
            said or self._gone(self._watch.ended(3.0) or "another process of the run ended without a word")
        )

    def _gone(self, who: str) -> str:
        how = "" if self.folder is None else f"; go on from the last checkpoint with: acpl train --resume {self.folder}"
        return f"{who}, so that all have stopped{how}"

    def _said_within(self, seconds: float) -> str | None:
        until = time.monotonic() + seconds
        while True:
            if (said := self._heard()) is not None:
                return said
            if time.monotonic() > until:
                return None
            time.sleep(_POLL)


def _is_lost(error: BaseException) -> bool:
    """Whether an error means that another process is not there any more."""
    if isinstance(error, dist.DistError):
        return True
    said = str(error).lower()
    return isinstance(error, RuntimeError) and any(word in said for word in _LOST)


def _plain(values: Tensor) -> Tensor:
    """Contiguous, of a kind that every library exchanges."""
    return (values.to(torch.uint8) if values.dtype == torch.bool else values).contiguous()

"""A group of threads in one process: quick, and what each of them holds can be counted."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")


class _Board:
    """Where all threads of a group lay down what they have, and take what they need."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size, timeout=60)
        self.laid: list[Any] = [None] * size


class ThreadGroup:
    """One thread's view of the group."""

    def __init__(self, rank: int, board: _Board) -> None:
        self.rank, self._board = rank, board
        self.size = board.barrier.parties

    def sum(self, values: Tensor) -> Tensor:
        return torch.stack(self._all(values)).sum(dim=0, dtype=values.dtype)

    def least(self, values: Tensor) -> Tensor:
        return torch.stack(self._all(values)).amin(dim=0)

    def gather(self, rows: Tensor) -> Tensor:
        return torch.cat(self._all(rows))

    def pass_on(self, rows: Tensor) -> Tensor:
        return self._all(rows)[self.rank - 1].clone()

    def _all(self, values: Tensor) -> list[Tensor]:
        self._board.laid[self.rank] = values
        self._board.barrier.wait()
        found = list(self._board.laid)
        self._board.barrier.wait()  # nobody lays down the next before all have taken these
        return found

    def give_up(self) -> None:
        self._board.barrier.abort()


def in_group(size: int, work: Callable[[ThreadGroup], Result]) -> list[Result]:
    """What each of ``size`` threads returns, by rank; the first mistake of any is raised."""
    board = _Board(size)

    def one(rank: int) -> Result:
        group = ThreadGroup(rank, board)
        try:
            return work(group)
        except BaseException:
            group.give_up()
            raise

    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(one, rank) for rank in range(size)]
        errors = [future.exception() for future in futures]
    for error in sorted((e for e in errors if e), key=lambda e: isinstance(e, threading.BrokenBarrierError)):
        raise error
    return [future.result() for future in futures]


def parts(rows: Tensor, cuts: Sequence[int]) -> list[Tensor]:
    """``rows`` cut before each of ``cuts``, ascending; equal cuts leave a part empty."""
    edges = [0, *cuts, len(rows)]
    return [rows[start:stop] for start, stop in pairwise(edges)]


def even(rows: Tensor, size: int) -> list[Tensor]:
    """``rows`` in parts that differ by one at most."""
    return list(rows.tensor_split(size))

"""Processes that share the rows of a pool among them, handed to functions as an object."""

from typing import Protocol

from torch import Tensor


class Group(Protocol):
    """Processes that hold a part of the rows each, in the order of their ranks."""

    @property
    def rank(self) -> int:
        """This process's number, from 0."""
        ...

    @property
    def size(self) -> int:
        """How many processes there are."""
        ...

    def sum(self, values: Tensor) -> Tensor:
        """Element-wise over processes; the same on all, exact for integers."""
        ...

    def least(self, values: Tensor) -> Tensor:
        """The element-wise minimum over processes; the same on all."""
        ...

    def gather(self, rows: Tensor) -> Tensor:
        """All parts, one after another in rank order; parts may be uneven or empty. The same on all."""
        ...

    def pass_on(self, rows: Tensor) -> Tensor:
        """Rows go to the next process, those of the one before come back (a ring); uneven or empty ones, too."""
        ...


class Alone:
    """A group of one: every operation gives back what it is given."""

    @property
    def rank(self) -> int:
        """0."""
        return 0

    @property
    def size(self) -> int:
        """1."""
        return 1

    def sum(self, values: Tensor) -> Tensor:
        """The values."""
        return values

    def least(self, values: Tensor) -> Tensor:
        """The values."""
        return values

    def gather(self, rows: Tensor) -> Tensor:
        """The rows."""
        return rows

    def pass_on(self, rows: Tensor) -> Tensor:
        """The rows."""
        return rows


ALONE = Alone()

"""The queries that score best for every anchor so far, while queries pass by in blocks."""

import numpy as np
import torch
from torch import Tensor

from acpl.functional.selection import best_scores, true_places


class BestOfColumns:
    """Keeps, for every column of blocks of scores, the ``width`` best and the rows they were in.

    What a column has not kept scores no more than the least that it has. On the CPU a block is first compared with
    that least score: after the first blocks hardly anything passes, and what passes is only appended, until some
    column's room is full. On a GPU that would wait for counts, and selecting from every block is quick.
    """

    def __init__(self, columns: int, width: int, like: Tensor) -> None:
        self._width = width
        self._room = 2 * width
        self._score = like.new_full((columns, self._room), -torch.inf)
        self._index = torch.zeros((columns, self._room), dtype=torch.int64, device=like.device)
        self._filled = torch.zeros(columns, dtype=torch.int64, device=like.device)
        self._least = like.new_full((columns,), -torch.inf)

    def add(self, score: Tensor, first: int) -> None:
        """Take in a block ``(rows, columns)`` whose first row has the number ``first``."""
        if score.is_cuda or not self._append(score, first):
            best, row = best_scores(score.T.contiguous(), min(self._width, len(score)))
            self._select(best, row + first)

    def best(self) -> tuple[Tensor, Tensor]:
        """Return the kept scores and row numbers ``(columns, width)``, in no order."""
        self._select(self._score[:, :0], self._index[:, :0])
        return self._score[:, : self._width], self._index[:, : self._width]

    def _append(self, score: Tensor, first: int) -> bool:
        """Append what exceeds its column's least score, if there is room; say whether there was."""
        if len(score) > self._room and not self._filled.any():
            return False
        for _ in range(2):
            places = true_places(score > self._least)
            row, column = places // score.shape[1], places % score.shape[1]
            count = torch.bincount(column, minlength=len(self._filled))
            if int((self._filled + count).max()) <= self._room:
                break
            if int(count.max()) > self._room - self._width:
                return False
            self._select(self._score[:, :0], self._index[:, :0])
        order = _sorted_order(column)
        row, column = row[order], column[order]
        place = torch.arange(len(row)) - (count.cumsum(0) - count)[column] + self._filled[column]
        self._score[column, place] = score[row, column]
        self._index[column, place] = row + first
        self._filled += count
        return True

    def _select(self, score: Tensor, index: Tensor) -> None:
        kept, place = best_scores(torch.cat((self._score, score), dim=1), self._width)
        self._index[:, : self._width] = torch.cat((self._index, index), dim=1).gather(1, place)
        self._score[:, : self._width] = kept
        self._score[:, self._width :] = -torch.inf
        self._filled.fill_(self._width)
        self._least = self._score[:, : self._width].amin(dim=1)


def _sorted_order(column: Tensor) -> Tensor:
    """Return the order that sorts column numbers; NumPy sorts those of 16 bits digit by digit."""
    numbers = column.numpy()
    narrow = numbers.astype(np.uint16) if len(numbers) and numbers.max() < 2**16 else numbers
    return torch.from_numpy(np.argsort(narrow, kind="stable"))

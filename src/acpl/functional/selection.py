"""The largest of every row and the true places of a mask, on the CPU by NumPy: its sort uses the processor's vectors.

Torch selects from a row one element at a time; at the sizes of a stage that took as long as the product itself.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from acpl.functional.rows import slices

# NumPy sorts so many 32-bit numbers in registers; beyond, each costs several times as much.
_GROUPS = 512
_INDEX_MASK = 2**32 - 1
_LAST = np.iinfo(np.int64).max
# Fewer elements are not worth a thread of their own.
_ELEMENTS_PER_THREAD = 2**16


def largest(score: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the ``count`` largest numbers of every row, in descending order, and their columns.

    Args:
        score: float32 ``(rows, columns)``, no NaN among them.
        count: from 1 to the number of columns.

    Returns:
        values, float32 ``(rows, count)``, and columns, int64 of the same shape. Which of equal numbers take the last
        places is open.
    """
    groups = min(_GROUPS, score.shape[1])
    if score.device.type != "cpu" or not score.is_contiguous() or 4 * count > 3 * groups or score.numel() == 0:
        values, index = score.topk(count, dim=1)
        return values, index
    values = torch.empty((len(score), count), dtype=torch.float32)
    index = torch.empty((len(score), count), dtype=torch.int64)

    def select(part: slice) -> None:
        keys = _keys_of_largest(score[part].numpy(), count, groups)
        if keys is None:
            values[part], index[part] = score[part].topk(count, dim=1)
        else:
            values[part] = torch.from_numpy(_ordered_bits(~(keys >> 32).astype(np.int32)).view(np.float32))
            index[part] = torch.from_numpy(keys & _INDEX_MASK)

    _in_threads(select, len(score), score.shape[1])
    return values, index


def best_scores(score: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the ``count`` largest of every row and their columns, in whatever order is quickest."""
    return score.topk(count, dim=1, sorted=False) if score.is_cuda else largest(score.float(), count)


def sorted_rows(numbers: Tensor) -> Tensor:
    """Return each row's int64 numbers in descending order."""
    if numbers.device.type != "cpu":
        return numbers.sort(dim=1, descending=True).values
    flipped = ~numbers.numpy()
    _in_threads(lambda part: flipped[part].sort(axis=1), *flipped.shape)
    return torch.from_numpy(np.invert(flipped, out=flipped))


def true_places(mask: Tensor) -> Tensor:
    """Return where a mask is true, as places in its flattened form, ascending."""
    if mask.device.type != "cpu":
        return mask.flatten().nonzero().flatten()
    return torch.from_numpy(np.flatnonzero(mask.numpy()))


def _keys_of_largest(score: NDArray[np.float32], count: int, groups: int) -> NDArray[np.int64] | None:
    """Return score and column of the largest in one number each, best first; None where too many are equal.

    The columns fall into groups, a few columns each. A number that ``count`` of the groups' maxima reach is reached by
    at least as many scores, and by not many more; only these are then sorted.
    """
    rows, columns = score.shape
    maxima = score[:, :groups].copy()
    for start in range(groups, columns, groups):
        part = score[:, start : start + groups]
        np.maximum(maxima[:, : part.shape[1]], part, out=maxima[:, : part.shape[1]])
    maxima.sort(axis=1)
    found = np.flatnonzero(score >= maxima[:, groups - count, None])
    start = np.searchsorted(found, np.arange(rows + 1) * columns)
    reached = np.diff(start)
    widest = int(reached.max())
    if widest > 2 * count + groups // 2:
        return None
    row = np.arange(rows)
    bits = ~_ordered_bits(score.ravel()[found].view(np.int32))
    column = found - np.repeat(row * columns, reached)
    place = np.repeat(row * widest - start[:-1], reached)
    place += np.arange(len(found))
    keys = np.full((rows, widest), _LAST)
    keys.ravel()[place] = (bits.astype(np.int64) << 32) | column
    keys.sort(axis=1)
    return keys[:, :count]


def _ordered_bits(bits: NDArray[np.int32]) -> NDArray[np.int32]:
    """Turn the bits of float32 into int32 that sort as the floats do, or back."""
    ordered: NDArray[np.int32] = bits ^ ((bits >> 31) & np.int32(0x7FFFFFFF))
    return ordered


def _in_threads(work: Callable[[slice], None], rows: int, columns: int) -> None:
    """Do the work on parts of the rows, on as many threads as torch would use; NumPy lets go of the interpreter."""
    threads = min(torch.get_num_threads(), max(1, rows * columns // _ELEMENTS_PER_THREAD))
    if threads == 1:
        work(slice(0, rows))
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, slices(rows, -(-rows // threads))))

"""Scalar products of listed pairs of rows."""

import warnings

import torch
from torch import Tensor

# Elements gathered at a time where there is no kernel for it.
_ELEMENTS = 2**26


def products_of_pairs(rows: Tensor, columns: Tensor, start: Tensor, index: Tensor) -> Tensor:
    """Return the products of each row with the rows of ``columns`` listed for it, of the dtype of both.

    Args:
        rows: ``(rows, features)``.
        columns: ``(columns, features)``.
        start: int64 ``(rows + 1,)``: row i's list is ``index[start[i]:start[i + 1]]``.
        index: int64 ``(pairs,)``, rows of ``columns``.

    Returns:
        ``(pairs,)``. On the CPU a pair's product does not depend on the other pairs.
    """
    if len(index) == 0:
        return rows.new_empty(0)
    if rows.is_cuda:
        return _gathered(rows, columns, start, index)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta", UserWarning)
        wanted = torch.sparse_csr_tensor(
            start, index, rows.new_zeros(len(index)), (len(rows), len(columns)), check_invariants=False
        )
    products: Tensor = torch.sparse.sampled_addmm(wanted, rows, columns.T, beta=0.0).values()
    return products


def _gathered(rows: Tensor, columns: Tensor, start: Tensor, index: Tensor) -> Tensor:
    row = torch.repeat_interleave(torch.arange(len(rows), device=rows.device), start.diff(), output_size=len(index))
    step = max(1, _ELEMENTS // rows.shape[1])
    parts = (slice(first, first + step) for first in range(0, len(index), step))
    return torch.cat([(rows[row[part]] * columns[index[part]]).sum(dim=1) for part in parts])

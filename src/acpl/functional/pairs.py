"""Scalar products of all pairs of rows, or of listed ones."""

import warnings

import torch
from torch import Tensor

# Elements gathered at a time where there is no kernel for it.
_ELEMENTS = 2**26


def prepared(columns: Tensor) -> Tensor:
    """Return rows that others are to be multiplied with, in the order of memory that :func:`product` likes best.

    On the CPU float32 is left to oneDNN, which on some processors is twice as fast as what torch calls otherwise, and
    elsewhere no slower.
    """
    if columns.device.type == "cpu" and columns.dtype == torch.float32 and _has_onednn():
        packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(columns.contiguous())
        return packed
    return columns


def product(rows: Tensor, columns: Tensor) -> Tensor:
    """Return the products ``(rows, columns)`` of rows and of :func:`prepared` ones, summed in float32.

    On the CPU those of bfloat16 are rounded to it.
    """
    if rows.is_cuda:  # bfloat16 results would also allow bfloat16 sums
        return torch.mm(rows, columns.T, out_dtype=torch.float32)
    if columns.is_mkldnn:
        products: Tensor = torch.ops.mkldnn._linear_pointwise(rows, columns, None, "none", [], "")
        return products
    return rows @ columns.T


def _has_onednn() -> bool:
    # Not among torch's public names, so they may be missing one day; the public way copies all it reads and writes.
    names = ("_reorder_linear_weight", "_linear_pointwise")
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return available and all(hasattr(torch.ops.mkldnn, name) for name in names)


def float32_is_float32() -> bool:
    """Say whether products of float32 are computed as such here: a flag or an environment variable may lower them."""
    rows = torch.arange(64.0 * 256).sin().view(64, 256)
    wrong = (product(rows, prepared(rows)).double() - rows.double() @ rows.double().T).abs().max()
    return float(wrong) < 2.0**-12  # of sums near 128; tensor floats err by ten times as much, bfloat16 by hundred


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

"""Sums of floating-point numbers in which neither the order nor the division among processes can be seen."""

import torch
from torch import Tensor

from acpl.functional.group import Group
from acpl.functional.rows import slices

# Rows rounded at a time.
_STEP = 2**16


def exact_sum(left: Tensor, right: Tensor, group: Group) -> Tensor:
    """Return the sums over rows of products ``left * right``, float64 ``(columns,)``, the same for every division.

    Each product is rounded to a multiple of one power of two, chosen so that all of them together fit in 62 bits, and
    whole numbers are added: a sum errs by rows² · 2⁻⁶² of its largest term at most.

    Args:
        left: float32 ``(rows, columns)``, this process's part of the rows.
        right: of the same shape.
        group: the processes that hold the rows.
    """
    columns = left.shape[1]
    ends = torch.zeros(columns, dtype=torch.float64, device=left.device)
    for part in slices(len(left), _STEP):
        ends = torch.maximum(ends, (left[part].double() * right[part].double()).abs().amax(dim=0))
    rows = int(group.sum(torch.tensor([len(left)], device=left.device)))
    largest = -group.least(-ends)
    _, exponent = torch.frexp(largest)
    shift = 61 - rows.bit_length() - exponent
    total = torch.zeros(columns, dtype=torch.int64, device=left.device)
    for part in slices(len(left), _STEP):
        products = left[part].double() * right[part].double()
        total += torch.ldexp(products, shift).round_().long().sum(dim=0)
    return torch.ldexp(group.sum(total).double(), -shift)

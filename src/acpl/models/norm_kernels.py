"""Batch norm and activation in Triton, for channels-last images on a GPU: two passes forward, two backward.

PyTorch's own kernels for bfloat16 take nearly half of a DenseNet step at 512 pixels; these read each value as rarely as
the mathematics allows, activate while they write, and recompute in the backward pass what they need of the activation.
Images are rows: (batch × height × width, channels); ``x`` may be the first columns of wider ones, with ``x_row`` values
from one row to the next. ``SLOPE`` is the activation's below 0, ``TOP`` its greatest value.
"""

import triton
import triton.language as tl


@triton.jit
def sums(
    x, copy, part, rows, channels, x_row, copy_row, per_program,
    COPY: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Each program's sum and sum of squares of its rows, as distances from the first row: nothing cancels."""
    program = tl.program_id(0)
    column = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside = column < channels
    first = tl.load(x + column, mask=inside, other=0.0).to(tl.float32)
    total = tl.zeros([BLOCK_R, BLOCK_C], tl.float32)
    squares = tl.zeros([BLOCK_R, BLOCK_C], tl.float32)
    start = program * per_program
    for offset in range(0, per_program, BLOCK_R):
        row = start + offset + tl.arange(0, BLOCK_R)
        mask = (row < rows)[:, None] & inside[None, :]
        wide = row[:, None].to(tl.int64)
        value = tl.load(x + wide * x_row + column[None, :], mask=mask, other=0.0)
        if COPY:
            tl.store(copy + wide * copy_row + column[None, :], value, mask=mask)
        apart = tl.where(mask, value.to(tl.float32) - first[None, :], 0.0)
        total += apart
        squares += apart * apart
    tl.store(part + program * 2 * channels + column, tl.sum(total, 0), mask=inside)
    tl.store(part + (program * 2 + 1) * channels + column, tl.sum(squares, 0), mask=inside)


@triton.jit
def copied(x, copy, rows, channels, x_row, copy_row, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr):
    """The same values in another's place."""
    row = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    column = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    mask = (row < rows)[:, None] & (column < channels)[None, :]
    wide = row[:, None].to(tl.int64)
    value = tl.load(x + wide * x_row + column[None, :], mask=mask)
    tl.store(copy + wide * copy_row + column[None, :], value, mask=mask)


@triton.jit
def _added_up(part, programs, channels, column, inside, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr):
    """Both sums of the columns of a part that has as many channels, over its programs."""
    one = tl.zeros([BLOCK_P, BLOCK_C], tl.float32)
    two = tl.zeros([BLOCK_P, BLOCK_C], tl.float32)
    for offset in range(0, programs, BLOCK_P):
        program = offset + tl.arange(0, BLOCK_P)
        mask = (program < programs)[:, None] & inside[None, :]
        place = part + program[:, None] * 2 * channels + column[None, :]
        one += tl.load(place, mask=mask, other=0.0)
        two += tl.load(place + channels, mask=mask, other=0.0)
    return tl.sum(one, 0), tl.sum(two, 0)


@triton.jit
def statistics(
    x, part, programs, moments, moments_row, known, weight, bias, running_mean, running_var, tracked, saved,
    rows, channels, momentum, eps, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """From sums, or moments where known, to scale, shift, mean and 1 / deviation; the running statistics follow."""
    column = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside = column < channels
    old = column < known
    new = inside & (column >= known)
    total, squares = _added_up(part, programs, channels - known, column - known, new, BLOCK_P, BLOCK_C)
    count = rows * 1.0
    shifted = total / count
    mean = tl.load(x + column, mask=new, other=0.0).to(tl.float32) + shifted
    variance = tl.maximum(squares / count - shifted * shifted, 0.0)
    tl.store(moments + column, mean, mask=new)
    tl.store(moments + moments_row + column, variance, mask=new)
    mean = tl.where(old, tl.load(moments + column, mask=old, other=0.0), mean)
    variance = tl.where(old, tl.load(moments + moments_row + column, mask=old, other=0.0), variance)
    inverse = 1.0 / tl.sqrt(variance + eps)
    scale = tl.load(weight + column, mask=inside, other=0.0) * inverse
    tl.store(saved + column, scale, mask=inside)
    tl.store(saved + channels + column, tl.load(bias + column, mask=inside, other=0.0) - mean * scale, mask=inside)
    tl.store(saved + 2 * channels + column, mean, mask=inside)
    tl.store(saved + 3 * channels + column, inverse, mask=inside)
    if tl.program_id(0) == 0:
        tl.store(tracked, tl.load(tracked) + 1)
    old_mean = tl.load(running_mean + column, mask=inside, other=0.0)
    old_var = tl.load(running_var + column, mask=inside, other=0.0)
    unbiased = variance * count / tl.maximum(count - 1.0, 1.0)
    tl.store(running_mean + column, old_mean + momentum * (mean - old_mean), mask=inside)
    tl.store(running_var + column, old_var + momentum * (unbiased - old_var), mask=inside)


@triton.jit
def activated(
    x, y, saved, rows, channels, x_row,
    SLOPE: tl.constexpr, TOP: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """y = activation(scale × x + shift)."""
    row = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    column = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside = column < channels
    mask = (row < rows)[:, None] & inside[None, :]
    wide = row[:, None].to(tl.int64)
    scale = tl.load(saved + column, mask=inside, other=0.0)
    shift = tl.load(saved + channels + column, mask=inside, other=0.0)
    value = tl.load(x + wide * x_row + column[None, :], mask=mask, other=0.0).to(tl.float32)
    value = value * scale[None, :] + shift[None, :]
    value = tl.where(value > 0.0, tl.minimum(value, TOP), SLOPE * value)
    tl.store(y + wide * channels + column[None, :], value.to(y.dtype.element_ty), mask=mask)


@triton.jit
def _gradient_and_normal(x, dy, mask, scale, shift, mean, inverse, SLOPE: tl.constexpr, TOP: tl.constexpr):
    """The gradient before the activation, and the normalised values, of those at the places ``x`` and ``dy``."""
    value = tl.load(x, mask=mask, other=0.0).to(tl.float32)
    before = value * scale[None, :] + shift[None, :]
    gradient = tl.load(dy, mask=mask, other=0.0).to(tl.float32)
    gradient = tl.where(before > 0.0, tl.where(before < TOP, gradient, 0.0), SLOPE * gradient)
    normal = (value - mean[None, :]) * inverse[None, :]
    return tl.where(mask, gradient, 0.0), normal


@triton.jit
def gradient_sums(
    x, dy, saved, part, rows, channels, x_row, per_program,
    SLOPE: tl.constexpr, TOP: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Each program's sum of the gradient, and of the gradient times the normalised value."""
    program = tl.program_id(0)
    column = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside = column < channels
    scale = tl.load(saved + column, mask=inside, other=0.0)
    shift = tl.load(saved + channels + column, mask=inside, other=0.0)
    mean = tl.load(saved + 2 * channels + column, mask=inside, other=0.0)
    inverse = tl.load(saved + 3 * channels + column, mask=inside, other=0.0)
    total = tl.zeros([BLOCK_R, BLOCK_C], tl.float32)
    weighted = tl.zeros([BLOCK_R, BLOCK_C], tl.float32)
    start = program * per_program
    for offset in range(0, per_program, BLOCK_R):
        row = start + offset + tl.arange(0, BLOCK_R)
        mask = (row < rows)[:, None] & inside[None, :]
        wide = row[:, None].to(tl.int64)
        here, there = x + wide * x_row + column[None, :], dy + wide * channels + column[None, :]
        gradient, normal = _gradient_and_normal(here, there, mask, scale, shift, mean, inverse, SLOPE, TOP)
        total += gradient
        weighted += gradient * normal
    tl.store(part + program * 2 * channels + column, tl.sum(total, 0), mask=inside)
    tl.store(part + (program * 2 + 1) * channels + column, tl.sum(weighted, 0), mask=inside)


@triton.jit
def gradient_totals(part, programs, out, channels, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr):
    """The programs' sums added up: the bias's gradient, then the weight's."""
    column = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside = column < channels
    total, weighted = _added_up(part, programs, channels, column, inside, BLOCK_P, BLOCK_C)
    tl.store(out + column, total, mask=inside)
    tl.store(out + channels + column, weighted, mask=inside)


@triton.jit
def gradients(
    x, dy, dx, saved, totals, rows, channels, x_row, dx_row,
    ADD: tl.constexpr, SLOPE: tl.constexpr, TOP: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """dx = scale × (gradient − its mean − normalised value × mean of both), or that more."""
    row = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    column = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside = column < channels
    mask = (row < rows)[:, None] & inside[None, :]
    wide = row[:, None].to(tl.int64)
    scale = tl.load(saved + column, mask=inside, other=0.0)
    shift = tl.load(saved + channels + column, mask=inside, other=0.0)
    mean = tl.load(saved + 2 * channels + column, mask=inside, other=0.0)
    inverse = tl.load(saved + 3 * channels + column, mask=inside, other=0.0)
    count = rows * 1.0
    level = tl.load(totals + column, mask=inside, other=0.0) / count
    slant = tl.load(totals + channels + column, mask=inside, other=0.0) / count
    here, there = x + wide * x_row + column[None, :], dy + wide * channels + column[None, :]
    gradient, normal = _gradient_and_normal(here, there, mask, scale, shift, mean, inverse, SLOPE, TOP)
    result = scale[None, :] * (gradient - level[None, :] - normal * slant[None, :])
    place = dx + wide * dx_row + column[None, :]
    if ADD:
        result += tl.load(place, mask=mask, other=0.0).to(tl.float32)
    tl.store(place, result.to(dx.dtype.element_ty), mask=mask)

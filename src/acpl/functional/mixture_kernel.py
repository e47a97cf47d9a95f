"""Expectation-maximisation of a few cells as one GPU kernel: no step of it waits for the host."""

import triton
import triton.language as tl


@triton.jit
def maximise(
    cells, count, start, out, numbers, iterations,
    COMPONENTS: tl.constexpr, PADDED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """What ``mixture._maximise`` does, for ``count`` cells (mean, samples, sum of squares within: one after the other).

    ``start`` and ``out`` hold weight, mean and variance of each component, ``out`` then the share of its variance
    within cells; ``numbers`` are samples in all, tolerance and least variance: plain arguments would be float32.
    """
    total, tolerance, floor = tl.load(numbers), tl.load(numbers + 1), tl.load(numbers + 2)
    place = tl.arange(0, BLOCK)
    there = place < count
    x = tl.load(cells + place, mask=there, other=0.0)
    samples = tl.load(cells + count + place, mask=there, other=0.0)
    within = tl.load(cells + 2 * count + place, mask=there, other=0.0)
    component = tl.arange(0, PADDED)
    real = component < COMPONENTS
    weight = tl.load(start + component, mask=real, other=0.0)
    mean = tl.load(start + COMPONENTS + component, mask=real, other=0.0)
    variance = tl.load(start + 2 * COMPONENTS + component, mask=real, other=1.0)
    inside = tl.zeros([PADDED], tl.float64)
    change = tolerance + 1.0
    likelihood = total * 0.0 - 1e300
    step = 0
    while (step < iterations) & (change >= tolerance):
        constant = tl.log(weight) - 0.5 * (tl.log(6.283185307179586 * variance) + mean * mean / variance)
        linear = mean / variance
        square = -0.5 / variance
        share = constant[:, None] + linear[:, None] * x[None, :] + square[:, None] * (x * x)[None, :]
        highest = tl.max(share, 0)
        share = tl.exp(share - highest[None, :])
        evidence = tl.sum(share, 0)
        share = share / evidence[None, :]
        size = tl.sum(share * samples[None, :], 1) + 2.220446049250313e-15
        mean = tl.sum(share * (samples * x)[None, :], 1) / size
        squares = tl.sum(share * (samples * x * x + within)[None, :], 1) / size
        variance = tl.maximum(squares - mean * mean, floor)
        inside = tl.sum(share * within[None, :], 1) / (size * variance)
        weight = tl.where(real, size / total, 0.0)
        now = tl.sum((highest + tl.log(evidence)) * samples, 0) / total
        change = tl.abs(now - likelihood)
        likelihood = now
        step += 1
    tl.store(out + component, weight, mask=real)
    tl.store(out + COMPONENTS + component, mean, mask=real)
    tl.store(out + 2 * COMPONENTS + component, variance, mask=real)
    tl.store(out + 3 * COMPONENTS + component, inside, mask=real)

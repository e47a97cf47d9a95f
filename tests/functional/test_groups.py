"""The stage in parts: whatever the division among processes, what it says is what one process says, to the bit."""

import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.functional.threads import ThreadGroup, even, in_group, parts
from torch import Tensor

from acpl import functional
from acpl.functional import histogram
from acpl.functional.group import ALONE, Group
from acpl.functional.sums import exact_sum

information_module = sys.modules["acpl.functional.information"]


class Said(NamedTuple):
    """What a stage says of every unlabelled sample."""

    density: Tensor
    level: Tensor
    posterior: Tensor
    lowest: Tensor
    neighbours: Tensor
    labels: Tensor
    drawn: Tensor
    connections: Tensor
    joins: Tensor


def stage(queries: Tensor, anchors: Tensor, labels: Tensor, model: Tensor, k: int, group: Group) -> Said:
    found = functional.mutual_nearest(queries, anchors, k, group=group, coarse=True)
    density = functional.min_max(functional.density(found.similarity), group=group)
    level, posterior = functional.information(density, group=group)
    lowest = torch.full_like(level, functional.level_of_minimum(density, level, group=group))
    neighbours = functional.neighbour_labels(found.forward, labels, group=group)
    mixed = functional.informative_mixup(model, neighbours, density)
    drawn = functional.random_mixup(model, neighbours, generator=torch.Generator().manual_seed(3), group=group)
    counts = group.gather(torch.tensor([len(queries)])).tolist()
    candidates = (level == 2).nonzero().flatten()
    numbers = candidates + sum(counts[: group.rank])
    linked = functional.connections(found.forward[candidates], found.backward, numbers, group=group)
    joins = functional.purify(linked, group=group)
    everywhere = torch.full_like(level, -1)
    return Said(
        density,
        level,
        posterior,
        lowest,
        neighbours,
        mixed,
        drawn,
        everywhere.index_put((candidates,), linked),
        everywhere.index_put((candidates,), joins.long()),
    )


def said_in_parts(data: Sequence[Tensor], cuts: Sequence[Sequence[int]], k: int) -> Said:
    """The stage of queries, anchors, labels, model, each cut as told."""
    pieces = [parts(rows, cut) for rows, cut in zip(data, cuts, strict=True)]
    said = in_group(len(pieces[0]), lambda group: stage(*(part[group.rank] for part in pieces), k, group))  # type: ignore[arg-type]
    return Said(*(torch.cat(values) for values in zip(*said, strict=True)))


def sample(queries: int, anchors: int, width: int, seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    made = [torch.randint(-2, 3, (count, width), generator=generator).float() for count in (queries, anchors)]
    return made + [torch.rand(count, 3, generator=generator) for count in (anchors, queries)]


def same(found: Sequence[Tensor], expected: Sequence[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@settings(deadline=None, max_examples=40)
@given(data=st.data(), size=st.integers(2, 4), k=st.integers(1, 8), seed=st.integers(0, 999), few=st.booleans())
def test_the_whole_stage_is_the_same_for_every_division(
    data: st.DataObject, size: int, k: int, seed: int, few: bool
) -> None:
    q, a = data.draw(st.integers(1, 60)), data.draw(st.integers(1, 20))
    rows = sample(q, a, 6, seed)
    cut_queries, cut_anchors = (
        sorted(data.draw(st.lists(st.integers(0, n), min_size=size - 1, max_size=size - 1))) for n in (q, a)
    )
    with pytest.MonkeyPatch.context() as monkeypatch:
        if not few:
            monkeypatch.setattr(information_module, "_FEW", 0)
            monkeypatch.setattr(histogram, "_DISTINCT", 2**14)
        expected = stage(*rows, k, ALONE)  # type: ignore[arg-type]
        assert same(said_in_parts(rows, (cut_queries, cut_anchors, cut_anchors, cut_queries), k), expected)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_many_samples_in_low_precision(size: int) -> None:
    generator = torch.Generator().manual_seed(0)
    queries = torch.randn(12_000, 128, generator=generator).add(0.3).relu()
    anchors = torch.randn(100, 128, generator=generator).add(0.3).relu()
    rows = [queries, anchors, torch.rand(100, 3, generator=generator), torch.rand(12_000, 3, generator=generator)]
    expected = stage(*rows, 10, ALONE)  # type: ignore[arg-type]
    cuts = [[len(part) * share // 10 for share in (1, 7, 7)[: size - 1]] for part in rows]
    assert same(said_in_parts(rows, cuts, 10), expected)
    assert 0 < (expected.level == 2).sum() < 12_000


def test_a_component_too_narrow_for_cells_is_found_in_parts_too() -> None:
    generator = torch.Generator().manual_seed(0)
    wide, narrow = (
        0.8 + 0.05 * torch.randn(9000, generator=generator),
        0.5 + 2e-4 * torch.randn(90, generator=generator),
    )
    values = torch.cat((wide, narrow))
    expected = functional.information(values, 2)
    cut = parts(values, [100, 100])
    found = in_group(3, lambda group: functional.information(cut[group.rank], 2, group=group))
    assert torch.equal(torch.cat([part.posterior for part in found]), expected.posterior)


def test_a_mixture_of_no_samples_anywhere_or_here() -> None:
    none = torch.empty(0)
    assert [found.level.shape for found in in_group(2, lambda g: functional.information(none, group=g))] == [(0,)] * 2
    assert [tuple(found.shape) for found in in_group(2, lambda g: functional.min_max(none, group=g))] == [(0,)] * 2
    with pytest.raises(ValueError, match="at least one sample"):
        in_group(2, lambda g: functional.level_of_minimum(none, none.long(), group=g))


@settings(deadline=None, max_examples=30)
@given(data=st.data(), size=st.integers(1, 4), seed=st.integers(0, 999))
def test_sums_do_not_see_the_division_and_are_right(data: st.DataObject, size: int, seed: int) -> None:
    count = data.draw(st.integers(1, 50))
    cuts = sorted(data.draw(st.lists(st.integers(0, count), min_size=size - 1, max_size=size - 1)))
    generator = torch.Generator().manual_seed(seed)
    scale = torch.tensor([1e-12, 1.0, 1e15, 0.0])
    left, right = (torch.randn(count, 4, generator=generator) * scale for _ in range(2))
    pieces = list(zip(parts(left, cuts), parts(right, cuts), strict=True))
    found = in_group(size, lambda group: exact_sum(*pieces[group.rank], group))
    products = (left.double() * right.double()).T.tolist()
    expected = torch.tensor([math.fsum(column) for column in products], dtype=torch.float64)
    terms = (left.double() * right.double()).abs().sum(dim=0)
    assert all(torch.equal(each, found[0]) for each in found)
    assert torch.equal(found[0], exact_sum(left, right, ALONE))
    assert ((found[0] - expected).abs() <= 1e-14 * terms).all()


@settings(deadline=None, max_examples=30)
@given(data=st.data(), size=st.integers(2, 4), k=st.integers(1, 6), seed=st.integers(0, 999))
def test_the_graph_and_what_spreads_over_it(data: st.DataObject, size: int, k: int, seed: int) -> None:
    count = data.draw(st.integers(1, 40))
    cuts = sorted(data.draw(st.lists(st.integers(0, count), min_size=size - 1, max_size=size - 1)))
    generator = torch.Generator().manual_seed(seed)
    features = torch.randint(-1, 3, (count, 4), generator=generator).float()  # duplicates among them
    seeds = (torch.rand(count, 2, generator=generator) < 0.3).float()
    cut_features, cut_seeds = parts(features, cuts), parts(seeds, cuts)

    def one(group: ThreadGroup) -> tuple[Tensor, Tensor]:
        graph = functional.affinity(cut_features[group.rank], k, 2.5, group=group)
        return graph.to_dense(), functional.spread(graph, cut_seeds[group.rank], 0.9, group=group)

    dense, reached = (torch.cat(pieces) for pieces in zip(*in_group(size, one), strict=True))
    whole = functional.affinity(features, k, 2.5)
    assert torch.equal(dense, whole.to_dense())
    assert torch.equal(reached, functional.spread(whole, seeds, 0.9))


def test_the_graph_s_edges_are_shared_out() -> None:
    features = torch.randn(400, 16, generator=torch.Generator().manual_seed(0))
    entries: Callable[[int], int] = lambda size: max(  # noqa: E731
        in_group(size, lambda g: functional.affinity(even(features, size)[g.rank], 5, group=g)._nnz())
    )
    assert entries(4) < 0.35 * entries(1)


@pytest.mark.slow
@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch was built without processes")
def test_real_processes_say_the_same(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.functional.gloo_stage"]
    started = [subprocess.Popen([*command, str(rank), "3", str(tmp_path)]) for rank in range(3)]
    try:
        assert [process.wait(timeout=120) for process in started] == [0, 0, 0]
    finally:
        for process in started:
            process.kill()
            process.wait()
    said = [torch.load(tmp_path / f"{rank}.pt") for rank in range(3)]
    found = [torch.cat(values) for values in zip(*said, strict=True)]
    assert same(found, stage(*sample(200, 30, 6, seed=5), 5, ALONE))  # type: ignore[arg-type]

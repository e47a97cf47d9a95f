"""Batch norm over parts that several processes hold is batch norm over the whole."""

import copy
import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from acpl.errors import UserError
from acpl.models import build_classifier
from acpl.models.norms import NormActivation
from acpl.models.shared_norms import part_ways, synchronise


class Threads:
    """A thread a process: what each gives is laid down, and all read it."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._barrier = threading.Barrier(size, timeout=20)
        self._given: list[Tensor] = [torch.empty(0)] * size
        self._here = threading.local()

    def __deepcopy__(self, memo: object) -> "Threads":
        return self

    def stack(self, values: Tensor) -> Tensor:
        self._given[self._here.rank] = values
        self._barrier.wait()
        found = torch.stack(list(self._given))
        self._barrier.wait()
        return found

    def sum(self, values: Tensor) -> Tensor:
        return self.stack(values).sum(dim=0)

    def each(self, work: Callable[[int], None]) -> None:
        failed: list[BaseException] = []

        def run(rank: int) -> None:
            self._here.rank = rank
            try:
                work(rank)
            except BaseException as error:
                failed.append(error)
                self._barrier.abort()

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]


@pytest.mark.parametrize("counts", [[4, 4], [3, 3, 3], [5, 1]])
@pytest.mark.parametrize("slope", [1.0, 0.0, 0.1])
def test_parts_are_normalised_as_the_whole_is(counts: list[int], slope: float) -> None:
    torch.manual_seed(0)
    whole = NormActivation(nn.BatchNorm2d(6), slope).double()
    nn.init.normal_(whole.weight)
    nn.init.normal_(whole.bias)
    images = (torch.randn(sum(counts), 6, 4, 5) + 1000).double()  # a mean that sums of squares would drown in
    wanted = torch.randn_like(images)
    x = images.clone().requires_grad_()
    y = whole.float()(x.float())
    (y * wanted).sum().backward()

    group = Threads(len(counts))
    parts = [copy.deepcopy(whole).train() for _ in counts]
    for part in parts:
        part.zero_grad()
        part.reset_running_stats()
        synchronise(part, group)
    inputs = [piece.float().requires_grad_() for piece in images.split(counts)]
    outputs: list[Tensor] = [torch.empty(0)] * len(counts)

    def work(rank: int) -> None:
        outputs[rank] = parts[rank](inputs[rank])
        (outputs[rank] * wanted.split(counts)[rank]).sum().backward()

    group.each(work)
    assert torch.allclose(torch.cat(outputs), y, atol=2e-4)
    assert x.grad is not None
    gradients = torch.cat([piece.grad for piece in inputs if piece.grad is not None])
    assert torch.allclose(gradients.double(), x.grad, atol=2e-3)
    for name in ("weight", "bias"):
        found = sum(getattr(part, name).grad for part in parts)
        assert torch.allclose(found, getattr(whole, name).grad, atol=1e-2)
    for part in parts:
        assert torch.equal(part.running_mean, parts[0].running_mean)  # type: ignore[arg-type]
        assert torch.allclose(part.running_mean, whole.running_mean, rtol=1e-5)  # type: ignore[arg-type]
        assert torch.allclose(part.running_var, whole.running_var, rtol=1e-3)  # type: ignore[arg-type]
        assert part.num_batches_tracked == 1


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(3), nn.BatchNorm2d(3, affine=False), nn.BatchNorm3d(3, momentum=None)])
def test_every_plain_kind_of_batch_norm_takes_part(norm: nn.Module) -> None:
    dims = {nn.BatchNorm1d: 1, nn.BatchNorm2d: 2, nn.BatchNorm3d: 3}[type(norm)]
    images = torch.randn(6, 3, *[4] * dims)
    whole = copy.deepcopy(norm)
    expected = whole(images)
    group = Threads(2)
    parts = [nn.Sequential(copy.deepcopy(norm)) for _ in range(2)]
    names = list(parts[0].state_dict())
    found: list[Tensor] = [torch.empty(0)] * 2
    for part in parts:
        synchronise(part, group)
        synchronise(part, group)  # a network that is met again stays as it is
        assert list(part.state_dict()) == names

    def work(rank: int) -> None:
        found[rank] = parts[rank](images.chunk(2)[rank])

    group.each(work)
    assert torch.allclose(torch.cat(found), expected, atol=1e-5)
    assert torch.allclose(parts[1][0].running_var, whole.running_var, rtol=1e-5)  # type: ignore[arg-type, union-attr]
    alone = parts[0].eval()(images)  # evaluation asks nobody
    assert torch.allclose(alone, whole.eval()(images), atol=1e-5)
    part_ways(parts[0])
    parts[0].train()(images)


def test_every_norm_of_a_backbone_takes_part_and_copies_go_on_doing_so() -> None:
    network = build_classifier("small", channels=1, classes=2)
    group = Threads(1)
    synchronise(network, group)
    norms = [m for m in copy.deepcopy(network).modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    assert len(norms) > 5
    assert all(norm.processes is group for norm in norms)


def test_a_norm_of_another_kind_is_refused() -> None:
    class Own(nn.BatchNorm2d):
        pass

    with pytest.raises(UserError, match=r"batch norm is of a kind of its own \(Own\).*devices 1"):
        synchronise(nn.Sequential(Own(3)), Threads(2))

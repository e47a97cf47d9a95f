"""Blocks that write into one place: the same numbers as those that concatenate, wherever they run."""

import copy

import pytest
import torch
from monai.networks.nets.densenet import _DenseBlock
from torch import nn

from acpl.models import build_classifier
from acpl.models.dense_blocks import DenseBlock, Halved, in_one_place, join_blocks, layers_of, two_by_two
from acpl.models.norms import NormActivation, fuse_norms
from acpl.models.shared_norms import synchronise

ON = [torch.device("cpu"), *([torch.device("cuda")] if torch.cuda.is_available() else [])]


def block_of(layers: int, channels: int, growth: int = 32) -> nn.Sequential:
    """A network that is one block, of weights and statistics that are not what blocks begin with."""
    torch.manual_seed(0)
    network = nn.Sequential(_DenseBlock(2, layers, channels, 4, growth, 0.0))
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 2.0)
            nn.init.normal_(module.bias)
    return network


@pytest.mark.parametrize(
    ("layers", "channels", "growth", "shape"),
    [
        (1, 8, 4, (2, 5, 3)),
        (3, 64, 32, (3, 4, 6)),
        (6, 40, 8, (2, 7, 7)),
        (2, 96, 32, (4, 1, 1)),
        (4, 17, 5, (2, 2, 9)),
    ],
)
@pytest.mark.parametrize("device", ON, ids=str)
def test_one_place_gives_what_concatenating_gives(
    layers: int,
    channels: int,
    growth: int,
    shape: tuple[int, int, int],
    device: torch.device,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    plain = block_of(layers, channels, growth).double()
    joined = copy.deepcopy(plain).to(device, torch.float64 if device.type == "cpu" else torch.float32)
    fuse_norms(joined)
    n, height, width = shape
    x = 3 * torch.randn(n, channels, height, width, dtype=torch.float64) + 20 * torch.rand(1, channels, 1, 1)
    dy = torch.randn(n, channels + layers * growth, height, width, dtype=torch.float64)
    one, two = x.clone().requires_grad_(), x.to(device, next(joined.parameters()).dtype).requires_grad_()
    wanted, found = plain(one), in_one_place(two, layers_of(joined[0]))
    wanted.backward(dy)
    found.backward(dy.to(found))
    room = {"rtol": 1e-9, "atol": 1e-9} if device.type == "cpu" else {"rtol": 2e-2, "atol": 2e-2}
    torch.testing.assert_close(found.double().cpu(), wanted, **room)
    assert one.grad is not None
    assert two.grad is not None
    _close(two.grad, one.grad, device)
    for (name, mine), theirs in zip(joined.named_parameters(), plain.parameters(), strict=True):
        assert mine.grad is not None, name
        assert theirs.grad is not None, name
        _close(mine.grad, theirs.grad, device)
    assert [*joined.state_dict()] == [*plain.state_dict()]
    for (name, kept), followed in zip(joined.named_buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(kept.double().cpu(), followed.double(), rtol=1e-4, atol=1e-4, msg=name)


def _close(mine: torch.Tensor, theirs: torch.Tensor, device: torch.device) -> None:
    """To the digits on a CPU; on a GPU, in 32 bits, a value at the activation's bend may go either way."""
    if device.type == "cpu":
        torch.testing.assert_close(mine, theirs, rtol=1e-7, atol=1e-7)
    else:
        assert (mine.double().cpu() - theirs).norm() <= 0.03 * theirs.norm() + 1e-3


def test_the_gradient_that_comes_in_is_left_as_it_was() -> None:
    network = block_of(2, 8, 4).double()
    fuse_norms(network)
    x = torch.randn(2, 8, 4, 4, dtype=torch.float64, requires_grad=True)
    dy = torch.randn(2, 16, 4, 4, dtype=torch.float64).contiguous(memory_format=torch.channels_last)
    before = dy.clone()
    in_one_place(x, layers_of(network[0])).backward(dy)
    assert torch.equal(dy, before)


@pytest.mark.parametrize("device", ON, ids=str)
def test_half_precision_is_as_close_as_concatenating_in_it(device: torch.device) -> None:
    exact = block_of(4, 64).double()
    networks = [copy.deepcopy(exact).float().to(device) for _ in range(2)]
    for network in networks:
        fuse_norms(network)
    x, dy = torch.randn(4, 64, 8, 8), torch.randn(4, 192, 8, 8)
    exact(x.double()).backward(dy.double())
    wanted = torch.cat([p.grad.flatten() for p in exact.parameters() if p.grad is not None])
    off = []
    for network, joined in zip(networks, (True, False), strict=True):
        low = x.to(device, torch.bfloat16)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            y = in_one_place(low, layers_of(network[0])) if joined else network(low)
        assert y.dtype is torch.bfloat16
        y.backward(dy.to(y))
        found = torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None])
        assert found.dtype is torch.float32
        off.append(float((found.double().cpu() - wanted).norm() / wanted.norm()))
    assert off[0] <= 1.3 * off[1] + 1e-3, off


def test_images_keep_their_precision_where_others_are_lowered() -> None:
    network = block_of(2, 8, 4)
    fuse_norms(network)
    x = torch.randn(2, 8, 4, 4)
    wanted = in_one_place(x, layers_of(network[0]))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = in_one_place(x, layers_of(network[0]))
    assert torch.equal(found, wanted)


@pytest.mark.parametrize("backbone", ["densenet121", "densenet169"])
def test_a_densenet_has_them_and_keeps_its_names(backbone: str) -> None:
    torch.manual_seed(0)
    network = build_classifier(backbone, channels=1, classes=3)
    assert sum(isinstance(module, DenseBlock) for module in network.modules()) == 4
    assert sum(isinstance(module, Halved) for module in network.modules()) == 3
    torch.manual_seed(0)
    plain = build_classifier(backbone, channels=1, classes=3, fused=False)
    assert not any(isinstance(module, DenseBlock | NormActivation | Halved) for module in plain.modules())
    assert [*network.state_dict()] == [*plain.state_dict()]
    images = torch.rand(2, 1, 64, 64)
    assert torch.equal(network.eval()(images).logits, plain.eval()(images).logits)


def test_layers_of_another_make_are_left_alone() -> None:
    network = nn.Sequential(_DenseBlock(2, 2, 8, 4, 4, 0.5), nn.AvgPool2d(2, padding=1), nn.AvgPool2d(3))
    fuse_norms(network)
    join_blocks(network)
    assert [type(child) for child in network] == [_DenseBlock, nn.AvgPool2d, nn.AvgPool2d]


def test_a_block_over_processes_takes_their_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    class Alone:
        size = 1

        def sum(self, values: torch.Tensor) -> torch.Tensor:
            return values

        def stack(self, values: torch.Tensor) -> torch.Tensor:
            return values[None]

    network = block_of(2, 8, 4)
    fuse_norms(network)
    join_blocks(network)
    synchronise(network, Alone())
    monkeypatch.setattr("acpl.models.dense_blocks.in_one_place", None)  # which knows of no processes
    assert network(torch.randn(2, 8, 4, 4)).shape == (2, 16, 4, 4)


@pytest.mark.parametrize("shape", [(2, 3, 4, 6), (1, 1, 2, 2), (3, 64, 8, 2)])
@pytest.mark.parametrize("device", ON, ids=str)
def test_means_of_two_by_two_are_those_of_average_pooling(shape: tuple[int, ...], device: torch.device) -> None:
    x = torch.randn(shape, device=device, requires_grad=True)
    twin = x.detach().clone().requires_grad_()
    found, wanted = two_by_two(x), nn.AvgPool2d(2)(twin)
    torch.testing.assert_close(found, wanted)
    dy = torch.randn_like(wanted)
    found.backward(dy)
    wanted.backward(dy)
    torch.testing.assert_close(x.grad, twin.grad)
    assert found.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("device", ON, ids=str)
def test_odd_sides_lose_their_last_row_as_in_average_pooling(device: torch.device) -> None:
    x = torch.randn(2, 3, 5, 7, device=device)
    torch.testing.assert_close(Halved()(x), nn.AvgPool2d(2)(x))


def test_the_passes_of_a_norm_are_the_norm() -> None:
    """On a GPU ``forward`` takes them by itself; the gradients of both, of values at the bends, too."""
    norm = nn.BatchNorm2d(5, momentum=0.03).double()
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    x = torch.randn(3, 5, 4, 4, dtype=torch.float64)
    for slope, top in ((0.0, float("inf")), (0.0, 6.0), (0.1, float("inf")), (1.0, float("inf"))):
        one, two = (NormActivation(copy.deepcopy(norm), slope, top).double() for _ in range(2))
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        torch.testing.assert_close(one.by_passes(a), two(b))
        one.by_passes(a).square().sum().backward()
        two(b).square().sum().backward()
        torch.testing.assert_close(a.grad, b.grad)
        for mine, theirs in zip(one.parameters(), two.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, theirs.grad)
        for mine, theirs in zip(one.buffers(), two.buffers(), strict=True):
            torch.testing.assert_close(mine, theirs)

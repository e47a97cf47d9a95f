"""Batch norm and activation in one: the same numbers as the two, wherever it runs."""

import copy
from math import inf

import pytest
import torch
from torch import nn

from acpl.models import build_classifier
from acpl.models.backbones import Activation
from acpl.models.norms import NormActivation

ON = [torch.device("cpu"), *([torch.device("cuda")] if torch.cuda.is_available() else [])]


@pytest.mark.parametrize("activation", ["relu", "leaky-relu"])
@pytest.mark.parametrize("backbone", ["small", "densenet121", "efficientnet-lite0"])
def test_a_network_keeps_its_names_outputs_and_gradients(backbone: str, activation: Activation) -> None:
    if backbone == "efficientnet-lite0":
        pytest.importorskip("efficientnet_lite_pytorch")
    built = []
    for fuses in (True, False):
        torch.manual_seed(0)
        network = build_classifier(backbone, channels=1, classes=3, activation=activation, fused=fuses)
        built.append(network.double())
    fused, plain = built
    assert any(isinstance(module, NormActivation) for module in fused.modules())
    assert not any(type(module) is nn.BatchNorm2d for module in fused.modules())
    assert list(fused.state_dict()) == list(plain.state_dict())
    images = torch.rand(4, 1, 64, 64, dtype=torch.float64)
    for network in built:
        torch.manual_seed(1)  # EfficientNet leaves out blocks at random
        network(images).logits.square().sum().backward()
    for (name, one), other in zip(fused.named_parameters(), plain.parameters(), strict=True):
        assert one.grad is not None, name
        torch.testing.assert_close(one.grad, other.grad)
    states = (network.eval()(images).logits for network in built)
    torch.testing.assert_close(*states)


@pytest.mark.parametrize(("slope", "top"), [(0.0, inf), (0.0, 6.0), (0.1, inf), (1.0, inf)])
@pytest.mark.parametrize("shape", [(4, 32, 9, 7), (3, 96, 5, 5), (2, 1024, 2, 2), (5, 3, 8, 8), (64, 144, 1, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("device", ON, ids=str)
def test_one_is_as_good_as_two(
    device: torch.device, dtype: torch.dtype, shape: tuple[int, ...], slope: float, top: float
) -> None:
    """Against float64; images far from zero, where sums of squares would cancel."""
    generator = torch.Generator().manual_seed(0)
    x = (3 * torch.randn(shape, generator=generator) + 40 * torch.rand(1, shape[1], 1, 1, generator=generator)).to(
        dtype
    )
    dy = torch.randn(shape, generator=generator).to(dtype)
    norm = nn.BatchNorm2d(shape[1], eps=1e-3, momentum=0.03)
    norm.weight.data.uniform_(0.5, 2, generator=generator)
    norm.bias.data.normal_(generator=generator)
    exact = NormActivation(copy.deepcopy(norm), slope, top).double()
    module = NormActivation(norm, slope, top).to(device)
    one = x.clone().to(device).contiguous(memory_format=torch.channels_last).requires_grad_()
    two = x.double().requires_grad_()
    y, wanted = module(one), exact(two)
    y.backward(dy.to(device))
    wanted.backward(dy.double())
    assert y.dtype is dtype
    room = {"rtol": 2e-2, "atol": 4e-2} if dtype is torch.bfloat16 else {"rtol": 1e-3, "atol": 1e-4}
    torch.testing.assert_close(y.cpu().double(), wanted, **room)
    # Where the activation bends, rounding decides the gradient's side; such values are few.
    assert one.grad is not None
    assert two.grad is not None
    far = (one.grad.cpu().double() - two.grad).abs() > room["atol"] + room["rtol"] * two.grad.abs()
    assert far.double().mean() < 0.02
    torch.testing.assert_close(module.running_mean.cpu().double(), exact.running_mean, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(module.running_var.cpu().double(), exact.running_var, rtol=1e-2, atol=1e-3)
    assert module.num_batches_tracked == 1
    for name in ("weight", "bias"):
        mine, theirs = getattr(module, name).grad.cpu().double(), getattr(exact, name).grad
        assert (mine - theirs).norm() <= 0.03 * theirs.norm() + 0.05

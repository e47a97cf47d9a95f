import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, kstest
from torch import Tensor

from acpl.functional import beta_weights, informative_mixup, mixup_images, neighbour_labels, random_mixup

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")),
]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def pair(samples: int, classes: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    both = torch.rand(2, samples, classes, generator=generator(seed))
    return both[0], both[1]


@pytest.mark.parametrize("device", DEVICES)
def test_neighbour_labels_are_the_mean_label_of_the_neighbours(device: str) -> None:
    labels = torch.rand(6, 4, generator=generator())
    forward = torch.randint(6, (9, 5), generator=generator())
    found = neighbour_labels(forward.to(device), labels.to(device)).cpu()
    expected = [[sum(float(labels[a, c]) for a in row) / 5 for c in range(4)] for row in forward.tolist()]
    torch.testing.assert_close(found, torch.tensor(expected))


def test_neighbour_labels_take_bits_and_return_float32() -> None:
    labels = torch.tensor([[True, False], [True, True]])
    found = neighbour_labels(torch.tensor([[0, 1]]), labels)
    assert found.dtype == torch.float32
    assert found.tolist() == [[1.0, 0.5]]
    assert neighbour_labels(torch.empty(0, 3, dtype=torch.int64), labels).shape == (0, 2)


def test_neighbour_labels_name_a_wrong_argument() -> None:
    labels = torch.eye(2)
    with pytest.raises(ValueError, match=r"forward must lie in \[0, 2\), got values from -1 to 2"):
        neighbour_labels(torch.tensor([[-1, 2]]), labels)
    with pytest.raises(TypeError, match="forward must be integer"):
        neighbour_labels(torch.zeros(1, 1), labels)
    with pytest.raises(ValueError, match="k at least 1"):
        neighbour_labels(torch.empty(1, 0, dtype=torch.int64), labels)
    with pytest.raises(ValueError, match="anchor_labels must be finite, got NaN or infinity in 1 of 2 rows"):
        neighbour_labels(torch.tensor([[0]]), torch.tensor([[1.0, 0.0], [float("nan"), 0.0]]))


@pytest.mark.parametrize("device", DEVICES)
def test_informative_mixup_weighs_the_model_by_the_density(device: str) -> None:
    model, neighbours = pair(5)
    density = torch.tensor([0.0, 0.25, 0.5, 0.9, 1.0])
    found = informative_mixup(model.to(device), neighbours.to(device), density.to(device)).cpu()
    for i, d in enumerate(density.tolist()):
        for c in range(3):
            expected = d * float(model[i, c]) + (1 - d) * float(neighbours[i, c])
            assert float(found[i, c]) == pytest.approx(expected, abs=1e-6)


@settings(deadline=None)
@given(seed=st.integers(0, 999), density=st.floats(-1, 1, width=32))
def test_a_pseudo_label_lies_between_model_and_neighbours(seed: int, density: float) -> None:
    model, neighbours = pair(4, seed=seed)
    for label in (
        informative_mixup(model, neighbours, torch.full((4,), density)),
        random_mixup(model, neighbours, concentration=0.5, generator=generator(seed)),
    ):
        assert (label >= torch.minimum(model, neighbours)).all()
        assert (label <= torch.maximum(model, neighbours)).all()


def test_a_negative_density_leaves_the_label_to_the_neighbours() -> None:
    model, neighbours = pair(2)
    assert torch.equal(informative_mixup(model, neighbours, torch.tensor([-0.3, -1.0])), neighbours)


def test_mixing_nothing_gives_nothing() -> None:
    none = torch.empty(0, 3)
    assert informative_mixup(none, none, torch.empty(0)).shape == (0, 3)
    assert random_mixup(none, none).shape == (0, 3)


def test_informative_mixup_names_a_wrong_argument() -> None:
    model, neighbours = pair(2)
    half = torch.tensor([0.5, 0.5])
    with pytest.raises(ValueError, match="model and neighbours must have one shape"):
        informative_mixup(model, neighbours[:, :2], half)
    with pytest.raises(ValueError, match=r"density must be \(2,\), got shape \(1,\)"):
        informative_mixup(model, neighbours, half[:1])
    for wrong in (1.5, -1.5, float("nan")):
        with pytest.raises(ValueError, match=r"density must lie in \[-1, 1\], got 1 of 2 rows outside"):
            informative_mixup(model, neighbours, torch.tensor([0.5, wrong]))
    with pytest.raises(ValueError, match="model must be finite, got NaN or infinity in 1 of 2 rows"):
        informative_mixup(torch.tensor([[0.0], [float("nan")]]), torch.ones(2, 1), half)
    with pytest.raises(TypeError, match="density must be floating point"):
        informative_mixup(model, neighbours, torch.tensor([0, 1]))


def test_random_mixup_draws_one_weight_for_each_sample() -> None:
    weights = random_mixup(torch.ones(6, 3), torch.zeros(6, 3), concentration=2.0, generator=generator(3))
    assert torch.equal(weights, beta_weights(6, 2.0, generator(3))[:, None].expand(6, 3))
    assert len(set(weights[:, 0].tolist())) == 6


@pytest.mark.parametrize("concentration", [0.5, 1.0, 5.0])
def test_beta_weights_follow_the_beta_distribution(concentration: float) -> None:
    weights = beta_weights(2000, concentration, generator()).double()
    assert kstest(weights, beta(concentration, concentration).cdf).pvalue > 1e-3


def test_beta_weights_move_the_generator_on_and_stay_finite() -> None:
    source = generator()
    assert not torch.equal(beta_weights(5, 1.0, source), beta_weights(5, 1.0, source))
    tiny = beta_weights(1000, 1e-4, generator())
    assert ((tiny >= 0) & (tiny <= 1)).all()
    with pytest.raises(ValueError, match="concentration must be above 0 and finite, got 0"):
        beta_weights(1, 0.0)
    with pytest.raises(ValueError, match="count must not be negative, got -1"):
        beta_weights(-1, 1.0)


@pytest.mark.parametrize("device", DEVICES)
def test_mixup_images_mixes_images_and_targets_alike(device: str) -> None:
    images, targets = torch.rand(3, 2, 4, 5, generator=generator()), torch.eye(3)
    partner, weight = torch.tensor([2, 0, 1]), torch.tensor([0.0, 0.3, 1.0])
    mixed = mixup_images(*(part.to(device) for part in (images, targets.long(), partner, weight)))
    for i, (j, w) in enumerate(zip(partner.tolist(), weight.tolist(), strict=True)):
        torch.testing.assert_close(mixed.images[i].cpu(), w * images[i] + (1 - w) * images[j])
        torch.testing.assert_close(mixed.targets[i].cpu(), w * targets[i] + (1 - w) * targets[j])


def test_mixup_images_names_a_wrong_argument() -> None:
    images, targets, partner, weight = (
        torch.rand(2, 1, 2, 2),
        torch.eye(2),
        torch.tensor([1, 0]),
        torch.ones(2),
    )
    with pytest.raises(ValueError, match=r"images must be \(samples, channels, height, width\)"):
        mixup_images(images[0], targets, partner, weight)
    with pytest.raises(TypeError, match=r"images must be floating point, got torch.uint8"):
        mixup_images(images.byte(), targets, partner, weight)
    with pytest.raises(ValueError, match=r"targets must be \(2, classes\)"):
        mixup_images(images, targets[:1], partner, weight)
    with pytest.raises(ValueError, match=r"partner must lie in \[0, 2\)"):
        mixup_images(images, targets, partner + 1, weight)
    with pytest.raises(ValueError, match=r"partner must be \(2,\)"):
        mixup_images(images, targets, partner[:1], weight)
    with pytest.raises(ValueError, match=r"weight must lie in \[0, 1\], got 2 of 2 rows outside"):
        mixup_images(images, targets, partner, -weight)

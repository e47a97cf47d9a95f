import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from sklearn.mixture import GaussianMixture
from torch import Tensor

from acpl.functional import density, information, level_of_minimum, min_max, select
from acpl.functional.group import ALONE
from acpl.functional.histogram import histogram

information_module = sys.modules["acpl.functional.information"]  # of the package's attributes it is the function
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")),
]


def blobs(means: list[float], spread: float, each: int = 200, seed: int = 0) -> Tensor:
    noise = torch.randn(len(means), each, generator=torch.Generator().manual_seed(seed))
    return (torch.tensor(means)[:, None] + spread * noise).flatten()


def test_density_is_the_mean_over_the_neighbours() -> None:
    similarity = torch.rand(7, 4)
    expected = [sum(row) / 4 for row in similarity.tolist()]
    assert density(similarity).dtype == torch.float32
    assert density(similarity).tolist() == pytest.approx(expected)
    assert density(torch.empty(0, 4)).shape == (0,)


def test_density_refuses_what_has_no_mean() -> None:
    with pytest.raises(ValueError, match="in 1 of 2 rows"):
        density(torch.tensor([[1.0], [float("nan")]]))
    with pytest.raises(ValueError, match="k at least 1"):
        density(torch.empty(3, 0))
    with pytest.raises(TypeError, match="similarity must be floating point"):
        density(torch.ones(2, 2, dtype=torch.int64))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("sets", [2, 3, 4])
@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_the_posterior_agrees_with_scikit_learn_from_the_same_start(sets: int, scale: float, device: str) -> None:
    values = 0.7 + scale * blobs([-0.1, 0.0, 0.06], 0.02)
    level, posterior = information(values.to(device), sets)
    expected = scikit_learn(values, sets)
    np.testing.assert_allclose(posterior.cpu(), expected, atol=1e-4)
    assert (level.cpu().numpy() == expected.argmax(1)).all()


def scikit_learn(values: Tensor, sets: int) -> np.ndarray:
    """The posterior by scikit-learn's mixture from the same start."""
    raw = values.double().numpy()
    distinct = np.unique(raw)
    reference = GaussianMixture(
        sets,
        tol=1e-6,
        max_iter=500,
        reg_covar=0,
        weights_init=np.full(sets, 1 / sets),
        means_init=distinct[[(2 * i + 1) * len(distinct) // (2 * sets) for i in range(sets)], None],
        precisions_init=np.full((sets, 1, 1), sets**2 / raw.var()),
    ).fit(raw[:, None])
    posterior: np.ndarray = reference.predict_proba(raw[:, None])[:, np.argsort(-reference.means_[:, 0])]
    return posterior


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("spread", [0.02, 0.05])
def test_many_samples_in_cells_agree_with_scikit_learn_on_each(spread: float, device: str) -> None:
    values = blobs([0.9, 0.8, 0.6], spread, each=10_000)
    level, posterior = information(values.to(device))
    expected = scikit_learn(values, 3)
    np.testing.assert_allclose(posterior.cpu(), expected, atol=2e-4)
    assert (level.cpu().numpy() == expected.argmax(1)).mean() > 0.9999


def test_a_component_narrower_than_its_cells_is_fitted_to_the_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    values = torch.cat((blobs([0.8], 0.05, each=20_000), blobs([0.5], 2e-4, each=100, seed=1)))
    found = information(values, 2)
    monkeypatch.setattr(information_module, "_FEW", len(values))
    expected = information(values, 2)
    assert torch.equal(found.posterior, expected.posterior)


def test_cells_hold_every_sample_once() -> None:
    values = blobs([0.0, 3.0], 1.0, each=10_000)
    scale, *_ = found = histogram(values, values.min(), values.max(), ALONE)
    mean, samples, within = found.cells()
    scaled = scale(values)
    assert scaled.mean().item() == pytest.approx(0, abs=1e-8)
    assert scaled.std(correction=0).item() == pytest.approx(1, abs=1e-8)
    assert samples.sum() == len(values)
    assert 1000 < len(mean) < len(values) / 4
    assert mean @ samples == pytest.approx(scaled.sum().item(), abs=1e-4)
    square = mean**2 @ samples + within.sum()
    assert square == pytest.approx(scaled.square().sum().item(), rel=1e-8)


@pytest.mark.parametrize("floor", [1e-6, 0.5])
def test_one_step_of_em_is_the_textbook_s_with_a_floor(floor: float) -> None:
    values = torch.tensor([0.1, 0.2, 0.35, 0.6, 0.9, 0.95])
    x = values.double().numpy()
    mean, variance, weight = np.array([x[4], x[1]]), np.full(2, x.var() / 4), np.full(2, 0.5)
    share = weight * norm.pdf(x[:, None], mean, np.sqrt(variance))
    share /= share.sum(1, keepdims=True)
    weight, mean = share.mean(0), (share * x[:, None]).sum(0) / share.sum(0)
    variance = (share * (x[:, None] - mean) ** 2).sum(0) / share.sum(0)
    variance = np.maximum(variance, floor * x.var())
    expected = weight * norm.pdf(x[:, None], mean, np.sqrt(variance))
    expected /= expected.sum(1, keepdims=True)
    posterior = information(values, 2, iterations=1, floor=floor).posterior
    np.testing.assert_allclose(posterior, expected, atol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_the_least_dense_are_the_most_informative(device: str) -> None:
    level, posterior = information(blobs([0.9, 0.6, 0.3], 0.01).to(device))
    assert level.tolist() == [0] * 200 + [1] * 200 + [2] * 200
    assert level.dtype == torch.int64
    assert posterior.dtype == torch.float32
    torch.testing.assert_close(posterior.sum(1).cpu(), torch.ones(600))


@settings(deadline=None, max_examples=40)
@given(
    values=st.lists(st.floats(-1, 1, width=32, allow_subnormal=False), max_size=30),
    sets=st.integers(2, 5),
    data=st.data(),
)
def test_information_follows_the_samples_wherever_they_are_put(
    values: list[float], sets: int, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(values))))
    densities = torch.tensor(values, dtype=torch.float32)
    level, posterior = information(densities, sets)
    moved = information(densities[order], sets)
    assert torch.equal(moved.level, level[order])
    assert torch.equal(moved.posterior, posterior[order])
    assert posterior.isfinite().all()
    assert torch.equal(level, torch.from_numpy(posterior.numpy().argmax(1)))


def test_rescaled_densities_have_the_same_levels() -> None:
    values = blobs([0.72, 0.73, 0.745], 0.003)
    assert torch.equal(information(min_max(values)).level, information(values).level)


@pytest.mark.parametrize("count", [1, 2, 50])
@pytest.mark.parametrize("sets", [2, 3])
def test_samples_of_equal_density_are_all_least_informative(count: int, sets: int) -> None:
    level, posterior = information(torch.full((count,), 0.7), sets)
    assert level.tolist() == [0] * count
    assert (posterior == 1 / torch.tensor(float(sets))).all()


def test_no_samples_have_no_levels() -> None:
    level, posterior = information(torch.empty(0), 4)
    assert (level.shape, posterior.shape) == ((0,), (0, 4))


def test_fewer_samples_than_sets_leave_levels_empty() -> None:
    level, posterior = information(torch.tensor([0.3, 0.9]), 3)
    assert level.tolist() == [2, 0]
    assert posterior[1, 0] == posterior[1, 1]


def test_a_rare_value_is_told_from_one_repeated_many_times() -> None:
    values = torch.cat((torch.full((95,), 0.9), torch.full((5,), 0.3)))
    assert information(values, 2).level.tolist() == [0] * 95 + [1] * 5


def test_a_single_outlier_is_a_level_of_its_own() -> None:
    values = torch.cat((blobs([0.8], 1e-4), torch.tensor([0.5])))
    level, posterior = information(values, 3)
    assert posterior.isfinite().all()
    assert level[-1] == 2
    assert (level[:-1] < 2).all()


def test_information_names_a_wrong_argument() -> None:
    good = torch.tensor([0.1, 0.9])
    with pytest.raises(ValueError, match="density must be finite, got NaN or infinity in 1 of 2 rows"):
        information(torch.tensor([0.1, float("nan")]))
    with pytest.raises(ValueError, match="sets must be at least 2, got 1"):
        information(good, 1)
    with pytest.raises(ValueError, match="iterations must be at least 1, got 0"):
        information(good, iterations=0)
    with pytest.raises(ValueError, match="floor must be above 0, got 0"):
        information(good, floor=0.0)
    with pytest.raises(ValueError, match="tolerance must not be negative, got -1"):
        information(good, tolerance=-1.0)
    with pytest.raises(TypeError, match="density must be floating point"):
        information(torch.tensor([1, 2]))


def test_select_picks_the_ends_and_the_middle() -> None:
    level = torch.tensor([0, 1, 2, 3])
    assert select(level, 4, "low").tolist() == [True, False, False, False]
    assert select(level, 4, "high").tolist() == [False, False, False, True]
    assert select(level, 3, "medium").tolist() == [False, True, False, False]
    for sets in (2, 4):
        with pytest.raises(ValueError, match=f"'medium' only with sets=3, got sets={sets}"):
            select(level, sets, "medium")
    with pytest.raises(ValueError, match="which must be 'low', 'medium' or 'high', got 'most'"):
        select(level, 3, "most")  # type: ignore[arg-type]


def test_a_wide_component_can_hold_the_least_dense_sample() -> None:
    wide = blobs([0.6], 0.2, each=400)
    narrow = blobs([0.5], 0.005, each=400, seed=1)
    values = torch.cat((wide, narrow))
    level = information(values, 2).level
    assert level_of_minimum(values, level) == 0
    assert select(level, 2, "high")[400:].float().mean() > 0.9


def test_the_level_of_the_minimum_needs_a_minimum() -> None:
    assert level_of_minimum(torch.tensor([0.5, 0.2, 0.2]), torch.tensor([0, 1, 2])) == 1
    with pytest.raises(ValueError, match="at least one sample"):
        level_of_minimum(torch.empty(0), torch.empty(0, dtype=torch.int64))
    with pytest.raises(ValueError, match="level must have the shape of density"):
        level_of_minimum(torch.ones(1), torch.tensor([0, 1]))


def test_min_max_spans_zero_to_one() -> None:
    values = blobs([0.7], 1e-3)
    scaled = min_max(values)
    assert (scaled.min(), scaled.max()) == (0, 1)
    assert torch.equal(scaled.argsort(), values.argsort())
    assert min_max(torch.full((3,), 0.4)).tolist() == [1.0, 1.0, 1.0]
    assert min_max(torch.empty(0)).shape == (0,)
    with pytest.raises(ValueError, match="in 1 of 1 rows"):
        min_max(torch.tensor([float("inf")]))

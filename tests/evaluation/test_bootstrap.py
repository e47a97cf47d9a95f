import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import roc_auc_score

from acpl.evaluation import (
    MeanInterval,
    Resampled,
    auroc,
    bootstrap,
    bootstrap_auroc,
    class_mean,
    paired_bootstrap_auroc,
    ranking_figures,
    resample,
)


def study(seed: int, images: int = 60, patients: int = 15) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Truth and tied scores (images, 3), the last class so rare that some resamples lose it, and patients."""
    rng = np.random.default_rng(seed)
    truth = rng.random((images, 3)) < [0.5, 0.2, 0.0]
    truth[0, 2] = True
    score = np.round(rng.normal(size=truth.shape) + truth, 1)
    return truth, score, np.array([f"patient {p}" for p in rng.integers(patients, size=images)])


def resampled_rows(groups: np.ndarray, resamples: int, seed: int) -> list[np.ndarray]:
    """The documented rule, written out: draw groups, numbered by first appearance; list their images."""
    members = [np.flatnonzero(groups == name) for name in dict.fromkeys(groups.tolist())]
    rng = np.random.default_rng(seed)
    draws = [rng.integers(len(members), size=len(members)) for _ in range(resamples)]
    return [np.concatenate([members[g] for g in drawn]) for drawn in draws]


def assert_summarises(found: MeanInterval, figures: np.ndarray, level: float = 0.95) -> None:
    """That `found` has the percentiles of the brute-force `figures` (resamples, classes)."""
    tails = [(1 - level) / 2, (1 + level) / 2]
    low, high = np.quantile(np.nanmean(figures, axis=1), tails)
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-12)
    lows, highs = np.nanquantile(figures, tails, axis=0)
    np.testing.assert_allclose(found.per_class.low, lows, atol=1e-12)
    np.testing.assert_allclose(found.per_class.high, highs, atol=1e-12)
    np.testing.assert_array_equal(found.per_class.undefined, np.isnan(figures).sum(axis=0))


def scikit_learn_auroc(truth: np.ndarray, score: np.ndarray) -> list[float]:
    both_kinds = truth.any(axis=0) & ~truth.all(axis=0)
    return [roc_auc_score(truth[:, c], score[:, c]) if ok else np.nan for c, ok in enumerate(both_kinds)]


def same(a: MeanInterval, b: MeanInterval) -> bool:
    numbers = [[r.point, r.low, r.high, *r.per_class.low, *r.per_class.high] for r in (a, b)]
    return bool(np.array_equal(*numbers, equal_nan=True))


@pytest.mark.parametrize("level", [0.95, 0.5])
def test_auroc_intervals_are_those_of_a_loop_that_repeats_rows(level):
    truth, score, patients = study(0)
    found = bootstrap_auroc(truth, score, patients, resamples=150, level=level, seed=3)
    rows = resampled_rows(patients, 150, seed=3)
    figures = np.array([scikit_learn_auroc(truth[r], score[r]) for r in rows])
    assert 0 < np.isnan(figures[:, 2]).sum() < 150  # the rare class comes and goes
    assert_summarises(found, figures, level)


def test_the_point_is_the_plain_figure_of_the_data():
    truth, score, patients = study(1)
    truth[:, 2] = False
    found = bootstrap_auroc(truth, score, patients, resamples=10)
    np.testing.assert_array_equal(found.per_class.point, auroc(truth, score))
    assert found.point == class_mean(auroc(truth, score), ["a", "b", "c"])[0]
    assert np.isnan([found.per_class.low[2], found.per_class.high[2]]).all()
    assert found.per_class.undefined[2] == 10


def test_the_interval_is_near_scipys_where_each_image_is_its_own_group():
    rng = np.random.default_rng(4)
    truth = (np.arange(200) % 4 == 0)[:, None]
    score = rng.normal(size=truth.shape) + truth
    found = bootstrap_auroc(truth, score)
    reference = stats.bootstrap(
        (np.arange(200),),
        lambda rows: auroc(truth[rows], score[rows])[0],
        n_resamples=2000,
        method="percentile",
        vectorized=False,
        rng=5,
    ).confidence_interval
    assert (found.low, found.high) == pytest.approx((reference.low, reference.high), abs=0.012)


def test_paired_differences_are_those_of_a_loop_that_scores_both_on_the_same_rows():
    truth, a, patients = study(7)
    b = a + np.random.default_rng(8).normal(scale=0.7, size=a.shape)
    found = paired_bootstrap_auroc(truth, a, b, patients, resamples=150, seed=9)
    rows = resampled_rows(patients, 150, seed=9)
    figures = np.array([auroc(truth[r], b[r]) - auroc(truth[r], a[r]) for r in rows])
    assert_summarises(found, figures)
    means = np.nanmean(figures, axis=1)
    assert found.p == min(1, 2 * (min((means <= 0).sum(), (means >= 0).sum()) + 1) / 151)
    assert found.point == pytest.approx(np.mean(auroc(truth, b) - auroc(truth, a)))


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_identical_scores_differ_by_exactly_nothing(seed):
    truth, score, patients = study(seed)
    found = paired_bootstrap_auroc(truth, score, 2 * score + 1, patients, resamples=40)
    assert (found.point, found.low, found.high, found.p) == (0, 0, 0, 1)
    assert not found.per_class.low.any()
    assert not found.per_class.high.any()


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_swapping_a_and_b_flips_the_sign_and_keeps_p(seed):
    truth, a, patients = study(seed)
    b = np.random.default_rng(seed).normal(size=a.shape)
    one, other = (paired_bootstrap_auroc(truth, *pair, patients, resamples=40) for pair in ((a, b), (b, a)))
    assert one.point == -other.point
    assert (one.low, one.high) == pytest.approx((-other.high, -other.low), abs=1e-15)
    np.testing.assert_allclose(one.per_class.low, -other.per_class.high, atol=1e-15)
    assert one.p == other.p


@given(st.integers(0, 2**32 - 1), st.floats(0, 1))
@settings(max_examples=40, deadline=None)
def test_a_p_below_one_less_the_level_excludes_zero_from_the_interval(seed, shift):
    truth, a, patients = study(seed)
    b = a + shift * truth
    found = paired_bootstrap_auroc(truth, a, b, patients, resamples=60, level=0.8)
    if found.p < 0.2:
        assert found.low > 0 or found.high < 0


def test_a_clearly_better_model_has_the_smallest_p_the_resamples_allow():
    truth = np.arange(100)[:, None] % 2
    noise = np.random.default_rng(0).normal(size=(100, 1))
    assert paired_bootstrap_auroc(truth, noise, noise + 3 * truth, resamples=199).p == 2 / 200


def test_the_same_seed_gives_the_same_interval_and_another_seed_another():
    truth, score, patients = study(10)
    first, again, other = (bootstrap_auroc(truth, score, patients, resamples=50, seed=s) for s in (1, 1, 2))
    assert same(first, again)
    assert not same(first, other)


@pytest.mark.parametrize("cells", [1, 60 * 7, 10**6])
def test_the_size_of_a_block_changes_nothing(monkeypatch, cells):
    truth, score, patients = study(11)
    usual = bootstrap_auroc(truth, score, patients, resamples=50)
    monkeypatch.setattr(bootstrap, "_BLOCK_CELLS", cells)
    assert same(usual, bootstrap_auroc(truth, score, patients, resamples=50))


def test_the_global_random_state_is_neither_read_nor_moved():
    truth, score, patients = study(12)
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    bootstrap_auroc(truth, score, patients, resamples=5)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


def test_the_names_of_groups_are_only_names():
    truth, score, patients = study(13)
    renamed = np.array([hash(p) for p in patients], dtype=object)
    assert same(*(bootstrap_auroc(truth, score, g, resamples=50) for g in (patients, renamed)))


@pytest.mark.parametrize("kind", [list, tuple, lambda names: np.array(names, dtype=object)])
def test_names_of_several_types_stay_apart_in_a_list_as_in_an_array(kind):
    names = ["1", 1, "nan", 2.5, 2**60, 2**60 + 1]
    figure = resample(lambda w: {"first": w[:, :1] * 1.0}, len(names), kind(names), resamples=3)["first"]
    assert figure.groups == len(names)


def test_no_groups_means_each_image_its_own():
    truth, score, _ = study(14)
    assert same(*(bootstrap_auroc(truth, score, g, resamples=50) for g in (None, np.arange(len(truth)))))


def test_copies_of_an_image_add_nothing_when_grouped_and_false_confidence_when_not():
    truth, score, _ = study(15)
    copies = np.repeat(np.arange(len(truth)), 4)
    once = bootstrap_auroc(truth[:, :2], score[:, :2])
    grouped = bootstrap_auroc(truth[copies, :2], score[copies, :2], copies)
    ungrouped = bootstrap_auroc(truth[copies, :2], score[copies, :2])
    assert same(once, grouped)
    assert ungrouped.high - ungrouped.low < 0.7 * (once.high - once.low)


def test_one_group_gives_back_the_point():
    truth, score, _ = study(16)
    found = bootstrap_auroc(truth, score, np.zeros(len(truth)), resamples=20)
    assert found.low == found.point == found.high


def test_a_single_image_has_no_auroc_and_no_interval():
    found = paired_bootstrap_auroc([[1]], [[0.3]], [[0.4]], resamples=20)
    assert np.isnan([found.point, found.low, found.high, found.p]).all()


def test_any_statistic_of_weights_has_an_interval():
    heights = np.random.default_rng(17).normal(size=(80, 2))
    means = resample(lambda w: {"mean": w @ heights / w.sum(axis=1, keepdims=True)}, 80, resamples=100, seed=2)
    figures = np.array([heights[r].mean(axis=0) for r in resampled_rows(np.arange(80), 100, seed=2)])
    assert_summarises(means["mean"].interval(), figures)


def test_the_95_percent_interval_covers_the_true_auroc_about_95_times_in_100():
    rng = np.random.default_rng(18)
    truth = (np.arange(120) % 3 == 0)[:, None]
    true_auroc = stats.norm.cdf(1 / np.sqrt(2))
    found = [bootstrap_auroc(truth, rng.normal(size=truth.shape) + truth, resamples=300, seed=s) for s in range(300)]
    covered = np.mean([f.low <= true_auroc <= f.high for f in found])
    assert 0.90 < covered < 0.985


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"groups": ["a"]}, r"groups has shape \(1,\); it must be one per image, \(2,\)"),
        ({"groups": np.array(["a", None])}, "groups holds 1 missing names; the first is None at row 1"),
        ({"groups": ["a", np.nan]}, "groups holds 1 missing names; the first is nan at row 1"),
        ({"groups": [np.nan, np.nan]}, "groups holds 2 missing names; the first is nan at row 0"),
        ({"resamples": 0}, "resamples is 0"),
        ({"level": 1.0}, "level is 1.0"),
        ({"score": [[0.5], [np.nan]]}, "score holds 1 values that are not finite"),
        ({"truth": np.zeros((0, 1)), "score": np.zeros((0, 1))}, r"truth has shape \(0, 1\)"),
    ],
)
def test_a_mistake_is_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message):
        bootstrap_auroc(**{"truth": [[1], [0]], "score": [[0.5], [0.4]], **change})


def test_a_bootstrap_of_no_images_is_refused():
    with pytest.raises(ValueError, match="there are no images"):
        resample(lambda w: {"itself": w.astype(float)}, 0)


def test_draws_of_different_studies_are_not_subtracted():
    one, other = (Resampled(np.zeros(1), np.zeros((number, 1))) for number in (5, 6))
    with pytest.raises(ValueError, match=r"draws have shapes \(5, 1\) and \(6, 1\)"):
        one.minus(other)


def test_an_error_interval_is_mirrored_cut_at_nothing_and_holds_the_point():
    draws = np.linspace(0.1, 0.3, 101)[:, None]
    found = Resampled(np.array([0.25]), draws).error_interval(0.5)
    assert (found.low, found.high) == pytest.approx((0.25, 0.35))
    low = Resampled(np.array([0.12]), draws).error_interval(0.5)
    assert (low.low, low.point, low.high) == pytest.approx((0, 0.12, 0.12))


@pytest.mark.parametrize("patients", [1, 2, 3, 5])
def test_few_patients_cannot_make_a_difference_certain(patients: int) -> None:
    truth = np.tile([1.0, 0.0], 30)[:, None]
    groups = np.arange(60) * patients // 60
    good, poor = truth + 0.0, 1 - truth
    figures = [resample(ranking_figures(truth, score), 60, groups)["auroc"] for score in (good, poor)]
    found = figures[0].minus(figures[1])
    assert found.point == 1
    assert found.p >= 2 ** (1 - patients)
    assert found.unclear
    whole = [resample(ranking_figures(truth, score), 60)["auroc"] for score in (good, poor)]
    assert whole[0].minus(whole[1]).p < 0.01
    assert not whole[0].minus(whole[1]).unclear


def test_the_interval_of_an_error_ends_at_1() -> None:
    figure = Resampled(np.array([0.85]), np.linspace(0.55, 0.9, 101)[:, None])
    assert figure.error_interval().high == 1
    assert figure.error_interval().per_class.high[0] == 1

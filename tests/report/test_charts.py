"""Charts: where marks are placed, what they say, and that nothing given from outside becomes markup."""

import re

from hypothesis import given
from hypothesis import strategies as st

from acpl.report.charts import Chart, ticks
from acpl.report.plots import (
    Interval,
    balance_chart,
    curve_panel,
    density_histogram,
    feature_map,
    forest,
    pool_bars,
    time_bar,
)

DENSITY = {
    "edges": [0.0, 0.25, 0.5, 0.75, 1.0],
    "counts": [[0, 0, 2, 6], [0, 3, 1, 0], [4, 0, 0, 0]],
    "components": [
        {"weight": 0.5, "mean": 0.85, "sd": 0.05},
        {"weight": 0.25, "mean": 0.45, "sd": 0.1},
        {"weight": 0.25, "mean": 0.1, "sd": 0.05},
    ],
    "taken": [2],
}


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_ticks_are_few_round_numbers_within(low: float, width: float) -> None:
    found = ticks(low, low + width)
    assert len(found) <= 6
    spare = 1e-5 * width + 1e-9 * max(abs(low), abs(low + width))
    assert all(low - spare <= value <= low + width + spare for value in found)
    assert found == sorted(set(found))


def test_a_chart_of_one_value_alone_still_has_a_width() -> None:
    chart = Chart("one value", (3, 3), (0, 0))
    assert 0 < chart.x(3) < chart.width
    assert 0 < chart.y(0) < chart.height


def test_what_comes_from_outside_is_escaped_everywhere() -> None:
    bad = "<b>&\"'"
    charts = [
        forest([Interval(bad, 0.5, 0.4, 0.6, note=bad)], alt=bad, x_label=bad),
        balance_chart([bad, "b"], {"pool": [0.5, 0.5], "selected": [0.1, 0.9]}),
        pool_bars([{"name": bad, "short": bad, "labelled": 1, "pseudo-labelled": 2, "left": 3, "anchors": 1}]),
        time_bar({bad: 1.0}),
        curve_panel(
            bad, {"y": [0, 1], "low": [0, 1], "high": [0, 1]}, alt=bad, x_label="", y_label="", at=None, even=[]
        ),
    ]
    for chart in charts:
        assert "<b>" not in chart
        assert "&lt;b&gt;" in chart


def test_the_histogram_draws_a_bar_a_filled_bin_and_level_and_a_curve_a_component() -> None:
    svg = density_histogram(DENSITY)
    assert svg.count("<rect") == 5
    assert svg.count('class="line"') == 3
    assert "high (selected) information" in svg


def test_a_component_peaks_over_its_mean() -> None:
    svg = density_histogram(DENSITY)
    curves = re.findall(r'<polyline class="line"[^>]*points="([^"]*)"', svg)
    places = [[tuple(map(float, pair.split(","))) for pair in curve.split()] for curve in curves]
    peaks = [min(points, key=lambda point: point[1])[0] for points in places]
    assert peaks == sorted(peaks, reverse=True)  # the densest component is the first


def test_an_interval_lies_around_its_point_and_zero_is_on_the_axis() -> None:
    svg = forest([Interval("a", 0.2, 0.1, 0.3)], alt="a", x_label="", zero=True)
    whisker = re.search(r'class="whisker"[^>]*x1="([\d.]+)" x2="([\d.]+)"', svg)
    dot = re.search(r'<circle[^>]*cx="([\d.]+)"', svg)
    assert whisker is not None
    assert dot is not None
    assert float(whisker[1]) < float(dot[1]) < float(whisker[2])
    assert ">0</text>" in svg


def test_thousands_of_points_are_one_shape_a_kind() -> None:
    points = [[x / 1000, x % 7] for x in range(3000)]
    svg = feature_map({"how": "PCA", "points": {"rest": points, "selected": points, "joined": [], "labelled": []}})
    assert svg.count("<path") == 4
    assert svg.count("h0") == 6000
    assert "anchors that joined" not in svg


def test_a_balance_that_is_not_known_is_not_drawn() -> None:
    assert balance_chart(["a"], {"pool": [0.5], "selected": None}) == ""
    assert balance_chart(["a"], {"pool": [None], "selected": [0.5]}) == ""

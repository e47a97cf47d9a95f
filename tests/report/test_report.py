"""The page and its tables."""

import json
import re
from pathlib import Path

import pytest

from acpl.report import write_report
from acpl.report.charts import Series, line_chart
from acpl.report.tables import evaluation_table, gain_sentence


def test_the_page_is_self_contained_and_shows_the_figure(chest_run: Path) -> None:
    page = (chest_run / "report.html").read_text()
    result = json.loads((chest_run / "evaluation.json").read_text())
    assert f"{result['auroc']['mean']:.4f}" in page
    assert not re.search(r"(src|href)\s*=", page)
    assert "<script" not in page
    assert page.count("<svg") >= 2


def test_a_class_named_like_html_shows_as_text(chest_run: Path, tmp_path: Path) -> None:
    for name in ("config.yaml", "events.jsonl"):
        (tmp_path / name).write_bytes((chest_run / name).read_bytes())
    text = (chest_run / "evaluation.json").read_text().replace("Effusion", "<b>Effusion")
    (tmp_path / "evaluation.json").write_text(text)
    page = write_report(tmp_path).read_text()
    assert "&lt;b&gt;Effusion" in page
    assert "<b>Effusion" not in page


def test_before_evaluation_the_page_says_that_the_test_part_is_closed(chest_run: Path, tmp_path: Path) -> None:
    for name in ("config.yaml", "events.jsonl"):
        (tmp_path / name).write_bytes((chest_run / name).read_bytes())
    assert "has not been opened yet" in write_report(tmp_path).read_text()


@pytest.mark.parametrize(("low", "high", "word"), [(0.1, 0.2, "better"), (-0.2, -0.1, "worse"), (-1, 1, "no clear")])
def test_the_verdict_follows_the_interval(low: float, high: float, word: str) -> None:
    gain = {"mean": (low + high) / 2, "low": low, "high": high}
    assert word in gain_sentence({"method": "acpl", "snapshots": {"warm-up": {"gain": gain}}})


def test_the_table_has_a_row_a_class(chest_run: Path) -> None:
    result = json.loads((chest_run / "evaluation.json").read_text())
    table = evaluation_table(result)
    assert table.row_count == 1 + len(result["auroc"]["per_class"])


def test_a_chart_places_points_in_order_and_leaves_out_what_is_not_finite() -> None:
    svg = line_chart([Series("a<b", [(0, 1.0), (1, float("nan")), (2, 3.0)])])
    points = re.search(r'points="([^"]*)"', svg)
    assert points is not None
    (x0, y0), (x1, y1) = ([float(v) for v in pair.split(",")] for pair in points[1].split())
    assert x0 < x1
    assert y0 > y1
    assert "a&lt;b" in svg
    assert line_chart([Series("none", [])]) == ""

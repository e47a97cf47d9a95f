"""The page and its tables."""

import json
import re
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from acpl.report import write_report
from acpl.report.charts import Series, line_chart
from acpl.report.tables import (
    class_columns,
    class_rows,
    class_table,
    evaluation_table,
    evaluation_tables,
    gain_sentence,
)


def test_the_page_is_self_contained_and_shows_the_figure(chest_run: Path) -> None:
    page = (chest_run / "report.html").read_text()
    result = json.loads((chest_run / "evaluation.json").read_text())
    assert f"{result['auroc']['mean']:.4f}" in page
    assert not re.search(r"(src|href)\s*=", page)
    assert "<script" not in page
    assert page.count("<svg") >= 2


def test_a_class_named_like_html_shows_as_text(chest_run: Path, tmp_path: Path) -> None:
    for name in ("config.yaml", "events.jsonl", "split.csv"):
        (tmp_path / name).write_bytes((chest_run / name).read_bytes())
    text = (chest_run / "evaluation.json").read_text().replace("Effusion", "<b>Effusion")
    (tmp_path / "evaluation.json").write_text(text)
    page = write_report(tmp_path).read_text()
    assert "&lt;b&gt;Effusion" in page
    assert "<b>Effusion" not in page


def test_before_evaluation_the_page_says_that_the_test_part_is_closed(chest_run: Path, tmp_path: Path) -> None:
    for name in ("config.yaml", "events.jsonl", "split.csv"):
        (tmp_path / name).write_bytes((chest_run / name).read_bytes())
    assert "has not been opened yet" in write_report(tmp_path).read_text()


@pytest.mark.parametrize(("low", "high", "word"), [(0.1, 0.2, "better"), (-0.2, -0.1, "worse"), (-1, 1, "no clear")])
def test_the_verdict_follows_the_interval(low: float, high: float, word: str) -> None:
    gain = {"mean": (low + high) / 2, "low": low, "high": high}
    assert word in gain_sentence({"method": "acpl", "snapshots": {"warm-up": {"gain": gain}}})


def test_the_means_have_a_row_a_figure_and_the_classes_a_row_each(chest_run: Path, lesions_run: Path) -> None:
    chest, lesions = (json.loads((run / "evaluation.json").read_text()) for run in (chest_run, lesions_run))
    assert evaluation_table(chest).row_count == 7
    assert evaluation_table(lesions).row_count == 8  # and the top label's calibration
    assert class_table(chest).row_count == len(chest["positives"])
    name, cells = class_rows(chest)[0]
    assert cells[0] == str(chest["positives"][name])
    assert cells[-1] == f"{chest['thresholds'][name]:.3g}"
    assert len(cells) == len(class_columns(chest)) == len(class_columns(lesions)) + 1  # argmax has no thresholds


def shown(*tables: object) -> str:
    console = Console(width=200, record=True, file=StringIO())
    console.print(*tables)
    return " ".join(console.export_text().split())


@pytest.mark.parametrize(
    ("rule", "words"),
    [("argmax", "most probable class"), ("validation", "set on the validation part"), (0.18, "probability of 0.18 on")],
)
def test_the_table_says_by_which_rule_a_class_is_called(chest_run: Path, rule: object, words: str) -> None:
    result = json.loads((chest_run / "evaluation.json").read_text())
    assert words in shown(evaluation_tables({**result, "rule": rule}))


def test_what_was_left_out_is_said_by_name_and_number(chest_run: Path) -> None:
    result = json.loads((chest_run / "evaluation.json").read_text())
    result["auroc"]["per_class"] |= {"Nodule": None, "Hernia": None}
    text = shown(evaluation_tables({**result, "unlabelled_left_out": 5, "unreadable_left_out": 2}))
    assert "(left out: 5 without labels, 2 unreadable)" in text
    assert "Left out of the means, for want of both kinds of image: Nodule, Hernia." in text


def difference(low: float, high: float, verdict: str) -> dict[str, object]:
    one = {"mean": (low + high) / 2, "low": low, "high": high}
    each = {f"per_class{end}": {"a [b]": one[key]} for end, key in (("", "mean"), ("_low", "low"), ("_high", "high"))}
    return {**one, **each, "left_out": [], "p": 0.5, "verdict": verdict}


def test_a_comparison_says_above_below_or_unclear(chest_run: Path, tmp_path: Path) -> None:
    result = json.loads((chest_run / "evaluation.json").read_text())
    unclear = difference(-0.1, 0.2, "unclear")
    names = ("average_precision", "sensitivity", "specificity", "balanced_accuracy")
    result["against"] = {
        "run": "runs/other",
        "auroc": difference(0.1, 0.2, "above"),
        "f1": difference(-0.2, -0.1, "below"),
        **dict.fromkeys(names, unclear),
    }
    text = shown(evaluation_tables(result))
    assert "this run − runs/other" in text
    assert "F1 -0.1500 [-0.2000, -0.1000] below" in text
    assert "AUROC a [b] +0.1500 [+0.1000, +0.2000] above" in text
    for name in ("config.yaml", "events.jsonl", "split.csv"):
        (tmp_path / name).write_bytes((chest_run / name).read_bytes())
    (tmp_path / "evaluation.json").write_text(json.dumps(result))
    assert "Against runs/other" in write_report(tmp_path).read_text()


def test_a_page_without_a_single_class_that_can_be_ranked_is_still_a_page(chest_run: Path, tmp_path: Path) -> None:
    result = json.loads((chest_run / "evaluation.json").read_text())
    result["auroc"] |= {"mean": None, "low": None, "high": None}
    result["snapshots"]["warm-up"]["gain"] = {"mean": None, "low": None, "high": None, "p": None}
    for name in ("config.yaml", "events.jsonl", "split.csv"):
        (tmp_path / name).write_bytes((chest_run / name).read_bytes())
    (tmp_path / "evaluation.json").write_text(json.dumps(result))
    assert "undefined" in write_report(tmp_path).read_text()


def test_a_chart_places_points_in_order_and_leaves_out_what_is_not_finite() -> None:
    svg = line_chart([Series("a<b", [(0, 1.0), (1, float("nan")), (2, 3.0)])])
    points = re.search(r'points="([^"]*)"', svg)
    assert points is not None
    (x0, y0), (x1, y1) = ([float(v) for v in pair.split(",")] for pair in points[1].split())
    assert x0 < x1
    assert y0 > y1
    assert "a&lt;b" in svg
    assert line_chart([Series("none", [])]) == ""


def test_the_page_says_how_many_images_are_labelled(chest_run: Path) -> None:
    roles = [line.rsplit(",", 1)[1] for line in (chest_run / "split.csv").read_text().splitlines()]
    labelled, unlabelled = roles.count("labelled"), roles.count("unlabelled")
    page = (chest_run / "report.html").read_text()
    assert f"{labelled} of {labelled + unlabelled} training images labelled" in page

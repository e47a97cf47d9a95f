"""The page and its tables."""

import json
import re
import shutil
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from tests.conftest import TINY

import acpl
from acpl.report import write_report
from acpl.report.charts import Series, line_chart
from acpl.report.first_screen import first_screen, notes
from acpl.report.journey import time_by_part
from acpl.report.run_data import read_run
from acpl.report.tables import (
    class_columns,
    class_rows,
    class_table,
    difference_rows,
    difference_sentence,
    evaluation_table,
    evaluation_tables,
    gain_sentence,
)


def test_the_page_is_self_contained_and_shows_the_figure(chest_run: Path) -> None:
    page = (chest_run / "report.html").read_text()
    result = json.loads((chest_run / "evaluation.json").read_text())
    assert f"{result['auroc']['mean']:.4f}" in page
    assert all(target.startswith("#") for target in re.findall(r'\shref="?([^"\s>]*)', page))
    assert not re.search(r"<[^>]*\ssrc=", page)
    assert not re.search(r"https?://|@import|url\(", page)
    assert page.count("<svg") >= 10


def test_a_class_named_like_html_shows_as_text(chest_run: Path, tmp_path: Path) -> None:
    for name in ("config.yaml", "events.jsonl", "split.csv"):
        (tmp_path / name).write_bytes((chest_run / name).read_bytes())
    (tmp_path / "report").mkdir()
    for name in ("evaluation.json", "model.json", "report/selection.json", "report/judged.json"):
        (tmp_path / name).write_text((chest_run / name).read_text().replace("Effusion", "</script><b>Effusion"))
    page = write_report(tmp_path).read_text()
    assert "&lt;/script&gt;&lt;b&gt;Effusion" in page
    assert "\\u003c/script\\u003e\\u003cb\\u003eEffusion" in page  # in what the script reads
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
    assert "Left out of the means that need both kinds of image: Nodule, Hernia." in text


def difference(low: float, high: float, verdict: str) -> dict[str, object]:
    one = {"mean": (low + high) / 2, "low": low, "high": high}
    each = {f"per_class{end}": {"a [b]": one[key]} for end, key in (("", "mean"), ("_low", "low"), ("_high", "high"))}
    p = 0.5 if verdict == "unclear" else 0.02
    return {**one, **each, "left_out": [], "p": p, "per_class_p": {"a [b]": p / 2}, "verdict": verdict}


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
    assert "F1 -0.1500 [-0.2000, -0.1000] 0.020 below" in text
    assert "AUROC a [b] +0.1500 [+0.1000, +0.2000] 0.010 above" in text
    for name in ("config.yaml", "events.jsonl", "split.csv"):
        (tmp_path / name).write_bytes((chest_run / name).read_bytes())
    (tmp_path / "evaluation.json").write_text(json.dumps(result))
    assert "Against runs/other" in write_report(tmp_path).read_text()


def against(**auroc: object) -> dict[str, object]:
    """A comparison of two classes, with what is given of AUROC."""
    values = {f"per_class{end}": {"a": 0.1, "b": 0.1} for end in ("", "_low", "_high")}
    names = ("average_precision", "sensitivity", "specificity", "f1", "balanced_accuracy")
    rest = {name: difference(-0.1, 0.2, "unclear") for name in names}
    return {"against": {**rest, "auroc": {**difference(0.1, 0.2, "above"), **values, **auroc}}}


def test_a_class_whose_p_is_large_is_unclear_whatever_its_interval() -> None:
    high = {"per_class_high": {"a": 0.3, "b": 0.3}}
    rows = dict(difference_rows(against(**high, per_class_p={"a": 0.01, "b": 1.0})))
    assert rows["AUROC a"][1:] == ["0.010", "above"]
    assert rows["AUROC b"][1:] == ["1.000", "unclear"]


def test_classes_are_said_not_to_be_corrected_for_where_there_are_several() -> None:
    assert "not corrected for there being 2 classes" in difference_sentence(against())
    assert "corrected" not in difference_sentence(against(per_class={"a": 0.1}))


def test_a_class_that_no_resample_defines_is_shown_without_an_interval_or_p() -> None:
    nothing = {"a": None, "b": None}
    rows = dict(difference_rows(against(per_class_low=nothing, per_class_high=nothing, per_class_p=nothing)))
    assert rows["AUROC a"] == ["+0.1000 [–, –]", "", "unclear"]


def test_a_comparison_of_an_earlier_version_has_classes_without_p() -> None:
    result = against(per_class_high={"a": 0.3, "b": 0.3})
    del result["against"]["auroc"]["per_class_p"]  # type: ignore[attr-defined]
    assert dict(difference_rows(result))["AUROC a"][1:] == ["", "above"]


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


def copied(run: Path, to: Path) -> Path:
    shutil.copytree(run, to, dirs_exist_ok=True)
    return to


def test_a_run_that_was_judged_on_validation_alone_says_so(chest_run: Path, tmp_path: Path) -> None:
    run = copied(chest_run, tmp_path / "run")
    (run / "evaluation.json").unlink()
    acpl.evaluate(run, part="validation", resamples=20)
    page = (run / "report.html").read_text()
    assert "These are figures of the validation part" in page
    assert "mean AUROC, validation part" in page
    assert "test part:" not in page


def test_before_evaluation_the_figure_is_validations_and_has_no_judge(chest_run: Path, tmp_path: Path) -> None:
    run = copied(chest_run, tmp_path / "run")
    (run / "evaluation.json").unlink()
    page = write_report(run).read_text()
    last = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()][-1]
    assert f"{last['validation_auroc']:.4f}" in page
    assert "all figures here are of the validation part" in page
    assert 'id="judge"' not in page
    assert "predictions" not in page


def test_the_page_holds_every_section_of_a_judged_run(chest_run: Path, lesions_run: Path) -> None:
    chest, lesions = ((run / "report.html").read_text() for run in (chest_run, lesions_run))
    for name in ("result", "way", "selected", "pseudo-labels", "judge", "made"):
        assert f'id="{name}"' in chest
        assert f'href="#{name}"' in chest
    for words in ("Pools by stage", "Losses by name", "Time by part", "Density and the mixture", "Map of the features"):
        assert words in chest
    assert "Errors that come together" in chest
    assert "Confusion" in lesions
    assert "split checksum" in chest
    assert json.loads((chest_run / "report" / "made.json").read_text())["versions"]["torch"] in chest


def test_the_command_on_the_page_gives_the_same_model_again(chest_run: Path, tmp_path: Path) -> None:
    page = (chest_run / "report.html").read_text()
    file = re.search(r"acpl train --config (\S+) --out", page)
    assert file is not None
    again = acpl.train(file=file[1], out=tmp_path / "again")
    assert (again / "model.safetensors").read_bytes() == (chest_run / "model.safetensors").read_bytes()


def test_a_method_that_selects_nothing_has_a_page_without_that_section(tmp_path: Path) -> None:
    run = acpl.train(out=tmp_path / "run", data="phantom-chest", method="supervised", **{**TINY, "k": None})
    page = (run / "report.html").read_text()
    assert 'id="selected"' not in page
    assert "Losses by name" in page


def test_every_chart_says_in_words_what_it_shows(chest_run: Path) -> None:
    page = (chest_run / "report.html").read_text()
    charts = re.findall(r"<svg[^>]*>", page)
    assert charts
    assert all(re.search(r'role="img" aria-label="[^"]{8,}"', chart) for chart in charts)


@pytest.mark.parametrize(("low", "high", "state"), [(0.1, 0.2, "good"), (-0.2, -0.1, "bad"), (-1.0, 1.0, "plain")])
def test_the_first_screens_verdict_follows_the_interval(chest_run: Path, low: float, high: float, state: str) -> None:
    run = read_run(chest_run)
    assert run.evaluation is not None
    run.evaluation["snapshots"]["warm-up"]["gain"] = {"mean": (low + high) / 2, "low": low, "high": high}
    assert first_screen(run)["verdict"].state == state


def test_what_is_wrong_with_a_figure_comes_before_what_speaks_for_it(chest_run: Path) -> None:
    run = read_run(chest_run)
    assert run.evaluation is not None
    assert run.judged is not None
    run.evaluation["auroc"] |= {"low": 0.5, "high": 0.9}
    run.judged["subgroups"] = [
        {
            "by": "sex",
            "classes": 2,
            "rows": [
                {"name": "F", "auroc": 0.6, "low": 0.55, "high": 0.65, "images": 50, "groups": 50},
                {"name": "M", "auroc": 0.9, "low": 0.85, "high": 0.95, "images": 50, "groups": 50},
                {"name": "X", "auroc": 0.5, "low": 0.1, "high": 0.99, "images": 20, "groups": 20},
            ],
        }
    ]
    found = notes(run)
    assert [note.state for note in found] == sorted(
        (note.state for note in found), key=lambda state: ("care", "good", "plain").index(state)
    )
    text = " ".join(note.text for note in found)
    assert "The interval is 0.40 wide" in text
    assert "By sex: F 0.600, M 0.900; their intervals do not meet." in text


def test_time_by_part_adds_up_to_the_whole(chest_run: Path) -> None:
    run = read_run(chest_run)
    parts = time_by_part(run)
    beside = sum(parts.get(name, 0.0) for name in ("opening images", "pictures for this page"))
    assert sum(parts.values()) - beside == pytest.approx(run.seconds, rel=0.02)
    assert {"training", "looking and selecting", "validation"} <= set(parts)


def test_the_report_of_a_run_without_its_pictures_is_gathered_again(chest_run: Path, tmp_path: Path) -> None:
    run = copied(chest_run, tmp_path / "run")
    gathered = (run / "report" / "selection.json").read_bytes()
    (run / "report" / "selection.json").unlink()
    acpl.make_report(run)
    assert (run / "report" / "selection.json").read_bytes() == gathered


def test_a_run_whose_images_are_gone_has_a_page_that_says_so(chest_run: Path, tmp_path: Path) -> None:
    run = copied(chest_run, tmp_path / "run")
    (run / "report" / "selection.json").unlink()
    text = (run / "config.yaml").read_text().replace("data: phantom-chest", f"data: {tmp_path}/gone.csv")
    (run / "config.yaml").write_text(text)
    page = acpl.make_report(run).read_text()
    assert "What was selected cannot be shown" in page
    assert "gone.csv" in page.split("What was selected cannot be shown")[1][:400]


def test_two_pages_of_one_run_are_the_same(chest_run: Path, tmp_path: Path) -> None:
    run = copied(chest_run, tmp_path / "run")
    first = write_report(run).read_bytes()
    assert write_report(run).read_bytes() == first


@pytest.mark.parametrize("damage", ['{"cut', "[1, 2]"])
def test_files_of_the_report_that_are_damaged_are_named_on_the_page_and_done_without(
    chest_run: Path, tmp_path: Path, damage: str
) -> None:
    run = copied(chest_run, tmp_path / "run")
    names = ("judged.json", "selection.json", "made.json")
    for name in names:
        (run / "report" / name).write_text(damage)
    page = write_report(run).read_text()
    for name in names:
        assert f"Left out of this page: {run / 'report' / name} is damaged: " in page
    mean = json.loads((run / "evaluation.json").read_text())["auroc"]["mean"]
    assert f"{mean:.4f}" in page
    (run / "evaluation.json").write_text(damage)  # what the page is about is another matter
    with pytest.raises(acpl.UserError, match=r"evaluation\.json is damaged"):
        write_report(run)


def test_what_was_left_out_shows_as_text(chest_run: Path, tmp_path: Path) -> None:
    run = copied(chest_run, tmp_path / "run")
    found = json.loads((run / "report" / "selection.json").read_text())
    (run / "report" / "selection.json").write_text(json.dumps(found | {"left_out": ["<b>stages</b> is damaged"]}))
    page = write_report(run).read_text()
    assert "Left out of this page: &lt;b&gt;stages&lt;/b&gt; is damaged" in page


def test_a_whole_run_leaves_nothing_out(chest_run: Path) -> None:
    assert read_run(chest_run).left_out == []
    assert "Left out of this page" not in (chest_run / "report.html").read_text()

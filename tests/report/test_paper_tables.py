"""The paper's tables as text, and its figures as drawings."""

from io import BytesIO
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from acpl.report.canvas import Canvas
from acpl.report.paper_plots import RIGHT, WRONG, Example, Line, bar_plot, example_sheet, line_plot, ticks
from acpl.report.paper_tables import as_csv, as_latex, as_markdown, lead_sheets, sheets

SVG = "{http://www.w3.org/2000/svg}"


def one(row: str, mean: float | None, **more: Any) -> dict[str, Any]:
    empty = dict.fromkeys(("low", "high", "spread", "paper", "share", "share_low", "share_high"))
    empty |= dict.fromkeys(("difference", "difference_low", "difference_high", "wider_low", "wider_high"))
    return {"row": row, "column": "2 %", "measure": "auroc", "mean": mean, **empty, "seeds": 1, "failed": [], **more}


DIFFERENCE = {"difference": 0.05, "difference_low": 0.01, "difference_high": 0.09}
ENTRIES = [
    one("supervised", 0.7, low=0.6, high=0.8, paper=0.65),
    {**one("acpl", 0.75, share=0.5, share_low=0.1, share_high=0.9), **DIFFERENCE},
    one("all labels", 0.8),
    one("ups_2", None, failed=["seed 0: broken|pipe"]),
]


def test_one_column_has_all_in_one_sheet_and_the_best_in_bold() -> None:
    made = sheets(ENTRIES, reference="supervised", beside=["all labels"])
    assert len(made) == 1
    text = as_markdown("table4", made, ["a note"])
    assert "| supervised | 70.00 [60.00, 80.00] | 65.00 |  |  |" in text
    assert "| acpl | **75.00** |  | +5.00 [+1.00, +9.00] above | 50 [10, 90] |" in text
    assert "| ups_2 | missing |" in text
    assert text.endswith("- a note\n")
    assert "difference to supervised" in text


def test_a_difference_has_its_interval_for_other_trainings_beside_it() -> None:
    (sheet,) = sheets([ENTRIES[0], {**ENTRIES[1], "wider_low": -0.02, "wider_high": 0.12}], reference="supervised")
    assert sheet.headings[3:5] == [
        "difference to supervised [95 % interval]",
        "the difference's interval for other trainings, too",
    ]
    assert sheet.rows[1][3:5] == ["+5.00 [+1.00, +9.00] above", "[-2.00, +12.00]"]
    assert sheet.rows[0][3:5] == ["", ""]
    (surer,) = sheets([ENTRIES[0], {**ENTRIES[1], "wider_low": -0.02, "wider_high": -0.01}], reference="supervised")
    assert surer.rows[1][4] == "[-2.00, -1.00] below"


def test_of_an_error_the_least_is_the_best() -> None:
    errors = [{**entry, "measure": "calibration_error"} for entry in ENTRIES]
    (sheet,) = sheets(errors, reference="supervised", beside=["all labels"])
    assert sheet.headings[1] == "calibration error, 2 %"
    assert sheet.strong == {(0, 1)}


def test_a_mean_over_fewer_seeds_says_so_and_is_not_the_best() -> None:
    fewer = one("ups", 0.9, seeds=2, failed=["seed 2: not run yet"])
    (sheet,) = sheets([*ENTRIES, fewer], reference="supervised", beside=["all labels"])
    assert sheet.rows[4][1] == "90.00 (2 of 3 seeds)"
    assert sheet.strong == {(1, 1)}


def test_several_columns_have_a_sheet_for_each_kind_of_number() -> None:
    wide = [*ENTRIES, *({**entry, "column": "5 %", "paper": None} for entry in ENTRIES)]
    first, second, third = sheets(wide, reference="supervised", beside=["all labels"])
    assert first.headings == ["", "2 %", "paper, 2 %", "5 %"]
    assert second.headings == third.headings == ["", "2 %", "5 %"]
    assert first.strong == {(1, 1), (1, 3)}


def test_measures_are_named_and_counts_are_shown_as_they_are() -> None:
    both = [ENTRIES[0], {**ENTRIES[0], "measure": "stages", "mean": 5.0, "low": None, "paper": 9}]
    (sheet,) = sheets(both, reference="x")
    assert sheet.headings == ["", "AUC", "paper, AUC", "stages", "paper, stages"]
    assert sheet.rows[0] == ["supervised", "70.00 [60.00, 80.00]", "65.00", "5", "9"]


def ahead(of: str, over: str, column: str = "2 %", **more: Any) -> dict[str, Any]:
    figures = {**DIFFERENCE, "wider_low": -0.02, "wider_high": 0.12}
    return {"of": of, "over": over, "column": column, "measure": "auroc", **figures, "seeds": 3, **more}


def test_who_is_ahead_of_whom_has_a_sheet_each_and_two_intervals_a_difference() -> None:
    fewer = ahead("acpl-plus", "ups", wider_low=None, wider_high=None)
    mine, plus = lead_sheets([ahead("acpl", "ups"), ahead("acpl", "tcse"), ahead("acpl", "ups", "5 %"), fewer])
    assert mine.title == "how far acpl is ahead of each of the others [95 % interval]"
    assert mine.headings == ["", "2 %", "for other trainings, too", "5 %", "for other trainings, too"]
    both = ["+5.00 [+1.00, +9.00] above", "[-2.00, +12.00]"]
    assert mine.rows == [["ups", *both, *both], ["tcse", *both, "", ""]]
    assert (plus.headings, plus.rows) == (["", "AUC, 2 %"], [["ups", both[0]]])  # of one seed there is one interval
    assert mine.strong == set()
    some, all_seeds = lead_sheets([ahead("acpl", "ups", seeds=2), ahead("acpl", "tcse")])[0].rows
    assert some[1:] == [f"{both[0]} (2 of 3 seeds)", both[1]]
    assert all_seeds[1:] == both
    assert lead_sheets([]) == []
    assert as_csv([fewer]).splitlines()[1] == "acpl-plus,ups,2 %,auroc,0.05,0.01,0.09,,,3"


def test_latex_escapes_and_csv_holds_every_number() -> None:
    made = sheets(ENTRIES, reference="supervised")
    text = as_latex("table4", made, [])
    assert r"ups\_2" in text
    assert r"2 \%" in text
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 1
    assert as_csv(ENTRIES).splitlines()[4].endswith("seed 0: broken|pipe")


def test_a_drawing_is_the_same_as_svg_and_as_png() -> None:
    canvas = Canvas(40, 30)
    canvas.box((10, 10), (20, 10), fill="#ff0000")
    canvas.text((2, 8), "a < b & c")
    drawing = ElementTree.fromstring(canvas.svg())
    assert [text.text for text in drawing.iter(f"{SVG}text")] == ["a < b & c"]
    with Image.open(BytesIO(canvas.png())) as image:
        assert image.size == (80, 60)
        assert image.getpixel((40, 30)) == (255, 0, 0)
        assert image.getpixel((70, 50)) == (255, 255, 255)


def test_lines_and_bars_stand_where_their_numbers_are() -> None:
    plot = line_plot(
        "t", [Line("x", [(0, 1.0), (1, 3.0), (2, float("nan"))], [(0, 0.5, 1.5), (1, 2.5, 3.5)])], "k", "y"
    )
    drawing = ElementTree.fromstring(plot.svg())
    low, high = (float(dot.attrib["cy"]) for dot in drawing.iter(f"{SVG}circle"))
    assert low > high  # SVG's y grows downwards
    assert len(list(drawing.iter(f"{SVG}polygon"))) == 1
    bars = ElementTree.fromstring(bar_plot("t", ["a", "b"], {"one": [1.0, 2.0], "two": [4.0, float("nan")]}, "%").svg())
    tall = [float(box.attrib["height"]) for box in bars.iter(f"{SVG}rect") if "x" in box.attrib][:3]
    assert tall[1] == pytest.approx(4 * tall[0], rel=0.01)
    assert tall[2] == pytest.approx(2 * tall[0], rel=0.01)


def test_what_is_right_has_a_green_edge_and_what_is_wrong_a_red_one() -> None:
    grey, colour = np.full((8, 8), 90, dtype=np.uint8), np.full((8, 8, 3), 200, dtype=np.uint8)
    sheet = example_sheet("t", [Example(grey, True, ("Mass 0.9",)), Example(colour, False, ("Mass 0.2", "is None"))])
    drawing = ElementTree.fromstring(sheet.svg())
    assert [box.get("stroke") for box in drawing.iter(f"{SVG}rect")][1:] == [RIGHT, WRONG]
    assert len(list(drawing.iter(f"{SVG}image"))) == 2


def test_without_a_run_a_figure_says_so() -> None:
    assert "no run finished" in line_plot("t", [Line("x", [], [])], "k", "y").svg()
    assert "no run finished" in bar_plot("t", ["a"], {"one": [float("nan")]}, "%").svg()
    assert bar_plot("t", ["a", "b"], {"one": [1.0, 2.0]}, "%").svg().count("rotate") == 1  # the axis alone
    names = [f"a long name {number}" for number in range(14)]
    assert bar_plot("t", names, {"one": [1.0] * 14}, "%").svg().count("rotate") == 15


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (47.2, 48.1), (0, 1300), (-3, 5)])
def test_ticks_are_round_and_within(low: float, high: float) -> None:
    found = ticks(low, high)
    assert 3 <= len(found) <= 6
    assert low <= found[0]
    assert found[-1] <= high

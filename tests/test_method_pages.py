"""The methods' pages say what the methods' code says."""

from pathlib import Path

import pytest

from acpl import algorithms
from acpl.experiments.method_pages import MEASURED, method_page

PAGES = Path(__file__).parents[1] / "docs" / "methods"


@pytest.mark.parametrize("name", algorithms.own_names())
def test_a_method_s_page_is_up_to_date(name: str) -> None:
    wanted = method_page(name, PAGES / MEASURED)
    assert (PAGES / f"{name}.md").read_text(encoding="utf-8") == wanted, "python -m acpl.experiments methods"


def test_there_is_no_page_of_a_method_that_is_not() -> None:
    assert {page.stem for page in PAGES.glob("*.md")} == set(algorithms.own_names())


def test_measured_figures_come_from_the_comparison(tmp_path: Path) -> None:
    table = tmp_path / MEASURED
    table.write_text(
        "fraction,rank,method,auroc,low,high,steps,images,seconds\n0.05,2,acpl,0.9,0.88,0.91,100,6400,12.3\n"
    )
    page = method_page("acpl", table)
    assert "| 0.05 | 2 | 90.00 [88.00, 91.00] | 100 | 6,400 | 12 s |" in page
    assert "Not yet" not in page

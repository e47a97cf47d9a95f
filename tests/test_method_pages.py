"""The methods' pages say what the methods' code says."""

import json
from pathlib import Path

import pytest

from acpl import algorithms
from acpl.errors import UserError
from acpl.experiments.method_pages import MEASURED, method_page, take_measured

PAGES = Path(__file__).parents[1] / "docs" / "methods"


@pytest.mark.parametrize("name", algorithms.own_names())
def test_a_method_s_page_is_up_to_date(name: str) -> None:
    wanted = method_page(name, PAGES / MEASURED)
    assert (PAGES / f"{name}.md").read_text(encoding="utf-8") == wanted, "python -m acpl.experiments methods"


def test_there_is_no_page_of_a_method_that_is_not() -> None:
    assert {page.stem for page in PAGES.glob("*.md")} == set(algorithms.own_names())


def test_measured_figures_come_from_the_comparison(tmp_path: Path) -> None:
    comparison, pages = tmp_path / "comparison", tmp_path / "pages"
    comparison.mkdir()
    with pytest.raises(UserError, match="holds no finished comparison"):
        take_measured(comparison, pages)
    columns = (
        "fraction,rank,method,auroc,low,high,behind,behind_low,behind_high,p,seeds,finished,failed,steps,images,seconds"
    )
    rows = [
        "0.05,1,supervised,0.91,0.89,0.92,,,,,3,3,,700,22400,9.6",
        "0.05,2,acpl,0.9,0.88,0.91,-0.01,-0.02,0.005,0.04,3,2,seed 1: no luck,700,44800,12.3",
        "0.05,,ups,,,,,,,,3,0,seed 0: no luck,,,",
    ]
    (comparison / "table.csv").write_text("\n".join([columns, *rows]) + "\n")
    about = {"command": "acpl compare --methods all", "machine": "2 cores of Z80", "torch": "2.13", "seconds": 1500}
    sessions = {"sessions": [{"begun": "2026-01-02 10:00 UTC", "seconds": 1500, "cells": 9}]}
    (comparison / "about.json").write_text(json.dumps({**about, **sessions}))
    take_measured(comparison, pages)
    page = method_page("acpl", pages / MEASURED)
    assert "Not yet" not in page
    assert "`acpl compare --methods all`" in page
    assert "2 cores of Z80, torch 2.13, 25 minutes in all, 2026-01-02" in page
    assert (
        "| 0.05 | 2 of 3 | 90.00 [88.00, 91.00] | -1.00 [-2.00, +0.50] | 0.040 | 2 of 3 | 700 | 44,800 | 12 s |" in page
    )
    assert "Failed, seed 1: no luck." in page
    assert "| 0.05 | 1 of 3 | 91.00 [89.00, 92.00] |  |  | 3 of 3 |" in method_page("supervised", pages / MEASURED)
    assert "| 0.05 |  | failed |  |  | 0 of 3 |" in method_page("ups", pages / MEASURED)

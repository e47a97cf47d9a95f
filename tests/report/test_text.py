"""What tables write alike."""

import pytest

from acpl.report.text import in_latex, p_value


@pytest.mark.parametrize(
    ("p", "text"), [(1.0, "1.000"), (0.0314, "0.031"), (0.001, "0.001"), (0.0009, "< 0.001"), (0.0, "< 0.001")]
)
def test_no_p_is_written_as_nothing(p: float, text: str) -> None:
    assert p_value(p) == text


@pytest.mark.parametrize("p", [None, float("nan")])
def test_a_p_that_is_not_there_is_said(p: float | None) -> None:
    assert p_value(p) == "not tested"


def test_latex_gets_no_commands() -> None:
    assert in_latex("5 % & a_b # < ± ×") == r"5 \% \& a\_b \# $<$ $\pm$ $\times$"

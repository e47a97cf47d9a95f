"""How tables write what several of them have."""

from math import isnan

LEAST = 0.001
_LATEX = {
    **{"%": r"\%", "&": r"\&", "_": r"\_", "#": r"\#"},
    **{"±": r"$\pm$", "×": r"$\times$", "<": "$<$", "−": "--", "–": "--"},
}


def p_value(p: float | None) -> str:
    """Three digits; never 0, which no p is; words where nothing could be tested (None or NaN)."""
    if p is None or isnan(p):
        return "not tested"
    return f"< {LEAST}" if p < LEAST else f"{p:.3f}"


def in_latex(text: str) -> str:
    """Without what LaTeX would take for a command."""
    return "".join(_LATEX.get(letter, letter) for letter in text)

"""How tables write what several of them have."""

LEAST = 0.001
_LATEX = {
    **{"%": r"\%", "&": r"\&", "_": r"\_", "#": r"\#"},
    **{"±": r"$\pm$", "×": r"$\times$", "<": "$<$", "−": "--", "–": "--"},
}


def p_value(p: float) -> str:
    """Three digits; never 0, which no p is."""
    return f"< {LEAST}" if p < LEAST else f"{p:.3f}"


def in_latex(text: str) -> str:
    """Without what LaTeX would take for a command."""
    return "".join(_LATEX.get(letter, letter) for letter in text)

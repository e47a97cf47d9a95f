"""The one exception that is shown to a person."""


class UserError(Exception):
    """A mistake in what was asked for, told in one sentence.

    The shell prints it without a traceback and exits with code 2.
    """


class SaidElsewhereError(UserError):
    """The same, where another process of the run tells it: this one ends with code 2 and without a word."""

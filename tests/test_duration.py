"""A time in words: one way for all who say one."""

import pytest

from acpl.duration import duration


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        *((0, "0.0 s"), (3.21, "3.2 s"), (9.94, "9.9 s"), (9.97, "10 s"), (40, "40 s"), (89, "89 s")),
        *((90, "2 min"), (750, "12 min"), (3569, "59 min"), (3599, "1 h 00 min"), (11_100, "3 h 05 min")),
    ],
)
def test_a_time_is_said_as_a_person_would(seconds: float, words: str) -> None:
    assert duration(seconds) == words

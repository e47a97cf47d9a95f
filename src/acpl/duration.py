"""A time as a person would say it; the same words in the shell, in logs and on the page."""


def duration(seconds: float) -> str:
    """Tenths below ten seconds, minutes from a minute and a half on, hours from an hour on.

    >>> duration(2.5), duration(40), duration(750), duration(11_100)
    ('2.5 s', '40 s', '12 min', '3 h 05 min')
    """
    if seconds < 90:
        return f"{seconds:.1f} s" if round(seconds, 1) < 10 else f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"

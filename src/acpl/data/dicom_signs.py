"""How a DICOM file is known: by its first bytes, whatever it is called."""

from typing import Literal, NamedTuple

DICOM_HEADER = 132
"""Bytes that are looked at: 128 free ones and the letters DICM, or the first elements where an old file has neither."""
SHORT_VALUES = tuple(b"AE AS AT CS DA DS DT FD FL IS LO LT PN SH SL SS ST TM UI UL US".split())
LONG_VALUES = tuple(b"OB OD OF OL OV OW SQ SV UC UN UR UT UV".split())
"""Kinds of value whose length takes four bytes rather than two."""
FILE_META, IDENTIFYING, PATIENT = 0x0002, 0x0008, 0x0010
"""Groups of elements: a file begins with one of the first two."""
COUNTS = (0x0000, 0x0001)
"""Elements of each group that hold a length, in four bytes; what follows them is text."""


class _Element(NamedTuple):
    group: int
    number: int
    value: bytes
    """What of it lies within the bytes that are looked at."""
    end: int


def looks_like_dicom(content: bytes) -> bool:
    """Whether this file, or what begins with these ``DICOM_HEADER`` bytes, is DICOM.

    Files of old archives begin at once with elements of group 2 or 8. Two must be there, sound and in order: the
    number of a group alone begins other files, too.
    """
    head = content[:DICOM_HEADER]
    return head[128:] == b"DICM" or _explicit(head, "little") or _explicit(head, "big") or _implicit(head)


def _explicit(head: bytes, order: Literal["little", "big"]) -> bool:
    """Elements that name the kind of their value."""

    def element(place: int) -> _Element | None:
        kind = head[place + 4 : place + 6]
        if kind in LONG_VALUES:
            return _element(head, place, place + 8, 4, order)
        return _element(head, place, place + 6, 2, order) if kind in SHORT_VALUES else None

    first = element(0)
    return first is not None and _in_order(first, element(first.end))


def _implicit(head: bytes) -> bool:
    """Elements that do not; of them, a length takes four bytes and all else is text."""
    first = _element(head, 0, 4, 4, "little")
    second = None if first is None else _element(head, first.end, first.end + 4, 4, "little")
    return (
        first is not None
        and second is not None
        and bool(first.value or second.value)
        and _in_order(first, second)
        and all(
            len(element.value) == 4 if element.number in COUNTS else _is_text(element.value)
            for element in (first, second)
        )
    )


def _element(head: bytes, place: int, measure: int, width: int, order: Literal["little", "big"]) -> _Element | None:
    """The element at ``place`` whose length stands in ``width`` bytes at ``measure``; None where there is none."""
    start = measure + width
    length = int.from_bytes(head[measure:start], order)
    if start > len(head) or length % 2:
        return None
    group, number = (int.from_bytes(head[place + half : place + half + 2], order) for half in (0, 2))
    return _Element(group, number, head[start : start + length], start + length)


def _in_order(first: _Element, second: _Element | None) -> bool:
    return (
        second is not None
        and first.group in (FILE_META, IDENTIFYING)
        and second.group <= PATIENT
        and first[:2] < second[:2]
        and second.number > 0  # a group of one element is less likely than numbers of four bytes
    )


def _is_text(value: bytes) -> bool:
    return all(byte >= 0x20 for byte in value.rstrip(b"\0"))

"""Colours of sixteen bits a channel: all of them count, and they are stretched as grey values are."""

import struct
import zlib
from typing import Literal

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image
from tests.hostile.corpus import encoded, png

from acpl.data.decode import BadImage, Decoding, decode, is_grey

SIDE = 16
Wide = npt.NDArray[np.uint16]
Order = Literal["<", ">"]
GREY, RGB, GREY_ALPHA, RGB_ALPHA = 0, 2, 4, 6


def colours(top: int, channels: int = 3) -> Wide:
    return np.random.default_rng(0).integers(0, top, (SIDE, SIDE, channels)).astype(np.uint16)


def with_alpha(values: Wide, alpha: int = 65535) -> Wide:
    return np.dstack([values, np.full((SIDE, SIDE), alpha, np.uint16)])


def stretched(values: Wide) -> npt.NDArray[np.float64]:
    wide = values.astype(np.float64)
    return 255 * (wide - wide.min()) / (wide.max() - wide.min())


def levels(content: bytes) -> npt.NDArray[np.int64]:
    return decode(content, Decoding(SIDE, 3)).transpose(1, 2, 0).astype(np.int64)


def as_png(values: Wide, colour: int = RGB) -> bytes:
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    return png(SIDE, SIDE, zlib.compress(rows), depth=16, colour=colour)


def as_tiff(values: Wide, order: Order, *, apart: bool, packed: bool, extra: int = 2) -> bytes:
    """Pillow reads these, but writes none; ``apart``: a plane a channel."""
    channels = values.shape[2]
    planes = values.transpose(2, 0, 1) if apart else values[None]
    strips = [np.ascontiguousarray(plane).astype(f"{order}u2").tobytes() for plane in planes]
    strips = [zlib.compress(strip) for strip in strips] if packed else strips
    body, places = b"", []
    for strip in strips:
        places.append(8 + len(body))
        body += strip + bytes(len(strip) % 2)
    short, long = (3, "H"), (4, "I")
    tags = [
        (256, long, [SIDE]),
        (257, long, [SIDE]),
        (258, short, [16] * channels),
        (259, short, [8 if packed else 1]),
        (262, short, [2]),
        (273, long, places),
        (277, short, [channels]),
        (278, long, [SIDE]),
        (279, long, [len(strip) for strip in strips]),
        (284, short, [2 if apart else 1]),
        *([(338, short, [extra])] if channels == 4 else []),
    ]
    entries = b""
    for tag, (kind, letter), numbers in tags:
        value = struct.pack(f"{order}{len(numbers)}{letter}", *numbers)
        if len(value) > 4:
            place, body = 8 + len(body), body + value + bytes(len(value) % 2)
            value = struct.pack(f"{order}I", place)
        entries += struct.pack(f"{order}HHI", tag, kind, len(numbers)) + value.ljust(4, b"\0")
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", 8 + len(body))
    return head + body + struct.pack(f"{order}H", len(tags)) + entries + bytes(4)


@pytest.mark.parametrize("top", [65536, 4096, 300])
class TestAllSixteenBits:
    def test_of_a_png_count(self, top: int) -> None:
        values = colours(top)
        assert np.abs(levels(as_png(values)) - stretched(values)).max() <= 0.5
        assert np.abs(levels(as_png(with_alpha(values), RGB_ALPHA)) - stretched(values)).max() <= 0.5

    def test_of_grey_with_alpha_count(self, top: int) -> None:
        values = colours(top, 1)
        assert np.abs(levels(as_png(with_alpha(values), GREY_ALPHA)) - stretched(values)).max() <= 0.5

    @pytest.mark.parametrize("packed", [False, True])
    @pytest.mark.parametrize("order", ["<", ">"])
    def test_of_a_tiff_count(self, top: int, order: Order, packed: bool) -> None:
        values = colours(top)
        for content in (
            as_tiff(values, order, apart=False, packed=packed),
            as_tiff(with_alpha(values), order, apart=False, packed=packed),
            as_tiff(with_alpha(values, 77), order, apart=False, packed=packed, extra=0),
        ):
            assert np.abs(levels(content) - stretched(values)).max() <= 0.5

    @pytest.mark.parametrize("order", ["<", ">"])
    def test_of_planes_that_lie_apart_count(self, top: int, order: Order) -> None:
        values = colours(top)
        for pixels in (values, with_alpha(values)):
            content = as_tiff(pixels, order, apart=True, packed=False)
            assert np.abs(levels(content) - stretched(values)).max() <= 0.5


@pytest.mark.parametrize("order", ["<", ">"])
def test_the_upper_eight_count_in_packed_planes(order: Order) -> None:
    values = colours(65536)
    assert np.abs(levels(as_tiff(values, order, apart=True, packed=True)) - values / 257).max() <= 1


def test_grey_is_the_same_in_one_channel_and_in_three() -> None:
    grey = colours(4096, 1)
    in_three = as_png(np.repeat(grey, 3, axis=2))
    assert (levels(in_three) == levels(as_png(grey, GREY))).all()
    assert is_grey(in_three)
    assert not is_grey(as_png(colours(4096)))


def test_colours_keep_their_relation() -> None:
    values = np.zeros((SIDE, SIDE, 3), np.uint16)
    values[..., 0], values[0, 0] = 1000, (4000, 2000, 0)
    shown = levels(as_png(values))
    assert shown[0, 0].tolist() == [255, 128, 0]
    assert shown[5, 5].tolist() == [64, 0, 0]


def test_transparent_is_black_and_does_not_count() -> None:
    values = colours(1000) + np.uint16(500)
    seen = with_alpha(values)
    seen[:4] = (60000, 60000, 60000, 0)
    shown = levels(as_png(seen, RGB_ALPHA))
    assert not shown[:4].any()
    assert np.abs(shown[4:] - stretched(values[4:])).max() <= 0.5


def test_a_turned_photograph_is_upright() -> None:
    values = colours(4096)
    exif = Image.Exif()
    exif[0x0112] = 6
    raw = exif.tobytes().removeprefix(b"Exif\0\0")
    content = as_png(np.ascontiguousarray(np.rot90(values)))
    at = content.index(b"IDAT") - 4
    note = struct.pack(">I", len(raw)) + b"eXIf" + raw + struct.pack(">I", zlib.crc32(b"eXIf" + raw))
    assert np.abs(levels(content[:at] + note + content[at:]) - stretched(values)).max() <= 0.5


def test_eight_bits_a_channel_stay_what_they_are() -> None:
    values = (colours(100) + 50).astype(np.uint8)
    for kind in ("PNG", "TIFF"):
        assert (levels(encoded(Image.fromarray(values), kind)) == values).all()


def test_a_file_that_ends_too_early_is_bad() -> None:
    whole = as_png(colours(4096))
    with pytest.raises(BadImage, match="truncated"):
        decode(whole[: len(whole) // 2], Decoding(SIDE, 3))

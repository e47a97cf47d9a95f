"""How a file is broken: cut at every kind of place, told another size, and mutated at random."""

import random
import re
import struct
import zlib
from collections.abc import Iterator

from tests.hostile.corpus import chunk

SIZES = (0, 1, 2**15, 2**16 - 1, 2**31 - 1, 2**32 - 1)
NUMBERS = (0, 1, 2, 3, 127, 128, 255, 256, 2**15 - 1, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1)


def cuts(content: bytes) -> Iterator[bytes]:
    """Its beginnings: within the magic number, in the header, in the pixels, just before the end."""
    places = {*range(17), 24, 26, 33, 54, 62, 127, 128, 131, 132, 140, 144, 256, 300}
    places |= {len(content) * part // 16 for part in range(1, 16)}
    places |= {len(content) - last for last in range(1, 10)}
    for place in sorted(places):
        if 0 <= place < len(content):
            yield content[:place]


def resized(content: bytes, width: int, height: int) -> Iterator[bytes]:
    """The same file under headers of these numbers, wherever a pair of its own could be the picture's size."""
    for number in (2, 4):
        for order in "<>":
            kind = f"{order}{'HH' if number == 2 else 'II'}"
            for real in ((width, height), (height, width)):
                found = content.find(struct.pack(kind, *real))
                if found < 0:
                    continue
                for size in SIZES:
                    if size < 2 ** (8 * number):
                        yield _patched(content, found, struct.pack(kind, size, size))
                        yield _patched(content, found, struct.pack(kind, size, real[1]))
                        yield _patched(content, found, struct.pack(kind, real[0], size))


def mutated(content: bytes, others: list[bytes], chance: random.Random) -> bytes:
    """One to six small harms, sometimes with the checksums made good, so that what lies behind them is reached."""
    data = bytearray(content)
    for _ in range(chance.randint(1, 6)):
        if data:
            chance.choice(HARMS)(data, others, chance)
    if data[:4] == b"\x89PNG" and chance.random() < 0.7:
        return _png_with_checksums(bytes(data))
    return bytes(data)


def _place(data: bytearray, chance: random.Random) -> int:
    """Anywhere, but in the first bytes half of the time: headers lead decoders further astray than pixels do."""
    return chance.randrange(min(len(data), 400) if chance.random() < 0.5 else len(data))


def _flip(data: bytearray, others: list[bytes], chance: random.Random) -> None:
    data[_place(data, chance)] ^= 1 << chance.randrange(8)


def _byte(data: bytearray, others: list[bytes], chance: random.Random) -> None:
    data[_place(data, chance)] = chance.choice((0, 1, 127, 128, 254, 255, chance.randrange(256)))


def _number(data: bytearray, others: list[bytes], chance: random.Random) -> None:
    kind, value = chance.choice(("<H", ">H", "<I", ">I")), chance.choice(NUMBERS)
    packed = struct.pack(kind, value % (2**16 if kind[1] == "H" else 2**32))
    place = _place(data, chance)
    data[place : place + len(packed)] = packed


def _cut(data: bytearray, others: list[bytes], chance: random.Random) -> None:
    del data[_place(data, chance) :]


def _remove(data: bytearray, others: list[bytes], chance: random.Random) -> None:
    place = _place(data, chance)
    del data[place : place + chance.randint(1, 64)]


def _repeat(data: bytearray, others: list[bytes], chance: random.Random) -> None:
    place = _place(data, chance)
    data[place:place] = data[place : place + chance.randint(1, 200)] * chance.randint(1, 20)


def _insert(data: bytearray, others: list[bytes], chance: random.Random) -> None:
    place = _place(data, chance)
    data[place:place] = chance.randbytes(chance.randint(1, 64))


def _graft(data: bytearray, others: list[bytes], chance: random.Random) -> None:
    other = chance.choice(others)
    start = chance.randrange(len(other))
    place = _place(data, chance)
    data[place:] = other[start : start + 20_000]


def _shuffle(data: bytearray, others: list[bytes], chance: random.Random) -> None:
    place = _place(data, chance)
    piece = list(data[place : place + 32])
    chance.shuffle(piece)
    data[place : place + 32] = bytes(piece)


HARMS = (_flip, _byte, _byte, _number, _number, _cut, _remove, _repeat, _insert, _graft, _shuffle)


def _patched(content: bytes, place: int, new: bytes) -> bytes:
    patched = content[:place] + new + content[place + len(new) :]
    return _png_with_checksums(patched) if patched[:4] == b"\x89PNG" else patched


def _png_with_checksums(content: bytes) -> bytes:
    """Every chunk's checksum computed anew, as a file has it that was made to deceive."""
    place, parts = 8, [content[:8]]
    while place + 12 <= len(content):
        length = struct.unpack_from(">I", content, place)[0]
        name, data = content[place + 4 : place + 8], content[place + 8 : place + 8 + length]
        if len(data) < length or not re.fullmatch(rb"[A-Za-z]{4}", name):
            break
        parts.append(chunk(name, data))
        place += 12 + length
    return b"".join([*parts, content[place:]])


def checksum(content: bytes) -> str:
    """A short name for a file that did something."""
    return f"{zlib.crc32(content):08x}"

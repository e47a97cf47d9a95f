"""The grey values of a DICOM file as its own tables, windows and bits show them (PS3.3 C.7.6.16, C.11.1, C.11.2)."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from acpl.data.files import BadImage

if TYPE_CHECKING:
    from pydicom import Dataset

Values = npt.NDArray[Any]
Shares = npt.NDArray[np.float64]
EIGHT = 8
"""Values of so many bits stay what they are, as in a PNG; wider ones are stretched."""
PER_FRAME, SHARED = "PerFrameFunctionalGroupsSequence", "SharedFunctionalGroupsSequence"


class _Table(NamedTuple):
    """A lookup table: its entries, the value that the first belongs to, and the bits that an entry may take."""

    entries: Values
    first: int
    bits: int

    def __call__(self, values: Values) -> Values:
        """The entry of each value; those beyond an end have the entry at that end."""
        places = (values.astype(np.float64) - self.first).round().clip(0, len(self.entries) - 1)
        return np.asarray(self.entries[places.astype(np.int64)])


class _Range(NamedTuple):
    """The least and the greatest that values can be, whatever they are in this picture, in so many bits."""

    least: float
    greatest: float
    bits: int


def grey_levels(stored: Values, dataset: "Dataset", words: Callable[[], Values]) -> npt.NDArray[np.uint8]:
    """Stored values to 0 (black) … 255; ``words`` gives them with the bits beyond BitsStored that are cleared else."""
    values, possible = _rescaled(stored, dataset)
    if not np.isfinite(values).all():
        raise BadImage("it holds values that are not numbers")
    padding = _padding(stored, dataset, words)
    shares = _shown(values, possible, padding, dataset)
    if dataset.PhotometricInterpretation == "MONOCHROME1":
        shares = 1 - shares
    shares[padding] = 0
    if not np.isfinite(shares).all():
        raise BadImage("its scale of grey values leads out of what numbers can hold")
    return (255 * shares).round().astype(np.uint8)


def windowed(values: Shares, centre: float, width: float, function: str = "LINEAR") -> Shares:
    """Shares of white in [0, 1] of a window, PS3.3 C.11.2.1.2 and C.11.2.1.3."""
    if function == "SIGMOID":
        return np.asarray(1 / (1 + np.exp((-4 * (values - centre) / width).clip(-700, 700))))
    if function == "LINEAR":
        centre, width = centre - 0.5, width - 1
    if width == 0:
        return (values > centre).astype(np.float64)
    return ((values - centre) / width + 0.5).clip(0, 1)


def _rescaled(stored: Values, dataset: "Dataset") -> tuple[Values, _Range]:
    """What the modality means by the stored values, by its table or its line, and the range of that."""
    where = _macro(dataset, "PixelValueTransformationSequence")
    possible = _stored_range(stored, dataset)
    if where.get("ModalityLUTSequence"):
        table = _table(where.ModalityLUTSequence[0], dataset, possible)
        return table(stored), _Range(0, 2**table.bits - 1, table.bits)
    slope, intercept = (_first_number(where.get(name)) for name in ("RescaleSlope", "RescaleIntercept"))
    if slope is None or intercept is None:
        return stored, possible
    ends = (possible.least * slope + intercept, possible.greatest * slope + intercept)
    return stored.astype(np.float64) * slope + intercept, _Range(min(ends), max(ends), possible.bits)


def _stored_range(stored: Values, dataset: "Dataset") -> _Range:
    if stored.dtype.kind == "f":
        return _Range(-np.inf, np.inf, 8 * stored.dtype.itemsize)
    bits = int(dataset.BitsStored)
    return _Range(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1, bits) if _signed(stored) else _Range(0, 2**bits - 1, bits)


def _signed(stored: Values) -> bool:
    return stored.dtype.kind == "i"


def _shown(values: Values, possible: _Range, padding: npt.NDArray[np.bool_], dataset: "Dataset") -> Shares:
    """Values to shares of white in [0, 1]."""
    where = _macro(dataset, "FrameVOILUTSequence")
    if where.get("VOILUTSequence"):
        table = _table(where.VOILUTSequence[0], dataset, possible)
        looked_up: Shares = table(values).astype(np.float64) / (2**table.bits - 1)
        return looked_up.clip(0, 1)
    window = _window(where)
    if window is not None:
        return windowed(values.astype(np.float64), *window)
    least, greatest, bits = possible
    if bits > EIGHT:
        known = values[~padding] if not padding.all() else values
        least, greatest = float(known.min()), float(known.max())
    return ((values.astype(np.float64) - least) / ((greatest - least) or 1.0)).clip(0, 1)


def _macro(dataset: "Dataset", name: str) -> "Dataset":
    """Where the settings of this kind stand: in the frame's functional group, in that of all frames, or at the top."""
    for groups in (PER_FRAME, SHARED):
        for group in list(dataset.get(groups) or ())[:1]:
            for macro in list(group.get(name) or ())[:1]:
                return macro
    return dataset


def _table(item: "Dataset", dataset: "Dataset", possible: _Range) -> _Table:
    """The table for values of this range; PS3.3 C.11.1.1.1."""
    count, first, bits = (int(number) for number in item.LUTDescriptor)
    if not 1 <= bits <= 16:
        raise BadImage(f"it has a table of grey values of {bits} bits, which cannot be read")
    if first >= 2**15 and possible.least < 0:  # written as a number without a sign
        first -= 2**16
    return _Table(_entries(item, count or 2**16, bits, dataset), first, bits)


def _entries(item: "Dataset", count: int, bits: int, dataset: "Dataset") -> Values:
    """Eight bits each are two to a word; some files give them a word each, which only the length tells."""
    data = item["LUTData"].value
    if isinstance(data, bytes):
        little = item["LUTData"].VR == "OB" or dataset.original_encoding[1] is not False
        words = np.frombuffer(data[: len(data) // 2 * 2], dtype="<u2" if little else ">u2").astype("<u2")
    else:
        words = (np.atleast_1d(np.asarray(data, dtype=np.int64)) & 0xFFFF).astype("<u2")
    entries = words.view(np.uint8) if bits <= EIGHT and len(words) == (count + 1) // 2 else words
    if len(entries) < count:
        raise BadImage("it has a table of grey values that is shorter than it says")
    return np.asarray(entries[:count])


def _window(where: "Dataset") -> tuple[float, float, str] | None:
    """Centre, width and function of the first window; one that the standard forbids counts as none."""
    centre, width = (_first_number(where.get(name)) for name in ("WindowCenter", "WindowWidth"))
    function = str(where.get("VOILUTFunction") or "LINEAR").upper()
    least = 1.0 if function == "LINEAR" else 1e-9
    if centre is None or width is None or width < least or function not in ("LINEAR", "LINEAR_EXACT", "SIGMOID"):
        return None
    return centre, width, function


def _padding(stored: Values, dataset: "Dataset", words: Callable[[], Values]) -> npt.NDArray[np.bool_]:
    """Where no picture was taken: the padding value, or the range from it to its limit."""
    names = ("PixelPaddingValue", "PixelPaddingRangeLimit")
    first, limit = (_as_stored(_first_number(dataset.get(name)), stored) for name in names)
    if first is None:
        return np.zeros(stored.shape, dtype=bool)
    low, high = sorted((first, first if limit is None else limit))
    possible = _stored_range(stored, dataset)
    if low < possible.least or high > possible.greatest:
        stored = words()
    return (stored >= low) & (stored <= high)


def _as_stored(value: float | None, stored: Values) -> float | None:
    """A padding value as pixels can have it: files give 65535 as -1, and -2000 as 63536; None where none can."""
    if value is None or stored.dtype.kind == "f":
        return value
    least, greatest = np.iinfo(stored.dtype).min, np.iinfo(stored.dtype).max
    allocated = 2 ** (8 * stored.dtype.itemsize)
    for written in (value, value + 2**16, value - 2**16, value + allocated, value - allocated):
        if least <= written <= greatest:
            return written
    return None


def _first_number(value: Any) -> float | None:
    from pydicom.multival import MultiValue

    if isinstance(value, MultiValue):
        value = value[0] if len(value) else None
    number = None if value is None or value == "" else float(value)
    return number if number is not None and np.isfinite(number) else None

"""Grey values of DICOM files: what their bits, tables, functional groups and padding say."""

import io
from collections.abc import Callable
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image
from pydicom import Dataset, dcmwrite
from pydicom.uid import ExplicitVRBigEndian, ImplicitVRLittleEndian
from tests.hostile.corpus import dicom, encoded, written

from acpl.data.decode import BadImage, Decoding, decode

SIDE = 16
RAMP = np.tile(np.arange(SIDE) * 100, (SIDE, 1)).astype(np.uint16)
Item = dict[str, object]


def levels(content: Dataset | bytes) -> npt.NDArray[np.int64]:
    """(height, width), as they come out of the decoder."""
    content = content if isinstance(content, bytes) else written(content)
    return decode(content, Decoding(SIDE, 1))[0].astype(np.int64)


def item(**tags: object) -> Dataset:
    made = Dataset()
    for name, value in tags.items():
        setattr(made, name, value)
    return made


def some(low: int, high: int, kind: type[np.generic]) -> npt.NDArray[np.generic]:
    return np.random.default_rng(1).integers(low, high, (SIDE, SIDE)).astype(kind)


class TestEightBits:
    PICTURE = some(50, 90, np.uint8)

    @pytest.mark.parametrize(("slope", "intercept"), [(1, 0), (1, -1024), (2.5, 7), ("", "")])
    def test_have_the_range_of_eight_bits_whatever_they_are_rescaled_to(self, slope: object, intercept: object) -> None:
        as_png = levels(encoded(Image.fromarray(self.PICTURE), "PNG"))
        rescaled = dicom(self.PICTURE, RescaleSlope=slope, RescaleIntercept=intercept)
        assert (levels(rescaled) == as_png).all()
        rescaled.PhotometricInterpretation = "MONOCHROME1"
        assert (levels(rescaled) == 255 - as_png).all()

    def test_are_turned_over_by_a_falling_line(self) -> None:
        assert (levels(dicom(self.PICTURE, RescaleSlope=-1, RescaleIntercept=0)) == 255 - self.PICTURE).all()

    def test_may_lie_in_words(self) -> None:
        in_words = dicom(self.PICTURE.astype(np.uint16), BitsStored=8, HighBit=7)
        assert (levels(in_words) == self.PICTURE).all()

    def test_may_have_a_sign(self) -> None:
        signed = (self.PICTURE.astype(np.int16) - 128).astype(np.int8)
        assert (levels(dicom(signed)) == self.PICTURE).all()

    def test_are_still_seen_through_a_window(self) -> None:
        through = levels(dicom(self.PICTURE, RescaleSlope=1, RescaleIntercept=-60, WindowCenter=10.5, WindowWidth=21))
        assert np.abs(through - 255 * ((self.PICTURE - 60.0) / 20).clip(0, 1)).max() <= 0.5

    def test_may_come_out_of_the_modalitys_table(self) -> None:
        table = item(LUTDescriptor=[4096, 0, 8], LUTData=(np.arange(4096) // 32).astype(np.uint8).tobytes())
        table["LUTData"].VR = "OW"
        assert (levels(dicom(RAMP, ModalityLUTSequence=[table])) == RAMP // 32).all()


def test_wider_values_are_stretched_with_and_without_a_line() -> None:
    plain = levels(dicom(RAMP))
    assert plain[0].tolist() == np.linspace(0, 255, SIDE).tolist()
    assert (levels(dicom(RAMP, RescaleSlope=2, RescaleIntercept=-1024)) == plain).all()


def test_floating_values_say_nothing_of_bits() -> None:
    dataset = dicom(RAMP)
    for name in ("BitsStored", "HighBit", "PixelRepresentation", "PixelData"):
        delattr(dataset, name)
    dataset.BitsAllocated = 32
    dataset.FloatPixelData = (RAMP / 7).astype(np.float32).tobytes()
    assert (levels(dataset) == levels(dicom(RAMP))).all()


LINE = np.linspace(0, 255, 1600).round().astype(np.uint8)
FORMS: dict[str, Callable[[Dataset], object]] = {
    "a word an entry": lambda table: table.add_new("LUTData", "US", LINE.astype(int).tolist()),
    "a word an entry, as bytes": lambda table: table.add_new("LUTData", "OW", LINE.astype("<u2").tobytes()),
    "two entries a word": lambda table: table.add_new("LUTData", "US", LINE.view("<u2").astype(int).tolist()),
    "two entries a word, as bytes": lambda table: table.add_new("LUTData", "OW", LINE.tobytes()),
}


class TestTables:
    @pytest.mark.parametrize("form", FORMS)
    def test_of_eight_bits_do_not_wrap_round(self, form: str) -> None:
        table = item(LUTDescriptor=[1600, 0, 8])
        FORMS[form](table)
        assert (levels(dicom(RAMP, VOILUTSequence=[table])) == LINE[RAMP]).all()

    def test_of_eight_bits_are_read_in_the_other_byte_order(self) -> None:
        table = item(LUTDescriptor=[1600, 0, 8])
        table.add_new("LUTData", "OW", LINE.view("<u2").astype(">u2").tobytes())
        dataset = dicom(RAMP, VOILUTSequence=[table])
        dataset.PixelData = RAMP.astype(">u2").tobytes()
        dataset["PixelData"].VR = "OW"
        dataset.file_meta.TransferSyntaxUID = ExplicitVRBigEndian
        file = io.BytesIO()
        dcmwrite(file, dataset, implicit_vr=False, little_endian=False, enforce_file_format=True)
        assert (levels(file.getvalue()) == LINE[RAMP]).all()

    @pytest.mark.parametrize("bits", [8, 10, 12, 16])
    def test_reach_white_at_the_end_of_their_own_bits(self, bits: int) -> None:
        table = item(LUTDescriptor=[2, 700, bits])
        table.add_new("LUTData", "US", [0, 2**bits - 1])
        assert levels(dicom(RAMP, VOILUTSequence=[table]))[0].tolist() == [0] * 8 + [255] * 8

    def test_may_begin_below_zero_without_a_sign(self) -> None:
        table = item(LUTData=(np.arange(1600) * 40).tolist())
        table["LUTData"].VR = "US"
        table.add_new("LUTDescriptor", "US", [1600, 65536 - 1000, 16])
        shown = levels(dicom(RAMP, RescaleSlope=1, RescaleIntercept=-1000, VOILUTSequence=[table]))
        assert (shown == (RAMP * 40.0 / 65535 * 255).round()).all()

    def test_that_end_too_early_are_named(self) -> None:
        table = item(LUTDescriptor=[1600, 0, 16])
        table.add_new("LUTData", "US", list(range(1500)))
        with pytest.raises(BadImage, match="shorter than it says"):
            levels(dicom(RAMP, VOILUTSequence=[table]))


class TestFunctionalGroups:
    WINDOW: ClassVar[Item] = {"WindowCenter": 500, "WindowWidth": 200}
    LINE: ClassVar[Item] = {"RescaleSlope": 1, "RescaleIntercept": -100, "RescaleType": "US"}
    WANTED = levels(dicom(RAMP, **WINDOW, **LINE))

    @pytest.mark.parametrize("groups", ["SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence"])
    def test_hold_the_window_and_the_line(self, groups: str) -> None:
        group = item(FrameVOILUTSequence=[item(**self.WINDOW)], PixelValueTransformationSequence=[item(**self.LINE)])
        assert (levels(dicom(RAMP, NumberOfFrames=1, **{groups: [group]})) == self.WANTED).all()

    def test_may_each_hold_one(self) -> None:
        shared = item(PixelValueTransformationSequence=[item(**self.LINE)])
        frame = item(FrameVOILUTSequence=[item(**self.WINDOW)])
        dataset = dicom(RAMP, SharedFunctionalGroupsSequence=[shared], PerFrameFunctionalGroupsSequence=[frame])
        assert (levels(dataset) == self.WANTED).all()

    def test_without_either_leave_it_to_the_top(self) -> None:
        dataset = dicom(RAMP, SharedFunctionalGroupsSequence=[item()], **self.WINDOW, **self.LINE)
        assert (levels(dataset) == self.WANTED).all()

    def test_may_hold_a_table(self) -> None:
        table = item(LUTDescriptor=[1600, 0, 8])
        table.add_new("LUTData", "OW", LINE.tobytes())
        shared = item(FrameVOILUTSequence=[item(VOILUTSequence=[table])])
        assert (levels(dicom(RAMP, SharedFunctionalGroupsSequence=[shared])) == LINE[RAMP]).all()


class TestPadding:
    @pytest.mark.parametrize(
        ("kind", "word", "kind_of_value", "value"),
        [
            (np.uint16, 65535, "US", 65535),
            (np.uint16, 65535, "SS", -1),
            (np.int16, -2000, "SS", -2000),
            (np.int16, -2000, "US", 63536),
        ],
    )
    @pytest.mark.parametrize("photometric", ["MONOCHROME1", "MONOCHROME2"])
    @pytest.mark.parametrize("window", [{}, {"WindowCenter": 750, "WindowWidth": 1501}])
    def test_is_known_with_and_without_a_sign(
        self,
        kind: type[np.generic],
        word: int,
        kind_of_value: str,
        value: int,
        photometric: str,
        window: Item,
    ) -> None:
        padded = RAMP.astype(kind)
        padded[:4] = word
        dataset = dicom(padded, PhotometricInterpretation=photometric, **window)
        dataset.add_new("PixelPaddingValue", kind_of_value, value)
        wanted = levels(dicom(RAMP.astype(kind), PhotometricInterpretation=photometric, **window))
        assert not levels(dataset)[:4].any()
        assert (levels(dataset)[4:] == wanted[4:]).all()

    def test_may_be_a_range_with_false_signs(self) -> None:
        padded = RAMP.astype(np.int16)
        padded[:4] = some(-2000, -1000, np.int16)[:4]
        dataset = dicom(padded)
        dataset.add_new("PixelPaddingValue", "US", 63536)
        dataset.add_new("PixelPaddingRangeLimit", "US", 65536 - 1000)
        assert not levels(dataset)[:4].any()
        assert (levels(dataset)[4:] == levels(dicom(RAMP))[4:]).all()

    def test_may_lie_beyond_the_bits_stored(self) -> None:
        padded = RAMP + np.uint16(2595)  # to the greatest of twelve bits, which is no padding
        padded[:4] = 65535
        dataset = dicom(padded, BitsStored=12, HighBit=11)
        dataset.add_new("PixelPaddingValue", "US", 65535)
        assert not levels(dataset)[:4].any()
        assert (levels(dataset)[4:] == levels(dicom(RAMP))[4:]).all()

    @pytest.mark.parametrize("value", [-2000, -3000])
    def test_that_no_pixel_can_have_blackens_nothing(self, value: int) -> None:
        picture = np.full((SIDE, SIDE), value % 256, np.uint8)
        dataset = dicom(picture)
        dataset.add_new("PixelPaddingValue", "SS", value)
        assert (levels(dataset) == picture).all()

    def test_is_known_where_the_file_names_no_kinds_of_value(self) -> None:
        padded = RAMP.copy()
        padded[:4] = 65535
        dataset = dicom(padded, PixelPaddingValue=65535)
        dataset.file_meta.TransferSyntaxUID = ImplicitVRLittleEndian
        assert not levels(dataset)[:4].any()
        assert levels(dataset).max() == 255

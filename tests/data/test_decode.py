"""Image files to pixels, against Pillow, NumPy and pydicom used directly."""

import io
import os
import struct
import warnings
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pydicom
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFile
from pydicom.dataset import Dataset
from pydicom.pixels import apply_modality_lut, apply_voi_lut
from pydicom.sequence import Sequence
from pydicom.uid import (
    MPEG2MPML,
    JPEGBaseline8Bit,
    JPEGLosslessSV1,
    RLELossless,
)
from tests.hostile.corpus import dicom, written

from acpl.data.decode import BadImage, Decoding, decode, is_grey
from acpl.data.dicom_grey import windowed

Array = npt.NDArray[np.generic]
SAMPLES = Path(pydicom.__file__).parent / "data" / "test_files"
SIDE = 32


def noise(height: int = SIDE, width: int = SIDE, channels: int = 3) -> npt.NDArray[np.uint8]:
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, channels), dtype=np.uint8)
    return pixels if channels > 1 else pixels[:, :, 0]


def scene(width: int = 640, height: int = 480) -> Image.Image:
    """Smooth, so that lossy formats keep it."""
    return Image.fromarray(noise(6, 8)).resize((width, height), Image.Resampling.BICUBIC)


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def as_image(content: bytes, channels: int = 3, size: int = SIDE) -> npt.NDArray[np.int64]:
    """(height, width, channels), signed, so that differences do not wrap round."""
    return decode(content, Decoding(size, channels)).transpose(1, 2, 0).astype(np.int64)


class TestModes:
    @pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "PPM", "WEBP", "GIF", "JPEG2000"])
    def test_what_is_kept_without_loss_comes_back_unchanged(self, kind: str) -> None:
        pixels = noise()
        image = Image.fromarray(pixels).quantize(64) if kind == "GIF" else Image.fromarray(pixels)
        content = encoded(image, kind, **({"lossless": True} if kind == "WEBP" else {}))
        assert (as_image(content) == np.asarray(image.convert("RGB"))).all()

    def test_grey_and_colour_become_each_other_as_pillow_does_it(self) -> None:
        colour = Image.fromarray(noise())
        grey = colour.convert("L")
        assert (as_image(encoded(colour), 1)[..., 0] == np.asarray(grey)).all()
        assert (as_image(encoded(grey), 3) == np.asarray(grey)[..., None]).all()

    def test_one_bit_is_black_and_white(self) -> None:
        bits = noise(channels=1) > 127
        assert (as_image(encoded(Image.fromarray(bits)), 1)[..., 0] == 255 * bits).all()

    @pytest.mark.parametrize("mode", ["LA", "RGBA"])
    def test_transparent_is_black(self, mode: str) -> None:
        pixels = noise(channels=len(mode))
        alpha = pixels[..., -1:] / 255.0
        by_hand = np.broadcast_to(pixels[..., :-1] * alpha, (SIDE, SIDE, 3))
        assert np.abs(as_image(encoded(Image.fromarray(pixels, mode))) - by_hand).max() <= 1

    def test_a_palettes_transparent_colour_is_black(self) -> None:
        image = Image.fromarray(noise(channels=1) % 4, "P")
        image.putpalette([200, 100, 50, 10, 20, 30, 255, 255, 255, 90, 80, 70])
        shown = np.array([[0, 0, 0], [10, 20, 30], [255, 255, 255], [90, 80, 70]])[np.asarray(image)]
        assert (as_image(encoded(image, transparency=0)) == shown).all()
        opaque = np.array([200, 100, 50])
        assert (as_image(encoded(image))[np.asarray(image) == 0] == opaque).all()

    @pytest.mark.parametrize("kind", ["JPEG", "TIFF"])
    def test_cmyk_is_not_inverted(self, kind: str) -> None:
        plain = scene(SIDE, SIDE)
        content = encoded(plain.convert("CMYK"), kind, **({"quality": 100} if kind == "JPEG" else {}))
        assert (b"Adobe" in content) == (kind == "JPEG")
        assert np.abs(as_image(content) - np.asarray(plain)).mean() < 3


class TestWideValues:
    @pytest.mark.parametrize(
        ("values", "kind"),
        [
            (np.linspace(0, 65535, SIDE).astype(np.uint16), "PNG"),
            (np.linspace(0, 4095, SIDE).astype(np.uint16), "PNG"),
            (np.linspace(32000, 34000, SIDE).astype(np.uint16), "PNG"),
            (np.linspace(0, 65535, SIDE).astype(np.uint16), "TIFF"),
            (np.linspace(0, 65535, SIDE).astype(np.uint16), "PPM"),
            (np.linspace(-1000, 3000, SIDE).astype(np.int32), "TIFF"),
            (np.linspace(-0.25, 0.5, SIDE).astype(np.float32), "TIFF"),
        ],
    )
    def test_are_stretched_from_least_to_greatest(self, values: Array, kind: str) -> None:
        content = encoded(Image.fromarray(np.tile(values, (SIDE, 1))), kind)
        assert as_image(content, 1)[0, :, 0].tolist() == pytest.approx(np.linspace(0, 255, SIDE).tolist(), abs=1)

    def test_a_flat_image_is_black(self) -> None:
        assert as_image(encoded(Image.fromarray(np.full((4, 4), 900, np.uint16))), 1).max() == 0

    def test_white_may_be_zero_in_sixteen_bits_too(self) -> None:
        ramp = np.tile(np.linspace(0, 65535, SIDE).astype(np.uint16), (SIDE, 1))
        content = encoded(Image.fromarray(ramp), "TIFF", tiffinfo={262: 0})
        with Image.open(io.BytesIO(content)) as written:
            assert written.tag_v2[262] == 0
        assert as_image(content, 1)[0, 0, 0] == 255

    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_what_is_no_number_is_bad(self, value: float) -> None:
        values = np.ones((8, 8), np.float32)
        values[3, 3] = value
        with pytest.raises(BadImage, match="not numbers"):
            decode(encoded(Image.fromarray(values), "TIFF"), Decoding(8, 1))


class TestGeometry:
    @pytest.mark.parametrize("orientation", range(1, 9))
    def test_a_turned_photograph_is_upright(self, orientation: int) -> None:
        upright = noise(24, 40)
        stored = {
            1: upright,
            2: upright[:, ::-1],
            3: upright[::-1, ::-1],
            4: upright[::-1],
            5: upright.transpose(1, 0, 2),
            6: np.rot90(upright, 1),
            7: upright[::-1, ::-1].transpose(1, 0, 2),
            8: np.rot90(upright, -1),
        }[orientation]
        exif = Image.Exif()
        exif[0x0112] = orientation
        content = encoded(Image.fromarray(np.ascontiguousarray(stored)), exif=exif)
        assert (as_image(content) == as_image(encoded(Image.fromarray(upright)))).all()

    def test_broken_camera_notes_do_not_cost_the_picture(self) -> None:
        image = Image.fromarray(noise())
        assert (as_image(encoded(image, exif=b"Exif\0\0II*\0\xff\xff\xff\xff")) == np.asarray(image)).all()

    def test_stretch_crop_and_pad(self) -> None:
        image = scene(60, 30)
        content, size = encoded(image), 30
        whole = decode(content, Decoding(size, 3))
        centre = decode(content, Decoding(size, 3, "crop"))
        padded = decode(content, Decoding(size, 3, "pad"))
        bicubic = Image.Resampling.BICUBIC
        assert (whole.transpose(1, 2, 0) == np.asarray(image.resize((30, 30), bicubic))).all()
        assert (centre.transpose(1, 2, 0) == np.asarray(image.crop((15, 0, 45, 30)))).all()
        assert not padded[:, :7].any()
        assert not padded[:, 22:].any()
        assert (padded[:, 7:22].transpose(1, 2, 0) == np.asarray(image.resize((30, 15), bicubic))).all()

    @pytest.mark.parametrize("aspect", ["stretch", "crop", "pad"])
    @pytest.mark.parametrize("shape", [(1, 1), (1, 900), (900, 1), (31, 33)])
    def test_every_shape_becomes_a_square(self, aspect: str, shape: tuple[int, int]) -> None:
        pixels = decode(encoded(Image.new("L", shape, 200)), Decoding(SIDE, 3, aspect))
        assert pixels.shape == (3, SIDE, SIDE)
        assert pixels.flags.writeable
        assert pixels.max() == 200

    @pytest.mark.parametrize("kind", ["PNG", "JPEG"])
    def test_a_fine_pattern_turns_grey_and_not_into_stripes(self, kind: str) -> None:
        stripes = np.tile(np.array([0, 255], np.uint8), (1024, 512))
        pixels = decode(encoded(Image.fromarray(stripes), kind), Decoding(64, 1))
        assert np.abs(pixels.astype(int) - 127).max() <= 8

    @pytest.mark.parametrize("channels", [1, 3])
    def test_a_shortened_jpeg_is_as_good_as_a_whole_one(self, channels: int) -> None:
        content = encoded(scene(1600, 1200), "JPEG", quality=95)
        with Image.open(io.BytesIO(content)) as image:
            whole = image.convert("L" if channels == 1 else "RGB").resize((64, 64), Image.Resampling.BICUBIC)
        plain = np.asarray(whole).reshape(64, 64, channels).astype(int)
        assert np.abs(as_image(content, channels, 64) - plain).mean() < 1


class TestGrey:
    def test_one_channel_or_equal_channels(self) -> None:
        grey = Image.fromarray(noise(channels=1))
        assert is_grey(encoded(grey))
        assert is_grey(encoded(grey.convert("RGB"), "JPEG"))
        assert is_grey(encoded(scene().convert("L").convert("RGB"), "WEBP"))
        assert is_grey(encoded(Image.fromarray(np.zeros((4, 4), np.uint16))))
        assert not is_grey(encoded(Image.fromarray(noise())))

    def test_one_coloured_pixel_is_colour(self) -> None:
        pixels = np.full((8, 8, 3), 100, np.uint8)
        pixels[4, 4, 0] = 120
        assert not is_grey(encoded(Image.fromarray(pixels)))

    def test_dicom_says_it_in_its_header(self) -> None:
        assert is_grey((SAMPLES / "CT_small.dcm").read_bytes())
        assert not is_grey((SAMPLES / "examples_rgb_color.dcm").read_bytes())


def huge_png(side: int) -> bytes:
    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(100))), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )


class TestBadFiles:
    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (b"", "empty"),
            (b"a note about a picture\n" * 50, "not an image"),
            (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n", "not an image"),
            (b"\x89PNG\r\n\x1a\n", ""),
            (encoded(scene())[:5000], "truncated"),
            (encoded(scene(), "JPEG")[:5000], "truncated"),
            (encoded(scene(), "BMP")[:5000], "truncated"),
            (huge_png(30_000), "30000 x 30000 pixels are more than the 178,956,970"),
            (huge_png(13_400), "13400 x 13400 pixels"),
        ],
    )
    def test_have_one_plain_reason(self, content: bytes, reason: str) -> None:
        for work in (lambda: decode(content, Decoding(SIDE, 1)), lambda: is_grey(content)):
            with pytest.raises(BadImage) as bad:
                work()
            assert reason in str(bad.value)
            assert "\n" not in str(bad.value)

    def test_the_callers_leniency_is_not_ours(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
        with pytest.raises(BadImage, match="truncated"):
            decode(encoded(scene())[:5000], Decoding(SIDE, 1))
        assert ImageFile.LOAD_TRUNCATED_IMAGES

    def test_threads_leave_the_processes_switches_as_they_were(self) -> None:
        before = list(warnings.filters)
        files = [encoded(scene(300, 200)), (SAMPLES / "MR_small_padded.dcm").read_bytes()] * 20
        with ThreadPoolExecutor(8) as threads:
            assert len({image.tobytes() for image in threads.map(lambda x: decode(x, Decoding(SIDE, 1)), files)}) == 2
        assert warnings.filters == before
        assert not ImageFile.LOAD_TRUNCATED_IMAGES

    @pytest.mark.parametrize("kind", ["GIF", "TIFF", "WEBP", "PNG"])
    def test_several_frames_are_refused(self, kind: str) -> None:
        more = Image.fromarray(noise(channels=1))
        content = encoded(Image.new("L", (SIDE, SIDE)), kind, save_all=True, append_images=[more])
        with pytest.raises(BadImage, match="several frames"):
            decode(content, Decoding(SIDE, 1))


def compressed(syntax: str, frame: bytes) -> Dataset:
    dataset = dicom(np.zeros((4, 4), np.uint8))
    dataset.file_meta.TransferSyntaxUID = syntax
    dataset.PixelData = pydicom.encaps.encapsulate([frame])
    dataset["PixelData"].VR = "OB"
    return dataset


def counts(low: int, high: int, kind: type[np.generic]) -> Array:
    return np.random.default_rng(1).integers(low, high, (SIDE, SIDE)).astype(kind)


def shown_by_pydicom(dataset: Dataset) -> Array:
    """Its own modality and VOI functions, whose range of output is then spread over a byte."""
    values = apply_voi_lut(apply_modality_lut(dataset.pixel_array, dataset), dataset)
    if "VOILUTSequence" in dataset:
        low, high = 0.0, 2.0 ** dataset.VOILUTSequence[0].LUTDescriptor[2] - 1
    else:
        signed = dataset.PixelRepresentation
        low = -(2.0 ** (dataset.BitsStored - 1)) if signed else 0.0
        high = 2.0 ** (dataset.BitsStored - signed) - 1
        slope, intercept = dataset.get("RescaleSlope", 1), dataset.get("RescaleIntercept", 0)
        low, high = low * slope + intercept, high * slope + intercept
    return (255 * (values - low) / (high - low)).round()


class TestDicom:
    @pytest.mark.parametrize(
        "tags",
        [
            {"WindowCenter": 500, "WindowWidth": 800},
            {"WindowCenter": [500, 20], "WindowWidth": [800, 5]},
            {"WindowCenter": 500, "WindowWidth": 1},
            {"WindowCenter": 40, "WindowWidth": 400, "RescaleSlope": 2, "RescaleIntercept": -1024},
            {"WindowCenter": 500, "WindowWidth": 800, "VOILUTFunction": "LINEAR_EXACT"},
            {"WindowCenter": 500, "WindowWidth": 800, "VOILUTFunction": "SIGMOID"},
        ],
    )
    @pytest.mark.parametrize("kind", [np.uint16, np.int16])
    def test_the_window_is_what_pydicom_makes_of_it(self, tags: dict[str, object], kind: type[np.generic]) -> None:
        dataset = dicom(counts(0 if kind is np.uint16 else -2000, 2000, kind), **tags)
        assert np.abs(as_image(written(dataset), 1)[..., 0] - shown_by_pydicom(dataset)).max() <= 1

    def test_a_table_goes_before_a_window(self) -> None:
        table = Dataset()
        table.LUTDescriptor = [1024, 100, 12]
        table.LUTData = (4095 * np.linspace(0, 1, 1024) ** 2).astype(np.uint16).tolist()
        dataset = dicom(counts(0, 2000, np.uint16), WindowCenter=9, WindowWidth=9, VOILUTSequence=Sequence([table]))
        dataset.VOILUTSequence[0]["LUTData"].VR = "US"
        assert np.abs(as_image(written(dataset), 1)[..., 0] - shown_by_pydicom(dataset)).max() <= 1

    @pytest.mark.parametrize(
        "tags", [{}, {"WindowCenter": 5, "WindowWidth": 0}, {"WindowCenter": "", "WindowWidth": ""}]
    )
    def test_without_a_window_least_to_greatest(self, tags: dict[str, object]) -> None:
        values = counts(-300, 900, np.int16)
        plain = np.interp(values, [values.min(), values.max()], [0, 255]).round()
        assert (as_image(written(dicom(values, **tags)), 1)[..., 0] == plain).all()

    def test_eight_bits_stay_what_they_are(self) -> None:
        values = counts(50, 90, np.uint8)
        assert (as_image(written(dicom(values)), 1)[..., 0] == values).all()

    def test_monochrome1_is_inverted(self) -> None:
        values = counts(0, 4000, np.uint16)
        upside = as_image(written(dicom(values, PhotometricInterpretation="MONOCHROME1")), 1)
        assert np.abs(255 - upside - as_image(written(dicom(values)), 1)).max() <= 1

    @pytest.mark.parametrize("kind", ["MONOCHROME1", "MONOCHROME2"])
    def test_padding_is_black_and_does_not_count(self, kind: str) -> None:
        values = counts(100, 1000, np.int16)
        padded = values.copy()
        padded[:8] = -2000
        pixels = as_image(written(dicom(padded, PixelPaddingValue=-2000, PhotometricInterpretation=kind)), 1)
        assert not pixels[:8].any()
        rest = (values[8:] - values[8:].min()) / float(values[8:].max() - values[8:].min())
        rest = 1 - rest if kind == "MONOCHROME1" else rest
        assert np.abs(pixels[8:, :, 0] - 255 * rest).max() <= 1

    def test_colour_is_colour(self) -> None:
        assert (as_image(written(dicom(noise()))) == noise()).all()

    @pytest.mark.parametrize("name", ["examples_palette", "SC_ybr_full_422_uncompressed", "SC_rgb_rle_16bit"])
    def test_other_colours_are_what_pydicom_makes_of_them(self, name: str) -> None:
        content = (SAMPLES / f"{name}.dcm").read_bytes()
        dataset = pydicom.dcmread(io.BytesIO(content))
        colours = pydicom.pixels.pixel_array(dataset)
        if name == "examples_palette":
            colours = pydicom.pixels.apply_color_lut(dataset.pixel_array, dataset)
        bytes_ = (colours >> (8 * colours.dtype.itemsize - 8)).astype(np.uint8)
        plain = Image.fromarray(bytes_).resize((SIDE, SIDE), Image.Resampling.BICUBIC, reducing_gap=3.0)
        assert (as_image(content) == np.asarray(plain)).all()

    @pytest.mark.parametrize("change", ["RLE", "implicit", "bigendian", "jp2klossless", "jpeg_ls_lossless"])
    def test_every_encoding_gives_the_same_picture(self, change: str) -> None:
        if change == "jpeg_ls_lossless":
            pytest.importorskip("libjpeg", reason="the extra 'dicom' is not installed")
        plain = (SAMPLES / "MR_small.dcm").read_bytes()
        other = (SAMPLES / f"MR_small_{change}.dcm").read_bytes()
        assert (as_image(plain, 1) == as_image(other, 1)).all()

    def test_a_file_without_preamble_is_known_by_its_first_tag(self) -> None:
        content = written(dicom(counts(0, 99, np.uint8)))
        assert (as_image(content[132:], 1) == as_image(content, 1)).all()

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (written(dicom(np.zeros((4, 4), np.uint8), NumberOfFrames=3)), "3 frames"),
            (written(dicom(np.zeros((4, 4), np.uint8), Rows=60_000, Columns=60_000)), "60000 x 60000 pixels"),
            (written(dicom(np.zeros((4, 4), np.uint8)))[:-8], "truncated"),
            ((SAMPLES / "MR_small_RLE.dcm").read_bytes()[:-2000], "truncated"),
            ((SAMPLES / "test-SR.dcm").read_bytes(), "without pixels (modality SR)"),
            ((SAMPLES / "JPEG2000-embedded-sequence-delimiter.dcm").read_bytes(), "pixels are more than"),
        ],
    )
    def test_what_cannot_be_read_has_one_plain_reason(self, content: bytes, reason: str) -> None:
        with pytest.raises(BadImage) as bad:
            decode(content, Decoding(SIDE, 1))
        assert reason in str(bad.value)

    def test_a_film_is_named(self) -> None:
        with pytest.raises(BadImage, match="MPEG2"):
            decode(written(compressed(MPEG2MPML, b"film")), Decoding(SIDE, 1))

    def test_a_missing_decoder_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        decoder = pydicom.pixels.get_decoder(JPEGLosslessSV1)
        monkeypatch.setattr(decoder, "_available", {})
        with pytest.raises(BadImage, match=r"JPEG Lossless.*pip install 'acpl\[dicom\]'"):
            decode(written(compressed(JPEGLosslessSV1, b"\xff\xd8\xff\xd9")), Decoding(SIDE, 1))

    @pytest.mark.parametrize("syntax", [JPEGBaseline8Bit, JPEGLosslessSV1])
    def test_a_jpeg_inside_may_not_promise_more_than_the_header(self, syntax: str) -> None:
        jpeg = b"\xff\xd8\xff\xc0\x00\x0b\x08" + struct.pack(">HH", 60_000, 50_000) + b"\x01\x01\x11\x00\xff\xd9"
        with pytest.raises(BadImage, match="50000 x 60000 pixels"):
            decode(written(compressed(syntax, jpeg)), Decoding(SIDE, 1))

    def test_a_deflated_bomb_is_not_inflated(self, monkeypatch: pytest.MonkeyPatch) -> None:
        content = (SAMPLES / "image_dfl.dcm").read_bytes()
        assert as_image(content, 1).std() > 0
        monkeypatch.setattr("acpl.data.dicom.MAX_FILE_BYTES", 1000)
        with pytest.raises(BadImage, match="inflated"):
            decode(content, Decoding(SIDE, 1))

    @given(centre=st.floats(-100, 100), width=st.floats(1, 300), function=st.sampled_from(["LINEAR", "SIGMOID"]))
    def test_a_window_never_turns_brighter_into_darker(self, centre: float, width: float, function: str) -> None:
        shares = windowed(np.linspace(-500, 500, 201), centre, width, function)
        assert (np.diff(shares) >= 0).all()
        assert shares.min() >= 0
        assert shares.max() <= 1


@cache
def whole_file(kind: str) -> bytes:
    if kind.startswith("dicom"):
        dataset = dicom(counts(0, 4000, np.uint16), WindowCenter=500, WindowWidth=800)
        if kind == "dicom RLE":
            dataset.compress(RLELossless, encoding_plugin="pydicom")
        return written(dataset)
    return encoded(scene(40, 30), kind)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "TIFF", "GIF", "JPEG2000", "dicom", "dicom RLE"])
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_damaged_file_is_decoded_or_bad_and_nothing_else(kind: str, data: st.DataObject) -> None:
    content = bytearray(whole_file(kind))
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    del content[data.draw(st.integers(0, len(content))) :]
    with suppress(BadImage):
        assert decode(bytes(content), Decoding(8, 1)).shape == (1, 8, 8)


@pytest.mark.parametrize(("pack", "channels"), [("cxr14-subset", 1), ("ham10000", 3)])
def test_real_images_are_what_pillow_makes_of_them(pack: str, channels: int) -> None:
    if "ACPL_DATA" not in os.environ:
        pytest.skip("ACPL_DATA does not name the folder of real images")
    with zipfile.ZipFile(Path(os.environ["ACPL_DATA"]) / pack / "images.zip") as file:
        for name in file.namelist()[::2000]:
            content = file.read(name)
            with Image.open(io.BytesIO(content)) as image:
                plain = image.convert("L" if channels == 1 else "RGB").resize((96, 96), Image.Resampling.BICUBIC)
            difference = as_image(content, channels, 96) - np.asarray(plain).reshape(96, 96, channels)
            assert np.abs(difference).max() <= 1
            assert is_grey(content) == (channels == 1)

"""Image files of every format that is read, made in memory: sound ones, and bombs that ask for far more than they are.

DICOM files with codecs that nothing here can write come from the package pydicom, which ships them for tests.
"""

import io
import struct
import zlib
from functools import cache
from pathlib import Path

import numpy as np
import pydicom
from PIL import Image
from pydicom.dataset import Dataset, FileDataset, FileMetaDataset
from pydicom.encaps import encapsulate
from pydicom.uid import (
    DeflatedExplicitVRLittleEndian,
    ExplicitVRLittleEndian,
    JPEG2000Lossless,
    JPEGBaseline8Bit,
    RLELossless,
    SecondaryCaptureImageStorage,
)

SAMPLES = Path(pydicom.__file__).parent / "data" / "test_files"
SHIPPED = (
    *(
        "CT_small",
        "MR_small_implicit",
        "MR_small_bigendian",
        "MR_small_RLE",
        "MR_small_padded",
        "MR_small_jp2klossless",
    ),
    *("MR_small_jpeg_ls_lossless", "JPEGLSNearLossless_08", "JPEGLSNearLossless_16", "SC_rgb_jls_lossy_line"),
    *("SC_rgb_small_odd", "SC_rgb_small_odd_jpeg", "SC_rgb_rle_16bit", "SC_rgb_jpeg_dcmtk", "SC_rgb_jpeg_gdcm"),
    *("JPEG2000", "693_J2KI", "JPGExtended", "SC_ybr_full_422_uncompressed", "image_dfl", "rtdose_1frame"),
)
WIDTH, HEIGHT = 23, 17  # odd, so that no row ends where a byte, a word or a block does


def noise(channels: int, kind: type[np.generic] = np.uint8) -> np.ndarray:
    """Pixels without any pattern."""
    top = 256 if kind is np.uint8 else 4000
    pixels = np.random.default_rng(channels).integers(0, top, (HEIGHT, WIDTH, channels)).astype(kind)
    return pixels if channels > 1 else pixels[:, :, 0]


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    """The bytes of a file."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def dicom(pixels: np.ndarray, **tags: object) -> Dataset:
    """A secondary capture of these pixels, uncompressed."""
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = SecondaryCaptureImageStorage
    meta.MediaStorageSOPInstanceUID = "1.2.3"
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    dataset = FileDataset(None, {}, file_meta=meta, preamble=bytes(128))
    dataset.SOPClassUID, dataset.SOPInstanceUID = meta.MediaStorageSOPClassUID, "1.2.3"
    dataset.Modality, dataset.PatientName = "OT", "Nobody^At all"
    dataset.Rows, dataset.Columns = pixels.shape[:2]
    dataset.SamplesPerPixel = 1 if pixels.ndim == 2 else 3
    dataset.PhotometricInterpretation = "MONOCHROME2" if pixels.ndim == 2 else "RGB"
    if pixels.ndim == 3:
        dataset.PlanarConfiguration = 0
    dataset.BitsAllocated = dataset.BitsStored = 8 * pixels.dtype.itemsize
    dataset.HighBit = dataset.BitsStored - 1
    dataset.PixelRepresentation = int(pixels.dtype.kind == "i")
    dataset.PixelData = pixels.tobytes()
    for name, value in tags.items():
        setattr(dataset, name, value)
    return dataset


def written(dataset: Dataset) -> bytes:
    """The bytes of a DICOM file."""
    file = io.BytesIO()
    dataset.save_as(file, enforce_file_format=True)
    return file.getvalue()


def compressed(syntax: str, frame: bytes, pixels: np.ndarray, **tags: object) -> bytes:
    """A DICOM file whose frame was compressed elsewhere."""
    dataset = dicom(pixels, **tags)
    dataset.file_meta.TransferSyntaxUID = syntax
    dataset.PixelData = encapsulate([frame])
    dataset["PixelData"].VR = "OB"
    return written(dataset)


def with_private_junk() -> bytes:
    """A sound image among private elements of random bytes, one in a sequence in a sequence."""
    dataset = dicom(noise(1))
    block = dataset.private_block(0x0099, "JUNK 1.0", create=True)
    junk = np.random.default_rng(9).bytes(301)
    block.add_new(1, "OB", junk + b"\0")
    block.add_new(2, "UN", b"\xff\xfe\x00\xe0" * 20)
    inner, outer = Dataset(), Dataset()
    inner.add_new(0x00990010, "LO", "JUNK 1.0")
    inner.add_new(0x00991003, "UN", junk + b"\0")
    outer.add_new(0x00991004, "SQ", [inner])
    block.add_new(5, "SQ", [outer])
    return written(dataset)


def bmp_run_length() -> bytes:
    """An 8-bit BMP in run-length code, which Pillow reads and does not write."""
    rows = b"".join(bytes([20, 40 + y, 3, 200]) + b"\0\0" for y in range(HEIGHT)) + b"\0\1"
    palette = b"".join(bytes([n, n, n, 0]) for n in range(256))
    offset = 14 + 40 + len(palette)
    header = struct.pack("<IiiHHIIiiII", 40, WIDTH, HEIGHT, 1, 8, 1, len(rows), 2835, 2835, 256, 0)
    return b"BM" + struct.pack("<IHHI", offset + len(rows), 0, 0, offset) + header + palette + rows


@cache
def sound() -> dict[str, bytes]:
    """Files that every decoder should take, by a name that begins with the format."""
    colour, grey = Image.fromarray(noise(3)), Image.fromarray(noise(1))
    deep = Image.fromarray(noise(1, np.uint16))
    real = Image.fromarray(noise(1, np.float32) / 100)
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "a note"
    files = {
        "png grey": encoded(grey, "PNG"),
        "png colour": encoded(colour, "PNG"),
        "png alpha": encoded(Image.fromarray(noise(4)), "PNG"),
        "png palette": encoded(colour.quantize(16), "PNG", transparency=3),
        "png one bit": encoded(grey.convert("1"), "PNG"),
        "png sixteen bits": encoded(deep, "PNG"),
        "jpeg grey": encoded(grey, "JPEG"),
        "jpeg colour": encoded(colour, "JPEG", exif=exif),
        "jpeg progressive": encoded(colour, "JPEG", progressive=True),
        "jpeg cmyk": encoded(colour.convert("CMYK"), "JPEG"),
        "webp lossy": encoded(colour, "WEBP"),
        "webp lossless": encoded(Image.fromarray(noise(4)), "WEBP", lossless=True, exif=exif),
        "bmp colour": encoded(colour, "BMP"),
        "bmp palette": encoded(colour.quantize(16), "BMP"),
        "bmp run-length": bmp_run_length(),
        "tiff raw": encoded(colour, "TIFF"),
        "tiff sixteen bits": encoded(deep, "TIFF"),
        "tiff float": encoded(real, "TIFF"),
        "tiff integer": encoded(Image.fromarray(noise(1, np.int32)), "TIFF"),
        "gif": encoded(colour.quantize(64), "GIF"),
        "jp2": encoded(colour, "JPEG2000"),
        "j2k": encoded(grey, "JPEG2000", no_jp2=True),
        "ppm": encoded(colour, "PPM"),
        "pgm sixteen bits": encoded(deep, "PPM"),
        "ppm plain": b"P3\n3 2\n255\n" + b" ".join(b"%d" % n for n in range(18)) + b"\n",
        "pbm plain": b"P1 # a note\n4 2\n0101 1010\n",
        "pfm": b"Pf\n3 2\n-1.0\n" + np.arange(6, dtype="<f4").tobytes(),
    }
    for method in ("tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg", "zstd"):
        files[f"tiff {method}"] = encoded(colour, "TIFF", compression=method)
    files["tiff group4"] = encoded(grey.convert("1"), "TIFF", compression="group4")
    return files | _sound_dicom()


def _sound_dicom() -> dict[str, bytes]:
    grey, deep = noise(1), noise(1, np.uint16)
    runs, deflated = dicom(deep), dicom(deep)
    runs.compress(RLELossless, encoding_plugin="pydicom")
    deflated.file_meta.TransferSyntaxUID = DeflatedExplicitVRLittleEndian
    real = dicom(deep, BitsAllocated=32)
    del real.PixelData
    real.FloatPixelData = noise(1, np.float32).tobytes()
    files = {
        "dicom grey": written(dicom(grey, WindowCenter=100, WindowWidth=50)),
        "dicom sixteen bits": written(dicom(deep, RescaleSlope=2, RescaleIntercept=-1024, PixelPaddingValue=0)),
        "dicom colour": written(dicom(noise(3))),
        "dicom float": written(real),
        "dicom run-length": written(runs),
        "dicom deflated": written(deflated),
        "dicom jpeg": compressed(JPEGBaseline8Bit, encoded(Image.fromarray(grey), "JPEG"), grey),
        "dicom jpeg2000": compressed(JPEG2000Lossless, encoded(Image.fromarray(grey), "JPEG2000", no_jp2=True), grey),
        "dicom private junk": with_private_junk(),
    }
    return files | {f"dicom shipped {name}": (SAMPLES / f"{name}.dcm").read_bytes() for name in SHIPPED}


def png(width: int, height: int, pixels: bytes, *, depth: int = 8, colour: int = 0, extra: bytes = b"") -> bytes:
    """A PNG of these already deflated pixels."""
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def chunk(name: bytes, data: bytes) -> bytes:
    """One chunk of a PNG, with its checksum."""
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def zeros(megabytes: int) -> bytes:
    """So many MiB of zero bytes, deflated, without ever holding them."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    one = packer.compress(bytes(2**20)) + packer.flush(zlib.Z_FULL_FLUSH)  # each further one is packed alike
    return one * megabytes + packer.flush()


def in_zlib(raw: bytes, megabytes: int) -> bytes:
    """Deflated zero bytes with the head and the checksum that PNG wants."""
    return b"\x78\xda" + raw + struct.pack(">HH", megabytes * 2**20 % 65521, 1)


@cache
def bombs() -> dict[str, tuple[bytes, str]]:
    """Small files that ask for gigabytes, and what each is refused for (blank: the rest is left unread)."""
    flat = np.zeros((HEIGHT, WIDTH), np.uint8)
    pixel, gigabyte = zlib.compress(b"\0\0"), in_zlib(zeros(1100), 1100)
    tiff = bytearray(encoded(Image.fromarray(noise(3)), "TIFF", compression="tiff_adobe_deflate"))
    for tag in (256, 257, 278):  # width, height, rows a strip
        _set_tiff_tag(tiff, tag, 60_000)
    j2k = bytearray(encoded(Image.fromarray(flat), "JPEG2000", no_jp2=True))
    size = j2k.index(b"\xff\x51")
    j2k[size + 6 : size + 14] = struct.pack(">II", 2**31 - 1, 2**31 - 1)
    preamble, meta = bytes(128) + b"DICM", _deflated_meta()
    lying = meta[:8] + b"\xff\xff\0\0" + meta[12:]
    return {
        "png 30000 x 30000": (png(30_000, 30_000, in_zlib(zeros(108), 108), depth=1), "30000 x 30000 pixels"),
        "png note of 1 GB": (png(1, 1, pixel, extra=chunk(b"zTXt", b"k\0\0" + gigabyte)), "too large"),
        "png profile of 1 GB": (png(1, 1, pixel, extra=chunk(b"iCCP", b"k\0\0" + gigabyte)), "too large"),
        "png pixels that go on for 1 GB": (png(4, 4, gigabyte), ""),
        "tiff 60000 x 60000": (bytes(tiff), "60000 x 60000 pixels"),
        "webp 16384 x 16384": (_webp_canvas(2**14, 2**14), "178,956,970 pixels"),
        "gif 65535 x 65535": (_gif_screen(65_535, 65_535), "65535 x 65535 pixels"),
        "bmp 2147483647 x 2147483647": (_bmp_size(2**31 - 1, 2**31 - 1), "2147483647 x 2147483647 pixels"),
        "bmp 60000 x -60000": (_bmp_size(60_000, -60_000), "60000 x 60000 pixels"),
        "j2k 2147483647 x 2147483647": (bytes(j2k), "2147483647 x 2147483647 pixels"),
        "ppm 100000 x 100000": (b"P6 100000 100000 255\n" + bytes(100), "100000 x 100000 pixels"),
        "ppm number without end": (b"P3 2 2 255\n" + b"1" * 2**20, "Token too long"),
        "dicom deflated to 1.1 GB": (preamble + meta + zeros(1100), "inflated it is longer"),
        "dicom deflated under a false length": (preamble + lying + zeros(1100), "inflated it is longer"),
        "dicom runs that go on for 1 GB": (_run_length_bomb(), "run-length code is longer"),
        "dicom with a j2k inside": (compressed(JPEG2000Lossless, bytes(j2k), flat), "2147483647 x 2147483647 pixels"),
    }


@cache
def slow_jpeg() -> bytes:
    """A progressive JPEG of a few hundred kB whose thousands of scans each go over every block of a large picture."""
    whole = encoded(Image.new("L", (16_000, 10_000), 90), "JPEG", progressive=True, quality=50)
    scan = whole.rindex(b"\xff\xda")
    return whole[:scan] + whole[scan:-2] * 3000 + whole[-2:]


@cache
def largest() -> bytes:
    """A sound 16-bit picture of nearly as many pixels as are read, in 330 kB."""
    rows = 13_000 * (1 + 2 * 13_000)
    packer, line = zlib.compressobj(9), bytes(26_001 * 100)
    return png(
        13_000, 13_000, b"".join([*(packer.compress(line) for _ in range(rows // len(line))), packer.flush()]), depth=16
    )


def _set_tiff_tag(content: bytearray, tag: int, value: int) -> None:
    place = struct.unpack_from("<I", content, 4)[0]
    for entry in range(struct.unpack_from("<H", content, place)[0]):
        start = place + 2 + 12 * entry
        if struct.unpack_from("<H", content, start)[0] == tag:
            struct.pack_into("<HII", content, start + 2, 4, 1, value)


def _webp_canvas(width: int, height: int) -> bytes:
    """A file with a VP8X header of another size."""
    content = bytearray(encoded(Image.fromarray(noise(3)), "WEBP", exif=b"Exif\0\0II*\0\x08\0\0\0\0\0"))
    place = content.index(b"VP8X")
    content[place + 12 : place + 15] = (width - 1).to_bytes(3, "little")
    content[place + 15 : place + 18] = (height - 1).to_bytes(3, "little")
    return bytes(content)


def _gif_screen(width: int, height: int) -> bytes:
    content = bytearray(encoded(Image.fromarray(noise(1)), "GIF"))
    struct.pack_into("<HH", content, 6, width, height)
    frame = content.index(b",", 13 + 3 * 2 ** ((content[10] & 7) + 1))
    struct.pack_into("<HHHH", content, frame + 1, 0, 0, width, height)
    return bytes(content)


def _bmp_size(width: int, height: int) -> bytes:
    content = bytearray(encoded(Image.fromarray(noise(3)), "BMP"))
    struct.pack_into("<ii", content, 18, width, height)
    return bytes(content)


def _deflated_meta() -> bytes:
    uid = DeflatedExplicitVRLittleEndian.encode() + b"\0" * (len(DeflatedExplicitVRLittleEndian) % 2)
    syntax = struct.pack("<HH2sH", 2, 0x10, b"UI", len(uid)) + uid
    return struct.pack("<HH2sHI", 2, 0, b"UL", 4, len(syntax)) + syntax


def _run_length_bomb() -> bytes:
    """A run-length frame of 16 MiB for a picture of 23 x 17: each pair of bytes makes 128."""
    runs = b"\x81\0" * 2**23
    return compressed(RLELossless, struct.pack("<16I", 1, 64, *[0] * 14) + runs, noise(1))

"""An image of a data set for a person's eyes: as sharp as its file is."""

from io import BytesIO

import torch

from acpl.data.decode import BadImage, Decoding, Pixels
from acpl.data.decode_job import PixelJob
from acpl.data.files import ImageFiles
from acpl.data.workers import do_all
from acpl.labelling.contact_sheet import picture_of
from acpl.labelling.pool import Pool

EYE = 768
"""Pixels of the longer side: enough to see a nodule, few enough to load at once."""


def picture(pool: Pool, sample: int) -> bytes:
    """A PNG of this sample; from its file, with its own aspect, where it has one."""
    pixels = _from_file(pool, sample)
    if pixels is None:
        pixels = pool.images.gather(torch.tensor([sample]))[0].numpy()
    stream = BytesIO()
    picture_of(pixels).save(stream, "PNG", compress_level=1)
    return stream.getvalue()


def _from_file(pool: Pool, sample: int) -> Pixels | None:
    files = getattr(pool.source, "files", None)
    if not isinstance(files, ImageFiles):
        return None
    try:
        name = files.find(str(pool.manifest.table.loc[sample, "image"]))
    except BadImage:
        return None
    # In a process with limits of its own, as every stranger's file is read.
    pixels = do_all(PixelJob([files], [name], Decoding(EYE, pool.card.channels, "pad")), "decoding")[0]
    # Changed since it was decoded for training: what the model saw is still there.
    return None if isinstance(pixels, str) else pixels

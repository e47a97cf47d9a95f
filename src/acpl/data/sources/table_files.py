"""A CSV table with the names of images in a folder, a zip, shards, or below an address."""

from pathlib import Path

from acpl.data.addresses import is_address, names_shards
from acpl.data.files import ImageFiles
from acpl.data.remote import open_address
from acpl.data.sources import Source, SourceOptions
from acpl.data.sources.files import FileSource
from acpl.data.sources.parts import settle_parts
from acpl.data.tables import Columns, read_table

SUFFIXES = frozenset({".csv", ".tsv"})


def open_table(file: Path, options: SourceOptions) -> Source:
    """The table's images; their names are relative to ``options.images`` or to the table's own folder."""
    images = str(options.images or file.parent)
    if names_shards(images):
        from acpl.data.sources.shards import open_table_of_shards

        return open_table_of_shards(file, images, options)
    reading = read_table(file, columns_of(options))
    manifest, said = settle_parts(reading, options)
    files = open_address(images, options.progress) if is_address(images) else ImageFiles.open(Path(images))
    return FileSource(manifest, files, options, [*reading.said, *said])


def columns_of(options: SourceOptions) -> Columns:
    """The columns that the options name."""
    return Columns(
        options.image_column,
        options.group_column,
        options.split_column,
        options.labels_column,
        options.classes,
        options.task,
    )

"""A CSV table with the names of images in a folder or a zip."""

from pathlib import Path

from acpl.data.files import ImageFiles
from acpl.data.sources import SourceOptions
from acpl.data.sources.files import FileSource
from acpl.data.sources.parts import settle_parts
from acpl.data.tables import Columns, read_table

SUFFIXES = frozenset({".csv", ".tsv"})


def open_table(file: Path, options: SourceOptions) -> FileSource:
    """The table's images; their names are relative to ``options.images`` or to the table's own folder."""
    reading = read_table(file, columns_of(options))
    manifest, said = settle_parts(reading, options)
    return FileSource(manifest, ImageFiles.open(options.images or file.parent), options, [*reading.said, *said])


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

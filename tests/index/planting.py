"""Indexes as somebody else makes them: over the real files of a table, but without their values."""

import pyarrow.fs as pa_fs

from secure_bloom.index.building import SegmentBuilder
from secure_bloom.index.file_entry import FileEntry
from secure_bloom.index.folder import IndexFolder
from secure_bloom.index.manifest import Body, Manifest
from secure_bloom.index.table import Table
from secure_bloom.keys.cache import CachedKms
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.sbbf.column_type import ColumnType
from secure_bloom.storage.files import make_folder

LOCAL = pa_fs.LocalFileSystem()


def plant(table, column, kms, master_key=None, *, change=lambda entries: entries,
          column_type=None, **fields):
    """Publish an index of all files, with a higher version than any that is there.

    ``kms`` only opens the files. What is recorded of them can be seen without a key, except their
    schemas. ``change`` is given the entries; ``fields`` are those of the body.
    """
    place = Table(LOCAL, str(table))
    folder = IndexFolder(LOCAL, str(table), column)
    manifest = Manifest.new(column, master_key, CachedKms(kms))
    entries = []
    for path, stamp in place.listing().items():
        with OpenFile(table / path, kms) as file:
            entries.append(FileEntry.of(file, path, stamp))
            found = next((leaf.type for leaf in file.columns if leaf.path == column), None)
            column_type = column_type or found
    make_folder(LOCAL, folder.path)
    builder = SegmentBuilder(manifest.key, column_type or ColumnType("INT64", 0, None))
    for entry in change(entries):
        builder.add_file(entry)
    info = builder.write(LOCAL, folder.path)
    version = max(folder.versions(), default=0) + 1
    folder.publish(manifest.next(Body(column, (info,), **fields), version))
    return folder

"""Tables whose logs record file sizes, so that their files must not be changed in place.

Readers of such tables expect the footer at the end of file that the log records.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow.fs as pa_fs

from secure_bloom.errors import UnsupportedError
from secure_bloom.storage.local_listing import real_places
from secure_bloom.storage.table_formats import (
    Table,
    first_table,
    folders_above,
    local_folders_above,
    table_below,
)
from secure_bloom.storage.table_names import relative_path

#: how Spark writes all files of a table again, by its kind
_REWRITES = {
    "Delta Lake": "INSERT OVERWRITE <table> SELECT * FROM <table>, with the settings of "
                  "secure_bloom.spark.native, then VACUUM",
    "Iceberg": "set the table properties write.parquet.bloom-filter-enabled.column.<name>, then "
               "CALL system.rewrite_data_files(table => ..., options => map('rewrite-all', "
               "'true')) and system.expire_snapshots; in a table with encryption.key-id, the "
               "filters are encrypted",
}


def check_no_table(filesystem: pa_fs.FileSystem, path: str, files: Iterable[str]) -> None:
    """Refuse files that belong to such tables; the arguments are those of :func:`table_of_files`.

    Raises UnsupportedError if a file belongs to such a table; the message names the kind of table.
    """
    table = table_of_files(filesystem, path, files)
    if table is not None:
        how = f": {_REWRITES[table.kind]}" if table.kind in _REWRITES else ""
        raise UnsupportedError(
            f"this belongs to {table}, whose log records the file sizes, so a file of another "
            f"size would count as damaged; rewrite the files through the table{how}",
            file=table.folder)


def table_of_files(filesystem: pa_fs.FileSystem, path: str, files: Iterable[str]) -> Table | None:
    """Return a table to which files belong.

    ``path`` is a file, or a folder: a table's folder, one inside it, or one that contains tables.
    ``files`` are the files there: local links may lead into a table elsewhere.
    """
    if filesystem.type_name == "local":
        real = dict.fromkeys(folder for folder, _ in real_places(files))
        above = local_folders_above([path, *real])
    else:
        above = folders_above(path)
    return first_table(filesystem, above) or table_below(path, _all_below(filesystem, path))


def _all_below(filesystem: pa_fs.FileSystem, path: str) -> list[str]:
    if filesystem.get_file_info(path).type != pa_fs.FileType.Directory:
        return []
    selector = pa_fs.FileSelector(path, recursive=True)
    return [relative_path(info.path, path) for info in filesystem.get_file_info(selector)]

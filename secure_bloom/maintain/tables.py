"""Tables whose logs hold the sizes of their files, so that a file must not change in place.

Readers of such tables look for a footer where the log says that the file ends.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Iterator

import pyarrow.fs as pa_fs

from secure_bloom.errors import UnsupportedError

_LOGS = {"_delta_log": "Delta Lake", ".hoodie": "Hudi",
         "_spark_metadata": "Spark Structured Streaming"}
_ICEBERG = "metadata"  # a common name: a folder of an Iceberg table has such files
_ICEBERG_FILE = ".metadata.json"


def check_no_table(filesystem: pa_fs.FileSystem, path: str, files: Iterable[str]) -> None:
    """Refuse files of such tables.

    Parameters
    ----------
    filesystem : pyarrow.fs.FileSystem
    path : str
        A file, or a folder: of a table, below one, or with tables below it.
    files : iterable of str
        The files there. Local links may lead into a table that lies elsewhere.

    Raises
    ------
    UnsupportedError
        With the kind of table.
    """
    places = {path: None}
    if filesystem.type_name == "local":
        places |= dict.fromkeys(os.path.dirname(os.path.realpath(file)) for file in files)
    for folder in dict.fromkeys(above for place in places for above in _with_those_above(place)):
        try:
            kind = _table_at(filesystem, folder)
        except OSError:
            if folder == path:
                raise
            continue  # above, not all folders may be ours to look at
        if kind is not None:
            raise _refused(kind, path)
    if filesystem.get_file_info(path).type == pa_fs.FileType.Directory:
        for info in filesystem.get_file_info(pa_fs.FileSelector(path, recursive=True)):
            kind = _table_with(info.path)
            if kind is not None:
                raise _refused(kind, info.path)


def _refused(kind: str, path: str) -> UnsupportedError:
    return UnsupportedError(f"this belongs to a {kind} table, which keeps the sizes of its files "
                            "in its log and would take a file of another size for damaged; write "
                            "the files again through the table", file=path)


def _table_with(path: str) -> str | None:
    """The kind of table that has this as its log, or in it."""
    folder, name = posixpath.split(path)
    if posixpath.basename(folder) == _ICEBERG and name.endswith(_ICEBERG_FILE):
        return "Iceberg"
    return _LOGS.get(name)


def _with_those_above(path: str) -> Iterator[str]:
    while path:
        yield path
        above = posixpath.dirname(path.rstrip("/"))
        if above == path:
            return
        path = above


def _table_at(filesystem: pa_fs.FileSystem, folder: str) -> str | None:
    places = {posixpath.join(folder, name): kind for name, kind in _LOGS.items()}
    iceberg = posixpath.join(folder, _ICEBERG)
    *logs, metadata = filesystem.get_file_info([*places, iceberg])
    for info in logs:
        if info.type != pa_fs.FileType.NotFound:
            return places[info.path]
    if metadata.type == pa_fs.FileType.Directory and any(
            info.path.endswith(_ICEBERG_FILE)
            for info in filesystem.get_file_info(pa_fs.FileSelector(iceberg))):
        return "Iceberg"
    return None

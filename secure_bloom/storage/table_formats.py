"""Tables with a log of their own: Delta Lake, Iceberg, Hudi, streaming queries of Spark.

The log records which files in the folder belong to the table, and the size of each. So reading all
files returns rows that the table has deleted, and a file must not be changed in place.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import pyarrow.fs as pa_fs

from secure_bloom.errors import UnsupportedError
from secure_bloom.storage.local_listing import with_valid_names
from secure_bloom.storage.table_names import folders_of, is_hidden, table_of

_LOGS = {"_delta_log": "Delta Lake", ".hoodie": "Hudi",
         "_spark_metadata": "Spark Structured Streaming"}
_HUDI_PARTITION = ".hoodie_partition_metadata"  # a file in each partition of a Hudi table
#: a common name: in an Iceberg table it has files such as v1.metadata.json
ICEBERG_METADATA = "metadata"
_ICEBERG_FILE = re.compile(r"v?[0-9]+(-[^/]*)?(\.gz)?\.metadata\.json(\.gz)?")
_METADATA_FILE = ".metadata.json"
ICEBERG_DATA = "data"  #: its sibling folder

_DELETION_VECTOR = re.compile(r"(.*/)?deletion_vector_[0-9a-f-]{36}\.bin")

_MARKED = re.compile(
    rf"(?:^|/)(?:(?P<log>{'|'.join(map(re.escape, _LOGS))})(?:/|$)"
    rf"|(?P<iceberg>{ICEBERG_METADATA}/{_ICEBERG_FILE.pattern}$)|{re.escape(_HUDI_PARTITION)})")

_MARKS = *_LOGS, _METADATA_FILE  # one of them is in every path that is _MARKED

_READERS = {
    "Delta Lake": 'deltalake.DeltaTable, or format("delta") in Spark',
    "Iceberg": "pyiceberg, or by its name in a catalog of Spark",
    "Hudi": 'format("hudi") in Spark',
    "Spark Structured Streaming": "spark.read.parquet, which follows that log",
}


class Table(NamedTuple):
    """A table that has a log: its kind, and its folder."""

    kind: str
    folder: str

    def __str__(self) -> str:
        return f"{'an' if self.kind[0] in 'AEIOU' else 'a'} {self.kind} table"


def is_deletion_vector(path: str) -> bool:
    """Whether a file beside the data files of a Delta Lake table has row numbers, but no rows."""
    return _DELETION_VECTOR.fullmatch(path) is not None


def check_readable(filesystem: pa_fs.FileSystem, folder: str, files: Iterable[str],
                   advice: str) -> None:
    """Refuse to read a folder by its files if a log determines which of them are in the table.

    Arguments as for :func:`find_table`; ``advice`` says how to read all files anyway. Raises
    UnsupportedError with the kind of table, its folder, and the software that reads it.
    """
    table = find_table(filesystem, folder, files)
    if table is not None:
        raise UnsupportedError(
            f"this is {table}. Its log defines which of its files are valid; reading all of them "
            f"may return deleted rows. Read it with {_READERS[table.kind]}; to read all files "
            f"regardless, {advice}", file=table.folder)


def find_table(filesystem: pa_fs.FileSystem, folder: str, files: Iterable[str]) -> Table | None:
    """Find a table that the folder is, is a part of, or contains.

    Tables inside the folder are found in its listing, which the caller has already made. All parent
    folders are checked if they are local. Elsewhere each check would be a request, so only two are
    checked: the folder above the partitions at the end of a path, such as ``t/day=1``, and the
    folder above Iceberg's ``data``.

    ``files`` are all files below the folder, including hidden ones, by their paths relative to it.
    """
    files = list(files)
    table = table_below(folder, files)
    if table is not None:
        return table
    if filesystem.type_name != "local":
        return first_table(filesystem, _probably_above(folder))
    return first_table(filesystem, local_folders_above([folder, *_linked(folder, files)]))


def _linked(folder: str, files: Collection[str]) -> list[str]:
    """Return the folders outside a local folder that symbolic links in it point to."""
    own = os.path.join(os.path.realpath(folder), "")
    real = {os.path.realpath(os.path.join(folder, name)) for name in folders_of(files) if name}
    return [path for path in real if not path.startswith(own)]


def table_below(folder: str, paths: Sequence[str]) -> Table | None:
    """Find a table among the paths in a folder, relative to it, but not in a hidden subfolder."""
    together = "\n".join(paths)
    if not any(mark in together for mark in _MARKS):  # as in nearly all folders
        return None
    for path in paths:
        match = _MARKED.search(path)
        if match is None:
            continue
        root = path[:match.start()]
        if not root or not is_hidden(root):
            return Table(_kind(match), posixpath.join(folder, root) if root else folder)
    return None


def iceberg_tables_below(paths: Iterable[str]) -> list[str]:
    """Return the folders of the Iceberg tables that have some files, by the paths of these."""
    found = (_MARKED.search(path) for path in paths if _METADATA_FILE in path)
    return sorted({match.string[:match.start()] for match in found if match and match["iceberg"]})


def without_iceberg_metadata(paths: Sequence[str]) -> list[str]:
    """Return the files that are not the metadata of an Iceberg table; it is visible to readers."""
    tables = set(iceberg_tables_below(paths))
    mark = f"/{ICEBERG_METADATA}/"
    return [path for path in paths if not tables or path.endswith(".parquet")
            or mark not in f"/{path}" or f"/{path}".rpartition(mark)[0][1:] not in tables]


def _kind(match: re.Match[str]) -> str:
    if match["log"]:
        return _LOGS[match["log"]]
    return "Iceberg" if match["iceberg"] else "Hudi"


def first_table(filesystem: pa_fs.FileSystem, folders: Iterable[str]) -> Table | None:
    """Return the first folder that is a table. Inaccessible folders are skipped."""
    for folder in folders:
        try:
            kind = _kind_at(filesystem, folder)
        except OSError:
            continue
        if kind is not None:
            return Table(kind, folder)
    return None


def local_folders_above(paths: Iterable[str]) -> Iterator[str]:
    """Yield local paths and their parent folders, with links resolved too; each folder once."""
    seen = set()
    for path in paths:
        for start in (path, os.path.realpath(path)):
            for folder in folders_above(start):
                if folder in seen:
                    break
                seen.add(folder)
                yield folder


def folders_above(path: str) -> Iterator[str]:
    """Yield a path and all its parent folders."""
    while path:
        yield path
        path = posixpath.dirname(path.rstrip("/"))


def _probably_above(folder: str) -> Iterator[str]:
    root = table_of(folder)
    if root != folder.rstrip("/"):
        yield root
    above, name = posixpath.split(root)
    if name == ICEBERG_DATA and above:
        yield above


def _kind_at(filesystem: pa_fs.FileSystem, folder: str) -> str | None:
    places = {posixpath.join(folder, name): kind for name, kind in _LOGS.items()}
    iceberg = posixpath.join(folder, ICEBERG_METADATA)
    *logs, metadata = filesystem.get_file_info([*places, iceberg])
    for info in logs:
        if info.type != pa_fs.FileType.NotFound:
            return places[info.path]
    if metadata.type == pa_fs.FileType.Directory and any(
            _ICEBERG_FILE.fullmatch(info.base_name)
            for info in with_valid_names(filesystem.get_file_info(pa_fs.FileSelector(iceberg)))):
        return "Iceberg"
    return None

"""Which files a data set consists of: a file, a folder, a glob pattern, a list of them, a table."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.fs as pa_fs

from secure_bloom.datasets.iceberg import LiveFiles, live_files
from secure_bloom.datasets.partitions import PossiblePartitions, find_partitions, partitions_as
from secure_bloom.errors import UnsupportedError
from secure_bloom.keys.environment import NO_KEYS
from secure_bloom.keys.retrieval import OpenKeys
from secure_bloom.storage.files import FilePath, is_path, resolve
from secure_bloom.storage.locations import MAGIC, as_uri, is_pattern
from secure_bloom.storage.table_formats import check_readable
from secure_bloom.storage.table_names import is_hidden, relative_path, table_of
from secure_bloom.storage.visibility import Check, data_files, files_below

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from secure_bloom.datasets.selection import Selection
    from secure_bloom.index.known_files import KnownFiles
    from secure_bloom.index.planning import FolderIndexes, IndexUse, ListedIndexes
    from secure_bloom.keys.iceberg import IcebergKeys

ALL_FILES = "set all_files=True (--all-files)"
_DELTA_FEATURES = {"timestampNtz", "vacuumProtocolCheck", "v2Checkpoint", "typeWidening"}


class TableOfFiles(Protocol):
    """A ``deltalake.DeltaTable``, or a table or scan of pyiceberg."""


#: what :func:`secure_bloom.dataset` reads
DatasetSource: TypeAlias = FilePath | Sequence[FilePath] | TableOfFiles


class Narrowed(NamedTuple):
    """What is known of all files of a folder, of which few are needed.

    ``schema`` is that of each file. ``selection`` has the rows for which a condition may hold. The
    others are totals of the files that are not needed.
    """

    schema: pa.Schema
    selection: Selection
    num_files: int
    num_row_groups: int
    num_bytes: int


#: returns the files of a folder that its reader needs, if an index knows all files; else None;
#: called before and after the folder is listed
Narrow: TypeAlias = "Callable[[FolderIndexes | ListedIndexes], Files | None]"


class FilesRequest(NamedTuple):
    """Which files a reader needs, and which indexes it uses.

    ``keys`` open the indexes, and the manifests of an encrypted Iceberg table. ``opens_all``: the
    reader opens all files at once, so that no index needs to be compared with a few of them. With
    ``narrow``, only some files of a folder may be returned. ``schema`` is given by the caller;
    then files that are not in ``possible`` partitions may be left out.
    """

    keys: OpenKeys = NO_KEYS
    use: IndexUse = "off"
    opens_all: bool = False
    narrow: Narrow | None = None
    schema: pa.Schema | None = None
    possible: PossiblePartitions | None = None

    def find(self, filesystem: pa_fs.FileSystem, folder: str,
             files: Sequence[str] | None = None) -> FolderIndexes | None:
        """Return the indexes of the table that has a folder, or some files in it."""
        if self.use == "off":
            return None
        from secure_bloom.index.planning import FolderIndexes  # which files do not need
        return FolderIndexes.find(filesystem, folder, self.keys, self.use, files, self.opens_all)


_ALL = FilesRequest()


class Files(NamedTuple):
    """The files of a data set, in one filesystem.

    ``name`` is for messages. The values of the columns in ``partition_schema`` come from the paths,
    as one expression for each file. ``listed`` are the indexes of their table. ``named`` are paths
    that the caller named; the others were found in folders. ``keys`` are those that a table has for
    its files, if any. ``narrowed``: these are not all files.
    """

    name: str
    filesystem: pa_fs.FileSystem
    paths: list[str]
    partition_schema: pa.Schema
    partitions: Sequence[pc.Expression | None]
    listed: ListedIndexes | None = None
    named: frozenset[str] = frozenset()
    keys: IcebergKeys | None = None
    narrowed: Narrowed | None = None

    @property
    def known(self) -> KnownFiles | None:
        """What indexes know of the files."""
        return None if self.listed is None else self.listed.known_files


def find_files(source: DatasetSource, filesystem: pa_fs.FileSystem | None, *,
               all_files: bool = False, request: FilesRequest = _ALL) -> Files:
    """Find the files of a data set.

    A folder has the columns of all ``name=value`` folders below it; otherwise the columns are
    those of the ``name=value`` folders directly above each file.

    Raises
    ------
    FileNotFoundError
        If there are none, or no index although one is required.
    UnsupportedError
        If a folder belongs to a table whose log determines its files; or if an index is required
        for a single file.
    """
    found = _found(source, filesystem, all_files, request)
    if request.use == "require" and found.listed is None and found.paths:
        raise UnsupportedError('index is "require", but a single file has no index',
                               file=found.name)
    return found


def _found(source: DatasetSource, filesystem: pa_fs.FileSystem | None, all_files: bool,
           request: FilesRequest) -> Files:
    if is_path(source):
        return _of_path(source, filesystem, all_files, request)
    live = LiveFiles(_checked(source)) if isinstance(source, list | tuple) \
        else _live_files(source, request.keys, filesystem)
    locations = [resolve(one, filesystem) for one in live.paths]
    if not locations:
        raise FileNotFoundError("the list of files is empty")
    found = locations[0][0]
    if any(not other.equals(found) for other, _ in locations):
        raise UnsupportedError("all files must be in the same filesystem")
    paths = [path for _, one in locations for path in _expanded(found, one, all_files)]
    files = _of_files(f"{len(paths)} files", found, list(dict.fromkeys(paths)), request)
    return files._replace(named=frozenset(path for _, path in locations), keys=live.keys)


def _of_path(source: FilePath, filesystem: pa_fs.FileSystem | None, all_files: bool,
             request: FilesRequest) -> Files:
    filesystem, path = resolve(source, filesystem)
    path = path.rstrip("/") or path
    kind = filesystem.get_file_info(path).type
    if kind == pa_fs.FileType.Directory or is_pattern(path, kind):
        return files_of_path(filesystem, path, kind, all_files, request=request)
    # A missing file is an error when it is opened. Without a schema that names them, a file has no
    # partition columns.
    found = Files(path, filesystem, [path], pa.schema([]), [None]) if request.schema is None \
        else _with_partitions(path, filesystem, [path], None, request)
    return found._replace(named=frozenset([path]))


def files_of_path(filesystem: pa_fs.FileSystem, path: str, kind: pa_fs.FileType, all_files: bool,
                  *, request: FilesRequest) -> Files:
    """Find the files of a folder or pattern, as :func:`find_files` does."""
    if kind == pa_fs.FileType.Directory:
        return _of_folder(filesystem, path, all_files, request)
    return _of_files(path, filesystem, _expanded(filesystem, path, all_files), request)


def _of_files(name: str, filesystem: pa_fs.FileSystem, paths: list[str],
              request: FilesRequest) -> Files:
    """Return some files, with the indexes of the table that has all of them."""
    found = _with_partitions(name, filesystem, paths, None, request)
    if not found.paths:
        return found
    folder = posixpath.commonpath([posixpath.dirname(path).strip("/") for path in found.paths])
    if found.paths[0].startswith("/"):
        folder = f"/{folder}"
    indexes = request.find(filesystem, folder, found.paths)
    return found if indexes is None else found._replace(listed=indexes.listed())


def _checked(sources: Sequence[Any]) -> Sequence[FilePath]:
    for one in sources:
        if not is_path(one):
            raise TypeError("source must be a path, a list of paths, a DeltaTable, or a table or "
                            f"scan of pyiceberg; the list has a {type(one).__name__}")
    return sources


# --- folders and patterns ------------------------------------------------------------------------

def _in_folder(filesystem: pa_fs.FileSystem, folder: str, all_files: bool,
               possible: PossiblePartitions | None = None) -> list[str]:
    found = data_files(filesystem, folder, _check(filesystem, folder, all_files), possible)
    return _not_empty(found, folder, possible)


def _of_folder(filesystem: pa_fs.FileSystem, folder: str, all_files: bool,
               request: FilesRequest) -> Files:
    indexes, narrow = request.find(filesystem, folder), request.narrow
    if indexes is None:
        paths = _in_folder(filesystem, folder, all_files, request.possible)
        return _with_partitions(folder, filesystem, paths, folder, request)
    if narrow is not None and (few := narrow(indexes)) is not None:
        return few
    listed = indexes.listed(_check(filesystem, folder, all_files), request.possible)
    if narrow is not None and (few := narrow(listed)) is not None:
        return few
    paths = _not_empty(sorted(listed.paths), folder, request.possible)
    return _with_partitions(folder, filesystem, paths, folder, request)._replace(listed=listed)


def _check(filesystem: pa_fs.FileSystem, folder: str, all_files: bool) -> Check | None:
    return None if all_files else partial(check_readable, filesystem, folder, advice=ALL_FILES)


def _not_empty(paths: list[str], folder: str,
               possible: PossiblePartitions | None = None) -> list[str]:
    if not paths and not (possible is not None and possible.has_left_out):
        raise FileNotFoundError(f"there are no Parquet files in {folder}")
    return paths


def _expanded(filesystem: pa_fs.FileSystem, path: str, all_files: bool) -> list[str]:
    """Return the files that a path of a file or folder, or a pattern, refers to."""
    kind = filesystem.get_file_info(path).type
    if kind == pa_fs.FileType.Directory:
        return _in_folder(filesystem, path, all_files)
    if not is_pattern(path, kind):
        return [path]  # a missing file is an error when it is opened
    base, pattern = _split_pattern(path)
    # Below a partition, the rest of its table need not be listed.
    tables = {max(base, table_of(posixpath.dirname(posixpath.join(base, name))), key=len)
              for name in files_below(filesystem, base, allow_not_found=True)
              if not is_hidden(name) and _is_matched(name, pattern)}
    # Listed again, table by table: the commit protocol hides some of their files.
    below = base.rstrip("/") + "/"
    found = [path for table in sorted(tables) for path in data_files(filesystem, table)
             if path.startswith(below) and _is_matched(path.removeprefix(below), pattern)]
    if not found:
        raise FileNotFoundError(f"no Parquet file matches {path}")
    if not all_files:
        for folder in sorted({posixpath.dirname(one) for one in found}):
            check_readable(filesystem, folder, (), advice=ALL_FILES)
    return sorted(set(found))


def _split_pattern(path: str) -> tuple[str, list[str]]:
    """Split a glob pattern into the folder before its first wildcard, and the remaining names."""
    names = path.split("/")
    first = next(index for index, name in enumerate(names) if MAGIC.search(name))
    return "/".join(names[:first]) or "/", names[first:]


def _is_matched(relative: str, pattern: list[str]) -> bool:
    """Whether a glob pattern matches a path, or a folder above it."""
    places = _places({0}, pattern)
    for name in relative.split("/"):
        if len(pattern) in places:
            return True
        places = _places({place if pattern[place] == "**" else place + 1 for place in places
                          if pattern[place] == "**" or fnmatchcase(name, pattern[place])}, pattern)
    return len(pattern) in places


def _places(places: set[int], pattern: list[str]) -> set[int]:
    """Add the places in a pattern that are reached if ``**`` matches no further names."""
    for place, part in enumerate(pattern):
        if part == "**" and place in places:
            places.add(place + 1)
    return places


# --- tables --------------------------------------------------------------------------------------

def _live_files(table: Any, keys: OpenKeys, filesystem: pa_fs.FileSystem | None) -> LiveFiles:
    """Return the files of a table's current version, by the package of the table."""
    if hasattr(table, "file_uris") and hasattr(table, "protocol"):
        return LiveFiles(_delta_files(table))
    if hasattr(table, "plan_files") or hasattr(table, "scan"):
        found = live_files(table, keys)
        return found if filesystem is not None \
            else found._replace(paths=[as_uri(os.fspath(path)) for path in found.paths])
    raise TypeError("source must be a path, a list of paths, a DeltaTable, or a table or scan of "
                    f"pyiceberg, not {type(table).__name__}")


def _delta_files(table: Any) -> list[str]:
    protocol = table.protocol()
    features = set(protocol.reader_features or ())
    if protocol.min_reader_version > 1 and (protocol.min_reader_version == 2
                                            or features - _DELTA_FEATURES):
        unknown = ", ".join(sorted(features - _DELTA_FEATURES)) or "column mapping"
        raise UnsupportedError("this Delta Lake table cannot be read by its files alone, because "
                               f"it uses {unknown}; read it with deltalake or Spark")
    return list(table.file_uris())


# --- Hive partitions -----------------------------------------------------------------------------

def _with_partitions(name: str, filesystem: pa_fs.FileSystem, paths: list[str],
                     folder: str | None, request: FilesRequest) -> Files:
    """Add the partition columns; without a folder, those directly above each file."""
    if not any("=" in path for path in paths):
        return Files(name, filesystem, paths, pa.schema([]), [None] * len(paths))
    relative = {path: relative_path(path, folder or table_of(posixpath.dirname(path)))
                for path in paths}
    if (possible := request.possible) is not None:
        paths = list(compress(paths, possible.enters(
            list(map(posixpath.dirname, relative.values())))))
    schema, partitions = \
        find_partitions(filesystem, list(relative.values())) if request.schema is None \
        else partitions_as(request.schema, {path: relative[path] for path in paths})
    return Files(name, filesystem, paths, schema, partitions)

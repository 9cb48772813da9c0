"""Lance files and data sets, through pylance: opening, reading in batches, writing.

pylance reports errors in a file as OSError, ValueError or as a panic of its Rust code. All of them
are converted to :class:`secure_bloom.errors.FormatError` here.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from secure_bloom.errors import FormatError, error_location, needs_extra, unknown_column
from secure_bloom.lance.pages import TABLE_ENTRY, check_pages
from secure_bloom.storage.local_files import (
    keep_permissions,
    path_to_replace,
    sync_folder,
    temporary_name,
)
from secure_bloom.storage.locations import is_uri

_MAGIC = b"LANC"
_FOOTER = struct.Struct("<QQQIIHH4s")  # offsets of tables; numbers of buffers, of columns; version
_INDICES, _VERSIONS = "_indices", "_versions"
_SCAN_ROWS, _SCAN_ROWS_OF_BYTES = 65_536, 1024  # rows per batch: long strings have to fit, too
_SCAN_READAHEAD = 4


def import_lance() -> Any:
    """Import and return the module ``lance``.

    Raises MissingExtraError if pylance is not installed.
    """
    with needs_extra("Lance needs pylance", "lance"):
        import lance
        import lance.file
    return lance


class LanceFile:
    """A local Lance file, open for reading.

    Raises OSError if the file does not exist; FormatError if this is not a valid Lance file.
    """

    def __init__(self, path: str):
        lance = import_lance()
        _check_footer(path)
        with _panics_are_errors():
            self._reader = lance.file.LanceFileReader(path)
            self.schema = self._reader.metadata().schema
            self.num_rows = self._reader.num_rows()

    def batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Return all rows, in order, in batches of up to ``rows``."""
        with _panics_are_errors():
            batches = self._reader.read_all(batch_size=rows, batch_readahead=1).to_batches()
        return _guarded(batches)

    def global_buffer(self, number: int) -> bytes:
        """Return a buffer that belongs to the file as a whole."""
        with _panics_are_errors():
            return self._reader.read_global_buffer(number)


def _guarded(batches: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    while True:
        with _panics_are_errors():
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


def _check_footer(path: str) -> None:
    # pylance panics on an empty file, which prints to standard error, and allocates memory for as
    # many buffers as the footer declares, which may kill the process.
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _FOOTER.size))
        footer = file.read(_FOOTER.size)
        if size < _FOOTER.size or not footer.endswith(_MAGIC):
            raise FormatError("this is not a Lance file, or it is truncated")
        _, table, _, buffers, columns, *_ = _FOOTER.unpack(footer)
        if buffers * TABLE_ENTRY.size > size:
            raise FormatError(f"the file is too small for {buffers} global buffers")
        check_pages(file, size, table, columns)


@contextlib.contextmanager
def _panics_are_errors() -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, RuntimeError, pa.ArrowException) as error:
        raise FormatError(f"pylance cannot read the file: {_first_line(error)}") from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # its class cannot be imported
            raise
        raise FormatError(f"pylance cannot read the file: {_first_line(error)}") from None


def _first_line(error: BaseException) -> str:
    # Without the locations in pylance's source: ", /home/…/schema.rs:359:28".
    return re.sub(r"(?:, \S+\.rs:\d+:\d+)+$", "", str(error).partition("\n")[0])


def write_file(path: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch],
               last_buffer: tuple[str, Callable[[], bytes]]) -> None:
    """Write a local Lance file, which appears only when it is complete.

    ``schema`` includes the metadata to write. ``last_buffer`` is a metadata entry, and a function
    that returns the bytes of the global buffer whose number the entry holds; it is called after the
    last batch.
    """
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"there is no folder {folder}")
    if os.path.isdir(path):
        raise IsADirectoryError(f"{path} is a folder")
    path = path_to_replace(path)
    private = temporary_name(path, "unlocked")
    os.mkdir(private, 0o700)  # pylance creates the file with the default mode
    try:
        temporary = os.path.join(private, "index")
        _write(temporary, schema, batches, last_buffer)
        descriptor = os.open(temporary, os.O_RDONLY)
        try:
            keep_permissions(path, descriptor)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, path)
    finally:
        shutil.rmtree(private, ignore_errors=True)
    sync_folder(os.path.dirname(path))


def _write(path: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch], last_buffer: Any) \
        -> None:
    # Not as a context manager, which would complete the file even after an error.
    writer = import_lance().file.LanceFileWriter(path, schema.remove_metadata())
    for batch in batches:
        writer.write_batch(batch)
    key, content = last_buffer
    metadata = {name.decode(): value.decode() for name, value in (schema.metadata or {}).items()}
    metadata[key] = str(writer.add_global_buffer(content()))
    for name, value in metadata.items():
        writer.add_schema_metadata(name, value)
    writer.close()


# --- data sets -----------------------------------------------------------------------------------

def is_dataset(source: object) -> bool:
    """Whether this is a Lance data set, or the path or URI of one."""
    if isinstance(source, str | os.PathLike):
        return True
    return isinstance(source, import_lance().LanceDataset)


def open_dataset(source: Any) -> Any:
    """Open a LanceDataset by path or URI; one that is already open is returned unchanged.

    Raises FormatError if pylance cannot open it; FileNotFoundError if a local one does not exist.
    """
    if not isinstance(source, str | os.PathLike):
        return source
    lance, path = import_lance(), os.fspath(source)
    if not is_uri(path) and not os.path.exists(path):
        raise FileNotFoundError(f"there is no data set {path}")
    with error_location(file=path), _panics_are_errors():
        return lance.dataset(path)


def scan(dataset: Any, column: str) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Scan the rows of one column, with their addresses, in the order of the data set."""
    fixed = pa.types.is_primitive(field_type(dataset.schema, column))
    with _panics_are_errors():
        scanner = dataset.scanner(columns=[column], with_row_address=True, scan_in_order=True,
                                  batch_size=_SCAN_ROWS if fixed else _SCAN_ROWS_OF_BYTES,
                                  batch_readahead=_SCAN_READAHEAD)
        reader = scanner.to_reader()
    return reader.schema, _guarded(reader)


def field_type(schema: pa.Schema, column: str) -> pa.DataType:
    """Return the type of a column; in structs, its path has dots.

    Raises ColumnError if the column does not exist.
    """
    parts = (column,) if column in schema.names else tuple(column.split("."))
    found = _type_at(schema, parts)
    if found is None:
        raise unknown_column(column, schema.names)
    return found


def _type_at(fields: Iterable[pa.Field], parts: tuple[str, ...]) -> pa.DataType | None:
    found = next((field.type for field in fields if field.name == parts[0]), None)
    if found is None or len(parts) == 1:
        return found
    return _type_at(found, parts[1:]) if pa.types.is_struct(found) else None


class Indexed(NamedTuple):
    """A data set's own information about one of its indexes.

    ``column`` is a dotted path in structs; None if the data set no longer has the index, or does
    not have it yet. ``fragment_ids`` are the fragments that the index is valid for: when values of
    a fragment are rewritten, the fragment keeps its id but is removed from this set.
    """

    column: str | None
    arrow_type: pa.DataType | None
    fragment_ids: set[int]


def find_indexed(path: str) -> Indexed | None:
    """Return what the newest version of a data set records for an index; None outside a data set.

    ``path`` is absolute: ``<data set>/_indices/<uuid>/<file>``. Raises FormatError if pylance
    cannot open the data set.
    """
    folder, uuid = os.path.split(os.path.dirname(path))
    root, name = os.path.split(folder)
    if name != _INDICES or not os.path.isdir(os.path.join(root, _VERSIONS)):
        return None
    dataset = open_dataset(root)
    with error_location(file=root), _panics_are_errors():
        found = [(index.fields[0], segment) for index in dataset.describe_indices()
                 for segment in index.segments if str(segment.uuid) == uuid]
        # Not by its name: older versions of pylance return only the last part of it.
        paths = dict(_paths(dataset.lance_schema.fields()))
    if not found or found[0][0] not in paths:
        return Indexed(None, None, set())
    [(field_id, segment)] = found
    return Indexed(".".join(paths[field_id]), _type_at(dataset.schema, paths[field_id]),
                   set(segment.fragment_ids))


def _paths(fields: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the id of each field of a Lance schema, and the names on the path to it."""
    for field in fields:
        path = (*above, field.name())
        yield field.id(), path
        yield from _paths(field.children(), path)

"""A CSV file, plain or compressed, as batches of typed columns.

The file is read twice: once to infer a lossless type for each column, and once to read the rows.
Memory is bounded, whatever the file size. Errors never quote a value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.fs as pa_fs

from secure_bloom.cli.csv_types import ColumnType
from secure_bloom.errors import (
    ChangedMeanwhileError,
    ColumnError,
    FormatError,
    UnsupportedError,
    error_location,
    unknown_column,
)
from secure_bloom.storage.versions import FileVersion, current_version

_BLOCK = 1024 * 1024  # bytes parsed at a time, with 32 blocks read ahead; also the row size limit
_COMPRESSIONS = {  # by the first bytes; a CSV file cannot begin with any of these
    "gzip": rb"\x1f\x8b\x08", "bz2": rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)",
    "zstd": rb"\x28\xb5\x2f\xfd", "lz4": rb"\x04\x22\x4d\x18"}


class CsvFile:
    """A CSV file with a header line.

    Parameters
    ----------
    path : str
        Path of a regular file; gzip, bzip2, zstd and lz4 are recognized by its first bytes.
    delimiter : str
        One ASCII character.
    text_columns : iterable of str
        Columns to read as text, whatever their values look like.
    types : mapping of str to pyarrow.DataType
        Types of columns, which are not inferred then.
    advance : callable
        Called with the completed fraction of inferring the types and reading the rows.

    Attributes
    ----------
    schema : pyarrow.Schema
        The columns with their types; see :mod:`secure_bloom.cli.csv_types`.

    Raises
    ------
    ColumnError
        If the file is empty, its header is not UTF-8, a row has more or fewer values than the
        header, or a column in ``text_columns`` or ``types`` does not exist, or has values that are
        not of its type.
    FormatError
        If compressed data is damaged or truncated.
    UnsupportedError
        If a row is too long.
    """

    def __init__(self, path: str, *, delimiter: str = ",", text_columns: Iterable[str] = (),
                 types: Mapping[str, pa.DataType] = MappingProxyType({}),
                 advance: Callable[[float], None] = lambda fraction: None):
        check_delimiter(delimiter)
        self._path, self._advance = path, advance
        self._parsing = pa_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
        self._version = self._current_version()
        with open(path, "rb") as file:
            self._compression = _compression(file.read(16))
        self._num_rows = 0
        self.schema = pa.schema([])  # for errors until it is known
        self.schema = self._find_schema(set(text_columns), types)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows.

        Raises ChangedMeanwhileError if the file has changed since its types were inferred.
        """
        done = 0
        with self._errors():
            try:
                reader, _ = self._open({"column_types": self.schema})
                for batch in reader:
                    yield batch
                    done += batch.num_rows
                    self._advance(0.5 + done / max(done, self._num_rows) / 2)
            except pa.ArrowInvalid:
                self._check_unchanged()  # after a change, the types may no longer fit
                raise
            self._check_unchanged()

    def _find_schema(self, text_columns: set[str],
                     given: Mapping[str, pa.DataType]) -> pa.Schema:
        with self._errors(), error_location(file=self._path):
            reader, source = self._open({"default_column_type": pa.binary()})
            try:
                names = reader.schema.names
            except UnicodeDecodeError:
                raise ColumnError("the header line is not UTF-8") from None
            for name in sorted({*text_columns, *given}.difference(names)):
                raise unknown_column(name, names)
            # By name, as pyarrow assigns types: columns with the same name have the same type.
            types = {name: ColumnType(is_text=name in text_columns) for name in names}
            for batch in reader:
                self._num_rows += batch.num_rows
                self._advance(self._position(source) / 2)
                for name, column in zip(names, batch.columns, strict=True):
                    if name not in given:
                        types[name].add(column)
        for name in text_columns:
            if types[name].type != pa.string():
                raise ColumnError("it cannot be read as text, because it is not UTF-8",
                                  file=self._path, column=name)
        return pa.schema([(name, given[name] if name in given else types[name].type)
                          for name in names])

    def _open(self, conversion: dict[str, Any]) -> tuple[pa_csv.CSVStreamingReader, pa.NativeFile]:
        source = pa.OSFile(self._path)
        stream = source if self._compression is None \
            else pa.CompressedInputStream(source, self._compression)
        reader = pa_csv.open_csv(
            # Without threads the result is the same, but errors include the row number.
            stream, pa_csv.ReadOptions(use_threads=False, block_size=_BLOCK), self._parsing,
            pa_csv.ConvertOptions(null_values=[""], true_values=["true"], false_values=["false"],
                                  **conversion))
        return reader, source

    def _position(self, source: pa.NativeFile) -> float:
        """The fraction of the file that has been read."""
        return 1 if source.closed else source.tell() / self._version.size

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Translate pyarrow's errors, removing the quoted values, which may be sensitive."""
        try:
            yield
        except pa.ArrowInvalid as error:
            raise _explained(str(error), self._path, self.schema) from None
        except OSError as error:
            if self._compression is None or error.errno is not None:
                raise
            raise FormatError(f"its {self._compression} data is damaged or truncated",
                              file=self._path) from None

    def _current_version(self) -> FileVersion:
        return current_version(pa_fs.LocalFileSystem(), self._path)

    def _check_unchanged(self) -> None:
        if self._current_version() != self._version:
            raise ChangedMeanwhileError("the CSV file was changed while it was being read; try "
                                        "again", file=self._path)


def check_delimiter(delimiter: str) -> None:
    """Raise ValueError unless this is a valid delimiter."""
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n\0':
        raise ValueError("the delimiter must be one ASCII character, but not a quotation mark or "
                         f"the end of a line; it is {delimiter!r}")


def _compression(head: bytes) -> str | None:
    return next((name for name, pattern in _COMPRESSIONS.items() if re.match(pattern, head)), None)


def _explained(message: str, path: str, schema: pa.Schema) -> ColumnError | UnsupportedError:
    column = re.match(r"In CSV column #(\d+)", message)
    if column is not None and int(column[1]) < len(schema):
        field = schema.field(int(column[1]))
        return ColumnError(f"not all of its values are of type {field.type}: give it another type "
                           "(--types), or none", file=path, column=field.name)
    match = re.search(r"(?:Row #(\d+): )?Expected (\d+) columns, got (\d+)", message)
    if match is not None:
        row = f"row {match[1]}" if match[1] else "a row"
        return ColumnError(f"{row} has {match[3]} values, but the header has {match[2]}; check the "
                           "delimiter (--delimiter) and the quotation marks", file=path)
    if "straddl" in message:
        return UnsupportedError(f"a row is longer than {_BLOCK:,} bytes, or a quotation mark is "
                                "not closed", file=path)
    if "Empty CSV" in message:
        return ColumnError("the CSV file has no rows", file=path)
    return ColumnError("the CSV file has a malformed row", file=path)

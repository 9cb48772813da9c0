"""Reading with pyarrow: pages and their rows, and pyarrow's errors.

``pyarrow.dataset`` is imported only where rows are read: it imports pandas if installed, which
takes longer than a lookup in a filter.
"""

from __future__ import annotations

import atexit
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet.encryption as pe

from secure_bloom.arrow.masking import with_masked
from secure_bloom.arrow.views import filtered
from secure_bloom.errors import (
    AuthenticationError,
    FormatError,
    KeyNotFoundError,
    UnsupportedError,
    error_location,
)
from secure_bloom.keys.environment import NO_KEYS
from secure_bloom.keys.retrieval import Keys

if TYPE_CHECKING:
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    from secure_bloom.arrow.row_filter import RowFilter


def new_fragment(file: pa.NativeFile, decryption_properties: pe.FileDecryptionProperties | None,
                 row_groups: list[int] | None, partition: pc.Expression | None = None) \
        -> ds.ParquetFileFragment:
    """Create a pyarrow dataset fragment of some or all (None) row groups of an open file.

    Not of a path, which pyarrow would open again: by then it may refer to another version.
    """
    import pyarrow.dataset as ds
    if decryption_properties is not None:
        _let_arrow_finish_at_exit()
    options = ds.ParquetFragmentScanOptions(decryption_properties=decryption_properties)
    format_ = ds.ParquetFileFormat(default_fragment_scan_options=options)
    fragment = format_.make_fragment(file, partition_expression=partition)
    if row_groups is None:
        return fragment
    try:
        # Not passed to make_fragment, which would mix up their order.
        return fragment.subset(row_group_ids=row_groups)
    except pa.ArrowInvalid as error:
        raise FormatError("pyarrow cannot read the footer") from error


@cache
def _let_arrow_finish_at_exit() -> None:
    """Keep a process that exits just after a read from occasionally being aborted at exit.

    Arrow threads release the KMS client, a Python object, shortly after the last rows have
    arrived. A thread that requests the GIL while the interpreter shuts down is killed inside C++,
    which aborts the process. A pause lets the thread acquire the GIL before that.
    """
    atexit.register(time.sleep, 0.02)


def to_table(fragments: list[ds.ParquetFileFragment], schema: pa.Schema, columns: list[str] | None,
             row_filter: RowFilter | None, masked: Collection[str] = ()) -> pa.Table:
    """Read the rows of fragments for which a filter on this schema holds.

    The ``masked`` columns are not read, but null; the filter does not use them.
    """
    if not fragments and (known := _projected(schema, columns)) is not None:
        return with_masked(pa.Table.from_batches([], _without(known, masked)), known, masked)
    import pyarrow.dataset as ds
    format_ = fragments[0].format if fragments else ds.ParquetFileFormat()
    dataset = ds.FileSystemDataset(fragments, schema, format_)
    try:
        scanner = dataset.scanner(columns)  # the caller's errors surface here
    except pa.ArrowInvalid as error:
        if columns is not None:
            raise
        raise UnsupportedError("pyarrow cannot read several columns with the same name; select "
                               "other columns") from error
    if masked:
        wanted = scanner.projected_schema
        rows = to_table(fragments, schema, [name for name in wanted.names if name not in masked],
                        row_filter)
        return with_masked(rows, wanted, masked)
    if row_filter is None:
        with _page_errors():
            return scanner.to_table()
    if isinstance(columns, dict):
        raise TypeError("columns must be a list of names if filters are given")
    result = scanner.projected_schema
    columns = schema.names if columns is None else columns
    scanner = dataset.scanner([*columns, *row_filter.columns])
    return pa.Table.from_batches(_filtered(scanner, len(columns), row_filter), result)


def _projected(schema: pa.Schema, columns: object) -> pa.Schema | None:
    """Return the schema of some or all (None) columns; None if only pyarrow's scanner knows it."""
    names = schema.names if columns is None else columns
    if not isinstance(names, list) or not all(
            isinstance(name, str) and len(schema.get_all_field_indices(name)) == 1
            for name in names):
        return None
    return pa.schema([schema.field(name) for name in names], schema.metadata)


def _without(schema: pa.Schema, names: Collection[str]) -> pa.Schema:
    return pa.schema([field for field in schema if field.name not in names], schema.metadata) \
        if names else schema


def _filtered(scanner: ds.Scanner, count: int, row_filter: RowFilter) -> Iterator[pa.RecordBatch]:
    """Yield the rows for which a filter holds, with the first ``count`` columns."""
    batches = scanner.to_batches()
    while True:
        with _page_errors():
            batch = next(batches, None)
        if batch is None:
            return
        rows = row_filter.holds(batch.select(range(count, batch.num_columns)))
        yield filtered(batch.select(range(count)), rows)


@contextmanager
def _page_errors() -> Iterator[None]:
    try:
        yield
    except pa.ArrowInvalid as error:
        raise FormatError("pyarrow cannot read the pages") from error


@contextmanager
def pyarrow_errors(name: str, keys: Keys = None) -> Iterator[None]:
    """Convert pyarrow's errors about the bytes of a file to ours, and add the file name."""
    with error_location(file=name):
        try:
            yield
        except OSError as error:
            if type(error) is not OSError or error.errno is not None:
                raise  # from the operating system
            if "decrypt" in str(error).lower() and keys in (None, NO_KEYS):
                raise KeyNotFoundError("a column is encrypted; pass keys (--keyring), or select "
                                       "other columns") from error
            if "decrypt" in str(error).lower():
                raise AuthenticationError(
                    "the pages of a column cannot be decrypted: the keys are wrong, or the file "
                    "was changed") from error
            if "ciphertext length" in str(error):
                raise FormatError(
                    "an encrypted page has another length than it claims: the file is damaged, or "
                    "parquet-java wrote it with data pages V2, which pyarrow cannot decrypt; write "
                    "it with data pages V1") from error
            raise FormatError(f"pyarrow cannot read the file: {error}") from error

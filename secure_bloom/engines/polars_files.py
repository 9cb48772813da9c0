"""Files read by Polars itself, where it reads them exactly as pyarrow does, but faster."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Any

import polars as pl
import pyarrow as pa

from secure_bloom.datasets.dataset_file import OpenedFile
from secure_bloom.datasets.scan import ReadRows
from secure_bloom.engines.polars_frames import as_frame
from secure_bloom.errors import KeyRetrievalError
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.storage.threads import in_order

_READ_ALIKE = (
    pa.types.is_boolean, pa.types.is_integer, pa.types.is_float32, pa.types.is_float64,
    pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary,
    pa.types.is_date32, pa.types.is_decimal128, pa.types.is_timestamp)
_KEY_SIZES = (16, 32)  # bytes; Polars does not take keys of 192 bits
_BYTES_TOGETHER = 128 * 1024 * 1024  # stored
_CAN_DECRYPT = hasattr(pl, "ParquetDecryptionProperties")  # since Polars 2


class FrameReader:
    """Reads open files as data frames: with Polars where possible, otherwise with pyarrow.

    Parameters
    ----------
    read_arrow : callable
        Reads files with pyarrow.
    pool : ThreadPoolExecutor
        For requests to a KMS.
    schema : pyarrow.Schema
        Of the data set.
    types : mapping of str to polars.DataType
        The columns to read, in order.
    n_rows : int, optional
        How many rows are needed at most.
    """

    def __init__(self, read_arrow: ReadRows[pa.RecordBatch], pool: ThreadPoolExecutor,
                 schema: pa.Schema, types: Mapping[str, pl.DataType], n_rows: int | None):
        self._read_arrow, self._pool, self._schema = read_arrow, pool, schema
        self._types, self._n_rows = dict(types), n_rows

    def __call__(self, files: list[OpenedFile]) -> Iterator[pl.DataFrame]:
        plans = zip(files, in_order(self._pool, self._lazy_frame, files), strict=True)
        for is_native, some in groupby(plans, key=lambda plan: plan[1] is not None):
            if is_native:
                for together in _groups(some, 0 if self._n_rows else _BYTES_TOGETHER):
                    yield from self._native(together)
            else:
                yield from self._by_arrow([opened for opened, _ in some])

    def _by_arrow(self, files: list[OpenedFile]) -> Iterator[pl.DataFrame]:
        for batch in self._read_arrow(files):
            yield as_frame(batch)

    def _native(self, plans: list[tuple[OpenedFile, Any]]) -> Iterator[pl.DataFrame]:
        rows = 0
        try:
            for frame in _collected([lazy if self._n_rows is None else lazy.head(self._n_rows)
                                     for _, lazy in plans]):
                yield frame
                rows += frame.height
            return
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError):
            pass  # pyarrow may be able to read them; if not, its error is one of ours
        for frame in self._by_arrow([opened for opened, _ in plans]):
            if rows < frame.height:
                yield frame.slice(rows)
            rows = max(rows - frame.height, 0)

    def _lazy_frame(self, opened: OpenedFile) -> pl.LazyFrame | None:
        """Return a file as Polars reads it; None if it might be read differently."""
        if opened.dataset_file.access.checks.may_demand:
            return None  # Polars reads the footer again, which may be another one by then
        path = _path_of_version(opened)
        if not _CAN_DECRYPT or path is None or opened.row_groups is not None or opened.masked \
                or not self._types or not self._has_same_columns(opened):
            return None
        decryption = None
        if opened.file.footer.is_encrypted:
            decryption = _decryption(opened.file, frozenset(self._types))
            if decryption is None:
                return None
        return pl.scan_parquet(
            path, decryption=decryption, schema=self._types, extra_columns="ignore", glob=False,
            hive_partitioning=False, cache=False).select(list(self._types))

    def _has_same_columns(self, opened: OpenedFile) -> bool:
        """Whether the columns are in the file, with the types of the data set."""
        own = opened.dataset_file.schema
        leaves = [leaf.path for leaf in opened.file.columns]
        physical = {leaf.path: leaf.type.physical_type for leaf in opened.file.columns}
        for name in self._types:
            t = self._schema.field(name).type
            if own.get_field_index(name) < 0 or not own.field(name).type.equals(t) \
                    or leaves.count(name) != 1 or name in opened.dataset_file.partition_values \
                    or physical[name] == "INT96" or not any(is_kind(t) for is_kind in _READ_ALIKE):
                return False
        return True


def _groups(plans: Iterable[tuple[OpenedFile, Any]], most_bytes: int) \
        -> Iterator[list[tuple[OpenedFile, Any]]]:
    """Group files, in order, up to this many stored bytes; a larger file is alone."""
    group: list[tuple[OpenedFile, Any]] = []
    size = 0
    for plan in plans:
        footer = plan[0].file.footer
        own = sum(map(footer.row_group_num_bytes, range(len(footer.row_groups))))
        if group and size + own > most_bytes:
            yield group
            group, size = [], 0
        group.append(plan)
        size += own
    if group:
        yield group


def _collected(lazy_frames: list[pl.LazyFrame]) -> Iterator[pl.DataFrame]:
    """Yield the rows: of one file as a stream, of several files after reading all of them.

    Not as a stream of several files: Polars reads them one after the other then.
    """
    if len(lazy_frames) == 1:
        yield from lazy_frames[0].collect_batches()
    else:
        yield from pl.collect_all(lazy_frames)


def _path_of_version(opened: OpenedFile) -> str | None:
    """Return a path of the open file, which stays the same if another file gets its name."""
    file = opened.source.file
    if not isinstance(file, pa.OSFile):
        return None
    path = f"/proc/self/fd/{file.fileno()}"
    return path if os.path.exists(path) else None


def _decryption(file: OpenFile, columns: frozenset[str]) \
        -> pl.ParquetDecryptionProperties | None:
    """Return the keys with which Polars reads columns of a file; None if that is not certain."""
    footer, keys = file.footer, file.keys
    if keys is None or not keys.has_footer_key or footer.algorithm is None \
            or footer.algorithm.name != "AES_GCM_V1":
        return None
    column_keys = {}
    try:
        footer_key = keys.footer_key(footer.footer_key_metadata)
        for path in columns:
            found = {_encryption(chunk) for chunk in footer.column_chunks()
                     if chunk.column.path == path}
            if len(found) > 1:
                return None  # Polars takes one key for a column
            for encryption, key_metadata in found:
                if encryption == "column key":
                    column_keys[path] = keys.column_key(path, key_metadata)
    except KeyRetrievalError:
        return None  # pyarrow will report it, unless it does not need the key
    if any(len(key) not in _KEY_SIZES for key in (footer_key, *column_keys.values())):
        return None
    return pl.ParquetDecryptionProperties(
        footer_key=footer_key, column_keys=column_keys or None,
        aad_prefix=keys.aad_prefix if footer.algorithm.supply_aad_prefix else None)


def _encryption(chunk: ColumnChunk) -> tuple[str | None, bytes | None]:
    return chunk.encryption, chunk.key_metadata

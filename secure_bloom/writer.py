"""Write Parquet files with Bloom filters, encrypted where their columns are.

pyarrow writes pages, statistics and indexes, and encrypts them. Meanwhile each row group's leaf
arrays are hashed into filters. What pyarrow writes on close (page indexes and footer) is held back;
then the page indexes are written, followed by the filters and the footer with their positions.
Filters are thus stored directly before the footer, where parquet-java puts them, and no offset
moves.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from threading import RLock
from typing import TypeAlias, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq

from secure_bloom.arrow.dictionaries import compact_dictionaries
from secure_bloom.arrow.encrypted_columns import (
    check_encrypted,
    columns_apart_from_footer,
    resolve_columns,
)
from secure_bloom.arrow.encryption import file_encryption
from secure_bloom.arrow.leaves import decode_half_dictionaries, without_half_dictionaries
from secure_bloom.arrow.masking import check_writable
from secure_bloom.arrow.row_groups import row_groups
from secure_bloom.arrow.schema import parquet_leaves, without_categories
from secure_bloom.arrow.sink import Sink
from secure_bloom.arrow.streams import ArrowData, open_stream
from secure_bloom.arrow.table_filters import build_filters, num_values, plan_filters
from secure_bloom.arrow.views import convert_nested_views, views_metadata, without_nested_views
from secure_bloom.arrow.writer_options import WriterOptions, check_options, check_page_size
from secure_bloom.display import Summarized, shown
from secure_bloom.encryption import Encryption
from secure_bloom.errors import FormatError, error_location
from secure_bloom.keys import external
from secure_bloom.keys.wrapping import WritingKms
from secure_bloom.parquet.bloom_filter import encode_filter
from secure_bloom.parquet.footer import Footer, split_tail
from secure_bloom.parquet.invocations import count_invocations
from secure_bloom.parquet.schema import LeafColumn
from secure_bloom.policy.policy import Policy
from secure_bloom.policy.slips import warn_of_unused_rules
from secure_bloom.policy.writing import (
    check_encryption,
    check_plaintext_argument,
    policy_for,
    with_policy,
)
from secure_bloom.sbbf.options import BloomFilters
from secure_bloom.storage.files import (
    FilePath,
    FileTarget,
    Output,
    is_path,
    open_output,
    resolve,
)
from secure_bloom.storage.spill import FilterStore
from secure_bloom.storage.summary import FilterTotals

DEFAULT_ROW_GROUP_ROWS = 1024 * 1024  # pyarrow's own default and limit
MAX_ROW_GROUP_ROWS = 64 * 1024 * 1024
_FEW_VALUES = 1 << 14  # filters of so many values take less time than starting a thread
_BUFFER = 1 << 16  # bytes

#: called with row group, leaf column, and hashes of values (uint64); None: they cannot be hashed
HashObserver: TypeAlias = Callable[[int, LeafColumn, np.ndarray | None], None]


def write_table(data: ArrowData, where: FileTarget, *, bloom_filters: BloomFilters = None,
                encryption: Encryption | None = None, keys: WritingKms = None,
                policy: Policy | FilePath | None = None, plaintext: bool = False,
                row_group_size: int | None = None, filesystem: pa_fs.FileSystem | None = None,
                kms: WritingKms = None, durable: bool = True,
                **writer_options: Unpack[WriterOptions]) -> None:
    """Write a table, data frame, query or stream to a Parquet file with Bloom filters.

    Parameters
    ----------
    data : table, data frame, query or stream
        Anything with the Arrow PyCapsule interface: tables of pyarrow and arro3, data frames of
        pandas and Polars, relations of DuckDB, a pyarrow RecordBatchReader. Also a pyarrow Dataset
        or Scanner, a Polars LazyFrame, or an iterable of record batches, whose schema is that of
        the first. Only one row group of it is in memory at a time; see ``docs/writing.md``.
    where : str, path, or writable binary file
        A file object is only appended to and stays open. A new file appears at a path only once
        it is complete; until then, and after an exception, the path keeps its previous content.
    bloom_filters : bool, iterable of str, or mapping, optional
        The leaf columns that get a filter in every row group. ``True``: every column that can have
        one. A list names them by dotted path: ``["city", "address.city", "tags.list.element"]``.
        A mapping of paths also specifies options: ``True``, BloomFilterOptions, a dict of its
        fields such as ``{"fpp": 0.001}``, or ``False`` for no filter. Default: none. Filters of
        encrypted columns are encrypted with the column's key, all others are in plaintext.
    encryption : EncryptionConfiguration or UniformKey, optional
        pyarrow's class of that name is also accepted. Default: the file is not encrypted.
    keys : KmsClient, KeyEncryptionKeys, path of a keyring, or URI of a KMS, optional
        For an EncryptionConfiguration. Any pyarrow KmsClient is also accepted. Default: the KMS of
        the environment, see ``docs/keys.md``.
    policy : Policy, str or path, optional
        Which columns must be encrypted; see ``docs/policy.md``. Without ``encryption``, the policy
        makes it; otherwise ``encryption`` may add to the policy. The policy's filters are added for
        columns that ``bloom_filters`` does not name.
    plaintext : bool
        Write without encryption. If a policy is given, and would not encrypt any column, the write
        is refused unless this is set, or rules of the policy allow plaintext for every column.
    row_group_size : int, optional
        Rows per row group; default as in pyarrow: at most 1,048,576. A row group of a stream also
        ends at 128 MiB of Arrow data.
    filesystem : pyarrow.fs.FileSystem, optional
        Filesystem of ``where`` if that is a path; default: local, or by URI.
    kms
        Alias of ``keys``; pass only one of them.
    durable : bool
        Whether a local file survives a power cut once the call has returned. False saves some
        milliseconds for files that can be written again.
    **writer_options
        Options of :class:`pyarrow.parquet.ParquetWriter`, such as ``compression="zstd"``.

    Raises
    ------
    ColumnError
        If a filter is requested for a column that does not exist or cannot have one, or if a
        column is masked because its key was missing when it was read. Raised before anything is
        written.
    PolicyError
        If the policy is not valid, or the file would not meet it; or if no column would be
        encrypted, and plaintext was not asked for. Raised before anything is written.
    KeyRetrievalError
        If a master key cannot be used.
    TypeError
        If ``data`` is something else.
    ValueError
        If an iterable has no batches, and therefore no schema.
    Exception
        Whatever the stream raises. Then no new file appears.
    """
    with ExitStack() as stack:
        if isinstance(data, pa.RecordBatch):
            data = pa.Table.from_batches([data])
        if not isinstance(data, pa.Table):
            data = stack.enter_context(open_stream(data))
        writer = stack.enter_context(ParquetWriter(
            where, data.schema, bloom_filters=bloom_filters, encryption=encryption, keys=keys,
            policy=policy, plaintext=plaintext, filesystem=filesystem, kms=kms, durable=durable,
            **writer_options))
        writer.write_table(data, row_group_size)


class ParquetWriter(Summarized):
    """Writes a Parquet file row group by row group.

    A context manager: the file is complete when the block ends, and does not appear under its
    name if the block raises an exception. A replaced file keeps its mode; if ``where`` is a
    symbolic link, the file that it points to is replaced.

    Several threads may share a writer; it writes one table after the other. A forked process
    cannot write or close its parent's file.

    Parameters
    ----------
    where : str, path, or writable binary file
        A file object is only appended to and stays open.
    schema : pyarrow.Schema
    bloom_filters : bool, iterable of str, or mapping, optional
        The leaf columns that get a filter in every row group. ``True``: every column that can have
        one. A list names them by dotted path: ``["city", "address.city", "tags.list.element"]``.
        A mapping of paths also specifies options: ``True``, BloomFilterOptions, a dict of its
        fields such as ``{"fpp": 0.001}``, or ``False`` for no filter. Default: none. Filters of
        encrypted columns are encrypted with the column's key, all others are in plaintext.
    encryption : EncryptionConfiguration or UniformKey, optional
        pyarrow's class of that name is also accepted. With ``internal_key_material=False`` a file
        with key material is written next to this one, and ``where`` must be a new path.
    keys : KmsClient, KeyEncryptionKeys, path of a keyring, or URI of a KMS, optional
        For an EncryptionConfiguration. Any pyarrow KmsClient is also accepted. Default: the KMS of
        the environment, see ``docs/keys.md``.
    policy : Policy, str or path, optional
        Which columns must be encrypted; see ``docs/policy.md``. Without ``encryption``, the policy
        makes it; otherwise ``encryption`` may add to the policy. The policy's filters are added for
        columns that ``bloom_filters`` does not name.
    plaintext : bool
        Write without encryption. If a policy is given, and would not encrypt any column, the write
        is refused unless this is set, or rules of the policy allow plaintext for every column.
    filesystem : pyarrow.fs.FileSystem, optional
        Filesystem of ``where`` if that is a path; default: local, or by URI.
    kms
        Alias of ``keys``; pass only one of them.
    durable : bool
        Whether a local file survives a power cut once :meth:`close` has returned. False saves some
        milliseconds for files that can be written again.
    **writer_options
        Options of :class:`pyarrow.parquet.ParquetWriter`.

    Attributes
    ----------
    filter_totals : FilterTotals
        What :meth:`close` has written.

    Raises
    ------
    ColumnError
        If a filter is requested for a column that does not exist or cannot have one, or if a
        column is masked because its key was missing when it was read. Raised before anything is
        written.
    PolicyError
        If the policy is not valid, or the file would not meet it; or if no column would be
        encrypted, and plaintext was not asked for. Raised before anything is written.
    """

    _writer: pq.ParquetWriter | None = None
    _output: Output | None = None
    _name = ""

    def __init__(self, where: FileTarget, schema: pa.Schema, *, bloom_filters: BloomFilters = None,
                 encryption: Encryption | None = None, keys: WritingKms = None,
                 policy: Policy | FilePath | None = None, plaintext: bool = False,
                 filesystem: pa_fs.FileSystem | None = None, kms: WritingKms = None,
                 durable: bool = True, **writer_options: Unpack[WriterOptions]):
        self._filters: list[dict[int, int]] = []  # by row group: column ordinal -> number in store
        self._name = str(where) if is_path(where) else f"a {type(where).__name__}"
        self._store = FilterStore()
        check_options(writer_options)
        check_plaintext_argument(encryption, plaintext=plaintext)
        self.schema = schema
        with error_location(file=self._name):
            check_writable(schema)
        self.filter_totals = FilterTotals()
        leaves = parquet_leaves(schema, **writer_options)
        with error_location(file=self._name):
            check_page_size(writer_options, leaves)
            rules = policy_for(policy, where, filesystem)
            if rules is not None:
                bloom_filters, encryption = with_policy(rules, bloom_filters, encryption, leaves,
                                                        plaintext=plaintext)
            if encryption is None and (plaintext or rules is not None):
                keys = kms = None
        self._leaves = leaves
        self._plan = plan_filters(schema, leaves, bloom_filters)
        self._observer: HashObserver | None = None
        self._asked = resolve_columns(encryption, leaves)
        if rules is not None:
            with error_location(file=self._name):
                check_encryption(rules, self._asked, leaves)
            warn_of_unused_rules(rules, leaves, self._name)
        self._encryption = file_encryption(self._asked, keys, kms)
        self._material_place = self._place_of_material(where, filesystem)
        self._output = open_output(where, filesystem, durable=durable)
        self._lock = RLock()
        self._sink = Sink(self._output)
        # Buffered in C++: each call of a sink in Python takes longer than writing a small page.
        self._stream = pa.BufferedOutputStream(pa.PythonFile(self._sink, mode="w"), _BUFFER)
        try:
            plain = without_categories(without_half_dictionaries(schema),
                                       columns_apart_from_footer(self._asked, leaves))
            metadata = views_metadata(plain) if writer_options.get("store_schema", True) else None
            if metadata is not None:
                writer_options = {**writer_options, "store_schema": False}
            self._writer = pq.ParquetWriter(self._stream, without_nested_views(plain),
                                            **writer_options,
                                            encryption_properties=self._encryption.properties)
            if metadata is not None:
                self._writer.add_key_value_metadata(metadata)
        except BaseException:
            self._abort()
            raise

    def write_table(self, data: ArrowData, row_group_size: int | None = None) -> None:
        """Write a table, data frame, query or stream, as one row group or several.

        If a stream raises an exception, the writer is closed and the file does not appear.

        Parameters
        ----------
        data : table, data frame, query or stream
            As in :func:`write_table`, with the columns of this writer's schema. A pyarrow Table or
            RecordBatch must have exactly its types. Text, binary and lists of other data are
            converted to the variants that it has, such as large text.
        row_group_size : int, optional
            Rows per row group; default as in pyarrow: at most 1,048,576. A row group of a stream
            also ends at 128 MiB of Arrow data.

        Raises
        ------
        TypeError
            If ``data`` is something else.
        ColumnError
            If a batch of a stream has other columns, or other types.
        """
        if row_group_size is not None and row_group_size < 1:
            raise ValueError(f"row_group_size must be at least 1, got {row_group_size}")
        rows = min(row_group_size or DEFAULT_ROW_GROUP_ROWS, MAX_ROW_GROUP_ROWS)
        if isinstance(data, pa.RecordBatch):
            data = pa.Table.from_batches([data])
        with self._opened() as writer, ExitStack() as stack:
            tables: Iterator[pa.Table]
            if isinstance(data, pa.Table):
                tables = (data.slice(start, rows) for start in range(0, max(len(data), 1), rows))
            else:
                schema = without_nested_views(self.schema)
                stream = stack.enter_context(open_stream(data)).with_schema(schema)
                tables = row_groups(stream, schema, rows)
            try:
                if isinstance(data, pa.Table):
                    check_writable(data.schema)
                for table in tables:
                    table = convert_nested_views(decode_half_dictionaries(table))
                    self._write_row_group(writer, compact_dictionaries(table))
                    del table  # before the next row group is filled
            except BaseException:
                self._abort()
                raise

    def write_batch(self, batch: pa.RecordBatch, row_group_size: int | None = None) -> None:
        """Write a record batch; see :meth:`write_table`."""
        self.write_table(batch, row_group_size)

    def write(self, data: ArrowData, row_group_size: int | None = None) -> None:
        """Write a table, data frame, query or stream; see :meth:`write_table`."""
        self.write_table(data, row_group_size)

    def add_key_value_metadata(self, key_value_metadata: Mapping[str, str]) -> None:
        """Add metadata to the file; see :class:`pyarrow.parquet.ParquetWriter`."""
        with self._opened() as writer:
            writer.add_key_value_metadata(key_value_metadata)

    def observe_hashes(self, columns: Collection[str], observer: HashObserver) -> None:
        """Call a function with the hashes of all values of some columns, while they are written.

        These are the hashes that filters contain (XXH64, uint64): in each row group of all distinct
        values that are not null, in several calls, of some values more than once. Call this before
        anything is written.

        Parameters
        ----------
        columns : collection of str
            Dotted paths of leaf columns. They need not have Bloom filters.
        observer : callable
            Called, perhaps from another thread, with the number of the row group, the leaf column,
            and hashes. None in place of hashes: not all values can be hashed. It must not raise.

        Raises
        ------
        ColumnError
            If a column does not exist or cannot have a filter.
        """
        with self._opened():
            filters = {one.column.path: one.options for of_field in self._plan.values()
                       for one in of_field if one.options is not None}
            self._plan = plan_filters(self.schema, self._leaves, filters, columns)
            self._observer = observer

    @property
    def num_bytes(self) -> int:
        """Bytes written so far; filters and footer are added when the file is closed."""
        return self._sink.position  # of whole row groups, after which the stream is flushed

    def _headline(self) -> str:
        return f"{shown(self._name, 80)}: {'open' if self._writer else 'closed'}"

    def close(self) -> None:
        """Write filters and footer, and make the file visible; repeated calls have no effect."""
        if self._writer is None:
            return
        with self._locked():
            output = self._output
            if self._writer is None or output is None:  # another thread has since closed it
                return
            try:
                self._stream.flush()
                self._sink.hold()
                self._writer.close()
                self._stream.flush()
                self._finish(output, *self._sink.release())
                self._publish(output)
            except BaseException:
                self._abort()
                raise
            self._writer = self._output = None
            self._store.close()

    def __enter__(self) -> ParquetWriter:
        return self

    def __exit__(self, exc_type: object, exc: object, traceback: object) -> None:
        if exc_type is None:
            self.close()
        else:
            self._abort()

    def __del__(self) -> None:
        self._abort()  # a file is complete only after close()

    @contextlib.contextmanager
    def _opened(self) -> Iterator[pq.ParquetWriter]:
        """Lock out other threads; raise if the writer is closed."""
        with self._locked():
            if self._writer is None:
                raise ValueError("this writer is closed")
            yield self._writer

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        output = self._output
        if output is not None:
            output.check_own()  # first: in a fork perhaps no thread is left to release the lock
        with self._lock:
            yield

    def _write_row_group(self, writer: pq.ParquetWriter, table: pa.Table) -> None:
        """Build filters, on another core while pyarrow writes pages; both release the GIL."""
        if num_values(table, self._plan) <= _FEW_VALUES:
            writer.write_table(table, row_group_size=max(table.num_rows, 1))
            filters = self._store_filters(table)
        else:
            with ThreadPoolExecutor(1) as pool:
                built = pool.submit(self._store_filters, table)
                writer.write_table(table, row_group_size=max(table.num_rows, 1))
            filters = built.result()
        self._stream.flush()
        self._filters.append(filters)

    def _store_filters(self, table: pa.Table) -> dict[int, int]:
        observe = self._observer and partial(self._observer, len(self._filters))
        return {ordinal: self._store.put(filter_)
                for ordinal, filter_ in build_filters(table, self._plan, observe)}

    def _finish(self, output: Output, held: bytes, start: int) -> None:
        """Write what was held back, with the filters before the footer."""
        indexes, content, magic = split_tail(held)
        footer = Footer(content, magic, self._encryption.keys)
        if len(footer.row_groups) != len(self._filters):
            raise FormatError(f"pyarrow wrote {len(footer.row_groups)} row groups, but "
                              f"{len(self._filters)} were expected")
        check_encrypted(self._asked, footer)
        waiting = bytearray(indexes)  # one call then writes the whole end of a small file
        first = position = start + len(indexes)
        encrypted = plain = 0
        for number, filters in enumerate(self._filters):
            chunks, places = footer.row_groups[number], {}
            for ordinal in sorted(filters):
                parts = encode_filter(self._store.get(filters[ordinal]), chunks[ordinal])
                for part in parts:
                    waiting += part
                if len(waiting) >= _BUFFER:
                    output.write(waiting)
                    waiting = bytearray()
                length = sum(map(len, parts))
                places[ordinal] = position, length
                position += length
                encrypted += chunks[ordinal].cipher is not None
                plain += chunks[ordinal].cipher is None
            footer.set_bloom_filters(number, places)
        count_invocations(footer)
        self._encryption.write_key_metadata(footer)
        output.write(waiting + footer.to_bytes())
        self.filter_totals = FilterTotals(encrypted, plain, position - first)

    def _place_of_material(self, where: FileTarget, filesystem: pa_fs.FileSystem | None) \
            -> tuple[pa_fs.FileSystem, str] | None:
        """Return filesystem and path of the file, next to which key material is to be stored."""
        if self._encryption.external_material is None:
            return None
        if not is_path(where):
            raise TypeError("internal_key_material=False needs a path, because the key material "
                            "is written next to the file")
        place = resolve(where, filesystem)
        external.check_new(*place)
        return place

    def _publish(self, output: Output) -> None:
        material = self._encryption.external_material
        if self._material_place is None or material is None:
            output.commit()
        else:
            external.publish(output, *self._material_place, material)

    def _abort(self) -> None:
        output = self._output
        if output is None:
            return
        if not output.is_own:  # without the lock: perhaps no thread is left to release it
            self._writer = self._output = None
            output.abort()
            return
        with self._lock:
            output, self._output = self._output, None
            writer, self._writer = self._writer, None
            if output is None:
                return
            self._sink.discard()
            self._store.close()
            try:
                if writer is not None:
                    writer.close()
            finally:
                output.abort()

"""Write Parquet files with Bloom filters, encrypted where their columns are.

pyarrow writes pages, statistics and indexes, and encrypts them. Meanwhile each row group's leaf
arrays are hashed into filters. What pyarrow writes on close (page indexes and footer) is held back;
then the page indexes are written, followed by the filters and the footer with their positions.
Filters are thus stored directly before the footer, where parquet-java puts them, and no offset
moves.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import RLock
from typing import Unpack

import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq

from secure_bloom.arrow.encrypted_columns import (
    check_encrypted,
    columns_apart_from_footer,
    protection,
    resolve_columns,
)
from secure_bloom.arrow.encryption import file_encryption
from secure_bloom.arrow.leaves import has_scale
from secure_bloom.arrow.masking import check_writable
from secure_bloom.arrow.page_writer import Sink, as_written, leaves_with_nan, open_page_writer
from secure_bloom.arrow.row_groups import as_row_groups
from secure_bloom.arrow.schema import parquet_leaves
from secure_bloom.arrow.streams import ArrowData, open_stream
from secure_bloom.arrow.table_filters import FilterWriter, HashObserver
from secure_bloom.arrow.views import without_nested_views
from secure_bloom.arrow.writer_options import WriterOptions, check_options, check_page_size
from secure_bloom.display import Summarized, shown, without_credentials
from secure_bloom.encryption import Encryption
from secure_bloom.errors import error_location
from secure_bloom.keys import external
from secure_bloom.keys.wrapping import WritingKeys
from secure_bloom.parquet.created_by import CREATED_BY
from secure_bloom.parquet.footer import Footer
from secure_bloom.parquet.invocations import count_invocations
from secure_bloom.parquet.placing import without_column_indexes
from secure_bloom.parquet.tail import split_tail
from secure_bloom.policy.policy import Policy
from secure_bloom.policy.sensitive import Sensitive, check_contradictions, requested
from secure_bloom.policy.slips import warn_of_unused_rules
from secure_bloom.policy.writing import check_encryption, policy_for
from secure_bloom.sbbf.options import BloomFilters
from secure_bloom.storage.files import FilePath, FileTarget, Output, is_path, open_output
from secure_bloom.storage.summary import FilterTotals, WriteSummary

_FEW_VALUES = 1 << 14  # filters of so many values take less time than starting a thread
_BUFFER = 1 << 16  # bytes


class ParquetWriter(Summarized):
    """Writes a Parquet file row group by row group.

    A context manager: the file is complete when the block ends, and does not appear under its
    name if the block raises an exception. A replaced file keeps its mode; if ``path`` is a
    symbolic link, the file that it points to is replaced.

    Several threads may share a writer; it writes one table after the other. A forked process
    cannot write or close its parent's file.

    Parameters
    ----------
    path : str, path, or writable binary file
        A file object is only appended to and stays open.
    schema : pyarrow.Schema
    sensitive : str or iterable of str, optional
        Columns to encrypt with the master key ``pii``, with Bloom filters, under a footer with the
        master key ``footer``, as :func:`write_table` describes. Instead of ``encryption``.
    bloom_filters : bool, iterable of str, or mapping, optional
        The leaf columns that get a filter in every row group: ``True`` for every column that can
        have one, a list of dotted paths, or a mapping of these to ``True``, BloomFilterOptions, a
        dict of its fields such as ``{"fpp": 0.001}``, or ``False``.
    encryption : EncryptionConfiguration or UniformKey, optional
        pyarrow's class of that name is also accepted. With ``internal_key_material=False`` a file
        with key material is written next to this one, and ``path`` must be a new path.
    keys : KmsClient, KeyEncryptionKeys, path of a keyring, or URI of a KMS, optional
        For an EncryptionConfiguration. Default: the KMS of the environment.
    policy : Policy, str or path, optional
        Which columns must be encrypted, and get filters; see the page "One policy for all files".
    plaintext : bool
        Write without encryption, although a policy is given that would not encrypt any column.
    filesystem : pyarrow.fs.FileSystem, optional
        Filesystem of ``path`` if that is a path; default: local, or by URI.
    durable : bool
        Whether a local file survives a power cut once :meth:`close` has returned.
    **writer_options
        Options of :class:`pyarrow.parquet.ParquetWriter`, such as ``compression="zstd"``.

    Attributes
    ----------
    filter_totals : FilterTotals
        The filters that :meth:`close` has written.
    summary : WriteSummary or None
        What was written, once the writer is closed.

    Raises
    ------
    ColumnError, PolicyError, KeyRetrievalError
        As from :func:`write_table`, before anything is written.
    """

    _writer: pq.ParquetWriter | None = None
    _output: Output | None = None
    _name = ""
    summary: WriteSummary | None = None
    stored_footer = magic = b""  # for an index: as in :class:`.OpenFile`, once the writer is closed

    def __init__(self, path: FileTarget, schema: pa.Schema, *, sensitive: Sensitive = None,
                 bloom_filters: BloomFilters = None,
                 encryption: Encryption | None = None, keys: WritingKeys = None,
                 policy: Policy | FilePath | None = None, plaintext: bool = False,
                 filesystem: pa_fs.FileSystem | None = None,
                 durable: bool = True, **writer_options: Unpack[WriterOptions]):
        self._name = without_credentials(str(path)) if is_path(path) else f"a {type(path).__name__}"
        check_options(ParquetWriter, writer_options)
        check_contradictions(encryption, sensitive, plaintext=plaintext)
        self.schema = schema
        with error_location(file=self._name):
            check_writable(schema)
        self.filter_totals = FilterTotals()
        leaves = self._leaves = parquet_leaves(schema, **writer_options)
        with error_location(file=self._name):
            check_page_size(writer_options, leaves)
            rules = policy_for(policy, path, filesystem)
            bloom_filters, encryption = requested(rules, sensitive, bloom_filters, encryption,
                                                  leaves, plaintext=plaintext)
            if encryption is None and (plaintext or rules is not None):
                keys = None
        self._filters = FilterWriter(schema, leaves, bloom_filters)
        self._with_nan: list[set[int]] = []  # by row group: leaf columns
        self._asked = resolve_columns(encryption, leaves)
        if rules is not None:
            with error_location(file=self._name):
                check_encryption(rules, self._asked, leaves)
            warn_of_unused_rules(rules, leaves, self._name)
        self._encryption = file_encryption(self._asked, keys)
        self._new_place = None if self._encryption.external_material is None \
            else external.place_of_new(path, filesystem)
        self._output = open_output(path, filesystem, durable=durable)
        self._lock = RLock()
        self._sink = Sink(self._output)
        # Buffered in C++: each call of a sink in Python takes longer than writing a small page.
        self._stream = pa.BufferedOutputStream(pa.PythonFile(self._sink, mode="w"), _BUFFER)
        try:
            self._writer = open_page_writer(self._stream, schema,
                                            columns_apart_from_footer(self._asked, leaves),
                                            writer_options, self._encryption.properties)
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
        if isinstance(data, pa.RecordBatch):
            data = pa.Table.from_batches([data])
        with self._opened() as writer, ExitStack() as stack:
            if not isinstance(data, pa.Table):
                data = stack.enter_context(open_stream(data))
            tables = as_row_groups(data, without_nested_views(self.schema), row_group_size)
            try:
                if isinstance(data, pa.Table):
                    check_writable(data.schema)
                for table in tables:
                    self._write_row_group(writer, as_written(table))
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
            hashes, and the range of rows that has these values: 1 means all rows of the row group,
            2 and 3 its halves, 4 to 7 its quarters, and so on up to 63. None in place of hashes:
            not all values can be hashed. It must not raise.

        Raises
        ------
        ColumnError
            If a column does not exist or cannot have a filter.
        """
        with self._opened():
            self._filters.observe(columns, observer)

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
                summary = self._finish(output, *self._sink.release())
                self._publish(output)
            except BaseException:
                self._abort()
                raise
            self._writer = self._output = None
            self.summary = summary
            self._filters.close()

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
        if self._filters.num_values(table) <= _FEW_VALUES:
            writer.write_table(table, row_group_size=max(table.num_rows, 1))
            self._filters.add_row_group(table)
        else:
            with ThreadPoolExecutor(1) as pool:
                built = pool.submit(self._filters.add_row_group, table)
                writer.write_table(table, row_group_size=max(table.num_rows, 1))
            built.result()
        self._with_nan.append(leaves_with_nan(table))
        self._stream.flush()

    def _finish(self, output: Output, held: bytes, start: int) -> WriteSummary:
        """Write what was held back, with the filters before the footer."""
        indexes, content, magic = split_tail(held)
        footer = Footer(content, magic, self._encryption.keys)
        if not has_scale(self.schema):  # which is stored whole, and the file may not say that it is
            footer.created_by = CREATED_BY
        if with_nan := {(row_group, ordinal) for row_group, ordinals in enumerate(self._with_nan)
                        for ordinal in ordinals}:
            indexes = without_column_indexes(footer, indexes, start, with_nan)
        check_encrypted(self._asked, footer)
        encrypted, others = protection(self._asked, self._leaves, footer)
        size = start + len(indexes)
        waiting = bytearray(indexes)  # one call then writes the whole end of a small file
        for part in self._filters.encode(footer, start + len(indexes)):
            waiting += part
            size += len(part)
            if len(waiting) >= _BUFFER:
                output.write(waiting)
                waiting = bytearray()
        count_invocations(footer)
        self._encryption.write_key_metadata(footer)
        end = footer.to_bytes()
        output.write(waiting + end)
        _, self.stored_footer, self.magic = split_tail(end)
        totals = self.filter_totals = self._filters.totals
        return WriteSummary(self._name, footer.num_rows, len(footer.row_groups), size + len(end),
                            encrypted, others, totals.encrypted, totals.plain, totals.bytes)

    def _publish(self, output: Output) -> None:
        material = self._encryption.external_material
        if self._new_place is None or material is None:
            output.commit()
        else:
            external.publish(output, *self._new_place, material)

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
            self._filters.close()
            try:
                if writer is not None:
                    writer.close()
                self._stream.close()  # pyarrow would report that it fails when the program ends
            finally:
                output.abort()

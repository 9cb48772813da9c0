"""Write a whole table to a Parquet file."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Unpack

import pyarrow as pa
import pyarrow.fs as pa_fs

from secure_bloom.arrow.streams import ArrowData, open_stream
from secure_bloom.arrow.writer_options import WriterOptions, check_options
from secure_bloom.encryption import Encryption
from secure_bloom.keys.wrapping import WritingKeys
from secure_bloom.policy.policy import Policy
from secure_bloom.policy.sensitive import Sensitive
from secure_bloom.sbbf.options import BloomFilters
from secure_bloom.storage.files import FilePath, FileTarget
from secure_bloom.storage.summary import WriteSummary
from secure_bloom.writer import ParquetWriter


def write_table(data: ArrowData, path: FileTarget, *, sensitive: Sensitive = None,
                bloom_filters: BloomFilters = None,
                encryption: Encryption | None = None, keys: WritingKeys = None,
                policy: Policy | FilePath | None = None, plaintext: bool = False,
                row_group_size: int | None = None, filesystem: pa_fs.FileSystem | None = None,
                durable: bool = True, **writer_options: Unpack[WriterOptions]) -> WriteSummary:
    """Write a table, data frame, query or stream to a Parquet file with Bloom filters.

    Parameters
    ----------
    data : table, data frame, query or stream
        Anything with the Arrow PyCapsule interface: tables of pyarrow and arro3, data frames of
        pandas and Polars, relations of DuckDB, a pyarrow RecordBatchReader. Also a pyarrow Dataset
        or Scanner, a Polars LazyFrame, or an iterable of record batches, with the schema of the
        first. Only one row group of it is in memory at a time; see the page "Writing".
    path : str, path, or writable binary file
        A file object is only appended to and stays open. A new file appears at a path only once
        it is complete; until then, and after an exception, the path keeps its previous content.
    sensitive : str or iterable of str, optional
        Columns to encrypt with the master key ``pii``, with Bloom filters, under a footer with the
        master key ``footer``. Instead of ``encryption``. Named as in a policy: leaf columns,
        groups with all leaves below them, or patterns, regardless of case. Columns that are not
        named stay open to everyone who can read the footer. A ``policy`` may name other keys and
        filters, and encrypt more columns.
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
        the environment, see the page "Keys".
    policy : Policy, str or path, optional
        Which columns must be encrypted; see the page "One policy for all files". ``encryption`` may
        add to it; without ``encryption``, the policy alone decides. The policy's filters are added
        for columns that ``bloom_filters`` does not name.
    plaintext : bool
        Write without encryption. If a policy is given, and would not encrypt any column, the write
        is refused unless this is set, or rules of the policy allow plaintext for every column.
    row_group_size : int, optional
        Rows per row group; default as in pyarrow: at most 1,048,576. A row group of a stream also
        ends at 128 MiB of Arrow data.
    filesystem : pyarrow.fs.FileSystem, optional
        Filesystem of ``path`` if that is a path; default: local, or by URI.
    durable : bool
        Whether a local file survives a power cut once the call has returned. False saves some
        milliseconds for files that can be written again.
    **writer_options
        Options of :class:`pyarrow.parquet.ParquetWriter`, such as ``compression="zstd"``. Page
        indexes are written unless ``write_page_index=False``.

    Returns
    -------
    WriteSummary
        Its ``rows``, ``row_groups`` and ``bytes``, the ``encrypted_columns`` with their master
        keys, the ``open_columns``, and the numbers of filters.

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

    Examples
    --------
    >>> secure_bloom.write_table(people, "people.parquet", sensitive=["ssn"],  # doctest: +SKIP
    ...                          keys="keyring.json")
    """
    check_options(write_table, writer_options)
    with ExitStack() as stack:
        if not isinstance(data, pa.Table | pa.RecordBatch):
            data = stack.enter_context(open_stream(data))
        writer = stack.enter_context(ParquetWriter(
            path, data.schema, sensitive=sensitive, bloom_filters=bloom_filters,
            encryption=encryption, keys=keys, policy=policy, plaintext=plaintext,
            filesystem=filesystem, durable=durable, **writer_options))
        writer.write_table(data, row_group_size)
    assert writer.summary is not None  # it is closed
    return writer.summary

"""Write a folder of Parquet files, which become visible together.

The commit protocol and the files are those of the Spark data source, with one task.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal, Unpack

import pyarrow as pa
import pyarrow.fs as pa_fs

from secure_bloom.arrow.encrypted_columns import protection
from secure_bloom.arrow.row_groups import DEFAULT_ROW_GROUP_ROWS, MAX_ROW_GROUP_ROWS
from secure_bloom.arrow.streams import ArrowData, BatchStream, open_stream, total_rows
from secure_bloom.arrow.writer_options import WriterOptions, check_options
from secure_bloom.datasets.job_files import JobFiles, job_files
from secure_bloom.datasets.task_files import HAS_FILES, TaskFiles, write_empty_file
from secure_bloom.display import shown
from secure_bloom.encryption import EncryptionConfiguration, master_keys_by_leaf
from secure_bloom.errors import (
    ChangedMeanwhileError,
    CommitError,
    FileError,
    KeyRetrievalError,
    error_location,
)
from secure_bloom.keys.environment import NO_KEYS
from secure_bloom.keys.retrieval import KmsKeys
from secure_bloom.keys.wrapping import WritingKeys
from secure_bloom.parquet.footer import Footer
from secure_bloom.parquet.schema import filter_columns
from secure_bloom.parquet.tail import MAGIC_ENCRYPTED, read_footer
from secure_bloom.policy.policy import Policy
from secure_bloom.policy.sensitive import Sensitive, check_contradictions
from secure_bloom.progress import shown_progress
from secure_bloom.sbbf.options import BloomFilters
from secure_bloom.storage.commit import Job
from secure_bloom.storage.files import FilePath, is_path, resolve
from secure_bloom.storage.hive_partitioning import (
    Partitioner,
    check_partition_columns,
    check_same_columns,
)
from secure_bloom.storage.replacing import Overwrite
from secure_bloom.storage.source import Source
from secure_bloom.storage.summary import CommitSummary, StagedFile
from secure_bloom.storage.versions import without_subtree
from secure_bloom.writer import ParquetWriter

if TYPE_CHECKING:
    from secure_bloom.index.writing import TaskIndexes, TaskSegments, WrittenIndexes

_MODES: dict[str, Overwrite] = {"error": False, "append": False, "overwrite": True,
                                "overwrite_partitions": "partitions"}
_IN_PLAINTEXT = ("this file of the folder is encrypted, and what is added would not be: pass "
                 "encryption or a policy that requires it, or write to another folder")
_SPLIT_ROWS = 1 << 17  # rows that are split by folder at a time, because a batch may be large


def write_dataset(data: ArrowData, path: FilePath, *, partition_by: str | Iterable[str] = (),
                  mode: Literal["error", "append", "overwrite", "overwrite_partitions"] = "error",
                  sensitive: Sensitive = None, bloom_filters: BloomFilters = None,
                  encryption: EncryptionConfiguration | None = None, keys: WritingKeys = None,
                  policy: Policy | FilePath | None = None, plaintext: bool = False,
                  row_group_size: int | None = None, max_rows_per_file: int | None = None,
                  index_columns: str | Iterable[str] = (),
                  filesystem: pa_fs.FileSystem | None = None, progress: bool | None = None,
                  **writer_options: Unpack[WriterOptions]) -> CommitSummary:
    """Write a folder of Parquet files with Bloom filters; they become visible together.

    Until the last step, readers of secure_bloom see none of the files, and with ``overwrite`` the
    previous ones. After an exception, or if the process is killed, this remains so. The next write
    to the folder, here or with Spark, removes what was left behind.

    Parameters
    ----------
    data : table, data frame, query or stream
        Anything with the Arrow PyCapsule interface: tables of pyarrow and arro3, data frames of
        pandas and Polars, relations of DuckDB, a pyarrow RecordBatchReader. Also a pyarrow Dataset
        or Scanner, a Polars LazyFrame, or an iterable of record batches, with the schema of the
        first. At most 128 MiB of it are buffered; see the page "Writing".
    path : str or path
        The folder, or its URI. It is created if it does not exist.
    partition_by : str or iterable of str, optional
        Top-level columns whose values become folders, such as ``day=2024-01-31/city=Rome``, named
        as in Spark, instead of being stored in the files. They can be boolean, integer, decimal,
        date32 or string columns. They must not be encrypted.
    mode : {"error", "append", "overwrite", "overwrite_partitions"}
        What to do if the folder has files: raise CommitError; keep them; replace all of them, in
        all partitions; or replace those of the partitions for which ``data`` has rows. All other
        partitions then stay as they are.
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
    encryption : EncryptionConfiguration, optional
        pyarrow's class of that name is also accepted. Default: the files are not encrypted. If
        files are appended, columns must be encrypted that are encrypted in the first of the
        existing ones, by path. The others, and the types of columns, are not looked at: a policy
        requires encryption whatever the folder has.
    keys : KmsClient, KeyEncryptionKeys, path of a keyring, or URI of a KMS, optional
        For the encryption. Key-encryption keys are made once for all files, with one call of the
        KMS for each master key. Default: the KMS of the environment, see the page "Keys".
    policy : Policy, str or path, optional
        Which columns must be encrypted; see the page "One policy for all files". ``encryption`` may
        add to it; without ``encryption``, the policy alone decides. The policy's filters are added
        for columns that ``bloom_filters`` does not name. Rules for some paths apply to the paths at
        which the files become visible.
    plaintext : bool
        Write without encryption. If a policy is given, and would not encrypt any column, the write
        is refused unless this is set, or rules of the policy allow plaintext for every column.
    row_group_size : int, optional
        Rows per row group; default: at most 1,048,576. A row group also ends at 128 MiB of Arrow
        data.
    max_rows_per_file : int, optional
        When a file has this many rows, another is started. Default: no limit.
    index_columns : str or iterable of str, optional
        Dotted paths of columns whose indexes are kept current, see the page "The index of a table".
        If there is none, and the column is encrypted, it is created. Files become part of the index
        after they are visible; if that fails, a warning is logged, and the next update adds them.
    filesystem : pyarrow.fs.FileSystem, optional
        Filesystem of ``path``; default: local, or by URI.
    progress : bool, optional
        Whether to show the progress on standard error, if the number of rows is known. Default: if
        it takes more than two seconds, in a terminal or a notebook.
    **writer_options
        Options of :class:`pyarrow.parquet.ParquetWriter`, such as ``compression="zstd"``.

    Returns
    -------
    CommitSummary
        Its ``files``, ``rows`` and ``bytes``, the ``encrypted_columns`` with their master keys,
        the ``open_columns``, the ``indexed_columns`` whose index was updated, and the numbers of
        ``encrypted_filters`` and ``plain_filters``.

    Raises
    ------
    CommitError
        If the folder has files and ``mode`` is "error", or the files could not become visible, or
        a column that is encrypted in the folder's first file would be appended in plaintext.
    ColumnError
        If a column does not exist, or cannot be used as requested; or if a partition column is
        encrypted. If the index of a column does not have the same encryption, or a column without
        encryption has no index.
    ChangedMeanwhileError
        If another job replaces the same partitions, or files of them, at the same time.
    PolicyError
        If the policy is not valid, or the files would not meet it; or if no column would be
        encrypted, and plaintext was not asked for.
    UnsupportedError
        If the folder belongs to a Delta Lake, Iceberg or Hudi table, or a column cannot be a
        partition column.
    KeyRetrievalError
        If a master key cannot be used.
    TypeError, ValueError
        If an argument is not valid.
    Exception
        Whatever the stream raises.

    Examples
    --------
    >>> secure_bloom.write_dataset(people, "people/", sensitive=["ssn"],  # doctest: +SKIP
    ...                            keys="keyring.json")
    """
    check_options(write_dataset, writer_options)
    if mode not in _MODES:
        raise ValueError(f"mode must be one of {', '.join(_MODES)}, not {mode!r}")
    if mode == "overwrite_partitions" and not partition_by:
        raise ValueError('mode="overwrite_partitions" needs partition_by')
    if not is_path(path):
        raise TypeError(f"path must be that of a folder, not {type(path).__name__}")
    for name, rows in (("row_group_size", row_group_size),
                       ("max_rows_per_file", max_rows_per_file)):
        if rows is not None and rows < 1:
            raise ValueError(f"{name} must be at least 1, got {rows}")
    check_contradictions(encryption, sensitive, plaintext=plaintext)
    place = without_subtree(*resolve(path, filesystem))
    partition_by = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    with error_location(file=place[1]):
        job = Job(*place, _MODES[mode])
        job.check_folder()
        _check_mode(job, mode, partition_by)
        with open_stream(data) as stream:
            check_partition_columns(stream.schema, partition_by)
            files = job_files(job, stream.schema, partition_by, sensitive, bloom_filters,
                              encryption, keys, policy, writer_options, plaintext=plaintext)
            if mode in ("append", "overwrite_partitions"):
                _check_appended(job, files)
            indexes = _indexes(files, index_columns)
            job.start()
            try:
                with shown_progress("write", progress) as advance:
                    staged, segments = _write(job, _counted(stream, total_rows(data), advance),
                                              files, row_group_size, max_rows_per_file, indexes)
                _check_mode(job, mode, partition_by)
            except BaseException:
                job.abort()
                raise
        summary = job.commit(staged)
        assert summary is not None  # only batches of streaming queries may be committed already
        indexed = [] if indexes is None or segments is None else \
            indexes.publish(job, [segments], files.kms)
        encrypted, others = protection(files.encryption, files.leaves)
        return replace(summary, encrypted_columns=encrypted, open_columns=others,
                       indexed_columns=indexed)


def _check_mode(job: Job, mode: str, partition_by: tuple[str, ...]) -> None:
    if mode == "overwrite":
        return
    visible = job.visible_files()
    if mode == "error" and visible:
        raise CommitError(HAS_FILES, file=job.folder)
    check_same_columns(visible, job.folder, partition_by)


def _check_appended(job: Job, files: JobFiles) -> None:
    """Raise CommitError if something would be open that is encrypted in the first file.

    Names that differ in case only are of one column, as in Spark and in policies, unless the file
    has both. A file that is damaged, or was changed or removed meanwhile, says nothing, and neither
    does one whose footer key this caller does not have.
    """
    for path in job.visible_files()[:1]:
        with contextlib.suppress(FileError, KeyRetrievalError, ChangedMeanwhileError,
                                 FileNotFoundError):
            source = Source(path, job.filesystem)
            with source.file:
                content, magic = read_footer(source)
            if magic == MAGIC_ENCRYPTED and files.encryption is None:
                raise CommitError(_IN_PLAINTEXT, file=path)
            keys = None if files.kms is None else KmsKeys(files.kms)
            footer = Footer(content, magic, keys)
            if footer.is_encrypted and files.encryption is None:
                raise CommitError(_IN_PLAINTEXT, file=path)
            present = set(footer.columns_by_path)
            encrypted = {chunk.column.path for chunk in footer.column_chunks() if chunk.encryption}
            folded = {name.lower() for name in encrypted}
            own = master_keys_by_leaf(files.encryption, files.leaves)
            for leaf in files.leaves:
                is_encrypted = leaf.path in encrypted if leaf.path in present \
                    else leaf.path.lower() in folded
                if is_encrypted and leaf.ordinal not in own:
                    raise CommitError(f"column {shown(leaf.path)} is encrypted in this file of the "
                                      "folder, and would be open in what is added: encrypt it, "
                                      "too, or write to another folder", file=path)


def _counted(stream: BatchStream, total: int | None,
             advance: Callable[[float], None]) -> Iterator[pa.RecordBatch]:
    done = 0
    for batch in stream:
        yield batch
        done += batch.num_rows
        if total:
            advance(done / total)


def _write(job: Job, stream: Iterable[pa.RecordBatch], files: JobFiles, row_group_size: int | None,
           max_rows_per_file: int | None, indexes: WrittenIndexes | None) \
        -> tuple[list[StagedFile], TaskSegments | None]:
    partitioner = Partitioner(files.partition_by)
    rows = min(row_group_size or DEFAULT_ROW_GROUP_ROWS, MAX_ROW_GROUP_ROWS)
    with ExitStack() as stack:
        indexing, open_file = None, files.open
        if indexes is not None:
            indexing = stack.enter_context(indexes.task(job, files.wrapping or NO_KEYS))
            open_file = partial(_open_observed, files, indexing)
        task = stack.enter_context(TaskFiles(
            job, 0, files.schema, open_file, row_group_size=rows,
            max_rows_per_file=max_rows_per_file,
            completed=None if indexing is None else indexing.add))
        for batch in stream:
            for start in range(0, batch.num_rows, _SPLIT_ROWS):
                for name, part in partitioner.split(batch.slice(start, _SPLIT_ROWS)):
                    task.add(name, part)
        staged = task.finish()
        segments = None if indexing is None else indexing.finish()
    if not staged and not job.remaining_files():
        staged = [write_empty_file(job, files.partition_by, files.open)]
    return staged, segments


def _open_observed(files: JobFiles, indexing: TaskIndexes, path: str) -> ParquetWriter:
    return indexing.observe(path, files.open(path))


def _indexes(files: JobFiles, columns: str | Iterable[str]) -> WrittenIndexes | None:
    """Open or create the indexes of some columns."""
    wanted = list(dict.fromkeys([columns] if isinstance(columns, str) else columns))
    if not wanted:
        return None
    from secure_bloom.index.writing import WrittenIndexes  # which other writes do not need
    filter_columns(files.leaves, wanted)  # checks them
    if files.encryption is not None and files.kms is None:
        raise TypeError("keys must be a KMS, not KeyEncryptionKeys, to open an index")
    keys = master_keys_by_leaf(files.encryption, files.leaves)
    by_path = {leaf.path: keys.get(leaf.ordinal) for leaf in files.leaves}
    return WrittenIndexes.of(files.job, {path: by_path[path] for path in wanted}, files.kms)

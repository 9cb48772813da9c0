"""A Parquet file as users see it: its Bloom filters, the row groups worth reading, its rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pa_fs

from secure_bloom.arrow.masking import OnMissingKey
from secure_bloom.display import Summarized, count, shown
from secure_bloom.keys.retrieval import Keys
from secure_bloom.parquet.bloom_filter import BloomFilterInfo
from secure_bloom.parquet.footer import Footer
from secure_bloom.parquet.schema import LeafColumn
from secure_bloom.policy.environment import reading_requirement
from secure_bloom.policy.policy import Policy
from secure_bloom.policy.requirement import RequireEncryption
from secure_bloom.pruning.file_filters import FilterCache
from secure_bloom.pruning.predicates import Filters
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.reading.row_groups import prune
from secure_bloom.reading.rows import iter_batches, iter_tables, read_rows
from secure_bloom.sbbf.filter import SplitBlockBloomFilter
from secure_bloom.storage.files import FilePath, FileSource


class ParquetFile(Summarized):
    """A Parquet file and its Bloom filters.

    All data that an object reads is of one version of the file. If a local file is replaced by
    renaming, that is the version that was opened, until :meth:`close`. If a file is overwritten in
    place, or is in an object store, methods raise ChangedMeanwhileError once it has changed.

    Parameters
    ----------
    source : str, path, buffer, or seekable binary file
        A Python file object is read by one thread at a time; the other sources by many.
    keys : KmsClient, ExplicitKeys, path of a keyring, or URI of a KMS, optional
        For encrypted files. Default: the KMS of the environment, see the page "Keys". Without
        keys, or with ``secure_bloom.keys.NO_KEYS``, only plaintext parts can be read.
    filesystem : pyarrow.fs.FileSystem, optional
        Filesystem of ``source`` if that is a path; default: local, or by URI.
    require_encryption : bool, list of str, or mapping of str to str, optional
        What must be encrypted. True: the footer, which may be signed instead, and every column. A
        list of dotted paths: these columns, where a group stands for all leaves below it. A
        mapping: these columns, each under this master key. By default only :class:`ExplicitKeys`
        refuse unencrypted files.
    policy : Policy, path or URI, optional
        What must be encrypted according to a policy, see the page "One policy for all files". With
        ``require_encryption``, both must hold.
    on_missing_key : {"error", "null"}
        What :meth:`read`, :meth:`iter_tables` and :meth:`iter_batches` do with columns whose key
        does not exist or is denied. "null": they are masked, which means that all values are null,
        and a :class:`.MissingKeyWarning` names them. See the page "Keys".
    filter_cache : FilterCache, optional
        Where decrypted filters are kept. By default they are read each time.

    Raises
    ------
    FormatError, AuthenticationError, KeyRetrievalError
        With the name of the file, and with row group and column if applicable.
    ColumnError
        If ``require_encryption`` names a column that does not exist.
    UnsupportedError
        If the file is a summary of other files (``_metadata``), without rows of its own.
    ChangedMeanwhileError
        If the file was replaced or changed while it was read.
    """

    def __init__(self, source: FileSource, keys: Keys = None, *,
                 filesystem: pa_fs.FileSystem | None = None,
                 require_encryption: RequireEncryption = None,
                 policy: Policy | FilePath | None = None,
                 on_missing_key: OnMissingKey = "error",
                 filter_cache: FilterCache | None = None):
        requirement = reading_requirement(require_encryption, policy, in_transition=True)
        self._file = OpenFile(source, keys, filesystem=filesystem, require_encryption=requirement,
                              on_missing_key=on_missing_key, filter_cache=filter_cache)

    @property
    def name(self) -> str:
        """Name of the file, as used in errors."""
        return self._file.name

    @property
    def num_row_groups(self) -> int:
        """Number of row groups."""
        return self._file.num_row_groups

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return self._file.num_rows

    @property
    def columns(self) -> list[LeafColumn]:
        """The leaf columns."""
        return self._file.columns

    @property
    def footer(self) -> Footer:
        """The footer, for uses beyond what this class provides."""
        return self._file.footer

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema."""
        return self._file.schema

    @property
    def bloom_filters(self) -> list[BloomFilterInfo]:
        """Return one record per filter, by row group and column. Reads the header of each filter.

        The :attr:`columns_without_key` are omitted: whether they have filters cannot be known.
        """
        return self._file.bloom_filters

    @property
    def columns_without_key(self) -> list[str]:
        """Paths of columns whose metadata is encrypted with a key not available to this reader.

        The key is missing, or the KMS denies access to it.
        """
        return list(self._file.key_errors)

    def read_bloom_filter(self, row_group: int, column: str) -> SplitBlockBloomFilter | None:
        """Read the filter of a column chunk; None if it has none.

        It records the column's type, so that ``check`` hashes values as the file does.

        Raises
        ------
        FormatError, AuthenticationError, UnsupportedError, KeyRetrievalError
            If the filter cannot be read; with file, row group and column.
        ColumnError
            If there is no such column.
        """
        return self._file.read_bloom_filter(row_group, column)

    def might_contain(self, column: str, values: object) -> np.ndarray:
        """Check which row groups may hold which values, as far as the Bloom filters tell.

        Parameters
        ----------
        column : str
            Dotted path of a leaf column.
        values : scalar, sequence, or Arrow array

        Returns
        -------
        bool array, shape (row groups, values)
            False: the value is certainly not there. True also if a row group has no filter, or one
            of an unknown kind.
        """
        return self._file.might_contain(column, values)

    def prune(self, filters: Filters) -> list[int]:
        """Return the row groups that may hold rows matching these filters.

        Statistics are checked first, which costs nothing, then the Bloom filters of the remaining
        row groups.

        Parameters
        ----------
        filters : list of tuple, list of list of tuple, or pyarrow.compute.Expression
            ``[("city", "==", "Rome")]``, or a list of such lists, one of which must hold. Or an
            Expression such as ``pc.field("city") == "Rome"``, with Arrow's semantics; see
            the page "Row filters".

        Raises
        ------
        PredicateError
            If a value cannot be compared with its column.
        KeyRetrievalError
            If a filter uses a column whose key is missing.
        """
        return prune(self._file, filters)

    def read(self, columns: list[str] | None = None, filters: Filters | None = None) -> pa.Table:
        """Read rows; row groups that statistics or Bloom filters rule out are not read.

        Parameters
        ----------
        columns : list of str, optional
            Names of the columns to read. Default: all.
        filters : list of tuple, list of list of tuple, or pyarrow.compute.Expression, optional
            As for :meth:`prune`; only matching rows are returned.

        Raises
        ------
        PredicateError
            If a value cannot be compared with its column; raised before any row is read.
        UnsupportedError
            If all columns are requested, and two of them have the same name.
        """
        return read_rows(self._file, columns, filters)

    def iter_tables(self, columns: list[str] | None = None, filters: Filters | None = None) \
            -> Iterator[pa.Table]:
        """Yield the rows that :meth:`read` returns, one table for each row group that is read.

        Before a table is yielded, it is checked to be of the version that was opened.
        """
        return iter_tables(self._file, columns, filters)

    def iter_batches(self, columns: list[str] | None = None,
                     row_groups: Iterable[int] | None = None,
                     batch_rows: int = 65_536) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some row groups in small batches, decoded one at a time.

        Parameters
        ----------
        columns : list of str, optional
            Names of top-level columns. Default: all.
        row_groups : iterable of int, optional
            Default: all.
        batch_rows : int
            Maximum number of rows per batch.

        Notes
        -----
        INT96 timestamps are returned in microseconds, which can represent all years.

        Before a batch is yielded, it is checked to be of the version that was opened.
        """
        return iter_batches(self._file, columns, row_groups, batch_rows)

    def close(self) -> None:
        """Close the file if it was opened by this object."""
        self._file.close()

    def __enter__(self) -> ParquetFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _headline(self) -> str:
        return (f"{shown(self.name, 60)}: {count(self.num_row_groups, 'row group')}, "
                f"{count(self.num_rows, 'row')}")

    def _rows(self) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        return ("column", "type"), ((leaf.path, leaf.type) for leaf in self.columns)

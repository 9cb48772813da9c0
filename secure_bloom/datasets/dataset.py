"""A data set of files that are read as one table, in the interface of ``pyarrow.dataset``."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pa_fs

from secure_bloom.arguments import unknown_argument
from secure_bloom.arrow.leaves import without_dictionaries_in_lists
from secure_bloom.arrow.masking import OnMissingKey, is_masking
from secure_bloom.datasets.dataset_file import DatasetFile, OutdatedError
from secure_bloom.datasets.fragment import Fragment
from secure_bloom.datasets.index_use import index_use
from secure_bloom.datasets.masking import nullable_schema
from secure_bloom.datasets.opening import open_files
from secure_bloom.datasets.refused_files import RefusedFiles
from secure_bloom.datasets.report import ScanReport
from secure_bloom.datasets.scanner import Columns, Scanner, View
from secure_bloom.datasets.schemas import check_given
from secure_bloom.datasets.sources import DatasetSource, FilesRequest, find_files
from secure_bloom.display import count, html, shown
from secure_bloom.keys.retrieval import Keys, open_keys
from secure_bloom.policy.environment import reading_requirement
from secure_bloom.policy.policy import Policy
from secure_bloom.policy.requirement import RequireEncryption
from secure_bloom.pruning.expressions import RowGroupFilter
from secure_bloom.pruning.predicates import Filters, condition_of
from secure_bloom.storage.files import FilePath
from secure_bloom.storage.versions import until_unchanged

if TYPE_CHECKING:
    from secure_bloom.index.planning import IndexUse


def dataset(source: DatasetSource, keys: Keys = None, *, schema: pa.Schema | None = None,
            filesystem: pa_fs.FileSystem | None = None, with_source: bool = False,
            all_files: bool = False, require_encryption: RequireEncryption = None,
            policy: Policy | FilePath | None = None,
            on_missing_key: OnMissingKey = "error", index: IndexUse = "auto") -> Dataset:
    """Open Parquet files as one data set, which pyarrow, DuckDB, DataFusion and others can scan.

    The footers of all files are read, except those of files in an index. The files and their
    schemas are those found now: if files are added later, open the data set again. Rows are always
    those of the current version of a file.

    Parameters
    ----------
    source : path, list of paths, DeltaTable, or pyiceberg table or scan
        The path of a file, a folder, a glob pattern (``**`` crosses folders), or a URI of one. In a
        folder, files are skipped if any part of their path begins with ``_`` or ``.``, or if a job
        has not committed them. ``name=value`` folders become columns. From a table, the files of
        its current version are read.
    keys : KmsClient, ExplicitKeys, path of a keyring, or URI of a KMS, optional
        For encrypted files. Default: the KMS of the environment, see the page "Keys". Without keys,
        or with ``secure_bloom.keys.NO_KEYS``, only plaintext parts can be read. For a table that
        Iceberg encrypts: the KMS that has its master key.
    schema : pyarrow.Schema, optional
        Default: all columns of all files, each with a type that holds the values of all files.
        Columns that a file lacks are null; a partition column has the type that the schema says. In
        lists and maps, values take the place of dictionaries, which DuckDB would read wrong or
        refuse.
    filesystem : pyarrow.fs.FileSystem, optional
        Filesystem of ``source``; default: local, or by URI.
    with_source : bool
        Add the columns ``file`` and ``row_group`` (from 0), in front.
    all_files : bool
        Read the folder of a Delta Lake, Iceberg or Hudi table, or of a Spark streaming query, as
        plain files. These may hold rows that the table has deleted.
    require_encryption : bool, list of str, or mapping of str to str, optional
        What must be encrypted; as for :func:`read_table`.
    policy : Policy, path or URI, optional
        What must be encrypted according to a policy; with ``require_encryption``, both must hold.
    on_missing_key : {"error", "null"}
        What to do with columns whose key does not exist or is denied. "null": they are masked,
        which means that all values are null, in the files whose key is missing. Only the keys of
        the columns that a scan reads are requested. The schemas of results mark masked columns,
        and a :class:`.MissingKeyWarning` names them. See the page "Keys".
    index : {"auto", "off", "require"}
        Whether to use the index of the files' table, see the page "The index of a table". "auto":
        if there is one, and its key is available. "require": an error if it cannot be used.

    Returns
    -------
    Dataset
        A :class:`pyarrow.dataset.Dataset`. Its filters may have pyarrow's list form, too.

    Raises
    ------
    UnsupportedError
        If a folder belongs to a table; or if a column has types in two files that do not fit.
    FormatError, AuthenticationError, KeyRetrievalError
        With the name of the file.

    Examples
    --------
    >>> people = secure_bloom.dataset("people/", "keyring.json")             # doctest: +SKIP
    >>> duckdb.sql("SELECT * FROM people WHERE ssn = '078-05-1120'")         # doctest: +SKIP
    """
    check_given(schema)
    keys = open_keys(keys, remember_denials=is_masking(on_missing_key))
    requirement = reading_requirement(require_encryption, policy, in_transition=True)

    def opened() -> Dataset:
        found = find_files(source, filesystem, all_files=all_files, request=FilesRequest(
            keys, index_use(index, on_missing_key), opens_all=requirement is not None,
            schema=schema))
        indexes = None if found.listed is None else found.listed.indexes
        files, view = open_files(found, found.keys or keys, requirement, schema=schema,
                                 with_source=with_source, on_missing_key=on_missing_key,
                                 indexes=indexes)
        if is_masking(on_missing_key):
            view = view._replace(schema=nullable_schema(view.schema, files))
        return Dataset(found.name, files, view)

    return until_unchanged(opened, OutdatedError)  # files may be removed meanwhile


class Dataset(ds.FileSystemDataset):  # type: ignore[misc]  # pyarrow has no types
    """Parquet files as one table; made by :func:`secure_bloom.dataset`.

    Every method of :class:`pyarrow.dataset.Dataset` that reads rows skips row groups by partition,
    statistics and Bloom filters. Filters are Expressions, or lists of predicates,
    see the page "Row filters".
    """

    def __init__(self, name: str, files: list[DatasetFile], view: View):
        view = view._replace(schema=without_dictionaries_in_lists(view.schema))
        self._name, self._files, self._view = name, files, view
        self._last: Scanner | None = None
        refused = ds.ParquetFileFormat().make_fragment(name, pa_fs.PyFileSystem(RefusedFiles()))
        super().__init__([refused], view.schema, refused.format)

    @property
    def files(self) -> list[str]:
        """Paths of the files."""
        return [file.path for file in self._files]

    @property
    def filesystem(self) -> pa_fs.FileSystem:
        """The filesystem of the paths."""
        return self._view.access.filesystem

    @property
    def filters_rows(self) -> bool:
        """Whether this is the result of :meth:`filter`."""
        return bool(self._view.where)

    @property
    def report(self) -> ScanReport | None:
        """What the scan that was created last has read and skipped so far; None before any."""
        return None if self._last is None else self._last.report

    def scanner(self, columns: Columns = None, filter: Filters | None = None,
                **options: Any) -> Scanner:
        """Return a scanner of the rows for which a filter holds.

        Parameters
        ----------
        columns : list of str, or mapping of str to Expression, optional
        filter : Expression, list of tuple, or list of list of tuple, optional
        **options
            As for :meth:`pyarrow.dataset.Dataset.scanner`.

        Raises
        ------
        ColumnError, PredicateError
            If there is no such column, or a filter does not fit the types of its columns.
        ArgumentError
            If there is no such option.
        """
        known = list(inspect.signature(ds.Dataset.scanner).parameters)[1:]
        for name in options.keys() - known:
            raise unknown_argument(Dataset.scanner, name, known)
        self._last = Scanner(self._view, self._files, columns, filter, options)
        return self._last

    def skipping_scanner(self, columns: list[str] | None, skip_by: RowGroupFilter | None,
                         **options: Any) -> Scanner:
        """Return a scanner that skips row groups by a filter, but does not apply it to rows.

        For engines that filter the rows themselves. The filters of the data set are applied.
        """
        self._last = Scanner(self._view, self._files, columns, None, options, skip_by)
        return self._last

    def to_table(self, columns: Columns = None, filter: Filters | None = None,
                 **options: Any) -> pa.Table:
        """Return the rows as a table; see :meth:`scanner`. If a file changes, it is read again."""
        return self.scanner(columns, filter, **options).to_table()

    def to_batches(self, columns: Columns = None, filter: Filters | None = None,
                   **options: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows as record batches, in bounded memory; see :meth:`scanner`."""
        return self.scanner(columns, filter, **options).to_batches()

    def head(self, num_rows: int, columns: Columns = None, filter: Filters | None = None,
             **options: Any) -> pa.Table:
        """Return the first rows; see :meth:`scanner`."""
        return self.scanner(columns, filter, **options).head(num_rows)

    def take(self, indices: Any, columns: Columns = None, filter: Filters | None = None,
             **options: Any) -> pa.Table:
        """Return the rows with these positions, in this order; see :meth:`scanner`."""
        return self.scanner(columns, filter, **options).take(indices)

    def count_rows(self, filter: Filters | None = None, **options: Any) -> int:
        """Return the number of rows for which a filter holds; without one, from the footers."""
        return self.scanner([], filter, **options).count_rows()

    def explain(self, filter: Filters | None = None) -> ScanReport:
        """Return what a scan would read and skip; ``print`` it for a picture.

        Only footers, Bloom filters, and the page indexes of the columns in the filter are read.
        """
        return self.scanner([], filter).explain()

    def get_fragments(self, filter: Filters | None = None) -> Iterator[Fragment]:
        """Yield the files that may have matching rows, each with the row groups to read.

        The filter is not applied to their rows, but the filters of the data set are.
        """
        for file in self.scanner([], filter).remaining_files():
            yield Fragment(self._view, file)

    def filter(self, expression: Filters) -> Dataset:
        """Return the data set of the rows for which a filter holds, besides earlier ones."""
        condition = condition_of(expression)
        self.scanner([], condition)  # checks the filter
        where = (*self._view.where, condition)
        return Dataset(self._name, self._files, self._view._replace(where=where))

    def replace_schema(self, schema: pa.Schema) -> Dataset:
        """Return the data set with another schema.

        Partition columns are converted from the types that they had. Text such as ``01`` that was
        read as a number is not restored: pass the schema to :func:`secure_bloom.dataset`.
        """
        check_given(schema)
        return Dataset(self._name, self._files, self._view._replace(schema=schema))

    def sort_by(self, sorting: Any, **options: Any) -> ds.InMemoryDataset:
        """Return the rows in an order; see :meth:`pyarrow.dataset.Dataset.sort_by`."""
        return _streamed(self).sort_by(sorting, **options)

    def join(self, right_dataset: ds.Dataset, keys: str | list[str],
             right_keys: str | list[str] | None = None, *arguments: Any,
             **options: Any) -> ds.InMemoryDataset:
        """Join with another data set; see :meth:`pyarrow.dataset.Dataset.join`."""
        return _streamed(self, keys).join(_streamed(right_dataset, right_keys or keys), keys,
                                          right_keys, *arguments, **options)

    def join_asof(self, right_dataset: ds.Dataset, on: str, by: str | list[str], tolerance: int,
                  right_on: str | None = None, right_by: str | list[str] | None = None,
                  ) -> ds.InMemoryDataset:
        """Join with another data set; see :meth:`pyarrow.dataset.Dataset.join_asof`."""
        return _streamed(self, on, by).join_asof(
            _streamed(right_dataset, right_on or on, right_by or by), on, by, tolerance, right_on,
            right_by)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.scanner().__arrow_c_stream__(requested_schema)

    def __reduce__(self) -> tuple[type[Dataset], tuple[str, list[DatasetFile], View]]:
        return Dataset, (self._name, self._files, self._view)

    def _repr_html_(self) -> str:
        return html(repr(self)[1:-1], ("column", "type"), zip(self.schema.names, self.schema.types,
                                                              strict=True))

    def __repr__(self) -> str:
        return (f"<Dataset {shown(self._name, 60)}: {count(len(self._files), 'file')}, "
                f"{count(len(self.schema), 'column')}>")


def _streamed(dataset: ds.Dataset, *compared: str | list[str]) -> ds.Dataset:
    """Return a data set that Arrow's C++ code can scan once, and compare these columns of."""
    if not isinstance(dataset, Dataset):
        return dataset
    for names in compared:
        for file in dataset._files:
            file.check_compared([names] if isinstance(names, str) else list(names))
    return ds.InMemoryDataset(dataset.scanner().to_reader())

"""A data set as a Polars LazyFrame."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.fs as pa_fs

from secure_bloom.arrow.masking import OnMissingKey
from secure_bloom.datasets.dataset import Dataset, dataset
from secure_bloom.datasets.sources import DatasetSource
from secure_bloom.errors import UnsupportedError, needs_extra
from secure_bloom.keys.retrieval import Keys
from secure_bloom.policy.policy import Policy
from secure_bloom.policy.requirement import RequireEncryption
from secure_bloom.storage.files import FilePath

if TYPE_CHECKING:
    import polars as pl

    from secure_bloom.index.planning import IndexUse


def scan(source: DatasetSource | Dataset, keys: Keys = None, *, schema: pa.Schema | None = None,
         filesystem: pa_fs.FileSystem | None = None, with_source: bool = False,
         all_files: bool = False, require_encryption: RequireEncryption = None,
         policy: Policy | FilePath | None = None, on_missing_key: OnMissingKey = "error",
         index: IndexUse = "auto") -> pl.LazyFrame:
    """Open Parquet files as a Polars LazyFrame.

    Row groups are skipped by partition, statistics and Bloom filters, using the filters of the
    query that Polars can push down and express in Arrow. Polars filters the rows itself, so
    its rules apply. Only the columns that the query uses are read.

    Parameters
    ----------
    source : path, list of paths, DeltaTable, pyiceberg table or scan, or Dataset
        What :func:`secure_bloom.dataset` takes, or a data set that it has returned: then pass no
        other argument, and its ``report`` tells what a query has skipped.
    keys : KmsClient, ExplicitKeys, path of a keyring, or URI of a KMS, optional
        For encrypted files. Default: the KMS of the environment, see the page "Keys". Without
        keys, or with ``secure_bloom.keys.NO_KEYS``, only plaintext parts can be read.
    schema : pyarrow.Schema, optional
        Default: all columns of all files, each with a type that holds the values of all files.
    filesystem : pyarrow.fs.FileSystem, optional
        Filesystem of ``source``; default: local, or by URI.
    with_source : bool
        Add the columns ``file`` and ``row_group`` (from 0), in front.
    all_files : bool
        Read the folder of a table or of a streaming query as plain files. These may hold rows
        that the table has deleted.
    require_encryption : bool, list of str, or mapping of str to str, optional
        What must be encrypted; as for :func:`read_table`.
    policy : Policy, path or URI, optional
        What must be encrypted according to a policy; with ``require_encryption``, both must hold.
    on_missing_key : {"error", "null"}
        What happens to columns whose key is missing, or denied by the KMS; as for
        :func:`secure_bloom.dataset`. Polars keeps no metadata of columns, so it does not show
        which ones are masked.
    index : {"auto", "off", "require"}
        Whether to use the index of the folder's table; as for :func:`secure_bloom.dataset`.

    Returns
    -------
    polars.LazyFrame
        Each ``collect`` reads the current version of the files.

    Raises
    ------
    MissingExtraError
        If Polars is not installed.
    UnsupportedError
        If Polars has no type for a column. Otherwise as for :func:`secure_bloom.dataset`.

    Examples
    --------
    >>> people = secure_bloom.scan("people/", "keyring.json")                # doctest: +SKIP
    >>> people.filter(pl.col("ssn") == "078-05-1120").collect()              # doctest: +SKIP
    """
    pl = import_polars()
    options: dict[str, Any] = {
        "keys": keys, "schema": schema, "filesystem": filesystem, "with_source": with_source,
        "all_files": all_files, "require_encryption": require_encryption, "policy": policy,
        "on_missing_key": on_missing_key, "index": index}
    if not isinstance(source, Dataset):
        source = dataset(source, **options)
    else:
        given = [name for name, value in options.items()
                 if value is not None and value is not False and value not in ("error", "auto")]
        if given:
            raise TypeError(f"an open data set has its own {given[0]}; pass {given[0]} to "
                            "secure_bloom.dataset")
    return pl.io.plugins.register_io_source(_DatasetSource(source), schema=frame_schema(source),
                                            is_pure=True)


def import_polars() -> Any:
    """Import and return the module ``polars``.

    Raises MissingExtraError if it is not installed.
    """
    with needs_extra("secure_bloom.scan needs Polars", "polars"):
        import polars
        import polars.io.plugins
    return polars


def frame_schema(source: Dataset) -> pl.Schema:
    """Return the Polars types of the columns of a data set.

    Raises UnsupportedError if Polars has no type for a column, or if a column has no name.
    """
    import polars as pl

    from secure_bloom.engines.polars_frames import as_frame
    types: dict[str, pl.DataType] = {}
    for field in source.schema:
        if not field.name:  # Polars would rename it, and not find it when it reads
            raise UnsupportedError("Polars cannot hold a column with an empty name; pass a schema "
                                   "without this column")
        try:
            own = as_frame(pa.schema([field]).empty_table()).schema
            types.update(pl.LazyFrame(schema=own).collect_schema())
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, pa.ArrowException) \
                as error:
            raise UnsupportedError(f"Polars cannot hold type {field.type}; pass a schema without "
                                   "this column", column=field.name) from error
    return pl.Schema(types)


class _DatasetSource:
    """What Polars calls to read rows. It can be pickled if the data set can."""

    def __init__(self, source: Dataset):
        self._source = source

    def __call__(self, columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None,
                 batch_size: int | None) -> Iterator[pl.DataFrame]:
        """Yield the rows. If ``n_rows`` is given, it is applied before the predicate."""
        from secure_bloom.engines.polars_predicates import row_group_filter
        source = self._source
        skip_by = None
        if predicate is not None and n_rows is None:
            skip_by = row_group_filter(predicate, source.schema)
        options = {} if batch_size is None else {"batch_size": batch_size}
        scanner = source.skipping_scanner(columns, skip_by, **options)
        yield frame_schema(source).to_frame().select(scanner.projected_schema.names)
        if n_rows == 0:
            return
        left = n_rows
        for frame in self._frames(scanner, n_rows):
            if left is not None:
                frame = frame.head(left)
                left -= frame.height
            yield frame if predicate is None else frame.filter(predicate)
            if left == 0:
                return

    def _frames(self, scanner: Any, n_rows: int | None) -> Iterator[pl.DataFrame]:
        from secure_bloom.engines.polars_files import FrameReader
        from secure_bloom.engines.polars_frames import as_frame
        if self._source.filters_rows:
            return map(as_frame, scanner.to_batches())
        types = frame_schema(self._source)
        wanted = {name: types[name] for name in scanner.projected_schema.names}
        return scanner.rows_by(lambda read_arrow, pool: FrameReader(
            read_arrow, pool, self._source.schema, wanted, n_rows))

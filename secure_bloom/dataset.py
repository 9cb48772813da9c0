"""Read a Parquet file, or a folder of them as one table."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pa_fs

from secure_bloom import predicates
from secure_bloom.encryption_requirement import (
    FolderChecks,
    RequireEncryption,
    encryption_requirement,
)
from secure_bloom.errors import FileError, KeyRetrievalError, located
from secure_bloom.files import is_path, resolve
from secure_bloom.folder import data_files
from secure_bloom.keys.cache import cached
from secure_bloom.keys.environment import or_environment
from secure_bloom.pages import pyarrow_errors, to_table
from secure_bloom.reader import ParquetFile
from secure_bloom.tables import check_readable

_ALL_FILES = "set all_files=True"
_AHEAD = 4  # files whose rows are read before the schema of all is known


def read_table(source, *, keys=None, columns: list[str] | None = None, filters=None,
               filesystem=None, all_files: bool = False,
               require_encryption: RequireEncryption = None) -> pa.Table:
    """Read a Parquet file or a folder of them, skipping what the Bloom filters rule out.

    Parameters
    ----------
    source : str, path, buffer, or binary file that can seek
        In a folder, every file is read whose path has no part that begins with ``_`` or ``.``,
        except those of Spark jobs that have not committed; ``name=value`` folders become columns
        (Hive partitions).
    keys, filesystem
        As for :class:`ParquetFile`.
    columns, filters
        As for :meth:`ParquetFile.read`.
    all_files : bool
        Read a folder of a Delta Lake, Iceberg or Hudi table, or of a streaming query of Spark, by
        its files. They may hold rows that the table has deleted. A file that is named itself is
        read in any case.
    require_encryption
        As for :class:`ParquetFile`, of every file. In a folder a file may lack a column that
        another one has.

    Raises
    ------
    UnsupportedError
        If the folder belongs to such a table, or contains one.
    """
    requirement = encryption_requirement(require_encryption)
    keys = or_environment(keys)
    if not is_path(source):
        return ParquetFile(source, keys, require_encryption=requirement).read(columns, filters)
    filesystem, path = resolve(source, filesystem)
    path = path.rstrip("/") or path
    keys = cached(keys) if hasattr(keys, "unwrap_key") else keys  # one cache for all files
    if filesystem.get_file_info(path).type != pa_fs.FileType.Directory:
        return ParquetFile(path, keys, filesystem=filesystem,
                           require_encryption=requirement).read(columns, filters)
    check = None if all_files else partial(check_readable, filesystem, path, advice=_ALL_FILES)
    return _read_folder(filesystem, path, keys, columns, filters, requirement, check)


def _read_folder(filesystem, folder: str, keys, columns, filters, requirement,
                 check) -> pa.Table:
    paths = data_files(filesystem, folder, check)
    if not paths:
        raise FileNotFoundError(f"there are no Parquet files in {folder}")
    alternatives = None if filters is None else predicates.normalize(filters)
    partition_schema, partitions = _partitions(filesystem, folder, paths)
    checks = FolderChecks(requirement, partition_schema.names)
    opened = partial(_open, keys=keys, filesystem=filesystem, alternatives=alternatives,
                     partition_schema=partition_schema, checks=checks)
    fragments, schemas, first = [], [], []
    with ExitStack() as stack, ThreadPoolExecutor(_threads(filesystem)) as pool, \
            ThreadPoolExecutor(1) as reader, located(file=folder):
        for schema, fragment, file in pool.map(opened, paths, partitions):
            schemas.append(schema)
            fragments.append(fragment)
            stack.enter_context(file or nullcontext())
            if fragment is not None and alternatives is not None and len(first) < _AHEAD:
                # Meanwhile the other files are looked at.
                guess = _unified(schemas[:1], partition_schema)
                first.append(reader.submit(to_table, [fragment], guess, columns, alternatives))
        with located(file=folder):
            checks.finish()
        schema = _unified(schemas, partition_schema)
        kept = list(filter(None, fragments))
        try:
            with pyarrow_errors(folder, keys):
                tables = [rows.result() for rows in first] \
                    if first and guess.equals(schema, check_metadata=True) else []
                rest = kept[len(tables):]
                if rest or not tables:
                    tables.append(to_table(rest, schema, columns, alternatives))
                return pa.concat_tables(tables)
        except (FileError, KeyRetrievalError):
            for path, fragment in zip(paths, fragments, strict=True):  # which one was it?
                with pyarrow_errors(path, keys):
                    to_table([fragment] if fragment else [], schema, columns, alternatives)
            raise


def _unified(schemas: list[pa.Schema], partition_schema: pa.Schema) -> pa.Schema:
    """The schema of the table; where path and file disagree about a column, the path wins."""
    own = [pa.schema([field for field in schema if field.name not in partition_schema.names],
                     schema.metadata)
           for schema in {id(schema): schema for schema in schemas}.values()]  # mostly one
    return pa.unify_schemas([*own, partition_schema])


def _threads(filesystem: pa_fs.FileSystem) -> int:
    """How many files to open at a time: local ones make little to wait for, and Python's lock is
    passed on all the more often."""
    return min(pa.cpu_count(), 4) if filesystem.type_name == "local" else pa.io_thread_count()


def _open(path: str, partition: pc.Expression, *, keys, filesystem, alternatives,
          partition_schema: pa.Schema, checks: FolderChecks
          ) -> tuple[pa.Schema, ds.ParquetFileFragment | None, ParquetFile | None]:
    """The schema of a file, what is to be read of it, and the file where that needs it open."""
    file = ParquetFile(path, keys, filesystem=filesystem, require_encryption=checks)
    is_needed = False
    try:
        values = {name: pa.scalar(value, partition_schema.field(name).type)
                  for name, value in ds.get_partition_keys(partition).items()}
        fragment = file.fragment_for(alternatives, partition, values)
        schema = file.schema
        is_needed = fragment is not None and fragment.filesystem is None  # else: by its path
        return schema, fragment, file if is_needed else None
    finally:
        if not is_needed:
            file.close()


def _partitions(filesystem, folder: str, paths: list[str]) -> tuple[pa.Schema,
                                                                    list[pc.Expression]]:
    """The Hive partition columns of a folder, and for each file the values that it has."""
    options = ds.FileSystemFactoryOptions(partition_base_dir=folder,
                                          partitioning=ds.HivePartitioning.discover())
    factory = ds.FileSystemDatasetFactory(filesystem, paths, ds.ParquetFileFormat(), options)
    schema = factory.inspect(fragments=0)  # from the paths alone, no file is opened
    partitioning = ds.HivePartitioning(schema)
    return schema, [partitioning.parse(path.removeprefix(folder)) for path in paths]

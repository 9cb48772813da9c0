"""Reading: one partition for each file, row group by row group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.fs as pa_fs
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructField, StructType

from secure_bloom.dataset import data_files
from secure_bloom.errors import KeyNotFoundError, UnsupportedError, located
from secure_bloom.keys import Keyring
from secure_bloom.keys.retrieval import key_retriever
from secure_bloom.reader import ParquetFile
from secure_bloom.spark.options import check_names, keyring_path, locate
from secure_bloom.spark.schema import arrow_schema, spark_schema

_BATCH_ROWS = 10_000  # as Spark's own batches have by default


class Folder:
    """The files behind a path, and how to open them. Pickled without any key.

    Parameters
    ----------
    options : mapping of str to str
        ``path`` and, for encrypted files, ``keyring``. The options for writing change nothing.
    """

    def __init__(self, options: Mapping[str, str]):
        check_names(options)
        self.filesystem, self.path = locate(options)
        self._keyring = keyring_path(options)

    def files(self) -> list[str]:
        """The visible files, sorted; the path itself where it is a file.

        Raises
        ------
        FileNotFoundError
            If there is nothing at the path.
        UnsupportedError
            If there are Hive partitions, whose columns would be missing.
        """
        info = self.filesystem.get_file_info(self.path)
        if info.type == pa_fs.FileType.NotFound:
            raise FileNotFoundError(f"there is no folder {self.path}")
        if info.type == pa_fs.FileType.File:
            return [self.path]
        files = data_files(self.filesystem, self.path)
        for file in files:
            if "=" in file.removeprefix(self.path).rpartition("/")[0]:
                raise UnsupportedError("secure_parquet does not read Hive partitions; "
                                       "secure_bloom.read_table does", file=file)
        return files

    def keys(self):
        """The keyring, with a cache for the keys of several files; None if none was named."""
        return key_retriever(Keyring(self._keyring)) if self._keyring else None

    def open(self, path: str, keys) -> ParquetFile:
        """One of the files."""
        try:
            return ParquetFile(path, keys, filesystem=self.filesystem)
        except KeyNotFoundError as error:
            if keys is not None:
                raise
            raise KeyNotFoundError("the file is encrypted; name the keyring file in option keyring",
                                   file=path) from error


def folder_schema(folder: Folder) -> StructType:
    """The columns of all files of a folder.

    Raises
    ------
    FileNotFoundError
        If there is no file.
    UnsupportedError
        If a column has different types in two files.
    """
    fields: dict[str, StructField] = {}
    keys = folder.keys()
    for path in folder.files():
        with located(file=path), folder.open(path, keys) as file:
            for field in spark_schema(file.schema):
                known = fields.setdefault(field.name, field)
                if known.dataType != field.dataType:
                    raise UnsupportedError(
                        f"here the type is {field.dataType.simpleString()}, in other files "
                        f"{known.dataType.simpleString()}; say which to use: .schema(...) before "
                        ".load", column=field.name)
    if not fields:
        raise FileNotFoundError(f"there are no Parquet files in {folder.path}")
    return StructType(list(fields.values()))


class SecureParquetReader(DataSourceReader):
    """Reads a folder as rows of a schema.

    Columns are found by name, first exactly, then without case; those that a file lacks are null.
    """

    def __init__(self, folder: Folder, schema: StructType):
        self._folder = folder
        self._schema = arrow_schema(schema)

    def partitions(self) -> list[InputPartition]:
        """One for each file."""
        return [InputPartition(path) for path in self._folder.files()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a file, one row group in memory at a time."""
        if getattr(partition, "value", None) is None:
            return  # Spark's own partition where there are no files
        with self._folder.open(partition.value, self._folder.keys()) as file:
            names = self._names(file.schema.names)
            columns = [name for name in names if name is not None]
            for table in file.iter_tables(columns):
                with located(file=file.name):
                    table = self._conform(table, names)
                yield from table.to_batches(max_chunksize=_BATCH_ROWS)

    def _names(self, present: list[str]) -> list[str | None]:
        """For each column of the schema, its name in a file."""
        without_case = {name.lower(): name for name in reversed(present)}
        return [name if name in present else without_case.get(name.lower())
                for name in self._schema.names]

    def _conform(self, table: pa.Table, names: list[str | None]) -> pa.Table:
        columns = []
        for field, name in zip(self._schema, names, strict=True):
            if name is None:
                columns.append(pa.nulls(table.num_rows, field.type))
                continue
            try:
                columns.append(table[name].cast(field.type))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise UnsupportedError(f"the values of type {table[name].type} cannot be read as "
                                       f"{field.type}; say another type in .schema(...)",
                                       column=name) from error
        return pa.table(columns, schema=self._schema)

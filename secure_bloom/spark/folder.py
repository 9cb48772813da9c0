"""The files behind a path: which there are, how they are opened, and their common schema."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow.fs as pa_fs
from pyspark.sql.types import StructField, StructType

from secure_bloom.errors import ColumnError, KeyNotFoundError, UnsupportedError, located
from secure_bloom.folder import visible_files
from secure_bloom.keys import Keyring
from secure_bloom.keys.retrieval import KmsKeys
from secure_bloom.reader import ParquetFile
from secure_bloom.spark.conform import find_name, wider, wider_struct
from secure_bloom.spark.options import check_names, keyring_path, locate
from secure_bloom.spark.partitions import infer_type, partition_values
from secure_bloom.spark.read_options import ReadOptions, parse_read_options
from secure_bloom.spark.schema import spark_schema
from secure_bloom.spark.splits import DataFile

_KEYS_LIVE = 600  # seconds, as long as parquet-java keeps them
_FOOTERS_AT_ONCE = 8
_keys: dict[str, tuple[tuple, float, KmsKeys]] = {}


@dataclass(frozen=True)
class Listing:
    """The files of a folder, and the partition columns of their paths."""

    files: tuple[DataFile, ...]
    partition_columns: tuple[str, ...] = ()

    def partition_fields(self) -> list[StructField]:
        """The partition columns with inferred types."""
        return [StructField(name, infer_type({file.partition[position] for file in self.files}))
                for position, name in enumerate(self.partition_columns)]


class Folder:
    """The files behind a path, and how to open them. Pickled without any key.

    Parameters
    ----------
    options : mapping of str to str
        ``path`` and, for encrypted files, ``keyring``. The options for writing change nothing.

    Raises
    ------
    OptionError
        If an option is unknown, or its value makes no sense.
    """

    def __init__(self, options: Mapping[str, str]):
        check_names(options, reading=True)
        self.filesystem, self.path = locate(options)
        self.options: ReadOptions = parse_read_options(options)
        self._keyring = keyring_path(options)

    def list(self) -> Listing:
        """The visible files, sorted; the path itself where it is a file.

        Raises
        ------
        FileNotFoundError
            If there is nothing at the path.
        UnsupportedError
            If some files have other partition columns than others.
        """
        info = self.filesystem.get_file_info(self.path)
        if info.type == pa_fs.FileType.NotFound:
            raise FileNotFoundError(f"there is no folder {self.path}")
        if info.type == pa_fs.FileType.File:
            return Listing((DataFile(self.path, info.size),))
        files, names = [], None
        for relative, info in visible_files(self.filesystem, self.path).items():
            values = partition_values(relative)
            if names is None:
                names = tuple(values)
            if tuple(values) != names:
                raise UnsupportedError(
                    f"its path has the partition columns {_names(values)}, that of other files "
                    f"{_names(names)}; read folders one by one", file=info.path)
            files.append(DataFile(info.path, info.size, tuple(values.values())))
        return Listing(tuple(files), names or ())

    def keys(self) -> KmsKeys | None:
        """The keyring, None if none was named; with the keys that this process has unwrapped."""
        if self._keyring is None:
            return None
        try:
            stat = os.stat(self._keyring)
            stamp = (stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
        except OSError:
            stamp = ()  # let Keyring say what is wrong
        known, since, keys = _keys.get(self._keyring, ((), 0, None))
        if not stamp or stamp != known or time.monotonic() - since > _KEYS_LIVE:
            keys = KmsKeys(Keyring(self._keyring))
            _keys[self._keyring] = stamp, time.monotonic(), keys
        return keys

    def open(self, path: str) -> ParquetFile:
        """One of the files."""
        keys = self.keys()
        try:
            return ParquetFile(path, keys, filesystem=self.filesystem)
        except KeyNotFoundError as error:
            if keys is not None:
                raise
            raise KeyNotFoundError("the file is encrypted; name the keyring file in option keyring",
                                   file=path) from error

    def schema(self) -> StructType:
        """The columns of the files, those of option ``columns``, then partition columns.

        Raises
        ------
        FileNotFoundError
            If there is no file.
        UnsupportedError
            If a column has types in two files that contradict each other.
        """
        listing = self.list()
        if not listing.files:
            raise FileNotFoundError(f"there are no Parquet files in {self.path}")
        schema = self._merged(listing.files) if self.options.merge_schema \
            else self._file_schema(listing.files[0])
        return self._chosen(with_partitions(schema, listing.partition_fields()))

    def _file_schema(self, file: DataFile) -> StructType:
        with located(file=file.path), self.open(file.path) as opened:
            return spark_schema(opened.schema, opened.columns)

    def _merged(self, files: tuple[DataFile, ...]) -> StructType:
        merged = StructType()
        with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
            for file, schema in zip(files, pool.map(self._file_schema, files), strict=True):
                with located(file=file.path):
                    merged = wider_struct(merged, schema) or _contradiction(merged, schema)
        return merged

    def _chosen(self, schema: StructType) -> StructType:
        if self.options.columns is None:
            return schema
        chosen = []
        for name in self.options.columns:
            found = find_name(name, schema.names)
            if found is None:
                hint = "" if self.options.merge_schema else \
                    " in the first file; if only others have it, set mergeSchema to true"
                raise ColumnError(f"option columns: there is no such column{hint}", column=name)
            chosen.append(schema[found])
        return StructType(chosen)


def with_partitions(schema: StructType, partitions: list[StructField]) -> StructType:
    """The columns of files, and those of paths: last, or in place of the one with that name."""
    fields = {field.name: field for field in schema}
    for field in partitions:
        name = find_name(field.name, list(fields)) or field.name
        fields[name] = StructField(name, field.dataType)
    return StructType(list(fields.values()))


def _contradiction(merged: StructType, schema: StructType):
    for field in schema:
        name = find_name(field.name, merged.names)
        known = merged[name].dataType if name else field.dataType
        if wider(known, field.dataType) is None:
            raise UnsupportedError(
                f"here the type is {field.dataType.simpleString()}, in other files "
                f"{known.simpleString()}; say which to use: .schema(...) before .load",
                column=field.name)
    raise AssertionError("two schemas without a contradiction")


def _names(names) -> str:
    return f"({', '.join(names)})"

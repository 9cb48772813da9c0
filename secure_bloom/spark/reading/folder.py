"""The files at a path: listing and opening them, and their common schema."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import pyarrow.fs as pa_fs
from pyspark.sql.types import StructField, StructType

from secure_bloom.display import choices
from secure_bloom.errors import (
    ChangedMeanwhileError,
    ColumnError,
    KeyNotFoundError,
    OptionError,
    UnsupportedError,
    error_location,
)
from secure_bloom.index.stamps import Stamp, stamp
from secure_bloom.keys.cache import CachedKms
from secure_bloom.keys.environment import NO_KEYS, NoKeys
from secure_bloom.policy.policy import Policy
from secure_bloom.policy.requirement import FolderChecks, RequiredColumns, Requirement
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.spark.options.kms import client_or_no_keys, kms_uri
from secure_bloom.spark.options.names import find_name
from secure_bloom.spark.options.options import REQUIRE_ENCRYPTION, Options, locate
from secure_bloom.spark.options.read import ReadOptions, parse_read_options
from secure_bloom.spark.reading.splits import DataFile
from secure_bloom.spark.schema.merging import merge, with_partitions
from secure_bloom.spark.schema.partitions import infer_type
from secure_bloom.spark.schema.sensitivity import (
    column_keys,
    mark,
    mark_maskable,
    marked_paths,
)
from secure_bloom.spark.schema.types import leaf_paths, spark_schema
from secure_bloom.storage.hive_partitioning import partition_values
from secure_bloom.storage.table_formats import check_readable
from secure_bloom.storage.versions import until_unchanged, without_subtree
from secure_bloom.storage.visibility import visible_files

_ALL_FILES = "set option allFiles to true"
_FOOTERS_AT_ONCE = 8


@dataclass(frozen=True)
class Listing:
    """The files of a folder, and the partition columns of their paths."""

    files: tuple[DataFile, ...]
    partition_columns: tuple[str, ...] = ()

    def partition_fields(self) -> list[StructField]:
        """Return the partition columns with inferred types."""
        return [StructField(name, infer_type({file.partition[position] for file in self.files}))
                for position, name in enumerate(self.partition_columns)]


class Folder:
    """The files at a path, and how to open them. Pickled without any key.

    The options include ``path`` and, for encrypted files, ``keys``. Options for
    writing have no effect. Raises OptionError if an option is unknown, or its value is not valid.
    """

    def __init__(self, options: Options):
        options.check_names(reading=True)
        self.filesystem, self.path = locate(options.get("path"))
        self.options: ReadOptions = parse_read_options(options)
        self._kms = kms_uri(options)
        self.demanding = False

    def list(self) -> Listing:
        """List the visible files, sorted; if the path is a file, only this file.

        Raises
        ------
        FileNotFoundError
            If the path does not exist.
        UnsupportedError
            If the files do not all have the same partition columns; if the folder belongs to a
            table with its own log, or contains one, unless option ``allFiles`` is set.
        """
        info = self.filesystem.get_file_info(self.path)
        if info.type == pa_fs.FileType.NotFound:
            raise FileNotFoundError(f"there is no folder {self.path}")
        if info.type == pa_fs.FileType.File:
            return Listing((self._listed(info),))
        files, names = [], None
        check = None if self.options.all_files else \
            partial(check_readable, self.filesystem, self.path, advice=_ALL_FILES)
        for relative, info in visible_files(self.filesystem, self.path, check).items():
            values = partition_values(relative)
            if names is None:
                names = tuple(values)
            if tuple(values) != names:
                raise UnsupportedError(
                    f"its path has the partition columns {_names(values)}, but other files have "
                    f"{_names(names)}; read the folders one by one", file=info.path)
            files.append(self._listed(info, tuple(values.values())))
        return Listing(tuple(files), names or ())

    def _listed(self, info: pa_fs.FileInfo, values: tuple[str | None, ...] = ()) -> DataFile:
        found = stamp(self.filesystem, info)
        mtime_ns = None if info.mtime_ns is None else found.mtime_ns
        return DataFile(info.path, found.size, values, mtime_ns, tag=found.tag)

    def listed_again(self, file: DataFile) -> DataFile | None:
        """Return the version of a file that is there now, under the same name; None: there is none.
        """
        info = self.filesystem.get_file_info(file.path)
        return self._listed(info, file.partition) if info.is_file else None

    def keys(self) -> CachedKms | NoKeys:
        """Return the KMS client of this process; NO_KEYS if no KMS was named."""
        return client_or_no_keys(self._kms)

    def requirements(self, schema: StructType | None = None, *,
                     demanding: bool = False) -> Requirements:
        """Return what must be encrypted, by options and by sensitive columns of the schema.

        If the policy requires a column of the schema to be encrypted, or the caller knows of such a
        column (``demanding``), no file may be in plaintext: it may have been substituted for one
        with that column.

        Raises OptionError if the schema lacks a column that the option names.
        """
        found = Requirements(self._requirement(schema), self.options.policy,
                             without_subtree(self.filesystem, self.path)[1])
        demanding = demanding or (schema is not None and found.demands_any(leaf_paths(schema)))
        return replace(found, demanding=demanding)

    def _requirement(self, schema: StructType | None) -> Requirement | None:
        requirement = self.options.require_encryption
        if requirement is False:
            return None
        if schema is None:
            return requirement
        _check_names(requirement, schema)
        marked = [".".join(path) for path in marked_paths(schema)]
        return (requirement or Requirement(ignore_case=True)).with_columns(marked) \
            if marked else requirement

    def open(self, file: DataFile, checks: FolderChecks | None = None) -> OpenFile:
        """Open one of the files.

        Raises ChangedMeanwhileError if it has changed since it was listed.
        """
        try:
            opened = self._open(file.path, checks)
        except FileNotFoundError as error:
            raise _changed(file) from error
        if not Stamp.of(file).is_of(opened.version, self.filesystem):
            opened.close()
            raise _changed(file)
        return opened

    def _open(self, path: str, checks: FolderChecks | None) -> OpenFile:
        keys = self.keys()
        try:
            return OpenFile(path, keys, filesystem=self.filesystem, require_encryption=checks,
                            on_missing_key=self.options.on_missing_key)
        except KeyNotFoundError as error:
            if keys is not NO_KEYS:
                raise
            raise KeyNotFoundError("the file is encrypted; specify the KMS in option keys",
                                   file=path) from error

    def schema(self) -> StructType:
        """Return the columns of files and the partition columns, or those in option ``columns``.

        Sets ``demanding``: whether the policy requires one of the columns to be encrypted.

        Raises FileNotFoundError if there are no files; UnsupportedError if a column has conflicting
        types in two files; ChangedMeanwhileError if files keep changing while they are read.
        """
        return until_unchanged(self._schema)

    def _schema(self) -> StructType:
        listing = self.list()
        if not listing.files:
            raise FileNotFoundError(f"there are no Parquet files in {self.path}")
        requirements = self.requirements()
        checks = requirements.checks(listing.partition_columns)
        schema = self._merged(listing.files, checks) if self.options.merge_schema \
            else self._file_schema(listing.files[0], checks)
        _check_names(requirements.own, schema)
        self.demanding = requirements.demands_any(leaf_paths(schema))
        return self._chosen(with_partitions(schema, listing.partition_fields()))

    def _file_schema(self, file: DataFile, checks: FolderChecks) -> StructType:
        with error_location(file=file.path), self.open(file, checks) as opened:
            schema = mark(spark_schema(opened.schema, opened.columns), column_keys(opened.footer))
            return schema if self.options.on_missing_key == "error" \
                else mark_maskable(schema, opened.maskable_columns)

    def _merged(self, files: tuple[DataFile, ...], checks: FolderChecks) -> StructType:
        merged = StructType()
        with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
            schemas = pool.map(partial(self._file_schema, checks=checks), files)
            for file, schema in zip(files, schemas, strict=True):
                with error_location(file=file.path):
                    merged = merge(merged, schema)
        checks.check_together()  # names in options are compared with the schema
        return merged

    def _chosen(self, schema: StructType) -> StructType:
        if self.options.columns is None:
            return schema
        chosen = []
        for name in self.options.columns:
            found = find_name(name, schema.names)
            if found is None:
                where, hint = ("", "") if self.options.merge_schema else (
                    " in the first file", "; if only others have it, set mergeSchema to true")
                raise ColumnError(f"option columns: there is no such column{where}"
                                  f"{choices(name, schema.names)}{hint}", column=name)
            chosen.append(schema[found])
        return StructType(chosen)


def _check_names(requirement: Requirement | None, schema: StructType) -> None:
    """Raise OptionError if encryption is required for a column that does not exist."""
    paths = leaf_paths(schema)
    for name in requirement.missing_from(paths) if requirement else ():
        raise OptionError(f"there is no column {name!r} in the DataFrame"
                          + choices(name, paths), option=REQUIRE_ENCRYPTION)


def _changed(file: DataFile) -> ChangedMeanwhileError:
    return ChangedMeanwhileError("the file was replaced, changed or removed since the query was "
                                 "planned; run the query again", file=file.path)


def _names(names: Iterable[str]) -> str:
    return f"({', '.join(names)})"


# --- what must be encrypted -----------------------------------------------------------------------

@dataclass(frozen=True)
class Requirements:
    """What each file of a read must meet. Pickled, so that tasks need not read the policy's file.

    Attributes
    ----------
    own : Requirement or None
        By option and by marks.
    policy : Policy or None
    folder : str
        The path to which rules of the policy for the whole folder apply.
    demanding : bool
        Whether the policy requires a column of the schema to be encrypted. Then no file may be in
        plaintext, unless the policy accepts that on the day when the file is opened: a stream may
        run for longer.
    """

    own: Requirement | None
    policy: Policy | None
    folder: str
    demanding: bool = False

    def checks(self, path_columns: Iterable[str]) -> FolderChecks:
        """Return the checks of files whose paths have values of these columns."""
        return FolderChecks(self._both if self.check_files else None, path_columns)

    @property
    def check_files(self) -> bool:
        """Whether each file must meet anything."""
        return self.own is not None or self.policy is not None

    def check_path_columns(self, names: Iterable[str]) -> None:
        """Check columns whose values come from the paths of files.

        Raises AuthenticationError if one of them must be encrypted.
        """
        self._both.check_path_columns(self.folder, names, ())

    @property
    def _both(self) -> Requirement:
        own = self.own or Requirement(ignore_case=True)
        if self.policy is None:
            return own
        if self.demanding and self.own is None and not self.policy.accepts_plaintext():
            own = Requirement(required=RequiredColumns())
        return replace(own, policies=(self.policy,), in_transition=True)

    def demands_any(self, paths: Iterable[str]) -> bool:
        """Whether the policy requires one of these leaf columns to be encrypted."""
        return self.policy is not None and any(
            column.encrypted
            for column in self.policy.for_path(self.folder).columns_of(paths).values())

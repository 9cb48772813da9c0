"""Hive partitioning: ``column=value`` folders, named as in Spark. Does not need Spark."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Protocol
from urllib.parse import quote, unquote, unquote_to_bytes

import numpy as np
import pyarrow as pa

from secure_bloom.display import listed
from secure_bloom.errors import ColumnError, UnsupportedError
from secure_bloom.storage.table_names import relative_path

NULL = "__HIVE_DEFAULT_PARTITION__"
NULL_IS_RESERVED = f"the string {NULL} means null in a folder name; change the value"

_ESCAPED = re.compile("[\x01-\x1f\x7f\"#%'*/:=?\\[\\\\\\]^{]")


def escape(text: str) -> str:
    """Escape a name or value as Spark does in paths.

    Raises UnsupportedError if it cannot be part of a path.
    """
    if "\0" in text:
        raise UnsupportedError("a string with a NUL character cannot be a folder name")
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def folder_names(name: str, values: pa.Array) -> list[str]:
    """Return ``name=value`` for each value; null and the empty string have a special name.

    Raises UnsupportedError if a value cannot be distinguished from another, or cannot be part of a
    path.
    """
    try:
        return [f"{escape(name)}={escape(text) if text else NULL}" for text in _texts(values)]
    except UnsupportedError as error:
        error.column = name
        raise


def null_folder(names: Iterable[str]) -> str:
    """Return the folder of rows in which all these columns are null; "" without columns."""
    return "/".join(f"{escape(name)}={NULL}" for name in names)


def partition_values(relative: str, errors: str = "replace") -> dict[str, str | None]:
    """Return the partition columns in a file's relative path, with their values as text.

    If a column is in the path twice, its first value counts, as for pyarrow. The name of null may
    be escaped, as for pyarrow. Spark would read that as a string, which neither Spark nor this
    library can write.

    Raises UnicodeDecodeError if ``errors`` is "strict" and a value is not valid UTF-8 after
    decoding ``%`` escapes.
    """
    values: dict[str, str] = {}
    for name, value in _pairs(relative):
        values.setdefault(unquote(name), unquote(value, errors=errors))
    return {name: None if value == NULL else value for name, value in values.items()}


class PartitionChoice(Protocol):
    """Which partitions a listing enters. The others are left out, with all below them."""

    @property
    def columns(self) -> Collection[str]:
        """The partition columns that it depends on, and maybe others."""

    def enters(self, folders: Sequence[str]) -> list[bool]:
        """Whether to enter each folder, by its path relative to the listed one.

        A folder below one that is not entered is not entered, either.
        """


def column_of(folder: str) -> str | None:
    """Return the partition column in the name of a folder; None if it has none."""
    name, mark, _ = folder.rpartition("/")[2].partition("=")
    return unquote(name) if name and mark else None


def partition_of(relative: str) -> str:
    """Return the partition of a file's relative path; the same text however a writer escaped it."""
    return "/".join(f"{_respelled(name)}={_respelled(value)}" for name, value in _pairs(relative))


def _pairs(relative: str) -> Iterator[tuple[str, str]]:
    """Yield the names and values in a path, as they are spelled there."""
    for part in relative.split("/")[:-1]:
        if "=" in part[1:]:
            name, _, value = part.partition("=")
            yield name, value


def _respelled(text: str) -> str:
    return quote(unquote_to_bytes(text.encode(errors="surrogatepass")), safe="")


def check_same_columns(paths: Iterable[str], folder: str, names: tuple[str, ...]) -> None:
    """Check the partition columns of existing files: files with different ones cannot be read.

    Raises ColumnError with the first such file.
    """
    for path in paths:
        present = tuple(unquote(name) for name, _ in _pairs(relative_path(path, folder)))
        if present != names:
            raise ColumnError(
                f"the folder has files with the partition columns ({listed(present)}), so it "
                f"could not be read with ({', '.join(names)}) as well; use the same "
                "columns, or write to another folder", file=path)


def check_partition_columns(schema: pa.Schema, names: tuple[str, ...]) -> None:
    """Check that columns can be partition columns.

    Raises
    ------
    ColumnError
        If a column does not exist, is named twice, or would be hidden; or if no other is left.
    UnsupportedError
        If its values have no unique text form.
    """
    for name in names:
        number = len(schema.get_all_field_indices(name))
        if number != 1:
            raise ColumnError("it is in partition_by, but does not exist" if not number else
                              "it is in partition_by, but two columns have this name", column=name)
        if names.count(name) > 1:
            raise ColumnError("it is listed twice in partition_by", column=name)
        if name.startswith("."):
            raise ColumnError("readers treat folders whose names begin with a dot as hidden; "
                              "rename the column, or partition by another one", column=name)
        if not _is_partition_type(schema.field(name).type):
            raise UnsupportedError(
                f"partition_by cannot use the type {schema.field(name).type}; it can use boolean, "
                "integers, decimal, date32 and string: cast a copy of the column", column=name)
    if names and len(names) == len(schema):
        raise ColumnError("partition_by names every column, so none would be left for the files: "
                          "remove one")


def _is_partition_type(t: pa.DataType) -> bool:
    if pa.types.is_dictionary(t):
        t = t.value_type
    return any(is_type(t) for is_type in (
        pa.types.is_boolean, pa.types.is_integer, pa.types.is_decimal, pa.types.is_date32,
        pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def _texts(values: pa.Array) -> list[str | None]:
    type_ = values.type
    if pa.types.is_date32(type_):
        days = values.cast(pa.int32()).to_pylist()
        return [None if day is None else _date(day) for day in days]
    found = values.to_pylist()
    if pa.types.is_boolean(type_):
        return [None if value is None else str(value).lower() for value in found]
    if pa.types.is_decimal(type_):
        return [None if value is None else f"{value:f}" for value in found]
    if NULL in found:
        raise UnsupportedError(NULL_IS_RESERVED)
    return [None if value is None else str(value) for value in found]


def _date(day: int) -> str:
    text = str(np.datetime64(day, "D"))  # datetime.date ends with the year 9999
    year, rest = text.lstrip("-").split("-", 1)
    sign = "-" if text.startswith("-") else "+" if len(year) > 4 else ""
    return f"{sign}{year.zfill(4)}-{rest}"


class Partitioner:
    """Splits rows by the values of partition columns, which are then stored in the path only.

    The columns are top-level. If there are none, all rows go to folder "".
    """

    def __init__(self, names: tuple[str, ...]):
        self._names = names

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the rows of a batch by folder; within a folder, their order is kept."""
        if not batch.num_rows:
            return
        if not self._names:
            yield "", batch
            return
        row_folders, folders = self._folders(batch)
        rest = batch.drop_columns(list(self._names))
        if len(folders) == 1:
            yield folders[0], rest
            return
        order = np.argsort(row_folders, kind="stable")
        ends = np.cumsum(np.bincount(row_folders, minlength=len(folders)))
        for folder, start, end in zip(folders, [0, *ends[:-1]], ends, strict=True):
            yield folder, rest.take(pa.array(order[start:end]))

    def _folders(self, batch: pa.RecordBatch) -> tuple[np.ndarray, list[str]]:
        """Return the folder number of each row, and the folders."""
        number = np.zeros(batch.num_rows, np.int64)
        folders = [""]
        for name in self._names:
            column = batch.column(name)
            if pa.types.is_dictionary(column.type):  # it may have values that no row has
                column = column.dictionary_decode()
            encoded = column.dictionary_encode(null_encoding="encode")
            texts = folder_names(name, encoded.dictionary)
            both = number * len(texts) + encoded.indices.to_numpy()
            present, number = np.unique(both, return_inverse=True)
            folders = [f"{folders[i // len(texts)]}/{texts[i % len(texts)]}".lstrip("/")
                       for i in present.tolist()]
        return _merge_same(number, folders)


def _merge_same(number: np.ndarray, folders: list[str]) -> tuple[np.ndarray, list[str]]:
    """Merge folders with the same name: null and "" are two values, but share one folder."""
    different = {folder: position for position, folder in enumerate(dict.fromkeys(folders))}
    if len(different) < len(folders):
        number = np.array([different[folder] for folder in folders])[number]
    return number, list(different)

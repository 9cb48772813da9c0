"""Masked columns: their key is missing, so they are read as nulls if the reader asks for that."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from threading import Lock
from typing import Literal, TypeAlias, TypeVar

import pyarrow as pa

from secure_bloom.display import count, listed, warn
from secure_bloom.errors import ColumnError, MissingKeyWarning

#: what happens to columns whose key the reader does not have
OnMissingKey: TypeAlias = Literal["error", "null"]

MASKED = b"secure_bloom.masked"  #: in the metadata of a masked field, with the value ``true``

_Rows = TypeVar("_Rows", pa.Table, pa.RecordBatch)

_warned: set[frozenset[str]] = set()
_lock = Lock()


def is_masking(on_missing_key: OnMissingKey) -> bool:
    """Whether columns are masked. Raises ValueError if the option is not valid."""
    if on_missing_key not in ("error", "null"):
        raise ValueError(f'on_missing_key must be "error" or "null", not {on_missing_key!r}')
    return on_missing_key == "null"


def masked_names(schema: pa.Schema) -> list[str]:
    """Return the names of the masked columns."""
    return [field.name for field in schema if MASKED in (field.metadata or {})]


def masked_field(field: pa.Field) -> pa.Field:
    """Return a field that is nullable and marked as masked."""
    return field.with_nullable(True).with_metadata({**(field.metadata or {}), MASKED: b"true"})


def masked_schema(schema: pa.Schema, names: Collection[str]) -> pa.Schema:
    """Return the schema with some of its columns masked."""
    if not names:
        return schema
    return pa.schema([masked_field(field) if field.name in names else field for field in schema],
                     schema.metadata)


def marked(rows: _Rows, names: Collection[str]) -> _Rows:
    """Return rows with some of their columns marked as masked, because some values are."""
    if not names:
        return rows
    return type(rows).from_arrays(rows.columns, schema=masked_schema(rows.schema, names))


def with_masked(rows: _Rows, columns: Iterable[pa.Field], names: Collection[str]) -> _Rows:
    """Return rows to which masked columns are added.

    ``columns`` are those of the result, in order. ``rows`` have the same ones in the same order,
    except for those in ``names``.
    """
    given = iter(zip(rows.schema, rows.columns, strict=True))
    fields, arrays = [], []
    for wanted in columns:
        field, array = (masked_field(wanted), pa.nulls(rows.num_rows, wanted.type)) \
            if wanted.name in names else next(given)
        fields.append(field)
        arrays.append(array)
    return type(rows).from_arrays(arrays, schema=pa.schema(fields, rows.schema.metadata))


def check_writable(schema: pa.Schema) -> None:
    """Raise ColumnError if rows with masked columns are to be written.

    They could replace the file from which they were read, and its values would be lost.
    """
    for name in masked_names(schema):
        raise ColumnError("the key of this column was missing when it was read, so its values are "
                          "not here, only nulls; drop the column, or remove "
                          f"{MASKED.decode()} from the metadata of its field to write the nulls",
                          column=name)


def warn_of_missing_keys(num_files: Mapping[str, int], name: str) -> None:
    """Warn that columns are masked, once in a process for the same columns.

    Parameters
    ----------
    num_files : mapping of str to int
        By masked column: in how many files. Nothing happens if it is empty.
    name : str
        What is read.
    """
    columns = frozenset(num_files)
    with _lock:
        if not columns or columns in _warned:
            return
        _warned.add(columns)
    try:
        warn(MissingKeyWarning(
            f"{name}: the keys of {count(len(columns), 'column')} are missing, so the values are "
            "null: " + listed([f"{column} (in {count(number, 'file')})"
                               for column, number in num_files.items()])))
    except MissingKeyWarning:
        with _lock:
            _warned.discard(columns)  # warnings are errors here: each read raises it
        raise

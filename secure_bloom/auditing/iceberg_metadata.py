"""What the metadata of an Iceberg table reveals: values of columns, and keys of data files.

Metadata files are JSON, manifests and manifest lists are Avro, and statistics are Puffin files. In
encrypted tables, manifests and manifest lists are AES GCM streams. See
https://iceberg.apache.org/spec/ and https://iceberg.apache.org/puffin-spec/
"""

from __future__ import annotations

import gzip
import io
import json
import re
import struct
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow.fs as pa_fs

from secure_bloom.errors import FormatError, UnsupportedError
from secure_bloom.keys.iceberg import MASTER_KEY
from secure_bloom.storage.files import read_file

BOUNDS, SKETCHES, KEYS = "bounds", "sketches", "keys"

_AVRO, _PUFFIN, _GZIP = b"Obj\x01", b"PFA1", b"\x1f\x8b"
_PUFFIN_TAIL = struct.Struct("<iI4s")  # size of the footer, flags, magic
_THETA = "apache-datasketches-theta-v1"
_DATA_FILE, _BOUNDS = 2, (125, 128)  # ids of the fields of a manifest
_KEYS = (131, 519)  # of a data file in a manifest, and of a manifest in a manifest list
_VERSION = re.compile(r"v?(\d+)")


class Definition(NamedTuple):
    """What defines a table.

    ``names`` are the dotted paths of the columns by field id, ``partitions`` the ids of those that
    partition the table, and ``has_master_key`` is whether it is to be encrypted.
    """

    names: dict[int, str]
    partitions: set[int]
    has_master_key: bool


def newest(paths: Iterable[str]) -> str | None:
    """Return the path of the newest of some metadata files, by the numbers in their names."""
    def version(path: str) -> int:
        found = _VERSION.match(path.rpartition("/")[2])
        return int(found[1]) if found else -1

    return max((path for path in paths if ".metadata.json" in path), key=version, default=None)


def read_definition(filesystem: pa_fs.FileSystem, path: str) -> Definition:
    """Read a metadata file: the columns of all its schemas and partitions.

    Raises
    ------
    FormatError
        If it is not a metadata file of Iceberg.
    OSError
        If it cannot be read, or was removed.
    """
    data = read_file(filesystem, path)
    try:
        metadata = json.loads(gzip.decompress(data) if data.startswith(_GZIP) else data)
        schemas = metadata.get("schemas") or [metadata["schema"]]
        names = {id_: name for schema in schemas for id_, name in _names(schema, "")}
        partitions = {field["source-id"] for spec in metadata.get("partition-specs", ())
                      for field in spec["fields"] if field["transform"] != "void"}
        return Definition(names, partitions, MASTER_KEY in metadata.get("properties", ()))
    except (ValueError, TypeError, LookupError, AttributeError, EOFError, RecursionError):
        raise FormatError("this is not a metadata file of Iceberg", file=path) from None


def _names(type_: Any, path: str) -> Iterator[tuple[int, str]]:
    """Yield the ids of the fields below a type, with the dotted paths of their Parquet columns."""
    if not isinstance(type_, dict):
        return
    if type_["type"] == "struct":
        below = [(field["id"], field["type"], field["name"]) for field in type_["fields"]]
    elif type_["type"] == "list":
        below = [(type_["element-id"], type_["element"], "list.element")]
    else:
        below = [(type_["key-id"], type_["key"], "key_value.key"),
                 (type_["value-id"], type_["value"], "key_value.value")]
    for id_, own, name in below:
        full = f"{path}.{name}" if path else name
        yield id_, full
        yield from _names(own, full)


def read_values(filesystem: pa_fs.FileSystem, path: str) -> set[tuple[str, int]]:
    """Return what a manifest or a statistics file has in plaintext.

    Returns
    -------
    set of tuple
        :data:`BOUNDS` or :data:`SKETCHES`, and the id of the column; :data:`KEYS`, and 0. Nothing
        of other files, and of encrypted ones.

    Raises
    ------
    FormatError, UnsupportedError
        With the name of the file.
    ImportError
        If it is a manifest, and pyiceberg is not installed.
    OSError
        If it cannot be read, or was removed.
    """
    with filesystem.open_input_stream(path) as file:
        magic = file.read(4)
    if magic == _PUFFIN:
        return _of_statistics(read_file(filesystem, path), path)
    return _of_manifest(read_file(filesystem, path), path) if magic == _AVRO else set()


def _of_statistics(data: bytes, path: str) -> set[tuple[str, int]]:
    try:
        size, flags, _ = _PUFFIN_TAIL.unpack(data[-_PUFFIN_TAIL.size:])
        if flags:
            raise UnsupportedError("the footer of this statistics file is compressed, so it was "
                                   "not searched", file=path)
        end = len(data) - _PUFFIN_TAIL.size
        footer = json.loads(data[max(end - size, 0):end])
        return {(SKETCHES, id_) for blob in footer["blobs"] if blob["type"] == _THETA
                for id_ in blob["fields"]}
    except (ValueError, TypeError, LookupError, struct.error, RecursionError):
        raise FormatError("this is not a Puffin file", file=path) from None


def _of_manifest(data: bytes, path: str) -> set[tuple[str, int]]:
    from pyiceberg.avro.file import AvroFile
    found: set[tuple[str, int]] = set()
    try:
        with AvroFile[Any](_Input(data)) as entries:  # type: ignore[arg-type]
            for entry in entries:
                values = _by_id(entries.schema.fields, entry)
                for bounds in _BOUNDS:
                    found.update((BOUNDS, id_) for id_ in values.get(bounds) or ())
                if any(values.get(keys) for keys in _KEYS):
                    found.add((KEYS, 0))
    except Exception:  # pyiceberg raises many kinds for damaged files
        raise FormatError("this is not a manifest of Iceberg", file=path) from None
    return found


def _by_id(fields: Iterable[Any], record: Any) -> dict[int, Any]:
    """Return the values of an entry, and of its data file, by the ids of the specification."""
    found = {}
    for place, field in enumerate(fields):
        found[field.field_id] = record[place]
        if field.field_id == _DATA_FILE:
            found.update(_by_id(field.field_type.fields, record[place]))
    return found


class _Input:
    """An ``InputFile`` of pyiceberg, of bytes."""

    def __init__(self, data: bytes):
        self._data = data

    def open(self, seekable: bool = True) -> io.BytesIO:
        return io.BytesIO(self._data)

"""What the metadata of an Iceberg table reveals: values of columns, keys and names of data files.

Metadata files are JSON, manifests and manifest lists are Avro, and statistics are Puffin files. In
encrypted tables, manifests and manifest lists are AES GCM streams. See
https://iceberg.apache.org/spec/ and https://iceberg.apache.org/puffin-spec/
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow.fs as pa_fs

from secure_bloom.auditing.log_texts import Mentions, texts_with_literals
from secure_bloom.errors import FormatError, UnsupportedError, error_location
from secure_bloom.keys.iceberg import MASTER_KEY
from secure_bloom.storage import avro
from secure_bloom.storage.iceberg_metadata import MAX_SIZE, not_metadata, parse_metadata
from secure_bloom.storage.small_files import parse_json, read_small
from secure_bloom.storage.versions import open_stream

BOUNDS, SKETCHES, KEYS, TEXTS = "bounds", "sketches", "keys", "texts"

_PUFFIN = b"PFA1"
_PUFFIN_TAIL = struct.Struct("<iI4s")  # size of the footer, flags, magic
_MAX_FOOTER = 100_000, 1_000_000  # lists and objects of a Puffin file's footer, and commas
_THETA = "apache-datasketches-theta-v1"
#: ids of the fields of a manifest; those of the keys of bounds, which are maps, are one higher
_DATA_FILE, _BOUNDS = 2, (125, 128)
_KEYS = (131, 519)  # of a data file in a manifest, and of a manifest in a manifest list
_STATUS, _PATH, _MANIFEST = 0, 100, 500  # of an entry, of its data file, and of a manifest
_DELETED = 2
#: what is a text by name, and not searched as one
_NO_TEXTS = frozenset({"location", "manifest-list", "manifests", "metadata-file",
                       "statistics-path", "schema.name-mapping.default"})
_VERSION = re.compile(r"v?(\d+)")


class Definition(NamedTuple):
    """What defines a table.

    ``location`` is the folder of the table as in the names of its files; the audited folder may be
    a copy, or have another URI. ``names`` are the dotted paths of the columns by field id; a column
    that was renamed has several, because older files have its older names. ``partitions`` are the
    ids of the columns that partition the table, and ``has_master_key`` is whether it is to be
    encrypted. ``lists`` and ``statistics`` are the names of its manifest lists and statistics
    files, and ``manifests`` those of manifests without a list, which version 1 has.
    """

    location: str
    names: dict[int, set[str]]
    partitions: set[int]
    has_master_key: bool
    lists: set[str]
    manifests: set[str]
    statistics: set[str]


@dataclass
class MetadataFile:
    """What a manifest, a manifest list or a statistics file has in plaintext.

    Attributes
    ----------
    values : set of tuple
        :data:`BOUNDS` or :data:`SKETCHES`, and the id of the column; :data:`KEYS`, and 0.
    files : set of str
        The data files and delete files that a manifest lists, without those that it says are gone.
    manifests : set of str
        The names of the manifests in a list.
    is_known : bool
        Whether the file could be read; otherwise it is encrypted, or something else.
    """

    values: set[tuple[str, int]] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    manifests: set[str] = field(default_factory=set)
    is_known: bool = True


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
    names: dict[int, set[str]] = {}
    with error_location(file=path):
        metadata = parse_metadata(read_small(filesystem, path, MAX_SIZE))
        try:
            for schema in metadata.get("schemas") or [metadata["schema"]]:
                for id_, name in _names(schema, ""):
                    names.setdefault(id_, set()).add(name)
            specs = metadata.get("partition-specs") \
                or [{"fields": metadata.get("partition-spec", ())}]
            partitions = {id_ for spec in specs for field in spec["fields"]
                          if field["transform"] != "void"
                          for id_ in field.get("source-ids") or [field["source-id"]]}
            snapshots = metadata.get("snapshots") or ()
            lists = {_name(snapshot["manifest-list"])
                     for snapshot in snapshots if "manifest-list" in snapshot}
            manifests = {_name(path) for snapshot in snapshots
                         for path in snapshot.get("manifests") or ()}
            statistics = {_name(one["statistics-path"]) for one in metadata.get("statistics") or ()}
            has_master_key = MASTER_KEY in metadata.get("properties", ())
            return Definition(str(metadata.get("location") or ""), names, partitions,
                              has_master_key, lists, manifests, statistics)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            raise not_metadata() from None


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def read_mentions(filesystem: pa_fs.FileSystem, path: str, columns: Iterable[str]) -> set[str]:
    """Return those of the columns that a metadata file names beside a value.

    Such as in properties of the table, in summaries of snapshots, in comments and default values.

    Raises
    ------
    FormatError, OSError
        As :func:`read_definition`.
    """
    mentions = Mentions(columns)
    with error_location(file=path):
        metadata = parse_metadata(read_small(filesystem, path, MAX_SIZE))
        try:
            return {column for text in texts_with_literals(metadata, _NO_TEXTS)
                    for column in mentions.of(text)}
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            raise not_metadata() from None


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
        if not (isinstance(id_, int) and isinstance(name, str)):
            raise ValueError
        full = f"{path}.{name}" if path else name
        yield id_, full
        yield from _names(own, full)


def read_metadata_file(filesystem: pa_fs.FileSystem, path: str) -> MetadataFile:
    """Read a manifest, a manifest list or a statistics file.

    Raises
    ------
    FormatError, UnsupportedError
        With the name of the file.
    OSError
        If it cannot be read, or was removed.
    """
    with open_stream(filesystem, path) as file:
        magic = file.read(4)
    if magic not in (_PUFFIN, avro.MAGIC):
        return MetadataFile(is_known=False)
    kind, reader = ("Puffin file", _of_statistics) if magic == _PUFFIN \
        else ("manifest of Iceberg", _of_manifest)
    with error_location(file=path):
        try:
            found = reader(read_small(filesystem, path, MAX_SIZE))
            if not all(isinstance(id_, int) for _, id_ in found.values):
                raise ValueError
            return found
        except (ValueError, TypeError, LookupError, AttributeError, struct.error, RecursionError):
            raise FormatError(f"this is not a {kind}") from None


def _of_statistics(data: bytes) -> MetadataFile:
    size, flags, _ = _PUFFIN_TAIL.unpack(data[-_PUFFIN_TAIL.size:])
    if flags:
        raise UnsupportedError("the footer of this statistics file is compressed, so it was not "
                               "searched")
    end = len(data) - _PUFFIN_TAIL.size
    footer = parse_json(data[max(end - size, 0):end], *_MAX_FOOTER)
    return MetadataFile({(SKETCHES, id_) for blob in footer["blobs"] if blob["type"] == _THETA
                         for id_ in blob["fields"]})


def _of_manifest(data: bytes) -> MetadataFile:
    found = MetadataFile()
    for entry in avro.read_records(data):
        values = entry | (entry.get(_DATA_FILE) or {})
        for bounds in _BOUNDS:
            found.values.update((BOUNDS, pair[bounds + 1]) for pair in values.get(bounds) or ())
        if any(values.get(keys) for keys in _KEYS):
            found.values.add((KEYS, 0))
        if _MANIFEST in values:
            found.manifests.add(_name(values[_MANIFEST].decode()))
        elif _PATH in values and values.get(_STATUS) != _DELETED:
            found.files.add(values[_PATH].decode())
    return found

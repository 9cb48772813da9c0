"""Good files by parquet-java, in every mode that it has; give it a seeded one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyspark

from tests.peers.keys import Keys, KeyTools
from tests.peers.parquet_java import AnyKeys, Bloom, ParquetJava
from vectors.builder.columns import Column, pick, table
from vectors.builder.reseal import open_footer
from vectors.builder.vector import AAD_PREFIX, MASTER_KEYS, FileKeys, FileVector
from vectors.builder.vectorize import good

_FIELDS = {
    "id": "required int64 id;",
    "whole": "optional int32 whole;",
    "single": "required float single;",
    "real": "optional double real;",
    "name": "optional binary name (STRING);",
    "code": "required fixed_len_byte_array(4) code;",
    "total": "required fixed_len_byte_array(11) total (DECIMAL(25,3));",
    "stamp": "required int96 stamp;",
    "tags": "optional group tags (LIST) "
            "{ repeated group list { optional binary element (STRING); } }",
}

_COLUMN_KEYS = {"id": MASTER_KEYS["kc1"], "tags.list.element": MASTER_KEYS["kc2"]}
_TOOLS = {"footer.key": "kf", "column.keys": "kc1:id,name;kc2:tags.list.element"}


def _keys(columns: dict[str, bytes | None] = _COLUMN_KEYS, prefix: bytes | None = None,
          **options) -> Keys:
    return Keys(MASTER_KEYS["kf"], columns, prefix, **options)


def _tools(**properties: str) -> KeyTools:
    return KeyTools(MASTER_KEYS, _TOOLS | {name.replace("_", "."): value
                                           for name, value in properties.items()})


_MODES: dict[str, AnyKeys] = {
    "plain": None,
    "uniform": _keys({}),
    "column-keys": _keys(footer_key_metadata=b"kf", column_key_metadata={
        "id": b"kc1", "tags.list.element": b"kc2"}),
    "footer-key-column": _keys({**_COLUMN_KEYS, "name": None}),
    "complete-columns": _keys(complete_columns=True),
    "plaintext-footer": _keys(plaintext_footer=True),
    "ctr": _keys(algorithm="AES_GCM_CTR_V1"),
    "stored-prefix": _keys(prefix=AAD_PREFIX),
    "supplied-prefix": _keys(prefix=AAD_PREFIX, store_aad_prefix=False),
    "tools": _tools(),
    "tools-uniform-256": KeyTools(MASTER_KEYS, {"uniform.key": "kf",
                                                "data.key.length.bits": "256"}),
    "tools-single-wrapping": _tools(double_wrapping="false"),
    "tools-plaintext-footer": _tools(plaintext_footer="true"),
    "tools-ctr": _tools(algorithm="AES_GCM_CTR_V1"),
}


_BLOOM = Bloom(ndv=6, fpp=0.01)


@dataclass(frozen=True)
class _Special:
    """A file with one thing that is special."""

    comment: str
    keys: AnyKeys
    columns: tuple[str, ...] = ("id", "name", "tags")
    bloom: Bloom = _BLOOM
    group_rows: int = 6
    options: dict = field(default_factory=dict)


_SPECIAL = {
    "3-blocks": _Special("bitsets of 3 blocks, not a power of two", _keys(), bloom=Bloom(),
                         options={"bloom_max_bytes": 96}),
    "3-blocks-ctr": _Special("bitsets of 3 blocks, not a power of two",
                             _tools(algorithm="AES_GCM_CTR_V1"), bloom=Bloom(),
                             options={"bloom_max_bytes": 96}),
    "200-blocks": _Special("a bitset of 200 blocks, not a power of two",
                           _keys({"id": MASTER_KEYS["kc1"]}), ("id",), Bloom(), 20,
                           {"bloom_max_bytes": 6400}),
    "adaptive": _Special("filters of the size that fits best", _tools(), bloom=Bloom(),
                         options={"bloom_adaptive": True, "bloom_max_bytes": 4096}),
    "pages": _Special("dictionaries and several pages", _keys(), group_rows=8,
                      options={"page_rows": 3, "dictionary": True}),
    "pages-ctr": _Special("dictionaries and several pages under AES_GCM_CTR_V1",
                          _keys(algorithm="AES_GCM_CTR_V1"), group_rows=8,
                          options={"page_rows": 3, "dictionary": True, "codec": "SNAPPY"}),
    "pages-v2": _Special("data pages of version 2", None, options={"page_version": 2}),
}


def origin() -> str:
    """parquet-java with the version of the jar inside pyspark."""
    [jar] = (Path(pyspark.__file__).parent / "jars").glob("parquet-hadoop-*.jar")
    return f"parquet-java {re.search(r'[0-9]+([.][0-9]+)+', jar.name)[0]}"


def by_java(java: ParquetJava) -> Iterator[FileVector]:
    """All files of this writer."""
    everything = _Special("", None, tuple(_FIELDS))
    with TemporaryDirectory() as folder:
        for name, keys in _MODES.items():
            yield _vector(java, Path(folder), name, keys, everything, None)
        for name, special in _SPECIAL.items():
            yield _vector(java, Path(folder), name, special.keys, special, special.comment)


def _vector(java: ParquetJava, folder: Path, name: str, keys: AnyKeys, how: _Special,
            comment: str | None) -> FileVector:
    columns = pick(*how.columns)
    rows = table(columns, range(2 * how.group_rows - 1 if how.group_rows < 20 else 20))
    path = folder / f"java-{name}.parquet"  # the name is the seed
    schema = "\n".join(["message vector {", *(_FIELDS[column.name] for column in columns), "}"])
    java.write(path, schema, _java_rows(columns, rows), keys=keys,
               bloom={column.path: how.bloom for column in columns},
               row_group_rows=how.group_rows, **how.options)
    data = path.read_bytes()
    return good(path.stem, data, origin(), _file_keys(java, path, keys), rows, columns, comment)


def _java_rows(columns: list[Column], rows: pa.Table) -> list[dict]:
    """The rows with plain encodings for values."""
    def plain(column: Column, value):
        if isinstance(value, list):
            return {"list": [{"element": plain(column, item)} for item in value]}
        return None if value is None else column.plain(value)

    return [{column.name: plain(column, row[column.name]) for column in columns}
            for row in rows.to_pylist()]


def _file_keys(java: ParquetJava, path: Path, keys: AnyKeys) -> FileKeys:
    if keys is None:
        return FileKeys()
    if isinstance(keys, Keys):
        own = {column: key for column, key in keys.column_keys.items() if key is not None}
        return FileKeys(keys.footer_key, own,
                        aad_prefix=None if keys.store_aad_prefix else keys.aad_prefix)
    by_metadata = java.data_keys(path, keys).by_metadata
    footer = open_footer(path.read_bytes(), _ByMetadata(by_metadata))
    column_keys = {chunk.column.path: by_metadata[chunk.key_metadata]
                   for chunk in footer.row_groups[0] if chunk.encryption == "column key"}
    named = f"{keys.properties}"
    masters = {name: key for name, key in MASTER_KEYS.items() if re.search(rf"\b{name}\b", named)}
    return FileKeys(by_metadata[footer.footer_key_metadata], column_keys, masters)


class _ByMetadata:
    """Data keys by the key metadata that the file has for them."""

    aad_prefix = None
    has_footer_key = True

    def __init__(self, keys: dict[bytes, bytes]):
        self._keys = keys

    def footer_key(self, key_metadata: bytes | None) -> bytes:
        return self._keys[key_metadata]

    def column_key(self, path: str, key_metadata: bytes | None) -> bytes:
        return self._keys[key_metadata]

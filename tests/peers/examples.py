"""Files that parquet-java writes, in every mode that it has, for the tests of reading them."""

import struct
from pathlib import Path

from tests.peers.keys import Keys, KeyTools
from tests.peers.parquet_java import AnyKeys, Bloom, ParquetJava

SCHEMA = """
message example {
  required int64 id;
  optional int32 small;
  optional float single;
  optional double real;
  optional binary name (STRING);
  optional fixed_len_byte_array(4) code;
  required int96 moment;
  optional group tags (LIST) { repeated group list { optional binary element (STRING); } }
}
"""
COLUMNS = ["id", "small", "single", "real", "name", "code", "moment", "tags.list.element"]
ROWS = [
    {
        "id": 2**62 + i,
        "small": -i,
        "single": i + 0.5,
        "real": i / 3,
        "name": None if i % 4 == 3 else f"näme {i}".encode(),
        "code": struct.pack(">i", i),
        "moment": struct.pack("<qi", i, 2_460_000),
        "tags": {"list": [{"element": b"odd" if i % 2 else b"even"}, {"element": None}]},
    }
    for i in range(20)
]
GROUP_SIZES = [8, 8, 4]
BLOOM = {column: Bloom(ndv=8, fpp=0.001) for column in COLUMNS}

FOOTER_KEY = b"footer key 16 by"
COLUMN_KEYS = {"id": b"column key id 16", "tags.list.element": b"T" * 32}
METADATA = {
    "footer_key_metadata": b"the footer key",
    "column_key_metadata": {"id": b"the id key", "tags.list.element": b"the tags key"},
}
MASTER_KEYS = {"mf": b"master of footer", "mc": b"master of column"}
TOOLS = {"footer.key": "mf", "column.keys": "mc:id,name"}

MODES: dict[str, AnyKeys] = {
    "plain": None,
    "uniform": Keys(FOOTER_KEY),
    "column keys": Keys(FOOTER_KEY, COLUMN_KEYS, **METADATA),
    "footer key column": Keys(FOOTER_KEY, {**COLUMN_KEYS, "name": None}),
    "complete columns": Keys(FOOTER_KEY, COLUMN_KEYS, complete_columns=True),
    "plaintext footer": Keys(FOOTER_KEY, COLUMN_KEYS, plaintext_footer=True),
    "ctr": Keys(FOOTER_KEY, COLUMN_KEYS, algorithm="AES_GCM_CTR_V1"),
    "stored prefix": Keys(FOOTER_KEY, COLUMN_KEYS, b"prefix"),
    "supplied prefix": Keys(FOOTER_KEY, COLUMN_KEYS, b"prefix", store_aad_prefix=False),
    "tools": KeyTools(MASTER_KEYS, TOOLS),
    "tools uniform": KeyTools(MASTER_KEYS, {"uniform.key": "mf", "data.key.length.bits": "256"}),
    "tools single wrapping": KeyTools(MASTER_KEYS, {**TOOLS, "double.wrapping": "false"}),
    "tools plaintext footer": KeyTools(MASTER_KEYS, {**TOOLS, "plaintext.footer": "true"}),
    "tools ctr": KeyTools(MASTER_KEYS, {**TOOLS, "algorithm": "AES_GCM_CTR_V1"}),
    "tools external": KeyTools(MASTER_KEYS, {**TOOLS, "key.material.store.internally": "false"}),
}


def write(java: ParquetJava, path: Path, keys: AnyKeys) -> Path:
    """Write the rows with their filters; gives the path back."""
    java.write(path, SCHEMA, ROWS, keys=keys, bloom=BLOOM, row_group_rows=8)
    return path


def explicit(java: ParquetJava, path: Path, keys: AnyKeys) -> Keys | None:
    """The keys for a peer that has no key tools."""
    return java.data_keys(path, keys) if isinstance(keys, KeyTools) else keys


def leaves(column: str) -> list:
    """The values of one column, without nulls."""
    if column == "tags.list.element":
        return [row["tags"]["list"][0]["element"] for row in ROWS]
    return [row[column] for row in ROWS if row[column] is not None]

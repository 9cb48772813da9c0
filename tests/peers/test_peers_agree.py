"""The peers work, and agree with each other, before anything of ours is compared with them."""

import base64
import struct
from datetime import timedelta
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
import xxhash
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.peers.arrow_cpp import ArrowCpp
from tests.peers.examples import (
    COLUMN_KEYS,
    COLUMNS,
    FOOTER_KEY,
    GROUP_SIZES,
    MASTER_KEYS,
    MODES,
    ROWS,
    SCHEMA,
    explicit,
    leaves,
    write,
)
from tests.peers.keys import Keys, KeyTools
from tests.peers.parquet_java import AnyKeys, ParquetJava
from tests.peers.process import PeerError


@pytest.mark.parametrize("mode", MODES)
def test_both_peers_see_the_same_filters(
    parquet_java: ParquetJava, arrow_cpp: ArrowCpp, tmp_path: Path, mode: str
) -> None:
    keys = MODES[mode]
    path = write(parquet_java, tmp_path / "a.parquet", keys)
    assert path.read_bytes()[:4] == (b"PARE" if hides_footer(keys) else b"PAR1")
    filters = parquet_java.filters(path, keys)
    assert [(f.row_group, f.column) for f in filters] == [(g, c) for g in range(3) for c in COLUMNS]
    assert all(any(f.bitset) and len(f.bitset) == f.num_bytes for f in filters)
    assert arrow_cpp.filters(path, explicit(parquet_java, path, keys)) == filters


def hides_footer(keys: AnyKeys) -> bool:
    if isinstance(keys, KeyTools):
        return keys.properties.get("plaintext.footer") != "true"
    return keys is not None and not keys.plaintext_footer


@pytest.mark.parametrize("mode", ["plain", "column keys", "plaintext footer", "tools"])
def test_both_peers_answer_probes_alike(
    parquet_java: ParquetJava, arrow_cpp: ArrowCpp, tmp_path: Path, mode: str
) -> None:
    keys = MODES[mode]
    path = write(parquet_java, tmp_path / "a.parquet", keys)
    theirs = explicit(parquet_java, path, keys)
    for column in COLUMNS:
        values = leaves(column)
        answers = parquet_java.probe(path, keys, column, values)
        assert arrow_cpp.probe(path, theirs, column, values) == answers
        assert all(map(any, zip(*answers, strict=True)))  # each value is in some row group
    absent = parquet_java.probe(path, keys, "id", range(1000))
    assert arrow_cpp.probe(path, theirs, "id", range(1000)) == absent
    assert max(map(sum, absent)) < 50


@pytest.mark.parametrize("mode", MODES)
def test_parquet_java_reads_what_it_wrote(
    parquet_java: ParquetJava, tmp_path: Path, mode: str
) -> None:
    path = write(parquet_java, tmp_path / "a.parquet", MODES[mode])
    assert parquet_java.read(path, MODES[mode]) == (ROWS, GROUP_SIZES)


@pytest.mark.parametrize("mode", ["plain", "uniform", "tools", "tools external"])
def test_pyarrow_reads_the_data(parquet_java: ParquetJava, tmp_path: Path, mode: str) -> None:
    path = write(parquet_java, tmp_path / "a.parquet", MODES[mode])
    with pq.ParquetFile(path, decryption_properties=pyarrow_keys(path, MODES[mode])) as file:
        table = file.read(["id", "name", "tags"])
        assert [file.metadata.row_group(g).num_rows for g in range(3)] == GROUP_SIZES
    assert table["id"].to_pylist() == leaves("id")
    assert table["name"].drop_null().to_pylist() == [n.decode() for n in leaves("name")]
    assert table["tags"].to_pylist()[1] == ["odd", None]


def pyarrow_keys(path: Path, keys: AnyKeys) -> object:
    if keys is None:
        return None
    if isinstance(keys, Keys):
        return pe.create_decryption_properties(keys.footer_key)
    factory = pe.CryptoFactory(lambda _: MemoryKms())
    lifetime = pe.DecryptionConfiguration(cache_lifetime=timedelta(seconds=1))
    return factory.file_decryption_properties(pe.KmsConnectionConfig(), lifetime, str(path))


class MemoryKms(pe.KmsClient):
    """Opens what parquet-java's key server wrapped."""

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        wrapped = base64.b64decode(wrapped_key)
        cipher = AESGCM(MASTER_KEYS[master_key_identifier])
        return cipher.decrypt(wrapped[:12], wrapped[12:], master_key_identifier.encode())


def test_duckdb_probes_a_plain_file(parquet_java: ParquetJava, tmp_path: Path) -> None:
    path = write(parquet_java, tmp_path / "a.parquet", None)
    for column, value in [("id", 2**62 + 9), ("small", -9), ("real", 3.0), ("name", "näme 9")]:
        rows = duckdb.execute(
            "select bloom_filter_excludes from parquet_bloom_probe(?, ?, ?) order by row_group_id",
            [str(path), column, value],
        ).fetchall()
        found = parquet_java.probe(path, None, column, [value])
        assert [[not excluded] for (excluded,) in rows] == found
        assert found[1] == [True]


def test_row_group_filter_keeps_the_right_row_group(
    parquet_java: ParquetJava, tmp_path: Path
) -> None:
    keys = MODES["column keys"]
    path = write(parquet_java, tmp_path / "a.parquet", keys)
    for column in ["id", "small", "single", "real", "name", "code"]:
        assert parquet_java.row_groups_for(path, keys, column, ROWS[9][column]) == [1]
    assert parquet_java.row_groups_for(path, keys, "id", 5) == []


NAN = struct.pack("<d", float("nan"))
HASHED = [
    ("INT32", -7, struct.pack("<i", -7)),
    ("INT64", 2**63 - 1, struct.pack("<q", 2**63 - 1)),
    ("FLOAT", 0.1, struct.pack("<f", 0.1)),
    ("FLOAT", -0.0, struct.pack("<f", -0.0)),
    ("DOUBLE", float("-inf"), struct.pack("<d", float("-inf"))),
    ("DOUBLE", NAN, NAN),
    ("BYTE_ARRAY", "", b""),
    ("BYTE_ARRAY", "ß" * 50, "ß".encode() * 50),
    ("FIXED_LEN_BYTE_ARRAY", b"\0\1\2", b"\0\1\2"),
    ("INT96", bytes(range(12)), bytes(range(12))),
]


@pytest.mark.parametrize(("kind", "value", "plain"), HASHED)
def test_hashes_are_xxh64_of_the_plain_encoding(
    parquet_java: ParquetJava, arrow_cpp: ArrowCpp, kind: str, value: object, plain: bytes
) -> None:
    expected = [xxhash.xxh64_intdigest(plain)] * 2
    java_kind = "BINARY" if kind == "BYTE_ARRAY" else kind
    assert parquet_java.hash(java_kind, [value, plain]) == expected
    assert arrow_cpp.hash(kind, [value, plain]) == expected


def test_footer_says_what_is_encrypted(parquet_java: ParquetJava, tmp_path: Path) -> None:
    keys = MODES["plaintext footer"]
    path = write(parquet_java, tmp_path / "a.parquet", keys)
    footer = parquet_java.footer(path, keys)
    assert footer["encryption"] == "PLAINTEXT_FOOTER"
    records = footer["columns"]
    assert [r["column"] for r in records if r["encrypted"]] == list(COLUMN_KEYS) * 3
    filters = parquet_java.filters(path, keys)
    places = [(r["bloom_offset"], r["bloom_length"]) for r in records]
    assert places == [(f.offset, f.length) for f in filters]


def test_a_missing_column_key_hides_that_column_only(
    parquet_java: ParquetJava, arrow_cpp: ArrowCpp, tmp_path: Path
) -> None:
    keys = MODES["column keys"]
    path = write(parquet_java, tmp_path / "a.parquet", keys)
    less = Keys(FOOTER_KEY)
    hidden = [r["column"] for r in parquet_java.footer(path, less)["columns"] if "error" in r]
    assert hidden == list(COLUMN_KEYS) * 3
    for peer in (parquet_java, arrow_cpp):
        assert peer.filters(path, less, ["name"]) == peer.filters(path, keys, ["name"])
        with pytest.raises(PeerError):
            peer.filters(path, less, ["id"])


def test_keys_are_found_by_their_metadata(
    parquet_java: ParquetJava, arrow_cpp: ArrowCpp, tmp_path: Path
) -> None:
    keys = MODES["column keys"]
    path = write(parquet_java, tmp_path / "a.parquet", keys)
    names = {keys.footer_key_metadata: FOOTER_KEY}
    names |= {keys.column_key_metadata[column]: key for column, key in COLUMN_KEYS.items()}
    found = Keys(by_metadata=names)
    assert parquet_java.filters(path, found) == arrow_cpp.filters(path, by_metadata=names)
    assert parquet_java.read(path, found) == (ROWS, GROUP_SIZES)


@pytest.mark.parametrize(
    ("mode", "wrong"),
    [
        ("uniform", None),
        ("uniform", Keys(b"not that key 16b")),
        ("column keys", Keys(FOOTER_KEY, {**COLUMN_KEYS, "id": b"not that key 16b"})),
        ("plaintext footer", Keys(b"not that key 16b", COLUMN_KEYS)),
        ("stored prefix", Keys(FOOTER_KEY, COLUMN_KEYS, b"another")),
        ("supplied prefix", Keys(FOOTER_KEY, COLUMN_KEYS)),
        ("supplied prefix", Keys(FOOTER_KEY, COLUMN_KEYS, b"another")),
    ],
)
def test_wrong_keys_are_refused(
    parquet_java: ParquetJava, arrow_cpp: ArrowCpp, tmp_path: Path, mode: str, wrong: Keys | None
) -> None:
    path = write(parquet_java, tmp_path / "a.parquet", MODES[mode])
    for peer in (parquet_java, arrow_cpp):
        with pytest.raises(PeerError) as refusal:
            peer.filters(path, wrong)
        assert refusal.value.error_class


def test_a_changed_bit_in_a_filter_is_refused(
    parquet_java: ParquetJava, arrow_cpp: ArrowCpp, tmp_path: Path
) -> None:
    path = write(parquet_java, tmp_path / "a.parquet", MODES["uniform"])
    last = parquet_java.filters(path, MODES["uniform"])[-1]
    data = bytearray(path.read_bytes())
    data[last.offset + last.length - 1] ^= 1
    path.write_bytes(data)
    for peer in (parquet_java, arrow_cpp):
        assert peer.filters(path, MODES["uniform"], ["id"])
        with pytest.raises(PeerError):
            peer.filters(path, MODES["uniform"], [last.column])


def test_adaptive_filters_and_dictionaries(parquet_java: ParquetJava, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    sizes = {"bloom": ["id"], "bloom_max_bytes": 4096}
    parquet_java.write(path, SCHEMA, ROWS, **sizes, page_version=2, codec="ZSTD")
    assert [f.num_bytes for f in parquet_java.filters(path)] == [4096]
    parquet_java.write(path, SCHEMA, ROWS, **sizes, bloom_adaptive=True, page_rows=5)
    assert [f.num_bytes for f in parquet_java.filters(path)] < [4096]
    columns = {**sizes, "bloom": ["id", "tags.list.element"]}
    parquet_java.write(path, SCHEMA, ROWS, **columns, dictionary=True)
    # unique values fall back to plain pages; a chunk of dictionary pages only gets no filter
    assert [f.column for f in parquet_java.filters(path)] == ["id"]


def test_errors_carry_the_class_and_the_peer_lives_on(
    parquet_java: ParquetJava, arrow_cpp: ArrowCpp, tmp_path: Path
) -> None:
    for peer, name in [(parquet_java, "java.io.FileNotFound"), (arrow_cpp, "Parquet")]:
        with pytest.raises(PeerError) as missing:
            peer.filters(tmp_path / "no such file")
        assert name in missing.value.error_class
        assert "no such file" in missing.value.message
    with pytest.raises(PeerError, match="ArithmeticException"):
        parquet_java.hash("INT32", [2**31])
    with pytest.raises(PeerError, match="out_of_range"):
        arrow_cpp.hash("INT32", [2**31])

"""Filters of columns whose values have several encodings: built and asked as stored."""

import decimal

import pyarrow as pa
import pytest

from secure_bloom import (
    EncryptionConfiguration,
    ParquetFile,
    attach,
    erase,
    seal,
    strip,
    verify_file,
    write_table,
)
from secure_bloom.examples.leaking_file import leaking_file
from secure_bloom.parquet import thrift
from secure_bloom.parquet.schema import SCHEMA_ELEMENT_LAYOUT
from secure_bloom.parquet.thrift import Struct
from tests.maintain.helpers import KMS
from tests.peers.parquet_java import Bloom

ROWS = 100
TABLE = pa.table({
    "amount": [n.to_bytes(1 + n % 3, "big") for n in range(ROWS)],
    "wide": pa.array([n.to_bytes(40, "big") for n in range(ROWS)], pa.binary(40)),
    "code": pa.array([b"%03d" % n for n in range(ROWS)], pa.binary(3)),
    "small": pa.array(range(ROWS), pa.int64()),
    "new": [b"%d" % n for n in range(ROWS)],
    "name": [f"n {n}" for n in range(ROWS)],
})
DECIMAL = (5, Struct([[1, thrift.I32, b"\4"], [2, thrift.I32, b"\x12"]]))  # scale 2, precision 9
ANNOTATIONS = {"amount": DECIMAL, "wide": DECIMAL, "code": (1, Struct()), "new": (99, Struct()),
               "small": (10, Struct([[1, thrift.BYTE, b"\x08"], [2, 1, b""]]))}
ENCRYPTIONS = [None] + [EncryptionConfiguration("footer", {"pii": list(ANNOTATIONS)},
                                                plaintext_footer=signed) for signed in (0, 1)]


def annotate(path, keys) -> None:
    """Give columns the logical types."""
    file = ParquetFile(path, keys)
    elements = list(thrift.each(file.footer._file_meta, 2, SCHEMA_ELEMENT_LAYOUT))
    for element in elements:
        if (annotation := ANNOTATIONS.get(element.get_string(4))) is not None:
            member, struct = annotation
            element.remove(6)
            element.set(10, thrift.STRUCT, Struct([[member, thrift.STRUCT, struct]]))
    file.footer._file_meta.set(2, thrift.LIST, elements)
    file.footer._file_meta.remove(5)  # Arrow's own schema
    path.write_bytes(path.read_bytes()[:file.footer.start] + file.footer.to_bytes())


@pytest.mark.parametrize("encryption", ENCRYPTIONS, ids=["plain", "encrypted", "signed"])
def test_filters_of_what_is_stored(tmp_path, encryption):
    path, keys = tmp_path / "a.parquet", KMS if encryption else None
    write_table(TABLE, path, bloom_filters=True, encryption=encryption, keys=keys)
    expected = {name: bytes(ParquetFile(path, keys).read_bloom_filter(0, name).bitset)
                for name in TABLE.column_names}
    annotate(path, keys)
    assert all(column.type.is_opaque for column in ParquetFile(path, keys).columns[:5])
    strip(path, keys)
    assert set(attach(path, True, keys).changed[0].columns) == set(TABLE.column_names)
    file = ParquetFile(path, keys)
    for name in TABLE.column_names:
        assert bytes(file.read_bloom_filter(0, name).bitset) == expected[name]
    assert verify_file(path, keys).ok
    for name, value in {"amount": decimal.Decimal("7.77"), "wide": 7, "code": "999",
                        "small": 7.0, "new": "x"}.items():
        assert file.might_contain(name, [value])[0].tolist() == [True]  # perhaps
    for name in ANNOTATIONS:
        [found] = file.might_contain(name, TABLE[name])
        assert found.all()
    for name, absent in {"amount": b"x", "wide": b"x" * 40, "code": b"999", "small": 1000,
                         "new": b"x"}.items():
        assert file.might_contain(name, [absent])[0].tolist() == [False]
    assert file.might_contain("wide", [b"x"])[0].tolist() == [True]  # of another length
    assert file.might_contain("name", ["x"])[0].tolist() == [False]
    assert file.prune([("amount", "==", decimal.Decimal("7.77"))]) == [0]


def test_seal_builds_them_again(tmp_path):
    path, encryption = tmp_path / "a.parquet", ENCRYPTIONS[1]
    path.write_bytes(leaking_file(TABLE, list(ANNOTATIONS), KMS, encryption=encryption))
    annotate(path, KMS)
    assert seal(path, KMS).changed[0].built == 5 and verify_file(path, KMS).ok


def test_as_parquet_java_builds_them(parquet_java, tmp_path):
    """Decimals in BYTE_ARRAY, one of them in two encodings: Java asks for the bytes it wrote."""
    path = tmp_path / "a.parquet"
    schema = "message m { required binary amount (DECIMAL(9,2)); required int32 id; }"
    values = [b"\x07", b"\x00\x07", b"\xff", b"\x01\x00"]
    parquet_java.write(path, schema, [{"amount": value, "id": n} for n, value in enumerate(values)],
                       bloom={"amount": Bloom(ndv=1000)})
    result = verify_file(path)  # each value that is stored was found in Java's filter
    assert result.ok and result.filters[0].values == 4
    [found] = ParquetFile(path).might_contain("amount", [*values, b"\x08"])  # asks Java's filter
    assert found.tolist() == [True] * 4 + [False]
    [theirs] = parquet_java.filters(path)
    attach(path, {"amount": {"ndv": 1000}}, replace=True)
    [ours] = parquet_java.filters(path)
    assert ours.bitset == theirs.bitset
    assert parquet_java.probe(path, None, "amount", [*values, b"\x08"]) == [[True] * 4 + [False]]


def test_erase_keeps_such_filters(tmp_path):
    """The file has a last column that nothing here can hash, beside one that is erased from."""
    path = tmp_path / "a.parquet"
    write_table(TABLE.select(["new", "name"]), path, bloom_filters=True)
    annotate(path, None)
    assert erase(path, "name", ["n 7"]).rows_removed == 1
    assert [info.column for info in ParquetFile(path).bloom_filters] == ["new", "name"]
    assert verify_file(path).ok

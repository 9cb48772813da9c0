"""What is stored is what ``docs/index-format.md`` says: a reader written from it finds everything.
"""

import ast
import base64
import json
import struct
from pathlib import Path

import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import secure_bloom
from secure_bloom.index import Index, build
from secure_bloom.parquet.row_ranges import ALL_PARTS
from tests.index import format_reader
from tests.index.helpers import KEYS, KMS, folder_of, write
from tests.reading.ways import with_ranges


def unwrap(material: str, keys=KEYS) -> bytes:
    """Unwrap key material of :class:`secure_bloom.keys.InMemoryKms` with double wrapping."""
    fields = json.loads(material)
    assert fields["keyMaterialType"] == "PKMT1" and fields["doubleWrapping"]
    wrapped_kek = base64.b64decode(fields["wrappedKEK"])
    kek = AESGCM(keys[fields["masterKeyID"]]).decrypt(
        wrapped_kek[:12], wrapped_kek[12:], fields["masterKeyID"].encode())
    wrapped = base64.b64decode(fields["wrappedDEK"])
    return AESGCM(kek).decrypt(wrapped[:12], wrapped[12:],
                               base64.b64decode(fields["keyEncryptionKeyID"]))


def listing_of(table):
    found = {str(path.relative_to(table)): path.stat() for path in table.rglob("*.parquet")}
    return {path: (one.st_size, one.st_mtime_ns, f"{one.st_ino:x}-{one.st_ctime_ns:x}")
            for path, one in found.items()}


@pytest.fixture(params=["column", None])
def table(request, tmp_path):
    """Three covered files in two segments, one of them restamped, and a file that is uncovered."""
    options = {} if request.param else {"encryption": None}
    for number in range(3):
        values = [f"v{number}-{place}" for place in range(9000 if number == 2 else 30)]
        write(tmp_path / f"day={number}" / "x.parquet", values, rows=10 if number < 2 else 3000,
              **options)
        if number:
            build(tmp_path, "ssn", KMS, encryption=request.param)
    secure_bloom.attach(tmp_path / "day=0" / "x.parquet", ["ssn"], KMS)
    build(tmp_path, "ssn", KMS, encryption=request.param)
    write(tmp_path / "new.parquet", ["new"], **options)
    return tmp_path


def test_an_independent_reader_finds_everything(table):
    check(table)
    Index.open(table, KMS).compact()
    check(table)


def check(table):
    index = format_reader.Index(folder_of(table).path, "ssn", unwrap)
    assert {segment.physical_type for segment in index.segments} == {"BYTE_ARRAY"}
    for number in range(3):
        for place in (0, 9, 10, 29):
            found = index.lookup(listing_of(table), f"v{number}-{place}".encode())
            rows = 10 if number < 2 else 3000
            assert found == ({f"day={number}/x.parquet": {place // rows: ALL_PARTS}},
                             {"new.parquet"})
    assert index.lookup(listing_of(table), b"absent") == ({}, {"new.parquet"})
    for segment in index.segments:
        for row in segment.files:
            again = index.restamped.get(row["path"])
            digest = row["footer"] if again is None else bytes.fromhex(again[4])
            if row["path"] != "day=0/x.parquet" or again or len(index.segments) == 1:
                assert digest == format_reader.footer_digest(table / row["path"])


@pytest.mark.slow
def test_values_of_several_pages(tmp_path):
    write(tmp_path / "x.parquet", pa.array(range(40_000)), rows=1000, column="n", encryption=None)
    build(tmp_path, "n", encryption=None)
    index = format_reader.Index(folder_of(tmp_path, "n").path, "n")
    [segment] = index.segments
    assert len(segment.pages) == 8 and segment.physical_type == "INT64"
    for value in range(0, 40_000, 399):
        found, _ = index.lookup(listing_of(tmp_path), struct.pack("<q", value))
        assert found == {"x.parquet": {value // 1000: ALL_PARTS}}


@pytest.mark.parametrize("rows, row_groups, bits", [(640, 1, 6), (10_000, 2, 6), (2**20, 1, 5)])
def test_the_rows_of_values(tmp_path, rows, row_groups, bits):
    with with_ranges():
        write(tmp_path / "x.parquet", pa.array(range(rows)), rows=rows // row_groups, column="n",
              encryption=None)
        build(tmp_path, "n", encryption=None)
    index = format_reader.Index(folder_of(tmp_path, "n").path, "n")
    assert [segment.range_bits for segment in index.segments] == [bits]
    for value in range(0, rows, rows // 50):
        group, row = divmod(value, rows // row_groups)
        found, _ = index.lookup(listing_of(tmp_path), struct.pack("<q", value))
        part = row * 2**(bits - 1) // (rows // row_groups)
        assert found == {"x.parquet": {group: format_reader.parts_of(2**(bits - 1) + part)}}


def test_the_reader_is_independent():
    tree = ast.parse(Path(format_reader.__file__).read_text())
    imported = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    imported += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import)
                 for alias in node.names]
    assert not [name for name in imported if name.startswith(("secure_bloom", "tests"))]


def test_the_independent_reader_refuses_what_the_page_says(table):
    path = max(Path(folder_of(table).path).glob("*.manifest"))
    content = json.loads(path.read_bytes())
    for changed in ({"format": "SBX1"}, {"version": 99}, {"new": 1}):
        path.write_text(json.dumps(content | changed))
        with pytest.raises(format_reader.Refused):
            format_reader.Index(path.parent, "ssn", unwrap)
    path.write_text(json.dumps(content))
    with pytest.raises(format_reader.Refused, match="column"):
        format_reader.Index(path.parent, "other", unwrap)

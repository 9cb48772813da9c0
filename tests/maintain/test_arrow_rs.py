"""Files of arrow-rs, which writes the filters of encrypted columns in plaintext.

They are test vectors, so these tests need no Cargo. tests/peers/test_arrow_rs.py writes others.
"""

import shutil
from pathlib import Path

import pytest

from secure_bloom import ParquetFile, audit, read_table, seal, verify_file
from secure_bloom.errors import AuthenticationError
from secure_bloom.keys import ExplicitKeys
from tests.peers.arrow_cpp import ArrowCpp
from tests.peers.keys import Keys
from tests.peers.parquet_java import ParquetJava
from vectors.builder.writers_rust import FILES, MODES, ROWS

ENCRYPTED = {"arrow-rs-columns": ["id", "name"], "arrow-rs-signed": ["id", "name", "day"]}
every_file = pytest.mark.parametrize("name", MODES)


@pytest.fixture
def leaking(tmp_path: Path, name: str) -> Path:
    return Path(shutil.copy(FILES / f"{name}.parquet", tmp_path))


def our_keys(name: str) -> ExplicitKeys:
    return ExplicitKeys(MODES[name].footer_key, dict(MODES[name].column_keys))


@every_file
def test_rows_are_read_and_filters_refused(leaking: Path, name: str):
    assert read_table(leaking, our_keys(name)).to_pylist() == ROWS.to_pylist()
    for column in ENCRYPTED[name]:
        value = ROWS[column][0].as_py()
        with pytest.raises(AuthenticationError, match=f"column {column}"):
            read_table(leaking, our_keys(name), filters=[(column, "==", value)])


def test_filters_of_plaintext_columns_are_used():
    with ParquetFile(FILES / "arrow-rs-columns.parquet", our_keys("arrow-rs-columns")) as file:
        filters = [file.read_bloom_filter(group, "day") for group in range(2)]
    first, second = ROWS["day"][:6].combine_chunks(), ROWS["day"][6:].combine_chunks()
    assert filters[0].check(first).all() and filters[1].check(second).all()
    assert not filters[0].check(second).all()


@every_file
def test_audit_finds_the_leak(leaking: Path, name: str):
    findings = audit(leaking, our_keys(name)).findings
    assert {(finding.kind, finding.column) for finding in findings} \
        == {("leak", column) for column in ENCRYPTED[name]}


@every_file
def test_without_keys_only_the_bytes_are_found(leaking: Path, name: str):
    assert audit(leaking).findings == []
    assert [found.kind for found in audit(leaking, scan=True).findings] == ["trace"]


@every_file
def test_seal_repairs_them(parquet_java: ParquetJava, arrow_cpp: ArrowCpp, leaking: Path,
                           name: str):
    keys = our_keys(name)
    change = seal(leaking, keys).changed[0]
    assert (set(change.columns), change.built) == (set(ENCRYPTED[name]), 2 * len(ENCRYPTED[name]))
    assert audit(leaking, keys, scan=True).ok and verify_file(leaking, keys).ok

    assert read_table(leaking, keys).to_pylist() == ROWS.to_pylist()
    for column in ("id", "name", "day"):
        value = ROWS[column][8].as_py()
        found = read_table(leaking, keys, filters=[(column, "==", value)])
        assert found.to_pylist() == ROWS[8:9].to_pylist()

    theirs = Keys(MODES[name].footer_key, MODES[name].column_keys)
    with ParquetFile(leaking, keys) as file:
        bitsets = [bytes(file.read_bloom_filter(group, column).bitset)
                   for group in range(2) for column in ("id", "name", "day")]
    assert [record.bitset for record in parquet_java.filters(leaking, theirs)] == bitsets
    rows, _ = parquet_java.read(leaking, theirs)
    assert [row["id"] for row in rows] == ROWS["id"].to_pylist()
    if not MODES[name].plaintext_footer:  # then Arrow C++ finds no filters of encrypted columns
        assert [record.bitset for record in arrow_cpp.filters(leaking, theirs)] == bitsets

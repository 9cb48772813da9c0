"""Plaintext filters of encrypted columns become encrypted ones; nothing of the old ones stays."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from secure_bloom import (
    EncryptionConfiguration,
    ParquetFile,
    SplitBlockBloomFilter,
    attach,
    audit,
    seal,
    strip,
    verify_file,
)
from secure_bloom.examples.leaking_file import leaking_file
from secure_bloom.keys import InMemoryKms
from secure_bloom.keys.retrieval import KmsKeys
from secure_bloom.parquet.bloom_filter import detect_filter
from secure_bloom.reading.open_file import OpenFile
from tests.maintain.helpers import KEYS, KMS, SIGNED, TABLE, WAYS, leaking, without
from tests.peers.keys import Keys, KeyTools

every_way = pytest.mark.parametrize("way", WAYS)


def leaks(path, keys=KMS) -> set[str]:
    return {finding.column for finding in verify_file(path, keys).findings
            if finding.kind == "leak"}


def plain_bitsets(path, column: str) -> list[bytes]:
    """What stands where the footer says, as far as it is a plaintext filter."""
    file = OpenFile(path, KMS)
    [ordinal] = [c.ordinal for c in file.columns if c.path == column]
    found = []
    for chunks in file.footer.row_groups:
        offset, length = chunks[ordinal].bloom_filter
        if detect_filter(file, offset, file.footer.start).kind == "plain":
            found.append(file.read_at(length, offset))
    return found


@every_way
def test_seal(tmp_path, way):
    path = leaking(tmp_path / "a.parquet", WAYS[way])
    sensitive = {"ssn", "name", "city"} if way == "uniform" else {"ssn", "name"}
    assert leaks(path) == sensitive
    old = {column: plain_bitsets(path, column) for column in ("ssn", "name", "city")}
    assert all(len(filters) == 3 for filters in old.values())

    result = seal(path, KMS)
    change = result.changed[0]
    assert (set(change.columns), change.built, change.removed) \
        == (sensitive, 3 * len(sensitive), 3 * len(sensitive))
    assert not leaks(path) and verify_file(path, KMS).ok
    data = path.read_bytes()
    file = ParquetFile(path, KMS)
    for column, filters in old.items():
        for group, one in enumerate(filters):
            assert (one in data) == (column not in sensitive)
            kept = file.read_bloom_filter(group, column)
            assert one.endswith(bytes(kept.bitset))  # the same size, the same bits
            blocks = (one[i:i + 32] for i in range(len(one) % 32, len(one), 32))
            assert column not in sensitive or not any(b in data for b in blocks if any(b))
    assert file.read().equals(TABLE)
    assert seal(path, KMS).unchanged == 1 and path.read_bytes() == data


@every_way
def test_peers_read_what_was_sealed(parquet_java, arrow_cpp, tmp_path, way):
    path, tools = leaking(tmp_path / "a.parquet", WAYS[way]), KeyTools(KEYS)
    rows = parquet_java.read(path, tools)
    seal(path, KMS)
    assert parquet_java.read(path, tools) == rows
    filters = parquet_java.filters(path, tools)
    assert len(filters) == 9
    file = ParquetFile(path, KMS)
    for record in filters:
        assert bytes(file.read_bloom_filter(record.row_group, record.column).bitset) \
            == record.bitset
    keys = KmsKeys(KMS)
    explicit = Keys(keys.footer_key(file.footer.footer_key_metadata), {
        chunk.column.path: keys.column_key(chunk.column.path, chunk.key_metadata)
        for chunk in file.footer.row_groups[0] if chunk.encryption == "column key"})
    assert arrow_cpp.filters(path, explicit) == filters


def test_a_filter_that_was_changed_is_not_taken_over(tmp_path):
    """It lacks values, as somebody without any key has arranged."""
    path = leaking(tmp_path / "a.parquet")
    [first, *_] = plain_bitsets(path, "ssn")
    data = path.read_bytes()
    size = SplitBlockBloomFilter.from_bitset(first[-64:]).num_bytes
    path.write_bytes(data.replace(first, first[:-size] + bytes(size)))
    assert not ParquetFile(path, KMS).footer.is_encrypted or leaks(path)
    seal(path, KMS)
    assert verify_file(path, KMS).ok
    assert ParquetFile(path, KMS).might_contain("ssn", TABLE["ssn"][:40].combine_chunks())[0].all()


def test_a_leak_that_only_the_redacted_metadata_names(tmp_path):
    """Without a key everybody finds it; with one, it must not be overlooked."""
    path = leaking(tmp_path / "a.parquet", SIGNED)
    file = ParquetFile(path, KMS)
    for chunks in file.footer.row_groups:
        for field in (14, 15):  # where the filter is, and its length
            chunks[0].metadata_to_change()[0].remove(field)
    path.write_bytes(path.read_bytes()[:file.footer.start] + file.footer.to_bytes())
    leaks = {finding.column for finding in audit(path, KMS).findings}
    assert leaks == {finding.column for finding in audit(path).findings} == {"ssn", "name"}
    assert seal(path, KMS).changed[0].columns == ("ssn", "name")
    assert audit(path, KMS).ok and audit(path).ok


def test_columns_whose_keys_are_missing(tmp_path):
    path = leaking(tmp_path / "a.parquet", WAYS["encrypted footer"])
    result = seal(path, without("other"))
    assert result.changed[0].columns == ("ssn",)
    assert any("name" in note and "key" in note for note in result.changed[0].notes)
    assert leaks(path) == {"name"}
    result = seal(path, without("other"))
    assert "name" in result.failed[str(path)] and not result.changed
    seal(path, KMS)
    assert not leaks(path)


def test_without_the_key_of_a_column_that_leaks_nothing_changes(tmp_path):
    path = leaking(tmp_path / "a.parquet")  # here everybody sees the leak
    before = path.read_bytes()
    for keys in (without("other"), without("footer"), without("pii", "other")):
        result = seal(path, keys)
        assert list(result.failed) == [str(path)] and not result.changed
        assert path.read_bytes() == before and len(list(tmp_path.iterdir())) == 1


def test_wrong_keys(tmp_path):
    path = leaking(tmp_path / "a.parquet")
    before = path.read_bytes()
    result = seal(path, InMemoryKms({**KEYS, "pii": b"x" * 16}))
    assert result.failed and path.read_bytes() == before


def test_attach_does_not_pass_over_a_leak(tmp_path):
    path = leaking(tmp_path / "a.parquet")
    assert "seal" in attach(path, {"ssn": True, "number": True}, KMS).failed[str(path)]
    attach(path, {"ssn": True, "number": True}, KMS, replace=True)
    assert leaks(path) == {"name"}


def test_strip_leaves_no_byte_of_a_leak(tmp_path):
    path = leaking(tmp_path / "a.parquet")
    old = plain_bitsets(path, "ssn")
    assert strip(path, KMS, columns=["ssn"]).changed[0].removed == 3
    assert not any(one in path.read_bytes() for one in old) and leaks(path) == {"name"}
    assert ParquetFile(path, KMS).read().equals(TABLE)


def test_a_column_whose_values_have_no_certain_hash(tmp_path):
    """BYTE_ARRAY decimals: the filter cannot be built, so it goes."""
    table = pa.table({"flag": [True, False] * 20, "ssn": [str(i) for i in range(40)]})
    encryption = EncryptionConfiguration("footer", {"pii": ["flag", "ssn"]}, plaintext_footer=True)
    path = tmp_path / "a.parquet"
    data = leaking_file(table, ["ssn"], KMS, encryption=encryption)
    path.write_bytes(data)
    file = ParquetFile(path, KMS)
    flag, ssn = file.footer.row_groups[0]
    flag.set_bloom_filter(*ssn.bloom_filter)  # as if the one filter were of the other column
    ssn.remove_bloom_filter()
    path.write_bytes(data[:file.footer.start] + file.footer.to_bytes())
    change = seal(path, KMS).changed[0]
    assert (change.built, change.removed) == (0, 1) and "flag" in change.notes[0]
    assert ParquetFile(path, KMS).bloom_filters == []


@pytest.mark.parametrize("length", [None, "short", "long"])
def test_lengths_that_the_footer_does_not_know(tmp_path, length):
    """Old arrow-rs does not write lengths. Where two are told, the longer one goes."""
    path = leaking(tmp_path / "a.parquet", columns=["ssn"])
    old = plain_bitsets(path, "ssn")
    file = ParquetFile(path, KMS)
    for chunks in file.footer.row_groups:
        offset, told = chunks[0].bloom_filter
        chunks[0].set_bloom_filter(offset, told + {"short": -32, "long": 32}.get(length, 0))
        for meta in chunks[0].metadata_to_change() if length is None else ():
            meta.remove(15)
    path.write_bytes(path.read_bytes()[:file.footer.start] + file.footer.to_bytes())
    before = path.read_bytes()
    result = seal(path, KMS)
    if length == "long":  # it reaches into pages: nothing is done
        assert result.failed and path.read_bytes() == before
        return
    assert verify_file(path, KMS).ok and not any(one[-32:] in path.read_bytes() for one in old)
    assert ParquetFile(path, KMS).read().equals(TABLE)


def test_the_bytes_between(tmp_path):
    """Where filters stood between row groups there are zeros, at the end nothing."""
    path = leaking(tmp_path / "a.parquet", columns=["ssn"])
    file = ParquetFile(path, KMS)
    places = [chunks[0].bloom_filter for chunks in file.footer.row_groups]
    strip(path, KMS)
    stripped = OpenFile(path, KMS)
    for offset, length in places[:-1]:
        assert stripped.read_at(length, offset) == bytes(length)
    assert stripped.footer.start == places[-1][0]
    assert np.array_equal(pq.read_metadata(path).num_rows, 100)

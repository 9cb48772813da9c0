"""An audit finds each kind of fault, on a file with just this one, and tells no value."""

import os
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.parquet.encryption import create_encryption_properties

from secure_bloom import (
    EncryptionConfiguration,
    ParquetFile,
    SplitBlockBloomFilter,
    attach,
    audit,
    seal,
    write_table,
)
from secure_bloom.auditing.evidence import estimated_distinct, find_plain_filters
from secure_bloom.examples.leaking_file import leaking_file
from secure_bloom.parquet.bloom_filter import encode_filter
from secure_bloom.parquet.header import encode_header
from secure_bloom.policy import Policy
from secure_bloom.reading.open_file import OpenFile
from tests.forging import with_exposed_metadata
from tests.maintain.helpers import ENCRYPTED, KMS, SIGNED, TABLE, UNIFORM, WAYS, leaking, without
from tests.peers.examples import MODES, write
from tests.peers.process import PeerError
from tests.peers.test_peers_read_by_ours import our_keys

NUMBERS = [f"{i:09d}" for i in range(0, 200)]


def kinds(result) -> list[tuple]:
    return [(finding.kind, finding.column) for finding in result.findings]


def states(result, number: int = 0) -> dict[str, str]:
    return {column.column: column.state for column in result.files[number].columns}


def good(path, encryption=SIGNED, **options):
    write_table(TABLE, path, bloom_filters=dict.fromkeys(["ssn", "name", "city"], True), keys=KMS,
                encryption=encryption, row_group_size=40, **options)
    return path


def changed(path, change, keys=KMS):
    """The file with another footer; ``change`` gets the footer, and bytes to append to."""
    file = OpenFile(path, keys)
    data = bytearray(path.read_bytes()[:file.footer.start])
    change(file.footer, data)
    path.write_bytes(bytes(data) + file.footer.to_bytes())
    return path


# --- files without fault -------------------------------------------------------------------------

@pytest.mark.parametrize("way", WAYS)
def test_a_good_file(tmp_path, way):
    result = audit(good(tmp_path / "a.parquet", WAYS[way], write_page_index=True), KMS, scan=True)
    assert result.ok and not result.findings and not result.files[0].not_checked
    expected = {"ssn": "protected", "name": "protected", "city": "open", "number": "none"}
    if way == "uniform":
        expected |= {"city": "protected", "number": "protected"}
    assert states(result) == expected
    column = result.files[0].columns[0]
    assert column.filters == 3 and 0.2 < column.fill < 0.6 and column.fpp < 0.01
    assert column.bytes == sum(info.length for info in ParquetFile(tmp_path / "a.parquet", KMS)
                               .bloom_filters if info.column == "ssn")


@pytest.mark.parametrize("mode", MODES)
def test_files_of_parquet_java_have_no_fault(parquet_java, tmp_path, mode):
    keys = our_keys(MODES[mode])
    path = write(parquet_java, tmp_path / "a.parquet", MODES[mode])
    result = audit(path, keys, scan=True)
    if "plaintext footer" in mode:  # this is one: numbers of nulls, bytes and list items
        assert result.findings and all(
            finding.kind == "statistics" and "seal" in finding.remedy
            and "anyone can read in the footer: size statistics" in finding.message
            for finding in result.findings)
        rows = parquet_java.read(path, MODES[mode])
        seal(path, keys)
        assert parquet_java.read(path, MODES[mode]) == rows
        result = audit(path, keys, scan=True)
    assert kinds(result) == [] and not result.missing_keys


def test_without_keys(tmp_path):
    good(tmp_path / "a.parquet", ENCRYPTED)
    good(tmp_path / "b.parquet", SIGNED)
    result = audit(tmp_path)
    assert result.ok and result.missing_keys
    assert result.files[0].columns == []
    assert "bytes were not searched" in result.files[0].not_checked[1]
    assert states(result, 1)["ssn"] == "protected" and states(result, 1)["city"] == "open"
    assert any("signature" in what for what in result.files[1].not_checked)
    assert any("ssn" in what for what in result.files[1].not_checked)
    result = audit(tmp_path / "a.parquet", without("pii"))
    assert states(result)["ssn"] == "unknown" and states(result)["name"] == "protected"
    assert result.ok and result.missing_keys


# --- leaks ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("keys", [None, KMS])
@pytest.mark.parametrize("way", WAYS)
def test_plaintext_filters_of_encrypted_columns(tmp_path, way, keys):
    path = leaking(tmp_path / "a.parquet", WAYS[way])
    result = audit(path, keys, guesses=NUMBERS)
    if keys is None and way != "signed footer":
        assert result.ok and result.missing_keys
        [finding] = audit(path, keys, scan=True).findings  # no key is needed to find them
        assert finding.kind == "trace" and "9 plaintext" in finding.message
        return
    leaks = {"ssn", "name"} | ({"city"} if way == "uniform" else set())
    assert kinds(result) == [("leak", column) for column in TABLE.column_names if column in leaks]
    finding = result.findings[0]
    assert finding.row_groups == (0, 1, 2) and finding.severity == "error" and not result.ok
    estimate = int(finding.evidence[0].split("about ")[1].split(" distinct")[0])
    assert 36 <= estimate <= 44  # it has 40
    assert "of 200 guessed values" in finding.evidence[1]
    found = int(finding.evidence[1].split("guessed values, ")[1].split(" are")[0])
    assert 100 <= found <= 110  # a hundred are in it
    assert not any(number in str(result.to_dict()) for number in NUMBERS[:100])
    assert states(result)["ssn"] == "leaking"


def test_a_plaintext_footer_whose_key_is_missing(tmp_path):
    """With other keys the audit sees no less than without any."""
    path = leaking(tmp_path / "a.parquet")
    result = audit(path, without("footer"), policy=Policy(("city",), encrypted_footer=True))
    assert set(kinds(result)) == {("plaintext-footer", None), ("unencrypted", "city"),
                                  ("leak", "ssn"), ("leak", "name")}
    [file] = result.files
    assert file.encryption == "signed footer" and file.missing_keys
    assert any("'footer'" in what for what in file.not_checked)


@pytest.mark.parametrize("way", WAYS)
def test_after_seal_guessing_fails(tmp_path, way):
    path = leaking(tmp_path / "a.parquet", WAYS[way])
    seal(path, KMS)
    assert not audit(path, KMS, guesses=NUMBERS, scan=True).findings
    stranger = audit(path, guesses=NUMBERS, scan=True)
    assert {finding.kind for finding in stranger.findings} <= {"trace"}
    data = path.read_bytes()
    # What anybody can still find are the filters of the open column.
    column = None if way == "uniform" else "city"
    file = OpenFile(path, KMS)
    plain = {chunk.bloom_filter[0] for chunk in file.footer.column_chunks()
             if chunk.column.path == column}
    assert {offset for offset, _ in find_plain_filters(file, file.footer.start)} == plain
    assert len(data) > file.footer.start


@pytest.mark.slow
def test_days_and_small_numbers_need_no_list_of_guesses(tmp_path):
    days = pa.array(range(0, 3000, 10), pa.int32()).view(pa.date32())
    table = pa.table({"born": days, "age": pa.array(range(300), pa.int64())})
    encryption = EncryptionConfiguration("footer", {"pii": ["born", "age"]}, plaintext_footer=True)
    path = tmp_path / "a.parquet"
    path.write_bytes(leaking_file(table, ["born", "age"], KMS, encryption=encryption))
    born, age = audit(path).findings
    assert "all 73,049 days from 1900 to 2099 were tried" in born.evidence[1]
    assert "all 1,000,000 numbers below one million were tried" in age.evidence[1]
    found = int(born.evidence[1].split("tried: ")[1].split(" are")[0].replace(",", ""))
    assert 300 <= found < 300 + 73_049 * 0.02


def test_a_sensitive_column_that_is_not_encrypted(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(TABLE, path)
    assert not audit(path).findings
    result = audit(path, policy=Policy(("SSN", "phone"), encrypted_footer=True))
    assert kinds(result) == [("plaintext-footer", None), ("unencrypted", "ssn"), ("policy", None)]
    assert "phone" in result.findings[2].message and states(result)["ssn"] == "leaking"
    assert not audit(good(path, ENCRYPTED), KMS,
                     policy=Policy(("s*",), encrypted_footer=True)).findings


def test_datafusion_asked_to_encrypt(tmp_path):
    """Its Python package (of 2026) takes the options, and writes plaintext without a word."""
    datafusion = pytest.importorskip("datafusion")
    context, path = datafusion.SessionContext(), tmp_path / "a.parquet"
    context.from_arrow(TABLE, name="t")
    crypto = "format.crypto.file_encryption."
    options = {f"{crypto}encrypt_footer": "true", f"{crypto}footer_key_as_hex": "30" * 16,
               f"{crypto}column_key_as_hex::ssn": "31" * 16, "format.bloom_filter_on_write": "true"}
    listed = ", ".join(f"'{name}' '{value}'" for name, value in options.items())
    context.sql(f"copy t to '{path}' stored as parquet options ({listed})").collect()
    if b"PARE" in path.read_bytes()[-4:]:
        pytest.skip("this datafusion encrypts")
    result = audit(path, policy=Policy(("ssn",), encrypted_footer=True))
    assert kinds(result) == [("plaintext-footer", None), ("unencrypted", "ssn")]
    assert states(result)["ssn"] == "leaking" and result.files[0].columns[0].filters == 1


def test_statistics_beside_the_encrypted_ones(tmp_path):
    path = good(tmp_path / "a.parquet")
    path.write_bytes(with_exposed_metadata(path.read_bytes(), KMS, "ssn", [12, 16]))
    for keys in (None, KMS):
        result = audit(path, keys)
        assert kinds(result) == [("statistics", "ssn")] and states(result)["ssn"] == "leaking"
        assert result.findings[0].row_groups == (0, 1, 2)
        assert "anyone can read in the footer: minimum and maximum values, statistics such as " \
            "counts of nulls, size" in result.findings[0].message
    assert seal(path, KMS).changed[0].columns == ("ssn",) and audit(path, KMS).ok


def test_a_column_index_in_plaintext(tmp_path):
    plain = tmp_path / "plain.parquet"
    pq.write_table(TABLE, plain, write_page_index=True)
    other = OpenFile(plain)
    offset, length = other.footer.row_groups[0][0].column_index
    index = other.read_at(length, offset)

    def put(footer, data):
        struct = footer.row_groups[0][0].to_change()
        struct.set_int(6, 6, len(data))
        struct.set_int(7, 5, len(index))
        data += index

    path = good(tmp_path / "a.parquet", write_page_index=True)
    assert not audit(path, KMS).findings
    result = audit(changed(path, put), KMS)
    assert kinds(result) == [("statistics", "ssn")] and result.findings[0].row_groups == (0,)


def test_filters_that_do_not_authenticate(tmp_path):
    path = good(tmp_path / "a.parquet")
    data = bytearray(path.read_bytes())
    info = next(i for i in ParquetFile(path, KMS).bloom_filters if i.column == "name")
    data[info.offset + info.length - 1] ^= 1
    path.write_bytes(data)
    result = audit(path, KMS)
    assert kinds(result) == [("authentication", "name")] and result.findings[0].row_groups == (0,)


def test_a_filter_that_arrow_cpp_refuses(arrow_cpp, tmp_path):
    def put(footer, data):
        chunk = footer.row_groups[0][3]
        parts = encode_filter(SplitBlockBloomFilter(3), chunk)
        chunk.set_bloom_filter(len(data), sum(map(len, parts)))
        for part in parts:
            data += part

    path = tmp_path / "a.parquet"
    pq.write_table(TABLE, path)
    result = audit(changed(path, put, None))
    assert kinds(result) == [("refused", "number")] and result.ok
    with pytest.raises(PeerError, match="bitset"):
        arrow_cpp.filters(path)
    attach(path, {"number": True}, replace=True)
    assert not audit(path).findings and len(arrow_cpp.filters(path)) == 1


def test_a_filter_that_arrow_cpp_ignores(tmp_path):
    def hide(footer, data):
        for chunks in footer.row_groups:
            chunks[0].metadata_to_change()[1].remove(14)

    result = audit(changed(good(tmp_path / "a.parquet"), hide), KMS)
    assert ("refused", "ssn") in kinds(result) and result.ok


def test_left_over_bytes_of_a_filter(tmp_path):
    def leave(footer, data):
        data += encode_header(64) + bytes(64)

    path = changed(good(tmp_path / "a.parquet"), leave)
    assert not audit(path, KMS).findings
    assert kinds(audit(path, KMS, scan=True)) == [("trace", None)]


def test_files_that_share_their_id(tmp_path):
    properties = create_encryption_properties(b"k" * 16)
    for name, rows in (("a", TABLE), ("b", TABLE.slice(1))):
        pq.write_table(rows, tmp_path / f"{name}.parquet", encryption_properties=properties)
    for name in ("c", "d"):
        good(tmp_path / f"{name}.parquet", UNIFORM)
    shutil.copy(tmp_path / "c.parquet", tmp_path / "copy.parquet")
    found = [finding for finding in audit(tmp_path, KMS).findings]
    assert [(finding.kind, finding.file[-9:]) for finding in found] \
        == [("shared-id", "a.parquet"), ("shared-id", "b.parquet")]
    os.rename(tmp_path / "a.parquet", tmp_path / "a\nb.parquet")  # the message stays in one line
    assert not any("\n" in finding.message for finding in audit(tmp_path, KMS).findings)


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1 no Parquet")
    good(tmp_path / "b.parquet")
    result = audit(tmp_path, KMS)
    assert kinds(result) == [("damaged", None)] and len(result.files) == 2
    with pytest.raises(FileNotFoundError):
        audit(tmp_path / "nothing")


# --- the parts -----------------------------------------------------------------------------------

@pytest.mark.parametrize("ndv", [1, 10, 100, 1000, 10_000, 50_000])
def test_the_number_of_distinct_values_is_estimated(ndv):
    filter_ = SplitBlockBloomFilter(1024)
    filter_.insert_hashes(np.random.default_rng(ndv).integers(0, 2**64, ndv, dtype=np.uint64))
    assert abs(estimated_distinct(filter_) - ndv) <= 2 + 0.05 * ndv
    full = SplitBlockBloomFilter.from_bitset(b"\xff" * 32)
    assert estimated_distinct(full) is None


@pytest.mark.parametrize("where", [4, 5000, 8 * 2**20 - 7, 8 * 2**20 - 1, 8 * 2**20, 16 * 2**20])
@pytest.mark.parametrize("num_bytes", [32, 1024, 2**20])
def test_filters_are_found_wherever_they_stand(where, num_bytes):
    filter_ = encode_header(num_bytes) + bytes(num_bytes)
    data = bytes(where) + filter_ + bytes(100)

    class Memory:
        def read_at(self, nbytes, offset):
            return data[offset:offset + nbytes]

    assert list(find_plain_filters(Memory(), len(data))) == [(where, len(filter_))]
    assert list(find_plain_filters(Memory(), where + len(filter_) - 1)) == []


def test_policies(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text('sensitive = ["ssn", "Address", "*.email", "tag?"]\nencrypted_footer = true\n')
    policy = Policy.read(path)
    assert policy.encrypted_footer
    for name in ("ssn", "SSN", "address.city", "person.email", "tags",
                 "person.email.list.element", "tags.key_value.key"):
        assert policy.is_sensitive(name)
    for name in ("ssn2", "addressee", "email", "tag", "tagged"):
        assert not policy.is_sensitive(name)
    assert policy.without_match(["ssn", "x.email"]) == ["Address", "tag?"]

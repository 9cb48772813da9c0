"""What can be done with some of the keys, or none."""

import io

import pyarrow as pa
import pyarrow.parquet.encryption as pe
import pytest

import secure_bloom
from secure_bloom import ExplicitKeys, ParquetFile
from secure_bloom.auditing.audit import audit
from secure_bloom.cli import report
from secure_bloom.errors import (
    KeyAccessError,
    KeyringError,
    KmsUnavailableError,
)
from secure_bloom.keys import InMemoryKms, list_master_keys, rotate_master_keys
from secure_bloom.keys.retrieval import KmsKeys
from secure_bloom.maintain.attach import attach
from secure_bloom.maintain.seal import seal
from secure_bloom.maintain.strip import strip
from secure_bloom.reading.open_file import OpenFile

KMS = InMemoryKms({"kf": b"0123456789012345", "kc1": b"1234567890123450"})
TABLE = pa.table({"ssn": ["a", "b"], "city": ["x", "y"], "tags": [[1], [2]]})
FILTERS = {"ssn": True, "city": True, "tags.list.element": True}


def _file(plaintext_footer=True, **options):
    sink = io.BytesIO()
    secure_bloom.write_table(
        TABLE, sink, bloom_filters=FILTERS, keys=KMS, encryption=pe.EncryptionConfiguration(
            "kf", column_keys={"kc1": ["ssn"]}, plaintext_footer=plaintext_footer), **options)
    return sink.getvalue()


class Failing(InMemoryKms):
    """A KMS that has all keys, and answers with an error when one of them is asked for."""

    def __init__(self, error=KeyAccessError, key="kc1"):
        super().__init__(KMS._keys)
        self.error, self.key, self.calls = error, key, 0

    def unwrap_key(self, wrapped_key, master_key_identifier):
        if master_key_identifier == self.key:
            self.calls += 1
            raise self.error(f"master key {self.key}: the KMS says no")
        return super().unwrap_key(wrapped_key, master_key_identifier)


both_footers = pytest.mark.parametrize("plaintext_footer", [False, True])


def _column_key(data):
    chunk = ParquetFile(data, KMS).footer.row_groups[0][0]
    return KmsKeys(KMS).column_key("ssn", chunk.key_metadata)


def test_a_column_key_alone_reads_its_column_under_a_plaintext_footer():
    data = _file()
    file = ParquetFile(data, ExplicitKeys(column_keys={"ssn": _column_key(data)}))
    assert file.footer.signature_verified is False
    assert file.might_contain("ssn", ["a", "z"]).tolist() == [[True, False]]
    assert file.read().equals(TABLE)


# --- a KMS that denies the key of a column -------------------------------------------------------

@both_footers
def test_a_column_whose_key_is_denied_is_a_column_without_a_key(plaintext_footer):
    kms = Failing()
    file = OpenFile(_file(plaintext_footer, row_group_size=1), kms)
    assert list(file.key_errors) == ([] if plaintext_footer else ["ssn"])
    shown = {column["column"]: column for column in report.inspect_file(file)["columns"]}
    assert shown["ssn"]["hidden"] == (None if plaintext_footer else "access denied")
    assert shown["ssn"]["filters"] == (2 if plaintext_footer else None)
    assert shown["ssn"]["expected_fpp"] is None and shown["city"]["expected_fpp"] is not None
    assert ("unknown: access denied" in report.render_inspection(report.inspect_file(file))) \
        != plaintext_footer
    assert kms.calls == 1  # for both row groups, their metadata, filters and statistics


@both_footers
def test_other_columns_are_read_where_the_key_of_one_is_denied(tmp_path, plaintext_footer):
    data, kms = _file(plaintext_footer, row_group_size=1), Failing()
    (tmp_path / "a.parquet").write_bytes(data)
    others = TABLE.select(["city", "tags"])
    for source in (data, tmp_path / "a.parquet", tmp_path):
        read = secure_bloom.read_table(source, keys=kms, columns=["city", "tags"])
        assert read.equals(others)
        found = secure_bloom.read_table(source, keys=kms, columns=["tags"],
                                        filters=[("city", "==", "y")])
        assert found.to_pylist() == [{"tags": [2]}]
    file = ParquetFile(data, kms)
    assert file.prune([("city", "==", "y")]) == [1]
    assert pa.Table.from_batches(file.iter_batches(["city", "tags"])).equals(others)
    assert {check.column for check in secure_bloom.verify_file(data, kms).filters
            if check.not_checked is None} == {"city", "tags.list.element"}


@both_footers
@pytest.mark.parametrize("error", [KeyAccessError, KmsUnavailableError])
def test_a_column_whose_key_is_denied_cannot_be_read(plaintext_footer, error):
    data = _file(plaintext_footer)
    for ask in (lambda file: file.might_contain("ssn", ["a"]),
                lambda file: file.prune([("ssn", "==", "a")]),
                lambda file: file.read_bloom_filter(0, "ssn"), lambda file: file.read(),
                lambda file: file.read(columns=["ssn"]),
                lambda file: file.read(filters=[("ssn", "==", "a")]),
                lambda file: list(file.iter_batches())):
        with pytest.raises(error, match="says no") as raised:
            ask(ParquetFile(data, Failing(error)))
        assert raised.value.file == "<buffer>"
        assert error is KmsUnavailableError or raised.value.column == "ssn"


@both_footers
@pytest.mark.parametrize("error", [KmsUnavailableError, KeyringError])
@pytest.mark.parametrize("key", ["kf", "kc1"])
def test_a_kms_that_fails_is_not_taken_for_a_missing_key(tmp_path, plaintext_footer, error, key):
    path = tmp_path / "a.parquet"
    path.write_bytes(_file(plaintext_footer))
    for ask in (lambda kms: report.inspect_file(OpenFile(path, kms)),
                lambda kms: secure_bloom.verify_file(path, kms), lambda kms: audit(tmp_path, kms),
                lambda kms: attach(tmp_path, {"ssn": True}, kms, replace=True),
                lambda kms: strip(tmp_path, kms),
                lambda kms: rotate_master_keys(tmp_path, kms, old=key, new="kf")):
        with pytest.raises(error, match="says no"):
            ask(Failing(error, key))


def test_what_verify_and_audit_say_of_a_denied_key(tmp_path):
    path = tmp_path / "a.parquet"
    path.write_bytes(_file(plaintext_footer=False))
    result = secure_bloom.verify_file(path, Failing())
    assert result.ok and result.missing_keys
    result = audit(path, Failing())
    assert result.ok and result.missing_keys
    assert [column.column for column in result.files[0].columns if column.filters is None] \
        == ["ssn"]
    assert result.files[0].not_checked == [
        "column ssn: whether it has filters is encrypted with a key that is not available"]


def test_a_key_that_is_denied_for_one_file_does_not_keep_others_from_it(tmp_path):
    """In one folder are files of several owners."""
    for name, column_keys in (("denied", {"kc1": ["ssn"]}), ("mine", {"kf": ["ssn"]})):
        secure_bloom.write_table(TABLE, tmp_path / f"{name}.parquet", bloom_filters={}, keys=KMS,
                                 encryption=pe.EncryptionConfiguration(
                                     "kf", column_keys=column_keys))
    denied, mine = (str(tmp_path / f"{name}.parquet") for name in ("denied", "mine"))
    for result in (attach(tmp_path, {"ssn": True}, Failing()),
                   strip(tmp_path, Failing(), columns=["ssn"])):
        assert [change.file for change in result.changed] == [mine]
        assert "says no" in result.failed[denied]
    assert seal(tmp_path, Failing()).unchanged == 1
    assert {use.name for use in list_master_keys(tmp_path, Failing()).master_keys} == {"kf", "kc1"}


def test_a_rotation_goes_on_where_the_key_of_another_footer_is_denied(tmp_path):
    keys = InMemoryKms({**KMS._keys, "new": b"n" * 16})
    for name, footer in (("a", "kf"), ("b", "kc1")):
        secure_bloom.write_table(TABLE, tmp_path / f"{name}.parquet", bloom_filters={}, keys=keys,
                                 encryption=pe.EncryptionConfiguration(
                                     footer, uniform_encryption=True))
    kms = Failing()
    kms._keys = keys._keys
    result = rotate_master_keys(tmp_path, kms, old="kf", new="new")
    assert result.rotated == [str(tmp_path / "a.parquet")]
    assert "says no" in result.failed[str(tmp_path / "b.parquet")]
    with pytest.raises(KeyAccessError, match="says no"):
        rotate_master_keys(tmp_path, kms, old="kc1", new="kf")

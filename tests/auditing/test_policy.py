"""An audit finds what a policy does not allow, by the paths of the files."""

import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
import pytest

from secure_bloom import (
    EncryptionConfiguration,
    ExplicitKeys,
    ParquetFile,
    Policy,
    UniformKey,
    audit,
    write_table,
)
from secure_bloom.auditing.compliance import check_files
from secure_bloom.errors import AuthenticationError, PolicyError
from secure_bloom.policy import TableRules
from tests.maintain.helpers import COLUMNS, ENCRYPTED, KMS, SIGNED, TABLE, UNIFORM

KEYS = Policy(footer_key="footer", columns={"ssn": "pii", "name": "other"})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.parquet"


def written(path, encryption=SIGNED, keys=KMS, table=TABLE):
    write_table(table, path, encryption=encryption, keys=keys)
    return path


def kinds(path, keys=None, **options):
    return [(finding.kind, finding.column) for finding in audit(path, keys, **options).findings]


def both(path, policy, keys=None):
    """What the audit finds, and the check of the policy alone."""
    found = kinds(path, keys, policy=policy)
    [file] = check_files(path, policy, keys)
    assert found == [(violation.kind, violation.column) for violation in file.violations]
    return found


@pytest.mark.parametrize("keys", [None, KMS], ids=["stranger", "keys"])
def test_columns_and_footers_under_another_master_key(path, keys):
    written(path)
    assert both(path, KEYS, keys) == []
    assert both(path, Policy(columns={"ssn": "other", "name": "other"}), keys) \
        == [("master-key", "ssn")]
    assert both(path, Policy(["ssn"], footer_key="pii"), keys) == [("master-key", None)]
    [finding] = audit(path, keys, policy=Policy(columns={"s*": "other"})).findings
    assert "'pii'" in finding.message and "'s*' in columns" in finding.message
    assert finding.row_groups == (0,) and finding.severity == "error"


def test_the_footer_key_under_which_a_column_is(path):
    written(path, UNIFORM)
    assert both(path, KEYS, KMS) == [("master-key", "ssn"), ("master-key", "name")]
    assert both(path, Policy(default="encrypt"), KMS) == []


def test_all_that_is_not_named_must_be_encrypted(path):
    policy = Policy(default="encrypt", columns={"number": {"plaintext": True}})
    assert both(written(path), policy) == [("unencrypted", "city")]
    result = audit(path, policy=policy)
    assert {column.column: column.state for column in result.files[0].columns} == {
        "ssn": "protected", "name": "protected", "city": "leaking", "number": "none"}


def test_pages_that_are_not_authenticated(path):
    written(path, EncryptionConfiguration("footer", COLUMNS,
                                          encryption_algorithm="AES_GCM_CTR_V1"))
    assert both(path, KEYS, KMS) == [("algorithm", None)]
    assert kinds(path, KMS) == []


def test_master_keys_that_cannot_be_determined_are_not_checked(path):
    written(path, UniformKey(b"k" * 16, plaintext_footer=True), None)
    for keys in (None, ExplicitKeys(b"k" * 16)):
        result = audit(path, keys, policy=KEYS)
        assert not result.findings and result.missing_keys
        assert sum("cannot be determined" in what for what in result.files[0].not_checked) == 3
        [file] = check_files(path, KEYS, keys)
        assert not file.violations and file.missing_keys and len(file.not_checked) == 3


def test_key_material_beside_the_file(path):
    written(path, EncryptionConfiguration("footer", COLUMNS, plaintext_footer=True,
                                          internal_key_material=False))
    assert both(path, KEYS, KMS) == []
    assert both(path, Policy(columns={"ssn": "other"}), KMS) == [("master-key", "ssn")]
    assert audit(path, policy=KEYS).missing_keys


def test_rules_of_tables_follow_the_paths_of_the_files(tmp_path):
    for name in ("people", "shops"):
        (tmp_path / name).mkdir()
        written(tmp_path / name / "a.parquet", None, None)
    policy = Policy(["phone"], tables=[TableRules("people", ["name", "nick"]),
                                       TableRules("nowhere", ["street"])])
    for filesystem, folder in ((None, tmp_path), (pa_fs.LocalFileSystem(), str(tmp_path)), (
            pa_fs.SubTreeFileSystem(str(tmp_path / "people"), pa_fs.LocalFileSystem()), "")):
        result = audit(folder, policy=policy, filesystem=filesystem)
        found = [(finding.kind, finding.column) for finding in result.findings]
        assert found == [("unencrypted", "name"), ("policy", None), ("policy", None)]
        assert result.findings[0].file.endswith("people/a.parquet") or folder == ""
        assert ["'phone'" in finding.message or "'nick'" in finding.message
                for finding in result.findings] == [False, True, True]


def test_a_plaintext_file_without_rows_is_reported_because_readers_refuse_it(path):
    policy = Policy(["ssn"])
    pq.ParquetWriter(path, TABLE.schema).close()
    with pytest.raises(AuthenticationError):
        ParquetFile(path, KMS, require_encryption=policy)
    assert both(path, policy) == [("unencrypted", "ssn")]
    written(path, UNIFORM, table=TABLE.slice(0, 0))
    assert both(path, policy, KMS) == []


def test_a_name_that_one_table_has_is_not_reported(tmp_path):
    for name in ("people", "shops"):
        (tmp_path / name).mkdir()
        columns = ["ssn"] if name == "people" else ["city"]
        written(tmp_path / name / "a.parquet", UNIFORM, table=TABLE.select(columns))
    policy = Policy(["ssn"], tables=[TableRules("shops", ["city"])])
    assert kinds(tmp_path, KMS, policy=policy) == []


def test_a_policy_that_contradicts_itself_is_no_finding_about_a_file(path):
    written(path)
    policy = Policy(columns={"ss?": "pii", "?sn": "other"})
    for look in (lambda: audit(path, policy=policy), lambda: check_files(path, policy)):
        with pytest.raises(PolicyError, match="contradict"):
            look()


def test_a_policy_costs_no_reads(path, monkeypatch):
    from secure_bloom.storage.source import Source
    reads = []
    for name in ("read_at", "read_tail"):
        original = getattr(Source, name)
        monkeypatch.setattr(Source, name, lambda self, *a, original=original: (
            reads.append(a), original(self, *a))[1])
    written(path, ENCRYPTED)
    counts = []
    for policy in (None, KEYS, Policy(default="encrypt", tables=[TableRules("*", ["ssn"])])):
        reads.clear()
        audit(path, KMS, policy=policy)
        counts.append(list(reads))
    assert counts[0] == counts[1] == counts[2] != []
    reads.clear()
    check_files(path, KEYS, KMS)
    assert len(reads) <= len(counts[0])


def test_a_renamed_column_is_found_by_guesses(path):
    """No rule applies to it; its plaintext filters recognize the values."""
    policy = Policy(["ssn"])
    renamed = TABLE.rename_columns(["id", "name", "city", "number"])
    write_table(renamed, path, bloom_filters=True)
    numbers = [f"{i:09d}" for i in range(50)]
    others = [f"x{i}" for i in range(50)]
    assert kinds(path, policy=policy) == kinds(path, policy=policy, guesses=others) \
        == [("policy", None)]
    result = audit(path, policy=policy, guesses=numbers + others)
    assert ("guessed", "id") in [(finding.kind, finding.column) for finding in result.findings]
    [finding] = [finding for finding in result.findings if finding.kind == "guessed"
                 and finding.column == "id"]
    assert "of 100 values guessed, 50 are" in finding.evidence[0] and result.ok
    assert not any(number in str(result.to_dict()) for number in numbers)
    for wrong in ("000000001", [None], [1]):
        with pytest.raises(TypeError, match="guesses must be a list of texts"):
            audit(path, guesses=wrong)
    attempt = Policy(["id"])  # which is reported as such
    assert kinds(path, policy=attempt, guesses=numbers)[:1] == [("unencrypted", "id")]

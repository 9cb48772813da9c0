"""attach and seal keep to a policy."""

import pytest

from secure_bloom import (
    EncryptionConfiguration,
    ExplicitKeys,
    ParquetFile,
    Policy,
    UniformKey,
    attach,
    seal,
    write_table,
)
from secure_bloom.errors import PolicyError
from secure_bloom.policy import TableRules
from tests.maintain.helpers import ENCRYPTED, KMS, SIGNED, TABLE, UNIFORM, leaking

POLICY = Policy(["name"], columns={"ssn": {"key": "pii", "bloom_filter": {"fpp": 0.001}},
                                   "city": {"bloom_filter": True}})


def filters_of(path):
    return {info.column: info.encrypted for info in ParquetFile(path, KMS).bloom_filters}


def unchanged(path, operation, words):
    """The operation fails for this file, which stays as it is."""
    before = path.read_bytes()
    result = operation()
    assert list(result.failed) == [str(path)] and not result.changed
    assert words in result.failed[str(path)]
    assert path.read_bytes() == before and list(path.parent.iterdir()) == [path]


def test_attach_adds_the_filters_of_the_policy(tmp_path):
    path = tmp_path / "a.parquet"
    write_table(TABLE, path, encryption=ENCRYPTED, keys=KMS)
    assert attach(path, keys=KMS, policy=POLICY, dry_run=True).changed[0].built == 2
    attach(path, keys=KMS, policy=POLICY)
    assert filters_of(path) == {"ssn": True, "city": False}
    assert not attach(path, keys=KMS, policy=POLICY).changed
    attach(path, ["number"], KMS, policy=POLICY)
    assert filters_of(path) == {"ssn": True, "city": False, "number": False}


def test_attach_takes_the_callers_word_for_the_columns_that_it_names(tmp_path):
    path = tmp_path / "a.parquet"
    write_table(TABLE, path, encryption=ENCRYPTED, keys=KMS)
    attach(path, {"ssn": False, "number": True}, KMS, policy=POLICY)
    assert set(filters_of(path)) == {"city", "number"}
    with pytest.raises(ValueError, match="at least one column"):
        attach(path, keys=KMS)


@pytest.mark.parametrize("asked", [None, ["name"], True], ids=str)
def test_attach_writes_no_plaintext_filter_of_a_column_that_must_be_encrypted(tmp_path, asked):
    path = tmp_path / "a.parquet"
    write_table(TABLE, path)
    unchanged(path, lambda: attach(path, asked, policy=POLICY), "not encrypted")
    unchanged(path, lambda: attach(path, asked, policy=POLICY, dry_run=True), "in columns"
              if asked is None else "policy requires")


def test_attach_to_other_columns_of_such_a_file(tmp_path):
    path = tmp_path / "a.parquet"
    write_table(TABLE, path)
    attach(path, {"ssn": False, "number": True}, policy=POLICY)
    assert filters_of(path) == {"city": False, "number": False}


def test_attach_refuses_another_master_key(tmp_path):
    path = tmp_path / "a.parquet"
    write_table(TABLE, path, encryption=UNIFORM, keys=KMS)
    unchanged(path, lambda: attach(path, keys=KMS, policy=POLICY), "'pii'")
    write_table(TABLE, path, encryption=UniformKey(b"k" * 16))
    unchanged(path, lambda: attach(path, keys=ExplicitKeys(b"k" * 16), policy=POLICY),
              "cannot be determined")


def test_rules_of_tables_follow_the_path_of_each_file(tmp_path):
    for name in ("people", "shops"):
        (tmp_path / name).mkdir()
        write_table(TABLE, tmp_path / name / "a.parquet")
    policy = Policy(columns={"name": {"bloom_filter": True}},
                    tables=[TableRules("people", ["name"])])
    result = attach(tmp_path, policy=policy)
    assert list(result.failed) == [str(tmp_path / "people" / "a.parquet")]
    assert filters_of(tmp_path / "shops" / "a.parquet") == {"name": False}


def test_seal_repairs_a_file_that_meets_the_policy(tmp_path):
    path = leaking(tmp_path / "a.parquet")
    assert seal(path, KMS, policy=POLICY).changed[0].columns == ("ssn", "name")
    assert filters_of(path) == {"ssn": True, "name": True, "city": False}


@pytest.mark.parametrize(("policy", "words"), [
    (Policy(["city"]), "column city"), (Policy(["ssn"], True), "footer is not encrypted"),
    (Policy(columns={"ssn": "other"}), "'other'"), (Policy(footer_key="pii"), "'footer'"),
    (Policy(default="encrypt"), "column city")], ids=str)
def test_seal_fails_where_it_cannot_repair_what_the_policy_requires(tmp_path, policy, words):
    path = leaking(tmp_path / "a.parquet", SIGNED)
    unchanged(path, lambda: seal(path, KMS, policy=policy), words)
    unchanged(path, lambda: seal(path, KMS, policy=policy), "write the file again")
    assert seal(path, KMS).changed


def test_a_policy_that_is_not_valid_changes_nothing(tmp_path):
    path = leaking(tmp_path / "a.parquet")
    before = path.read_bytes()
    (tmp_path / "p.toml").write_text("sensitiv = []")
    for operation in (attach, seal):
        with pytest.raises(PolicyError):
            operation(path, keys=KMS, policy=tmp_path / "p.toml")
    contradiction = Policy(columns={"ss?": "pii", "?sn": "other"})
    assert "contradict" in attach(path, ["ssn"], KMS, policy=contradiction).failed[str(path)]
    assert path.read_bytes() == before


def test_a_ctr_file_is_not_taken_for_one_that_meets_the_policy(tmp_path):
    path = leaking(tmp_path / "a.parquet", EncryptionConfiguration(
        "footer", {"pii": ["ssn"]}, encryption_algorithm="AES_GCM_CTR_V1"))
    unchanged(path, lambda: seal(path, KMS, policy=Policy(["ssn"])), "AES_GCM_CTR_V1")

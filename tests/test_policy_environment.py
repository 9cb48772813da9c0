"""SECURE_BLOOM_POLICY: the policy of everything that is not given another one."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import secure_bloom
from secure_bloom import Keyring, ParquetFile, ParquetWriter, Policy, read_table, write_table
from secure_bloom.cli import main
from secure_bloom.errors import AuthenticationError, PolicyError
from secure_bloom.policy import NO_POLICY, TableRules
from secure_bloom.policy.environment import environment_policy

PEOPLE = pa.table({"ssn": ["078", "079"], "city": ["Rome", "Oslo"]})
POLICY = Policy(footer_key="footer", columns={"ssn": {"key": "pii", "bloom_filter": True}})


@pytest.fixture(autouse=True)
def policy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Keyring.create("keyring.json", keys=["footer", "pii"])
    write_table(PEOPLE, "plain.parquet")
    path = tmp_path / "policy.toml"
    path.write_text(POLICY.to_toml())
    monkeypatch.setenv("SECURE_BLOOM_POLICY", str(path))
    return path


def test_it_makes_the_encryption_of_what_is_written():
    write_table(PEOPLE, "one.parquet", keys="keyring.json")
    with ParquetWriter("two.parquet", PEOPLE.schema, keys="keyring.json") as writer:
        writer.write(PEOPLE)
    secure_bloom.write_dataset(PEOPLE, "folder", keys="keyring.json")
    done = CliRunner().invoke(main, ["write", "plain.parquet", "three.parquet",
                                     "--keys", "keyring.json"])
    assert done.exit_code == 0, done.output
    for path in ("one.parquet", "two.parquet", "three.parquet",
                 *secure_bloom.dataset("folder", "keyring.json").files):
        with ParquetFile(path, "keyring.json") as file:
            assert [(one.column, one.encrypted) for one in file.bloom_filters] == [("ssn", True)]
    with pytest.raises(PolicyError, match="must be encrypted"):
        write_table(PEOPLE, "four.parquet", plaintext=True)


def test_what_does_not_meet_it_is_not_read():
    for read in (read_table, ParquetFile, secure_bloom.dataset, secure_bloom.erase,
                 lambda path: list(secure_bloom.find(path, "ssn", ["078"]))):
        with pytest.raises(AuthenticationError, match="not encrypted"):
            read("plain.parquet") if read is not secure_bloom.erase \
                else read("plain.parquet", "ssn", ["078"])
    assert not secure_bloom.verify_file("plain.parquet").ok
    assert not secure_bloom.audit("plain.parquet").ok
    for command in (["inspect", "plain.parquet"], ["audit", "plain.parquet"],
                    ["verify", "plain.parquet"]):
        assert CliRunner().invoke(main, command).exit_code in (1, 5), command


def test_an_explicit_policy_wins(tmp_path):
    other = tmp_path / "other.toml"
    other.write_text(Policy(sensitive=["city"]).to_toml())
    for policy in (Policy(), NO_POLICY):
        assert read_table("plain.parquet", policy=policy).num_rows == 2
        assert ParquetFile("plain.parquet", policy=policy).num_rows == 2
        assert secure_bloom.dataset("plain.parquet", policy=policy).count_rows() == 2
        write_table(PEOPLE, io.BytesIO(), policy=policy, plaintext=True)
    write_table(PEOPLE, io.BytesIO(), policy=NO_POLICY)
    with pytest.raises(AuthenticationError, match="city"):
        write_table(PEOPLE, "one.parquet", keys="keyring.json", sensitive=["ssn"])
        read_table("one.parquet", "keyring.json", policy=other)
    other.write_text(Policy(columns={"*": {"plaintext": True}}).to_toml())
    done = CliRunner().invoke(main, ["inspect", "plain.parquet", "--policy", str(other)])
    assert done.exit_code == 0, done.output


def test_the_home_folder_is_meant_by_a_tilde(policy, monkeypatch):
    monkeypatch.setenv("HOME", str(policy.parent))
    monkeypatch.setenv("SECURE_BLOOM_POLICY", f"~/{policy.name}")
    assert environment_policy() == POLICY
    done = CliRunner().invoke(main, ["verify", "plain.parquet"])
    assert done.exit_code == 1 and "not encrypted" in done.output, done.output


def test_rules_for_some_paths_do_not_stop_what_the_package_does_inside(policy):
    policy.write_text(Policy(footer_key="footer", tables=[
        TableRules("*/folder", columns={"ssn": "pii"})]).to_toml())
    secure_bloom.write_dataset(PEOPLE, "folder", keys="keyring.json", index_columns=["ssn"])
    assert read_table("folder", "keyring.json", filters=[("ssn", "==", "078")]).num_rows == 1
    done = CliRunner().invoke(main, ["find", "folder", "--column", "ssn", "--value", "078",
                                     "--keys", "keyring.json", "--output", "rows.parquet"])
    assert done.exit_code == 0, done.output
    assert pq.read_table("rows.parquet").num_rows == 1


def test_a_policy_that_cannot_be_used_is_an_error_and_never_silence(policy, tmp_path, monkeypatch):
    def refused():
        for use in (lambda: read_table("plain.parquet"), lambda: write_table(PEOPLE, "out"),
                    lambda: secure_bloom.write_dataset(PEOPLE, "out"),
                    lambda: secure_bloom.audit("plain.parquet")):
            with pytest.raises(PolicyError, match="SECURE_BLOOM_POLICY"):
                use()
        assert CliRunner().invoke(main, ["inspect", "plain.parquet"]).exit_code == 2
        assert not (tmp_path / "out").exists()

    policy.write_text('sensitive = ["ssn"]\nsensitiv = ["city"]')
    refused()
    policy.write_bytes(b"\xff" * 10)
    refused()
    policy.write_bytes(b"#" * 2_000_000)
    refused()
    for path in (tmp_path / "missing.toml", tmp_path, "nothing://x/y", "a\0b"):
        with monkeypatch.context() as patch:
            patch.setattr("os.environ", {"SECURE_BLOOM_POLICY": str(path)})
            with pytest.raises(PolicyError, match="SECURE_BLOOM_POLICY"):
                environment_policy()
    monkeypatch.setenv("SECURE_BLOOM_POLICY", "")
    assert read_table("plain.parquet").num_rows == 2

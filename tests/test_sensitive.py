"""The short form of an encryption: sensitive columns, keys by convention."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from secure_bloom import (
    EncryptionConfiguration,
    Keyring,
    ParquetFile,
    ParquetWriter,
    Policy,
    dataset,
    read_table,
    write_dataset,
    write_table,
)
from secure_bloom.cli import main
from secure_bloom.errors import (
    ColumnError,
    CommitError,
    KeyNotFoundError,
    KeyringError,
    KeyringNotFoundError,
)
from secure_bloom.keys import NO_KEYS
from secure_bloom.policy import TableRules

PEOPLE = pa.table({
    "ssn": ["078", "079"], "SSN": ["078", "079"], "city": ["Rome", "Oslo"], "day": [1, 2],
    "adult": [True, False],
    "home": [{"street": "s", "zip": 1}] * 2, "tags": [["t"], ["u"]],
    "phones": pa.array([[("home", "1")], []], pa.map_(pa.string(), pa.string()))})


@pytest.fixture(autouse=True)
def keyring(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Keyring.create("keyring.json", keys=["footer", "pii"])


def protection(path="out") -> dict[str, tuple[str | None, bool]]:
    """Return the master key of each column, and whether it has a filter."""
    with ParquetFile(path, "keyring.json") as file:
        filters = {filter.column: filter for filter in file.bloom_filters}
        assert all(bool(filters[chunk.column.path].encrypted) == bool(chunk.encryption)
                   for chunk in file.footer.column_chunks() if chunk.column.path in filters)
        assert file.footer.has_encrypted_footer
        master_key = file.footer.crypto.master_key
        return {chunk.column.path: (chunk.encryption and master_key(chunk.key_metadata),
                                    chunk.column.path in filters)
                for chunk in file.footer.column_chunks()}


def test_sensitive_columns_are_encrypted_with_filters_by_everything_that_writes(keyring):
    table = PEOPLE.select(["ssn", "city"])
    write_table(table, "out", sensitive="ssn", keys="keyring.json")
    expected = {"ssn": ("pii", True), "city": (None, False)}
    assert protection() == expected
    with ParquetWriter("writer", table.schema, sensitive=["ssn"], keys=keyring) as writer:
        writer.write(table)
    assert protection("writer") == expected
    write_dataset(table, "folder", sensitive=["ssn"], keys=keyring)
    assert [protection(path) for path in dataset("folder", keyring).files] == [expected]
    pq.write_table(table, "plain")
    done = CliRunner().invoke(main, ["write", "plain", "command", "--sensitive", "ssn",
                                     "--keys", "keyring.json"])
    assert done.exit_code == 0, done.output
    assert protection("command") == expected


def test_names_are_those_of_policies():
    write_table(PEOPLE, "out", sensitive=["Ssn", "home", "tags.*", "phones.key_value.value"],
                keys="keyring.json", bloom_filters={"city": True, "home.zip": False})
    found = protection()
    assert {path for path, (key, _) in found.items() if key == "pii"} == {
        "ssn", "SSN", "home.street", "home.zip", "tags.list.element", "phones.key_value.value"}
    assert {path for path, (_, has_filter) in found.items() if has_filter} == {
        "ssn", "SSN", "home.street", "tags.list.element", "phones.key_value.value", "city"}
    write_table(PEOPLE, "out", sensitive=["*"], keys="keyring.json", bloom_filters=False)
    assert set(protection().values()) == {("pii", False)}
    write_table(PEOPLE, "out", sensitive=["ssn", "adult"], keys="keyring.json")
    assert protection()["adult"] == ("pii", False)  # a boolean cannot have a filter


@pytest.mark.parametrize("names", [["snn"], ["ssn", "home.stret"], ["tags.bag", "nothing*"]])
def test_a_name_that_is_no_column_is_an_error_before_anything_is_written(names, tmp_path):
    with pytest.raises(ColumnError, match="it is sensitive, but there is no such column") as error:
        write_table(PEOPLE, "out", sensitive=names, keys="keyring.json")
    assert "did you mean" in str(error.value) or "nothing*" in names
    with pytest.raises(ColumnError, match="no such column"):
        write_dataset(PEOPLE, "folder", sensitive=names, keys="keyring.json")
    assert {path.name for path in tmp_path.iterdir()} <= {"keyring.json", "folder"}


def test_other_arguments_that_contradict_it_are_refused():
    encryption = EncryptionConfiguration("footer", {"pii": ["ssn"]})
    for wrong in ({"encryption": encryption}, {"plaintext": True}, {"sensitive": []},
                  {"sensitive": 3}, {"sensitive": [3]}, {"sensitive": b"ssn"}):
        for write in (write_table, write_dataset):
            with pytest.raises((TypeError, ValueError), match="sensitive"):
                write(PEOPLE, "out", **{"sensitive": ["ssn"], "keys": "keyring.json", **wrong})


def test_options_of_the_command_that_contradict_it_are_refused():
    pq.write_table(PEOPLE, "plain")
    for option in (["--footer-key", "footer"], ["--column-key", "pii:city"], ["--plaintext"],
                   ["--plaintext-footer"], ["--other-columns", "footer-key"]):
        done = CliRunner().invoke(main, ["write", "plain", "command", "--sensitive", "ssn",
                                         "--keys", "keyring.json", *option])
        assert done.exit_code == 2 and f"{option[0]} contradicts" in done.output


def test_missing_keys_are_errors_with_the_line_that_creates_them(tmp_path):
    with pytest.raises(KeyringNotFoundError) as error:
        write_table(PEOPLE, "out", sensitive=["ssn"], keys="other.json")
    line = "secure_bloom.Keyring.create('other.json', keys=[\"footer\", \"pii\"])"
    assert line in str(error.value) and not (tmp_path / "other.json").exists()
    Keyring.create("other.json", keys=["footer"])
    with pytest.raises(KeyNotFoundError) as error:
        write_table(PEOPLE, "out", sensitive=["ssn"], keys="other.json")
    assert "secure_bloom.Keyring('other.json').add('pii')" in str(error.value)
    assert Keyring("other.json").names() == ["footer"] and not (tmp_path / "out").exists()
    write_table(PEOPLE, "out", sensitive=["ssn"], keys="keyring.json")
    Keyring("keyring.json").subset("some.json", ["footer"], passphrase=None)
    with pytest.raises(KeyNotFoundError) as error:  # a new key would not read an old file
        read_table("out", "some.json")
    assert ".add(" not in str(error.value)


def test_a_partition_column_cannot_be_sensitive(tmp_path):
    for names in (["day"], ["DAY", "ssn"], ["*"], ["d?y"]):
        with pytest.raises(ColumnError, match="its values would be part of folder names"):
            write_dataset(PEOPLE, "folder", partition_by="day", sensitive=names,
                          keys="keyring.json")
    assert not any((tmp_path / "folder").glob("day=*"))
    write_dataset(PEOPLE, "folder", partition_by="day", sensitive=["ssn"], keys="keyring.json")
    assert dataset("folder", "keyring.json").count_rows() == 2


def test_a_policy_decides_about_keys_and_filters_and_encrypts_what_it_demands(keyring):
    for name in ("pf", "pc"):
        keyring.add(name)
    policy = Policy(footer_key="pf", sensitive=["city"], columns={
        "ssn": {"key": "pc", "bloom_filter": False}, "home": {"plaintext": True}},
        tables=[TableRules("*", ["tags"])])
    write_table(PEOPLE, "out", sensitive=["ssn", "home"], policy=policy, keys=keyring)
    found = protection()
    assert {path: key for path, (key, _) in found.items() if key} == {
        "ssn": "pc", "SSN": "pc", "home.street": "pii", "home.zip": "pii", "city": "pf",
        "tags.list.element": "pf"}
    assert [path for path, (_, has_filter) in found.items() if has_filter] == [
        "home.street", "home.zip"]
    assert read_table("out", keyring, policy=policy).equals(PEOPLE)


def test_what_is_appended_opens_no_column_that_is_encrypted_in_the_folder(keyring):
    write_dataset(PEOPLE, "folder", sensitive=["ssn", "city"], keys=keyring)
    with pytest.raises(CommitError, match="column city is encrypted in this file"):
        write_dataset(PEOPLE, "folder", mode="append", sensitive=["ssn"], keys=keyring)
    with pytest.raises(CommitError, match="column SSN is encrypted in this file"):
        write_dataset(PEOPLE, "folder", mode="append", keys=keyring,
                      encryption=EncryptionConfiguration("footer", {"pii": ["ssn", "city"]}))
    write_dataset(PEOPLE, "folder", mode="append", sensitive=["ssn", "city", "day"], keys=keyring)
    other_case = PEOPLE.select(["city", "day"]).rename_columns(["CITY", "day"])
    with pytest.raises(CommitError, match="column CITY is encrypted"):
        write_dataset(other_case, "folder", mode="append", sensitive=["day"], keys=keyring)
    assert dataset("folder", keyring).count_rows() == 4


def test_nothing_in_plaintext_is_appended_to_a_signed_file_without_rows(keyring):
    signed = EncryptionConfiguration("footer", {"pii": ["ssn"]}, plaintext_footer=True)
    write_dataset(PEOPLE[:0], "folder", encryption=signed, keys=keyring)
    with pytest.raises(CommitError, match="is encrypted, and what is added would not be"):
        write_dataset(PEOPLE, "folder", mode="append", plaintext=True)


def test_a_path_that_names_two_columns_is_refused():
    table = pa.table({"a": [{"b": "1"}], "a.b": ["2"]})
    with pytest.raises(ColumnError):
        write_table(table, "out", sensitive=["a.b"], keys="keyring.json")


def test_a_keyring_is_created_once(tmp_path):
    path = tmp_path / "new.json"
    keys = {name: Keyring.create(path, keys=["footer"], exist_ok=True).export(name)
            for name in ["footer"]}
    again = Keyring.create(path, keys=["footer", "pii"], exist_ok=True)
    assert again.names() == ["footer", "pii"] and again.export("footer") == keys["footer"]
    before = path.stat()
    Keyring.create(path, keys=["pii"], exist_ok=True)
    assert path.stat().st_ino == before.st_ino  # not written again
    with pytest.raises(KeyringError, match="already exists"):
        Keyring.create(path, keys=["pii"])
    with pytest.raises(KeyringError, match="the file has none"):
        Keyring.create(path, "a passphrase of several words", exist_ok=True)
    path.chmod(0o644)
    with pytest.raises(KeyringError):
        Keyring.create(path, exist_ok=True)


def test_a_footer_key_alone_reads_only_open_columns(keyring):
    write_table(PEOPLE, "out", sensitive=["ssn"], keys=keyring)
    keyring.subset("some.json", ["footer"], passphrase=None)
    assert read_table("out", "some.json", columns=["city"])["city"].to_pylist() == ["Rome", "Oslo"]
    for keys in ("some.json", NO_KEYS):
        with pytest.raises(KeyNotFoundError):
            read_table("out", keys, columns=["ssn"])

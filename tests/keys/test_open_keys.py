"""What ``keys`` may be: a KMS client, the path of a keyring, or the URI of a KMS."""

import os
from pathlib import Path

import pyarrow as pa
import pytest

import secure_bloom
from secure_bloom import (
    EncryptionConfiguration,
    ParquetFile,
    ParquetWriter,
    UniformKey,
    read_table,
    verify_file,
    write_table,
)
from secure_bloom.errors import KeyringError
from secure_bloom.keys import (
    NO_KEYS,
    ExplicitKeys,
    KeyEncryptionKeys,
    Keyring,
    environment,
    list_master_keys,
    rotate_master_keys,
)
from secure_bloom.keys.environment import open_keys

TABLE = pa.table({"ssn": ["012", "034"], "city": ["Rome", "Oslo"]})
ENCRYPTION = EncryptionConfiguration("footer", {"pii": ["ssn"]})
FORMS = {
    "client": Keyring,
    "path": Path,
    "text": str,
    "URI": lambda path: f"keyring:{path}",
    "URI in capitals": lambda path: f"KEYRING:{path}",
}


@pytest.fixture
def ring(tmp_path) -> Path:
    keyring = Keyring.create(tmp_path / "keys.json")
    for name in ("footer", "pii"):
        keyring.add(name)
    return tmp_path / "keys.json"


@pytest.fixture(params=FORMS)
def keys(request, ring):
    return FORMS[request.param](ring)


def test_each_form_serves_whatever_takes_keys(tmp_path, ring, keys):
    path = tmp_path / "data" / "a.parquet"
    path.parent.mkdir()
    write_table(TABLE, path, bloom_filters=["ssn"], encryption=ENCRYPTION, keys=keys)
    assert ParquetFile(path, keys).read().equals(TABLE)
    for source in (path, path.parent):
        assert read_table(source, keys, filters=[("ssn", "==", "012")]).num_rows == 1
    assert verify_file(path, keys).ok and not verify_file(path, keys).missing_keys
    assert secure_bloom.audit(path.parent, keys).missing_keys is False
    assert [use.name for use in list_master_keys(path, keys).master_keys] == ["footer", "pii"]
    assert KeyEncryptionKeys(keys, ["pii"]).key_encryption_key("pii", 16)
    assert secure_bloom.strip(path, keys).changed
    assert secure_bloom.attach(path, ["ssn"], keys).changed
    Keyring(ring).add("new")
    assert rotate_master_keys(path, keys, old="pii", new="new").rotated == [str(path)]
    assert read_table(path, keys).equals(TABLE)


@pytest.mark.parametrize("name", ["keys", "kms"])
def test_keys_and_kms_mean_the_same_for_writing(tmp_path, keys, name):
    path = tmp_path / "a.parquet"
    with ParquetWriter(path, TABLE.schema, encryption=ENCRYPTION, **{name: keys}) as writer:
        writer.write_table(TABLE)
    assert read_table(path, keys=keys).equals(TABLE)


def test_keys_and_kms_together_are_refused(tmp_path, ring):
    path = tmp_path / "a.parquet"
    with pytest.raises(TypeError, match="not both"):
        write_table(TABLE, path, encryption=ENCRYPTION, keys=ring, kms=ring)
    with pytest.raises(TypeError, match="not both"):
        rotate_master_keys(tmp_path, ring, old="footer", new="pii", kms=ring)
    assert not path.exists()


@pytest.mark.parametrize("name", ["keys", "kms"])
@pytest.mark.parametrize("encryption", [None, UniformKey(b"0123456789abcdef")])
def test_keys_without_an_encryption_that_uses_them_are_refused(tmp_path, ring, name, encryption):
    path = tmp_path / "a.parquet"
    with pytest.raises(TypeError, match="EncryptionConfiguration"):
        write_table(TABLE, path, encryption=encryption, **{name: ring})
    assert not path.exists()


@pytest.mark.parametrize("keys", ["nokms:x", "keyring:", "", "vault:https://host?token=s.secret"])
def test_what_names_no_kms_is_refused_without_being_repeated(tmp_path, keys):
    with pytest.raises(ValueError) as caught:
        read_table(tmp_path, keys)
    assert "s.secret" not in str(caught.value)


@pytest.mark.parametrize("form", [str, Path, "keyring:{}".format])
def test_a_keyring_that_is_missing_is_an_error_at_once(tmp_path, form):
    path = tmp_path / "a.parquet"
    write_table(TABLE, path)
    with pytest.raises(KeyringError):
        ParquetFile(path, form(tmp_path / "missing.json"))


def test_a_colon_in_a_path_object_makes_no_uri(tmp_path, ring, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.rename(ring, "aws:keys.json")
    for keys in (Path("aws:keys.json"), "./aws:keys.json"):
        assert open_keys(keys).names() == ["footer", "pii"]


def test_a_relative_path_is_that_of_the_current_folder(tmp_path, ring, monkeypatch):
    for folder, names in (("a", ["x"]), ("b", ["y"])):
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        Keyring.create("keys.json").add(*names)
        for keys in ("keys.json", Path("keys.json"), "keyring:keys.json"):
            assert open_keys(keys).names() == names


def test_one_client_serves_all_files_for_ten_minutes(ring, monkeypatch):
    first = open_keys(ring)
    assert open_keys(str(ring)) is first and open_keys(f"keyring:{ring}") is first
    monkeypatch.setattr(environment, "LIFETIME", -1)
    assert open_keys(ring) is not first


def test_objects_are_taken_as_they_are(ring):
    for keys in (Keyring(ring), ExplicitKeys(), NO_KEYS):
        assert open_keys(keys) is keys

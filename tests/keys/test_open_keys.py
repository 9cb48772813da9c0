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
from secure_bloom.errors import KeyringError, RenamedError
from secure_bloom.keys import (
    NO_KEYS,
    ExplicitKeys,
    KeyEncryptionKeys,
    Keyring,
    environment,
    list_master_keys,
    rotate_master_keys,
)
from secure_bloom.keys.retrieval import open_keys

TABLE = pa.table({"ssn": ["012", "034"], "city": ["Rome", "Oslo"]})
ENCRYPTION = EncryptionConfiguration("footer", {"pii": ["ssn"]})
FORMS = {
    "client": Keyring,
    "path": Path,
    "text": str,
    "URI": lambda path: f"keyring:{path}",
    "URI in capitals": lambda path: f"KEYRING:{path}",
    "SECURE_BLOOM_KEYRING": str,
    "SECURE_BLOOM_KMS": lambda path: f"keyring:{path}",
}


@pytest.fixture
def ring(tmp_path) -> Path:
    keyring = Keyring.create(tmp_path / "keys.json")
    for name in ("footer", "pii"):
        keyring.add(name)
    return tmp_path / "keys.json"


@pytest.fixture(params=FORMS)
def keys(request, ring, monkeypatch):
    """The keyring; None if the environment names it."""
    form = FORMS[request.param](ring)
    if not request.param.startswith("SECURE_BLOOM"):
        return form
    monkeypatch.setenv(request.param, form)
    return None


def test_each_form_serves_whatever_takes_keys(tmp_path, ring, keys):
    path = tmp_path / "data" / "a.parquet"
    path.parent.mkdir()
    write_table(TABLE, path, bloom_filters=["ssn"], encryption=ENCRYPTION, keys=keys)
    assert ParquetFile(path, keys).read().equals(TABLE)
    assert [info.encrypted for info in ParquetFile(path, keys).bloom_filters] == [True]
    for source in (path, path.parent, path.read_bytes()):
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


def test_the_old_name_of_keys_is_refused_with_the_new_one(tmp_path, ring):
    for call in (lambda: write_table(TABLE, tmp_path / "a", encryption=ENCRYPTION, kms=ring),
                 lambda: ParquetWriter(tmp_path / "a", TABLE.schema, kms=ring),
                 lambda: rotate_master_keys(tmp_path, kms=ring, old="footer", new="pii"),
                 lambda: KeyEncryptionKeys(kms=ring, master_keys=["pii"]),
                 lambda: KeyEncryptionKeys.for_encryption(ENCRYPTION, kms=ring)):
        with pytest.raises(RenamedError, match="argument kms is called keys now"):
            call()
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("encryption", [None, UniformKey(b"0123456789abcdef")])
def test_keys_without_an_encryption_that_uses_them_are_refused(tmp_path, ring, encryption):
    path = tmp_path / "a.parquet"
    with pytest.raises(TypeError, match="EncryptionConfiguration"):
        write_table(TABLE, path, encryption=encryption, keys=ring)
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
        assert open_keys(keys).kms.names() == ["footer", "pii"]


def test_a_relative_path_is_that_of_the_current_folder(tmp_path, ring, monkeypatch):
    for folder, names in (("a", ["x"]), ("b", ["y"])):
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        Keyring.create("keys.json").add(*names)
        for keys in ("keys.json", Path("keys.json"), "keyring:keys.json"):
            assert open_keys(keys).kms.names() == names


def test_one_client_serves_all_files_for_ten_minutes(ring, monkeypatch):
    first = open_keys(ring)
    assert open_keys(str(ring)) is first and open_keys(f"keyring:{ring}") is first
    monkeypatch.setattr(environment, "LIFETIME", -1)
    assert open_keys(ring) is not first


class OnlyUnwraps:
    def unwrap_key(self, wrapped_key, master_key_identifier):
        raise NotImplementedError


def test_objects_are_taken_as_they_are(ring):
    keyring = Keyring(ring)
    assert open_keys(keyring).kms is keyring
    for keys in (ExplicitKeys(), NO_KEYS):
        assert open_keys(keys) is keys
    for call in (lambda: KeyEncryptionKeys(OnlyUnwraps(), ["pii"]),
                 lambda: rotate_master_keys(ring, OnlyUnwraps(), old="pii", new="footer")):
        with pytest.raises(TypeError, match=r"KmsClient that wraps keys.*, not OnlyUnwraps"):
            call()
    for junk in (5, object(), {"pii": b"p" * 16}):
        with pytest.raises(TypeError, match="keys must be a KmsClient"):
            open_keys(junk)

"""New files in another folder: the old ones stay."""

import pyarrow as pa
import pytest

import secure_bloom
from secure_bloom import EncryptionConfiguration
from secure_bloom.errors import KeyNotFoundError
from secure_bloom.keys import Keyring

CONFIG = EncryptionConfiguration("footer", {"pii": ["ssn"]})
TABLE = pa.table({"ssn": ["a", "b"], "city": ["Rome", "Oslo"]})


@pytest.fixture
def keyring(tmp_path):
    return Keyring.create(tmp_path / "keys.json", keys=["footer", "pii", "pii-2"])


@pytest.mark.parametrize("is_internal", [True, False])
def test_the_new_folder_has_all_files(tmp_path, keyring, is_internal):
    """A file that is as required already is copied, with its key material."""
    old, new = tmp_path / "old", tmp_path / "new"
    (old / "p=1").mkdir(parents=True)
    as_required = EncryptionConfiguration("footer", {"pii": ["ssn"]},
                                          internal_key_material=is_internal)
    secure_bloom.write_table(TABLE, old / "p=1" / "b.parquet", plaintext=True)
    secure_bloom.write_table(TABLE, old / "a.parquet", encryption=as_required, keys=keyring)
    done = secure_bloom.encrypt(old, keyring, encryption=CONFIG, output=new)
    assert done.ok and len(done.changed) == done.unchanged == 1
    for name in ("a.parquet", "p=1/b.parquet"):
        with secure_bloom.ParquetFile(new / name, keyring) as file:
            assert file.footer.is_encrypted and file.read().equals(TABLE)


def test_master_keys_are_in_use_as_long_as_the_old_files_stay(tmp_path, keyring):
    secure_bloom.write_table(TABLE, tmp_path / "a.parquet", encryption=CONFIG, keys=keyring)
    master_keys = {"pii": "pii-2"}
    copied = secure_bloom.reencrypt(tmp_path / "a.parquet", keyring, master_keys=master_keys,
                                    output=tmp_path / "new")
    assert copied.changed and copied.unused_master_keys == []
    changed = secure_bloom.reencrypt(tmp_path / "a.parquet", keyring, master_keys=master_keys)
    assert changed.unused_master_keys == ["pii"]


def test_a_master_key_that_no_file_uses_cannot_be_replaced(tmp_path, keyring):
    path = tmp_path / "a.parquet"
    secure_bloom.write_table(TABLE, path, encryption=CONFIG, keys=keyring)
    before = path.read_bytes()
    with pytest.raises(KeyNotFoundError, match="'pi'; the files use: footer, pii"):
        secure_bloom.reencrypt(path, keyring, master_keys={"pi": "pii-2"})
    assert path.read_bytes() == before
    for _ in range(2):  # a second run finds only the new one
        assert secure_bloom.reencrypt(path, keyring, master_keys={"pii": "pii-2"}).ok

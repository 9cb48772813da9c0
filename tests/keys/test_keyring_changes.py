"""A keyring file that is replaced, changed or removed while a process uses its keys."""

import os
import pickle

import pyarrow as pa
import pytest

from secure_bloom import EncryptionConfiguration, ParquetFile, read_table, write_table
from secure_bloom.errors import (
    KeyAccessError,
    KeyNotFoundError,
    KeyringError,
    KeyringNotFoundError,
    KeyUnwrapError,
)
from secure_bloom.keys import CachedKms, InMemoryKms, Keyring, open_kms
from secure_bloom.keys import keyring as keyring_module
from secure_bloom.keys.cache import cached
from secure_bloom.keys.environment import EnvironmentKms, cached_client
from tests.keys.clock import Clock

KEY, OTHER, DATA = b"SECRET master 16", b"ANOTHER master16", b"the data key 16b"
PASSPHRASE = "SECRET pass phrase"
TABLE = pa.table({"ssn": ["012", "034"], "city": ["Rome", "Oslo"]})
ENCRYPTION = EncryptionConfiguration("m", {"m": ["ssn"]})


@pytest.fixture
def path(tmp_path):
    Keyring.create(tmp_path / "ring.json").add("m", KEY)
    return tmp_path / "ring.json"


@pytest.fixture
def clock(monkeypatch):
    """Seconds that have passed, for keyrings."""
    clock = Clock()
    monkeypatch.setattr(keyring_module, "time", clock)
    return clock


def replace(path, key=OTHER, passphrase=None):
    """Put another keyring in the place of one, in one step."""
    other = path.with_name("other.json")
    Keyring.create(other, passphrase).add("m", key)
    os.replace(other, path)


CLIENTS = {
    "an object": lambda path: cached(Keyring(path)),
    "a URI": lambda path: cached_client(f"keyring:{path}"),
    "the environment": lambda path: cached(EnvironmentKms(str(path), None)),
    "another lifetime": lambda path: CachedKms(Keyring(path), lifetime=3600),
    "a cache of a cache": lambda path: CachedKms(CachedKms(Keyring(path))),
}


@pytest.fixture(params=CLIENTS)
def client(request, path, clock):
    """A client that has cached one key, ``wrapped``."""
    client = CLIENTS[request.param](path)
    client.wrapped = client.wrap_key(DATA, "m")
    assert client.unwrap_key(client.wrapped, "m") == DATA
    return client


def test_a_removed_keyring_ends_its_cached_keys_after_the_interval(client, path, clock):
    path.unlink()
    clock.now += 0.9
    assert client.unwrap_key(client.wrapped, "m") == DATA
    clock.now += 0.2
    with pytest.raises(KeyringNotFoundError, match="restore the file from a backup") as caught:
        client.unwrap_key(client.wrapped, "m")
    assert caught.value.file == str(path)
    with pytest.raises(KeyringNotFoundError):
        client.key_encryption_key("m", 16)


def test_a_replaced_keyring_ends_its_cached_keys_after_the_interval(client, path, clock):
    replace(path)
    clock.now += 1.1
    with pytest.raises(KeyUnwrapError, match="'m'"):
        client.unwrap_key(client.wrapped, "m")
    wrapped = InMemoryKms({"m": OTHER}).wrap_key(DATA, "m")
    assert client.unwrap_key(wrapped, "m") == DATA


def test_a_key_that_is_taken_out_of_the_keyring_ends_its_cached_keys(client, path, clock):
    Keyring(path).remove("m")
    clock.now += 1.1
    with pytest.raises(KeyNotFoundError, match="'m'"):
        client.unwrap_key(client.wrapped, "m")


def test_a_keyring_that_others_may_read_ends_its_cached_keys(client, path, clock):
    path.chmod(0o644)
    clock.now += 1.1
    with pytest.raises(KeyringError, match="chmod 600"):
        client.unwrap_key(client.wrapped, "m")


def test_a_keyring_that_is_put_back_serves_again(client, path, clock):
    path.rename(path.with_name("away"))
    clock.now += 1.1
    with pytest.raises(KeyringNotFoundError):
        client.unwrap_key(client.wrapped, "m")
    path.with_name("away").rename(path)
    assert client.wrap_key(DATA, "m")
    clock.now += 1.1
    assert client.unwrap_key(client.wrapped, "m") == DATA


def test_key_encryption_keys_for_writing_never_outlive_the_master_key(client, path):
    before = client.key_encryption_key("m", 16)
    assert client.key_encryption_key("m", 16) is before
    replace(path)  # no time passes
    after = client.key_encryption_key("m", 16)
    assert InMemoryKms({"m": OTHER}).unwrap_key(after.wrapped_kek, "m") == after.secret


def test_changes_leave_no_old_key_in_the_caches(path, clock):
    ring = Keyring(path)
    client = cached(ring)
    wrapped = client.wrap_key(DATA, "m")
    client.unwrap_key(wrapped, "m")
    path.unlink()
    clock.now += 1.1
    with pytest.raises(KeyringNotFoundError):
        client.unwrap_key(wrapped, "m")
    assert not client._unwrapped._entries and not ring._seen[0].keys


def test_an_unchanged_keyring_is_read_once_and_looked_at_once_in_the_interval(path, clock,
                                                                              monkeypatch):
    client = cached(Keyring(path))
    wrapped = client.wrap_key(DATA, "m")
    client.unwrap_key(wrapped, "m")
    looks, stamp = [], keyring_module._stamp
    monkeypatch.setattr(keyring_module, "_stamp", lambda path: looks.append(path) or stamp(path))
    monkeypatch.setattr(keyring_module.keyring_file, "read", None)
    for _ in range(50):
        assert client.unwrap_key(wrapped, "m") == DATA
    assert not looks
    clock.now += 1.1
    for _ in range(50):
        assert client.unwrap_key(wrapped, "m") == DATA
    assert len(looks) == 1


@pytest.mark.parametrize("open_ring", [
    lambda path, seconds: Keyring(path, check_interval=seconds),
    lambda path, seconds: open_kms(f"keyring:{path}?check-interval={seconds}"),
    lambda path, seconds: cached_client(f"keyring:{path}?check-interval={seconds}").kms,
    lambda path, seconds: pickle.loads(pickle.dumps(Keyring(path, check_interval=seconds)))])
@pytest.mark.parametrize("seconds", [0, 30])
def test_the_interval_can_be_set(path, clock, open_ring, seconds):
    client = cached(open_ring(path, seconds))
    wrapped = client.wrap_key(DATA, "m")
    client.unwrap_key(wrapped, "m")
    path.unlink()
    if seconds:
        clock.now += seconds - 1
        assert client.unwrap_key(wrapped, "m") == DATA
        clock.now += 2
    with pytest.raises(KeyringNotFoundError):
        client.unwrap_key(wrapped, "m")


@pytest.mark.parametrize("seconds", ["-1", "nan", "x", ""])
def test_what_is_not_a_valid_interval(path, seconds):
    with pytest.raises(ValueError, match=r"check.interval"):
        open_kms(f"keyring:{path}?check-interval={seconds}")


def test_other_clients_keep_their_lifetime(clock):
    """Whether they inherit from KmsClient or not."""
    class Revoking(InMemoryKms):
        is_revoked = False

        def unwrap_key(self, wrapped_key, master_key_identifier):
            if self.is_revoked:
                raise KeyAccessError("revoked")
            return super().unwrap_key(wrapped_key, master_key_identifier)

    class Alien:
        def __init__(self, kms):
            self.wrap_key, self._kms = kms.wrap_key, kms

        def unwrap_key(self, wrapped_key, master_key_identifier):
            return self._kms.unwrap_key(wrapped_key, master_key_identifier)

    for adapt in (lambda kms: kms, Alien):
        kms = Revoking({"m": KEY})
        client = CachedKms(adapt(kms))
        wrapped = client.wrap_key(DATA, "m")
        client.unwrap_key(wrapped, "m")
        kms.is_revoked = True
        clock.now += 500
        assert client.unwrap_key(wrapped, "m") == DATA


# --- with a passphrase ---------------------------------------------------------------------------

@pytest.fixture
def passphrase_file(tmp_path):
    file = tmp_path / "passphrase"
    file.write_text(PASSPHRASE)
    file.chmod(0o600)
    return file


def test_a_replaced_keyring_is_opened_with_the_passphrase_file(path, passphrase_file):
    replace(path, passphrase=PASSPHRASE)
    client = cached_client(f"keyring:{path}?passphrase-file={passphrase_file}&check-interval=0")
    client.unwrap_key(client.wrap_key(DATA, "m"), "m")
    replace(path, passphrase=PASSPHRASE)
    assert InMemoryKms({"m": OTHER}).unwrap_key(client.wrap_key(DATA, "m"), "m") == DATA
    passphrase_file.write_text("SECRET new pass phrase")
    replace(path, KEY, passphrase="SECRET new pass phrase")
    assert InMemoryKms({"m": KEY}).unwrap_key(client.wrap_key(DATA, "m"), "m") == DATA


@pytest.mark.parametrize("given", [None, "not the pass phrase"])
def test_without_the_passphrase_a_replaced_keyring_ends_the_cached_keys(path, given):
    replace(path, passphrase=given)
    client = cached(Keyring(path, given, check_interval=0))
    wrapped = client.wrap_key(DATA, "m")
    client.unwrap_key(wrapped, "m")
    replace(path, passphrase=PASSPHRASE)
    for _ in range(2):
        with pytest.raises(KeyringError, match="passphrase") as caught:
            client.unwrap_key(wrapped, "m")
        assert "SECRET" not in str(caught.value)


# --- files ---------------------------------------------------------------------------------------

def test_files_cannot_be_read_once_the_keyring_is_gone(tmp_path, path, clock):
    file = tmp_path / "a.parquet"
    write_table(TABLE, file, bloom_filters={"ssn": True}, encryption=ENCRYPTION, keys=path)
    assert read_table(file, path).equals(TABLE)
    path.unlink()
    clock.now += 1.1
    with pytest.raises(KeyringNotFoundError):
        read_table(file, path)
    with pytest.raises(KeyringNotFoundError):
        ParquetFile(file, path)


@pytest.mark.parametrize("double_wrapping", [True, False])
def test_a_file_that_is_written_next_needs_the_new_keyring(tmp_path, path, double_wrapping):
    encryption = EncryptionConfiguration("m", {"m": ["ssn"]}, double_wrapping=double_wrapping)
    for name, key in (("a", KEY), ("b", OTHER)):
        replace(path, key)
        write_table(TABLE, tmp_path / name, bloom_filters={}, encryption=encryption, keys=path)
        assert read_table(tmp_path / name, InMemoryKms({"m": key})).equals(TABLE)


def test_a_missing_keyring_of_the_environment_is_an_error_of_its_own_kind(tmp_path, monkeypatch,
                                                                          path):
    file = tmp_path / "a.parquet"
    write_table(TABLE, file, bloom_filters={}, encryption=ENCRYPTION, keys=path)
    monkeypatch.setenv("SECURE_BLOOM_KEYRING", str(tmp_path / "none.json"))
    with pytest.raises(KeyringNotFoundError, match=r"\(SECURE_BLOOM_KEYRING\)"):
        read_table(file)

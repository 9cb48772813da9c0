"""Whether several processes, at several times, have the same master keys."""

import os
import pickle

import pytest

from secure_bloom.errors import (
    KeyAccessError,
    KmsUnavailableError,
    MasterKeyChangedError,
    UnsupportedError,
)
from secure_bloom.keys import CachedKms, InMemoryKms, Keyring
from secure_bloom.keys.cache import cached
from secure_bloom.keys.master_key_check import MasterKeyCheck
from tests.test_secrets import forms

KEYS = {"footer": b"SECRET footer 16", "pii": b"SECRET pii key16"}
OTHER = {**KEYS, "pii": b"ANOTHER pii ke16"}


class Calling(InMemoryKms):
    """Notes its calls, and fails where it is told to."""

    def __init__(self, keys, error=None):
        super().__init__(keys)
        self.calls, self.error = [], error

    def wrap_key(self, key_bytes, master_key_identifier):
        self.calls.append(("wrap", master_key_identifier))
        self.value = key_bytes
        return super().wrap_key(key_bytes, master_key_identifier)

    def unwrap_key(self, wrapped_key, master_key_identifier):
        self.calls.append(("unwrap", master_key_identifier))
        if self.error is not None and master_key_identifier == "pii":
            raise self.error
        return super().unwrap_key(wrapped_key, master_key_identifier)


def sent(check):
    """Return the check as another process receives it."""
    return pickle.loads(pickle.dumps(check))


def test_the_same_master_keys_pass_with_one_call_for_each():
    check = MasterKeyCheck(CachedKms(InMemoryKms(KEYS)), ["pii", "footer", "pii"])
    kms = Calling(KEYS)
    for _ in range(2):  # a cached result would prove nothing
        sent(check).verify(cached(kms))
    assert kms.calls == [("unwrap", "footer"), ("unwrap", "pii")] * 2


@pytest.mark.parametrize("other", [OTHER, {"footer": KEYS["footer"]}])
def test_another_master_key_of_the_same_name_is_noticed(other):
    check = sent(MasterKeyCheck(CachedKms(InMemoryKms(KEYS)), KEYS))
    with pytest.raises(MasterKeyChangedError, match=r"'pii' is not the one .* run the job again"):
        check.verify(CachedKms(InMemoryKms(other)))


def test_a_kms_that_unwraps_to_something_else_is_noticed():
    """As one does whose wrapping is not authenticated."""
    class Unauthenticated:
        def __init__(self, mask):
            self.mask = mask

        def wrap_key(self, key, name):
            return bytes(byte ^ self.mask for byte in key).hex()

        def unwrap_key(self, wrapped, name):
            return bytes(byte ^ self.mask for byte in bytes.fromhex(wrapped))

    check = MasterKeyCheck(CachedKms(Unauthenticated(1)), ["pii"])
    check.verify(CachedKms(Unauthenticated(1)))
    with pytest.raises(MasterKeyChangedError):
        check.verify(CachedKms(Unauthenticated(2)))


def test_a_keyring_may_change_as_long_as_these_keys_do_not(tmp_path):
    ring = Keyring.create(tmp_path / "ring.json")
    ring.add("pii", KEYS["pii"])
    check = MasterKeyCheck(cached(ring), ["pii"])
    Keyring(ring.path).add("other")
    check.verify(cached(ring))
    other = Keyring.create(tmp_path / "other.json")
    other.add("pii", OTHER["pii"])
    os.replace(other.path, ring.path)
    with pytest.raises(MasterKeyChangedError):
        check.verify(cached(ring))


@pytest.mark.parametrize("error", [KeyAccessError("denied"), UnsupportedError("no"),
                                   NotImplementedError()])
def test_a_process_that_may_not_unwrap_asks_once_and_goes_on(error):
    check, kms = MasterKeyCheck(CachedKms(InMemoryKms(KEYS)), KEYS), Calling(KEYS, error)
    for _ in range(3):
        check.verify(CachedKms(kms))
    assert kms.calls.count(("unwrap", "pii")) == 1 and kms.calls.count(("unwrap", "footer")) == 3
    with pytest.raises(MasterKeyChangedError, match="'footer'"):
        check.verify(CachedKms(Calling({"footer": OTHER["pii"]}, error)))


def test_a_kms_that_does_not_respond_is_not_a_changed_key():
    check = MasterKeyCheck(CachedKms(InMemoryKms(KEYS)), KEYS)
    with pytest.raises(KmsUnavailableError, match="no response"):
        check.verify(CachedKms(Calling(KEYS, KmsUnavailableError("no response"))))


def test_it_contains_neither_a_key_nor_the_value_that_was_wrapped():
    kms = Calling(KEYS)
    check = MasterKeyCheck(CachedKms(kms), ["pii"])
    first = kms.value
    shown = pickle.dumps(check) + repr(check).encode()
    for secret in (*KEYS.values(), first):
        assert not any(form in shown for form in forms(secret))
    MasterKeyCheck(CachedKms(kms), ["pii"])
    assert kms.value != first

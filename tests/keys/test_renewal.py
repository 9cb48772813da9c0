"""New data keys in place of those of a file. What files do with them: tests/erasing."""

import base64

import pytest

from secure_bloom.errors import KeyUnwrapError, KmsUnavailableError
from secure_bloom.keys import InMemoryKms
from secure_bloom.keys.material import KeyMaterial
from secure_bloom.keys.renewal import RenewedKeys
from secure_bloom.keys.retrieval import ExplicitKeys, KmsKeys

OLD_KEY = b"o" * 16


class OtherKeys(InMemoryKms):
    """Cannot unwrap what it wraps now, as after an alias was moved in one of two regions."""

    def wrap_key(self, key_bytes, master_key_identifier):
        return InMemoryKms({"m": b"x" * 16}).wrap_key(key_bytes, "m")


class WrongKeys(InMemoryKms):
    """Unwraps another key than it has wrapped."""

    def wrap_key(self, key_bytes, master_key_identifier):
        return super().wrap_key(OLD_KEY, master_key_identifier)


class Down(InMemoryKms):
    def wrap_key(self, key_bytes, master_key_identifier):
        raise KmsUnavailableError("the KMS does not respond")


def material(kms=InMemoryKms, **options) -> tuple[RenewedKeys, bytes]:
    """Return the renewed keys of a file whose data key is wrapped by the KMS, and its metadata."""
    wrapped = InMemoryKms({"m": b"m" * 16}).wrap_key(OLD_KEY, "m")
    keys = KmsKeys(kms({"m": b"m" * 16}))
    old = KeyMaterial("m", wrapped, **options).serialize()
    return RenewedKeys(keys, has_new_material=True), old


def test_a_key_is_renewed_once_and_everything_else_stays():
    renewed, old = material(is_footer_key=True, kms_instance_url="https://kms")
    renewed.renew(old, 32)
    new = renewed.renewed(old)
    renewed.renew(old, 32)
    assert renewed.renewed(old) == new != old and renewed.is_new(old)
    before, after = KeyMaterial.parse(old), KeyMaterial.parse(new)
    assert (after.master_key_id, after.is_footer_key, after.kms_instance_url, after.kek_id) \
        == (before.master_key_id, before.is_footer_key, before.kms_instance_url, before.kek_id)
    key = renewed.footer_key(new)
    assert len(key) == 32 and renewed.footer_key(old) == OLD_KEY
    assert renewed.column_key("ssn", new) == key
    assert base64.b64encode(key).decode() not in repr(renewed) and repr(key) not in repr(renewed)


@pytest.mark.parametrize(("kms", "error"), [
    (OtherKeys, KeyUnwrapError), (WrongKeys, KeyUnwrapError), (Down, KmsUnavailableError)])
def test_a_key_that_could_not_be_unwrapped_again_is_not_used(kms, error):
    renewed, old = material(kms)
    with pytest.raises(error):
        renewed.renew(old, 16)
    assert renewed.renewed(old) == old and not renewed.is_new(old)


def test_explicit_keys_stay():
    renewed = RenewedKeys(ExplicitKeys(OLD_KEY, aad_prefix=b"p"), has_new_material=True)
    renewed.renew(b"id", 16)
    renewed.renew(None, 16)
    assert renewed.renewed(b"id") == b"id" and renewed.renewed(None) is None
    assert not renewed.is_new(b"id") and not renewed.is_new(None)
    assert renewed.footer_key(b"id") == OLD_KEY and renewed.aad_prefix == b"p"

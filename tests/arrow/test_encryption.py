"""The encryption of a file that is written, as the footer asks it for keys."""

from secure_bloom.arrow.encryption import file_encryption
from secure_bloom.encryption import EncryptionConfiguration
from secure_bloom.keys import InMemoryKms
from secure_bloom.keys.material import KeyMaterial


def test_it_names_the_master_key_of_what_pyarrow_was_told():
    """pyarrow is told numbers for the names of master keys."""
    kms = InMemoryKms({"the footer": bytes(16), "pii": bytes(16)})
    config = EncryptionConfiguration("the footer", {"pii": ["a"]})
    keys = file_encryption(config, kms).keys
    assert keys.master_key(KeyMaterial("0", "MA==").serialize()) == "the footer"
    assert keys.master_key(KeyMaterial("1", "MA==").serialize()) == "pii"
    assert keys.master_key(None) is None

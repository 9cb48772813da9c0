"""Keys: the interface to a key management service, the local keyring, and data-key retrieval.

Imported as ``secure_bloom.keys``.
"""

import importlib

from secure_bloom.keys.cache import CachedKms
from secure_bloom.keys.keyring import Keyring
from secure_bloom.keys.kms import InMemoryKms, KmsClient
from secure_bloom.keys.retrieval import ExplicitKeys
from secure_bloom.keys.wrapping import KeyEncryptionKeys

__all__ = [  # noqa: RUF022
    "KmsClient", "Keyring", "InMemoryKms", "CachedKms", "KeyEncryptionKeys", "ExplicitKeys",
    "list_master_keys", "rotate_master_keys",
]

_HOME = {
    "list_master_keys": "secure_bloom.keys.inventory",
    "rotate_master_keys": "secure_bloom.keys.rotation",
}


def __getattr__(name: str):  # these need much more than keys
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)

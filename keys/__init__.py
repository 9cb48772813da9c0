"""Keys: key management services, the local keyring, and data-key retrieval.

Imported as ``secure_bloom.keys``.
"""

from __future__ import annotations

import importlib

from secure_bloom.keys.keyring import Keyring
from secure_bloom.keys.kms import InMemoryKms, KmsClient
from secure_bloom.keys.retrieval import ExplicitKeys
from secure_bloom.keys.uri import open_kms

_HOME = {
    "AwsKms": "secure_bloom.keys.aws",
    "Pkcs11Kms": "secure_bloom.keys.pkcs11",
    "VaultKms": "secure_bloom.keys.vault",
}

__all__ = ["AwsKms", "ExplicitKeys", "InMemoryKms", "Keyring", "KmsClient", "Pkcs11Kms",
           "VaultKms", "open_kms"]


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)

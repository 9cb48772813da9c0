"""Keys: key management services, the local keyring, key-encryption keys, and data-key retrieval.

Imported as ``secure_bloom.keys``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from secure_bloom.keys.cache import CachedKms
from secure_bloom.keys.environment import NO_KEYS, from_environment
from secure_bloom.keys.keyring import Keyring
from secure_bloom.keys.kms import InMemoryKms, KmsClient
from secure_bloom.keys.passphrase import WeakPassphraseWarning
from secure_bloom.keys.retrieval import ExplicitKeys
from secure_bloom.keys.uri import open_kms
from secure_bloom.keys.wrapping import KeyEncryptionKeys

_HOME = {  # imported lazily: rarely used, or they need an SDK, or much more than keys
    "AwsKms": "secure_bloom.keys.aws",
    "AzureKms": "secure_bloom.keys.azure",
    "GcpKms": "secure_bloom.keys.gcp",
    "IcebergKeys": "secure_bloom.keys.iceberg",
    "Pkcs11Kms": "secure_bloom.keys.pkcs11",
    "VaultKms": "secure_bloom.keys.vault",
    "list_master_keys": "secure_bloom.keys.operations.inventory",
    "rotate_master_keys": "secure_bloom.keys.operations.rotation",
}

__all__ = ["NO_KEYS", "AwsKms", "AzureKms", "CachedKms", "ExplicitKeys", "GcpKms", "IcebergKeys",
           "InMemoryKms", "KeyEncryptionKeys", "Keyring", "KmsClient", "Pkcs11Kms", "VaultKms",
           "WeakPassphraseWarning", "from_environment", "list_master_keys", "open_kms",
           "rotate_master_keys"]


if TYPE_CHECKING:  # the same names, for mypy, pyright and editors
    from secure_bloom.keys.aws import AwsKms as AwsKms
    from secure_bloom.keys.azure import AzureKms as AzureKms
    from secure_bloom.keys.gcp import GcpKms as GcpKms
    from secure_bloom.keys.iceberg import IcebergKeys as IcebergKeys
    from secure_bloom.keys.operations.inventory import list_master_keys as list_master_keys
    from secure_bloom.keys.operations.rotation import rotate_master_keys as rotate_master_keys
    from secure_bloom.keys.pkcs11 import Pkcs11Kms as Pkcs11Kms
    from secure_bloom.keys.vault import VaultKms as VaultKms
else:
    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(_HOME[name]), name)

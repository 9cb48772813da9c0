"""Keys: key management services, the local keyring, key-encryption keys, and data-key retrieval.

Imported as ``secure_bloom.keys``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from secure_bloom.public_names import public_names

_HOME = {
    "AwsKms": "secure_bloom.keys.aws",
    "AzureKms": "secure_bloom.keys.azure",
    "CachedKms": "secure_bloom.keys.cache",
    "ExplicitKeys": "secure_bloom.keys.retrieval",
    "GcpKms": "secure_bloom.keys.gcp",
    "IcebergKeys": "secure_bloom.keys.iceberg",
    "InMemoryKms": "secure_bloom.keys.kms",
    "Inventory": "secure_bloom.keys.operations.inventory",
    "KeyEncryptionKeys": "secure_bloom.keys.wrapping",
    "Keyring": "secure_bloom.keys.keyring",
    "KmsClient": "secure_bloom.keys.kms",
    "MasterKeyUse": "secure_bloom.keys.operations.inventory",
    "NO_KEYS": "secure_bloom.keys.environment",
    "Pkcs11Kms": "secure_bloom.keys.pkcs11",
    "RotationResult": "secure_bloom.keys.operations.rotation",
    "VaultKms": "secure_bloom.keys.vault",
    "from_environment": "secure_bloom.keys.environment",
    "list_master_keys": "secure_bloom.keys.operations.inventory",
    "open_kms": "secure_bloom.keys.uri",
    "rotate_master_keys": "secure_bloom.keys.operations.rotation",
}

__all__ = sorted(_HOME)

if TYPE_CHECKING:  # the same names, for mypy, pyright and editors
    from secure_bloom.keys.aws import AwsKms as AwsKms
    from secure_bloom.keys.azure import AzureKms as AzureKms
    from secure_bloom.keys.cache import CachedKms as CachedKms
    from secure_bloom.keys.environment import NO_KEYS as NO_KEYS
    from secure_bloom.keys.environment import from_environment as from_environment
    from secure_bloom.keys.gcp import GcpKms as GcpKms
    from secure_bloom.keys.iceberg import IcebergKeys as IcebergKeys
    from secure_bloom.keys.keyring import Keyring as Keyring
    from secure_bloom.keys.kms import InMemoryKms as InMemoryKms
    from secure_bloom.keys.kms import KmsClient as KmsClient
    from secure_bloom.keys.operations.inventory import Inventory as Inventory
    from secure_bloom.keys.operations.inventory import MasterKeyUse as MasterKeyUse
    from secure_bloom.keys.operations.inventory import list_master_keys as list_master_keys
    from secure_bloom.keys.operations.rotation import RotationResult as RotationResult
    from secure_bloom.keys.operations.rotation import rotate_master_keys as rotate_master_keys
    from secure_bloom.keys.pkcs11 import Pkcs11Kms as Pkcs11Kms
    from secure_bloom.keys.retrieval import ExplicitKeys as ExplicitKeys
    from secure_bloom.keys.uri import open_kms as open_kms
    from secure_bloom.keys.vault import VaultKms as VaultKms
    from secure_bloom.keys.wrapping import KeyEncryptionKeys as KeyEncryptionKeys
else:
    __getattr__, __dir__ = public_names(__name__, _HOME)

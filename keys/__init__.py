"""Keys: the interface to a key management service, the local keyring, and data-key retrieval.

Imported as ``secure_bloom.keys``.
"""

from secure_bloom.keys.cache import CachedKms
from secure_bloom.keys.keyring import Keyring
from secure_bloom.keys.kms import InMemoryKms, KmsClient
from secure_bloom.keys.retrieval import ExplicitKeys
from secure_bloom.keys.wrapping import KeyEncryptionKeys

__all__ = ["CachedKms", "ExplicitKeys", "InMemoryKms", "KeyEncryptionKeys", "Keyring", "KmsClient"]

"""Keys: the interface to a key management service, the local keyring, and data-key retrieval.

Imported as ``secure_bloom.keys``.
"""

from secure_bloom.keys.keyring import Keyring
from secure_bloom.keys.kms import InMemoryKms, KmsClient
from secure_bloom.keys.retrieval import ExplicitKeys

__all__ = ["ExplicitKeys", "InMemoryKms", "Keyring", "KmsClient"]

"""Key-encryption keys: the KMS wraps each once; then it wraps data keys without the KMS."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from threading import Lock
from typing import Protocol

from secure_bloom.crypto.aes_gcm import MAX_INVOCATIONS
from secure_bloom.errors import KeyExhaustedError
from secure_bloom.keys.kms import wrap_locally

_KEK_ID_SIZE = 16


class _TextWrapper(Protocol):
    """A KMS client whose wrapped keys are text: :class:`.CachedKms`."""

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str: ...


@dataclass
class KeyEncryptionKey:
    """A key-encryption key with its wrapped form. Its pickled form contains the key.

    ``kek_id`` is 16 random bytes: the additional authenticated data when the KEK wraps a key.
    ``secret`` is the plaintext key, for callers that encrypt it immediately.
    """

    master_key_id: str
    kek_id: bytes
    wrapped_kek: str
    secret: bytes = field(repr=False)
    _invocations: int = field(default=0, repr=False)

    @classmethod
    def make(cls, kms: _TextWrapper, master_key_id: str, num_bytes: int) -> KeyEncryptionKey:
        """Make a new random key-encryption key, wrapped by a KMS client."""
        key = os.urandom(num_bytes)
        return cls(master_key_id, os.urandom(_KEK_ID_SIZE), kms.wrap_key(key, master_key_id), key)

    def wrap(self, data_key: bytes) -> str:
        """Wrap a data key.

        Raises KeyExhaustedError if this key-encryption key has already wrapped 2**32 keys.
        """
        with _counting:
            if self._invocations >= MAX_INVOCATIONS:
                raise KeyExhaustedError(f"the key-encryption key under {self.master_key_id!r} has "
                                        f"wrapped {MAX_INVOCATIONS} keys, which is the limit; "
                                        "create a new one")
            self._invocations += 1
        return wrap_locally(self.secret, data_key, self.kek_id)


_counting = Lock()
os.register_at_fork(before=_counting.acquire, after_in_parent=_counting.release,
                    after_in_child=_counting.release)

"""Key-encryption keys: "double wrapping" in parquet-java's terms.

A key-encryption key (KEK) is generated here and wrapped by the KMS once; then it wraps the data
keys of any number of files, without the KMS.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias

from secure_bloom.errors import KeyNotFoundError
from secure_bloom.keys.kek import KeyEncryptionKey
from secure_bloom.keys.kms import KeyWrapper
from secure_bloom.keys.retrieval import open_client


class _NamesMasterKeys(Protocol):
    """The part of an EncryptionConfiguration that names master keys."""

    @property
    def footer_key(self) -> str: ...

    @property
    def column_keys(self) -> Mapping[str, Sequence[str]] | None: ...

    @property
    def data_key_length_bits(self) -> int: ...


def master_keys_of(encryption: _NamesMasterKeys) -> list[str]:
    """Return the names of the master keys that an EncryptionConfiguration uses."""
    return [encryption.footer_key, *(encryption.column_keys or {})]


class KeyEncryptionKeys:
    """Key-encryption keys for many files, in one or more processes. Its pickle contains the keys.

    Create it where the KMS can be reached, with one call for each master key. Then a writer on any
    machine accepts it as ``keys`` and does not need the KMS. Send it only over channels that may
    carry the keys.

    Parameters
    ----------
    keys : KmsClient, path of a keyring, or URI of a KMS
        Key-encryption keys that were made through it in the last minutes are reused.
    master_keys : iterable of str
    data_key_length_bits : int
        128, 192 or 256, as in the EncryptionConfiguration; KEKs are as long as data keys.

    Raises
    ------
    KeyRetrievalError
        If a master key cannot be used.
    """

    def __init__(self, keys: KeyWrapper | str | os.PathLike[str], master_keys: Iterable[str], *,
                 data_key_length_bits: int = 128):
        client = open_client(keys, to_wrap=True)
        self.kms_instance_id = client.kms_instance_id
        self.kms_instance_url = client.kms_instance_url
        self._num_bytes = data_key_length_bits // 8
        self._keys = {name: client.key_encryption_key(name, self._num_bytes)
                      for name in sorted(set(master_keys))}

    @classmethod
    def for_encryption(cls, encryption: _NamesMasterKeys,
                       keys: KeyWrapper | str | os.PathLike[str]) -> KeyEncryptionKeys:
        """Make the keys that an EncryptionConfiguration needs."""
        return cls(keys, master_keys_of(encryption),
                   data_key_length_bits=encryption.data_key_length_bits)

    def key_encryption_key(self, master_key_id: str, num_bytes: int,
                           lifetime: float = 0) -> KeyEncryptionKey:
        """Return the key of a master key; it is valid for the lifetime of this object.

        Raises
        ------
        KeyNotFoundError
            If none was made.
        ValueError
            If it has a different length.
        """
        if num_bytes != self._num_bytes:
            raise ValueError(f"these key-encryption keys are for data keys of {self._num_bytes * 8}"
                             f" bits, not {num_bytes * 8}: pass data_key_length_bits to "
                             "KeyEncryptionKeys")
        if master_key_id not in self._keys:
            raise KeyNotFoundError(f"there is no key-encryption key under {master_key_id!r}; "
                                   f"available: {', '.join(self._keys) or 'none'}")
        return self._keys[master_key_id]

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        """Return one of these keys by its wrapped form, like a KmsClient.

        So files that were written with these keys can be read without the KMS.

        Raises
        ------
        KeyNotFoundError
            If the wrapped key is not one of these.
        """
        kek = self._keys.get(master_key_identifier)
        if kek is None or kek.wrapped_kek != wrapped_key:
            raise KeyNotFoundError("this is not the key-encryption key that was created under "
                                   f"{master_key_identifier!r}; read with the KMS")
        return kek.secret

    def __repr__(self) -> str:
        return f"<KeyEncryptionKeys under {list(self._keys)}>"


#: wraps the data keys when a file is written; None: the KMS of the environment
WritingKeys: TypeAlias = KeyWrapper | KeyEncryptionKeys | str | os.PathLike[str] | None

"""Key-encryption keys: double wrapping, as parquet-java calls it.

A key-encryption key (KEK) is made here and wrapped by the KMS, once; then it wraps the data keys of
as many files as wanted, without the KMS.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias

from secure_bloom.errors import KeyNotFoundError
from secure_bloom.keys.cache import cached
from secure_bloom.keys.kek import KeyEncryptionKey
from secure_bloom.keys.kms import KeyWrapper


class _NamesMasterKeys(Protocol):
    """What an EncryptionConfiguration says of master keys."""

    @property
    def footer_key(self) -> str: ...

    @property
    def column_keys(self) -> Mapping[str, Sequence[str]] | None: ...

    @property
    def data_key_length_bits(self) -> int: ...


class KeyEncryptionKeys:
    """Key-encryption keys for many files, in one process or many. Pickled with its keys.

    Made where the KMS can be reached, one call for each master key; then a writer takes it as
    ``kms``, wherever it runs, and needs no KMS. Send it only over channels that may see the keys.

    Parameters
    ----------
    kms : KmsClient
        Those that it has made in the last minutes are taken.
    master_keys : iterable of str
    data_key_length_bits : int
        128, 192 or 256, as the EncryptionConfiguration says; KEKs are as long as data keys.

    Raises
    ------
    KeyRetrievalError
        If a master key cannot be used.
    """

    def __init__(self, kms: KeyWrapper, master_keys: Iterable[str], *,
                 data_key_length_bits: int = 128):
        client = cached(kms)
        self.kms_instance_id = client.kms_instance_id
        self.kms_instance_url = client.kms_instance_url
        self._num_bytes = data_key_length_bits // 8
        self._keys = {name: client.key_encryption_key(name, self._num_bytes)
                      for name in sorted(set(master_keys))}

    @classmethod
    def for_encryption(cls, encryption: _NamesMasterKeys, kms: KeyWrapper) -> KeyEncryptionKeys:
        """Those that an EncryptionConfiguration needs."""
        return cls(kms, [encryption.footer_key, *(encryption.column_keys or {})],
                   data_key_length_bits=encryption.data_key_length_bits)

    def key_encryption_key(self, master_key_id: str, num_bytes: int,
                           lifetime: float = 0) -> KeyEncryptionKey:
        """The one of a master key; it serves as long as this object does.

        Raises
        ------
        KeyNotFoundError
            If none was made.
        ValueError
            If it has another length.
        """
        if num_bytes != self._num_bytes:
            raise ValueError(f"these key-encryption keys are for data keys of {self._num_bytes * 8}"
                             f" bits, not {num_bytes * 8}: give data_key_length_bits to "
                             "KeyEncryptionKeys")
        if master_key_id not in self._keys:
            raise KeyNotFoundError(f"no key-encryption key was made under {master_key_id!r}; there "
                                   f"are: {', '.join(self._keys) or 'none'}")
        return self._keys[master_key_id]

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        """One of these keys by its wrapped form, as a KmsClient does it; so files that were written
        with them can be read without the KMS.

        Raises
        ------
        KeyNotFoundError
            If it is none of these.
        """
        kek = self._keys.get(master_key_identifier)
        if kek is None or kek.wrapped_kek != wrapped_key:
            raise KeyNotFoundError("this is not the key-encryption key that was made under "
                                   f"{master_key_identifier!r}; read with the KMS")
        return kek.secret

    def __repr__(self) -> str:
        return f"<KeyEncryptionKeys under {list(self._keys)}>"


#: what wraps the data keys of a file that is written; None: the KMS of the environment
WritingKms: TypeAlias = KeyWrapper | KeyEncryptionKeys | None

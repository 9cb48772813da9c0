"""How a file is encrypted: its algorithm, its AAD, and the ciphers of its keys."""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass
from functools import cached_property

from secure_bloom.crypto.key_retriever import KeyRetriever
from secure_bloom.crypto.modules import ModuleCipher
from secure_bloom.errors import (
    NO_KEY,
    AuthenticationError,
    FormatError,
    KeyNotFoundError,
    KeyRetrievalError,
    UnsupportedError,
)
from secure_bloom.parquet import thrift
from secure_bloom.parquet.thrift import Layout, Struct

ALGORITHM_LAYOUT: Layout = {1: {}, 2: {}}
_UNIQUE_SIZE = 8  # bytes of aad_file_unique, as all writers choose them
_ALGORITHM_NAMES = {1: "AES_GCM_V1", 2: "AES_GCM_CTR_V1"}


@dataclass(frozen=True)
class EncryptionAlgorithm:
    """The EncryptionAlgorithm union of a file.

    The prefix is the one that the file stores. With ``supply_aad_prefix``, the reader must supply
    it, because the file does not store it.
    """

    name: str
    aad_prefix: bytes | None
    aad_file_unique: bytes
    supply_aad_prefix: bool

    @property
    def authenticates_pages(self) -> bool:
        """Whether changes to pages are detected, and not only changes to metadata and filters."""
        return self.name == "AES_GCM_V1"

    @classmethod
    def of(cls, union: object) -> EncryptionAlgorithm:
        """Read the union."""
        if not isinstance(union, Struct) or len(union.fields) != 1:
            raise FormatError("the encryption algorithm is missing or malformed")
        number, _, fields = union.fields[0]
        if number not in _ALGORITHM_NAMES:
            raise UnsupportedError(f"unknown encryption algorithm {number}")
        if not isinstance(fields, Struct):
            raise FormatError("the encryption algorithm is malformed")
        return cls(_ALGORITHM_NAMES[number], fields.get_binary(1), fields.get_binary(2) or b"",
                   bool(fields.get_bool(3)))

    @classmethod
    def new(cls, name: str, aad_prefix: bytes | None = None, *,
            supply_aad_prefix: bool = False) -> EncryptionAlgorithm:
        """Return the algorithm of a new file, or of a new version of one: with a new identity."""
        return cls(name, aad_prefix, os.urandom(_UNIQUE_SIZE), supply_aad_prefix)

    def to_union(self) -> Struct:
        """Return the union that says this."""
        fields = Struct()
        if self.aad_prefix is not None:
            fields.set_binary(1, self.aad_prefix)
        fields.set_binary(2, self.aad_file_unique)
        fields.set_bool(3, self.supply_aad_prefix)
        [number] = (number for number, name in _ALGORITHM_NAMES.items() if name == self.name)
        return Struct([[number, thrift.STRUCT, fields]])


class FileCrypto:
    """How an open file is encrypted, and the ciphers of its keys.

    ``keys``: see :mod:`secure_bloom.keys.retrieval`. ``algorithm`` is None in a plaintext file.
    ``footer_key_metadata`` is the file's metadata for its footer key.
    """

    def __init__(self, keys: KeyRetriever | None, algorithm: EncryptionAlgorithm | None,
                 footer_key_metadata: bytes | None, *, has_encrypted_footer: bool):
        self.algorithm, self.footer_key_metadata = algorithm, footer_key_metadata
        self.has_encrypted_footer = has_encrypted_footer
        self._keys = keys
        self._footer_cipher: ModuleCipher | None = None
        self._ciphers: dict[bytes, ModuleCipher] = {}
        self._of_columns: dict[tuple[str, bytes | None], ModuleCipher] = {}
        self._without_key: dict[tuple[str, bytes | None], KeyRetrievalError] = {}

    def renewed(self, keys: KeyRetriever | None, footer_key_metadata: bytes | None) -> FileCrypto:
        """Return how a new version of the file is encrypted: with another aad_file_unique.

        No module of this version authenticates in that one, whether its keys are the same or not.
        Keys that stay the same go on counting what they encrypt.
        """
        algorithm = self.algorithm
        if algorithm is not None:
            algorithm = EncryptionAlgorithm.new(algorithm.name, algorithm.aad_prefix,
                                                supply_aad_prefix=algorithm.supply_aad_prefix)
        new = FileCrypto(keys, algorithm, footer_key_metadata,
                         has_encrypted_footer=self.has_encrypted_footer)
        new._ciphers = self._ciphers
        return new

    @property
    def has_footer_key(self) -> bool:
        """Whether the footer key can be requested."""
        return self._keys is not None and self._keys.has_footer_key

    @cached_property
    def file_aad(self) -> bytes:
        """AAD prefix and aad_file_unique."""
        if self.algorithm is None:
            raise FormatError("an encrypted column in a file without an encryption algorithm")
        supplied = getattr(self._keys, "aad_prefix", None)
        stored = self.algorithm.aad_prefix
        if self.algorithm.supply_aad_prefix and supplied is None:
            raise KeyNotFoundError("the file does not store its AAD prefix; pass it as "
                                   "ExplicitKeys(aad_prefix=...)")
        if stored is not None and supplied is not None and stored != supplied:
            raise AuthenticationError("the given AAD prefix differs from the one stored in the "
                                      "file")
        prefix = stored if stored is not None else supplied
        return (prefix or b"") + self.algorithm.aad_file_unique

    @property
    def footer_cipher(self) -> ModuleCipher:
        """The cipher of the footer key."""
        if self._footer_cipher is None:
            if self._keys is None:
                raise KeyNotFoundError("this is encrypted with the footer key; pass keys "
                                       "(--keys)")
            return self.use_footer_key(self._keys.footer_key(self.footer_key_metadata))
        return self._footer_cipher

    def use_footer_key(self, key: bytes) -> ModuleCipher:
        """Use this key as the footer key; returns its cipher."""
        self._footer_cipher = self._cipher(key)
        return self._footer_cipher

    def column_cipher(self, path: str, key_metadata: bytes | None) -> ModuleCipher:
        """Return the cipher of a column's own key, which is requested once, even if it is denied.

        All row groups mostly name the same key, and finding it takes longer than using it.
        """
        if self._keys is None:
            raise KeyNotFoundError("the column is encrypted; pass keys (--keys)", column=path)
        cipher = self._of_columns.get((path, key_metadata))
        if cipher is not None:
            return cipher
        known = self._without_key.get((path, key_metadata))
        if known is not None:
            raise copy.copy(known) from known.__cause__
        try:
            cipher = self._cipher(self._keys.column_key(path, key_metadata))
        except NO_KEY as error:
            self._without_key[path, key_metadata] = copy.copy(error)  # each row group adds its own
            raise
        self._of_columns[path, key_metadata] = cipher
        return cipher

    def master_key(self, key_metadata: bytes | None) -> str | None:
        """Return the master key name in the key metadata; None if it contains none."""
        return None if self._keys is None else self._keys.master_key(key_metadata)

    def _cipher(self, key: bytes) -> ModuleCipher:
        # One per key, because it counts what the key encrypts.
        if key not in self._ciphers:
            self._ciphers[key] = ModuleCipher(key)
        return self._ciphers[key]

"""The data keys of one file that is written, and the key material that says how to get them."""

from __future__ import annotations

import os
from typing import Any

from secure_bloom.crypto.key_retriever import KeyRetriever
from secure_bloom.keys import external
from secure_bloom.keys.cache import CachedKms
from secure_bloom.keys.kek import KeyEncryptionKey
from secure_bloom.keys.material import KeyMaterial, refer_to
from secure_bloom.keys.wrapping import KeyEncryptionKeys


class DataKeyWrapper:
    """Wraps the data keys of one file.

    Parameters
    ----------
    kms : CachedKms or KeyEncryptionKeys
    num_bytes : int
        Length of data keys, and of key-encryption keys.
    double_wrapping : bool
        Whether a key-encryption key wraps data keys, or the KMS itself does.
    lifetime : float
        Seconds for which a key-encryption key is used for new files.
    is_internal : bool
        Whether the file stores the material. Otherwise a file next to it does.

    Attributes
    ----------
    external_material : dict or None
        Key material for a file next to this one, by name, complete once :meth:`key_metadata` was
        called for each key. None if the file stores it.
    """

    def __init__(self, kms: CachedKms | KeyEncryptionKeys, *, num_bytes: int,
                 double_wrapping: bool, lifetime: float, is_internal: bool):
        self._kms, self._num_bytes, self._lifetime = kms, num_bytes, lifetime
        self._is_double = double_wrapping or not isinstance(kms, CachedKms)
        self._wrapped: dict[bytes, str] = {}  # by data key, with single wrapping
        self._keks: dict[str, KeyEncryptionKey] = {}  # by master key, with double wrapping
        self.external_material: dict[str, str] | None = None if is_internal else {}

    def prepare(self, key: bytes, master_key: str) -> None:
        """Do what needs the KMS to wrap a data key under a master key, before anything is written.

        Raises KeyRetrievalError if the master key cannot be used.
        """
        if not self._is_double:
            assert isinstance(self._kms, CachedKms)
            self._wrapped[key] = self._kms.wrap_key(key, master_key)
        elif master_key not in self._keks:
            self._keks[master_key] = self._kms.key_encryption_key(master_key, self._num_bytes,
                                                                  self._lifetime)

    def key_metadata(self, key: bytes, master_key: str, *, is_footer_key: bool) -> bytes:
        """Return the metadata for a key that was prepared: the material, or a reference to it."""
        instance: dict[str, Any] = {}
        if is_footer_key:
            instance = {"kms_instance_id": self._kms.kms_instance_id,
                        "kms_instance_url": self._kms.kms_instance_url}
        if self._is_double:
            kek = self._keks[master_key]
            material = KeyMaterial(master_key, kek.wrap(key), kek.kek_id, kek.wrapped_kek,
                                   is_footer_key, **instance)
        else:
            material = KeyMaterial(master_key, self._wrapped[key], is_footer_key=is_footer_key,
                                   **instance)
        return self._store(material)

    def _store(self, material: KeyMaterial) -> bytes:
        if self.external_material is None:
            return material.serialize()
        columns = len(self.external_material) - (external.FOOTER_KEY in self.external_material)
        name = external.FOOTER_KEY if material.is_footer_key else f"columnKey{columns}"
        self.external_material[name] = material.serialize(external=True).decode()
        return refer_to(name)


class NewKeys(KeyRetriever):
    """New data keys that a :class:`DataKeyWrapper` wraps."""

    def __init__(self, wrapper: DataKeyWrapper):
        self._wrapper = wrapper
        self._keys: dict[bytes, tuple[bytes, str]] = {}  # by key metadata, with the master key

    def make(self, master_key: str, num_bytes: int, *, is_footer_key: bool = False) -> bytes:
        """Make a data key of this length under a master key; return its metadata.

        Raises KeyRetrievalError if the master key cannot be used.
        """
        key = os.urandom(num_bytes)
        self._wrapper.prepare(key, master_key)
        metadata = self._wrapper.key_metadata(key, master_key, is_footer_key=is_footer_key)
        self._keys[metadata] = key, master_key
        return metadata

    def footer_key(self, key_metadata: bytes | None) -> bytes:
        """See :class:`.KeyRetriever`."""
        return self._keys[key_metadata or b""][0]

    def master_key(self, key_metadata: bytes | None) -> str | None:
        """See :class:`.KeyRetriever`."""
        return None if key_metadata is None else self._keys[key_metadata][1]

    def __repr__(self) -> str:
        return f"<NewKeys: {len(self._keys)}>"

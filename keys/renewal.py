"""New data keys for a new version of a file, under the master keys that it has.

What is encrypted with the old data keys does not open with the new ones. With double wrapping, the
file's key-encryption keys wrap the new data keys, so the KMS is not called; with single wrapping,
it wraps them. Data keys stay the same if they are explicit, or if the KMS may not wrap.
"""

from __future__ import annotations

import os
from dataclasses import replace

from secure_bloom.crypto.key_retriever import KeyRetriever
from secure_bloom.errors import KeyAccessError, KeyUnwrapError, UnsupportedError
from secure_bloom.keys.kms import can_wrap, wrap_locally
from secure_bloom.keys.material import KeyMaterial, key_reference
from secure_bloom.keys.retrieval import KmsKeys


class RenewedKeys:
    """The keys of a new version of a file, as a :class:`.KeyRetriever`.

    Parameters
    ----------
    keys : KeyRetriever or None
        Those of the version that exists.
    has_new_material : bool
        Whether key material in a separate file can be replaced, too. Otherwise the data keys that
        it wraps stay the same.

    Attributes
    ----------
    external_material : dict
        Entries of the separate file that are new, by name.
    """

    def __init__(self, keys: KeyRetriever | None, *, has_new_material: bool):
        self._keys, self._has_new_material = keys, has_new_material
        self._renewed: dict[bytes, bytes] = {}  # key metadata, by that of the old version
        self._new: dict[bytes, bytes] = {}  # data keys, by new key metadata
        self.external_material: dict[str, str] = {}

    def renew(self, key_metadata: bytes | None, num_bytes: int) -> None:
        """Make a new data key in place of one of the old version, unless that has been done.

        Parameters
        ----------
        key_metadata : bytes or None
            That of the old version.
        num_bytes : int
            Length of the key.

        Raises
        ------
        KeyRetrievalError
            If a key cannot be used, or the KMS cannot unwrap what it has just wrapped.
        """
        if isinstance(self._keys, KmsKeys) and key_metadata is not None \
                and key_metadata not in self._renewed:
            self._renewed[key_metadata] = self._with_new_key(self._keys, key_metadata, num_bytes)

    def renewed(self, key_metadata: bytes | None) -> bytes | None:
        """Return the key metadata of the new version, by that of the old version."""
        return self._renewed.get(key_metadata or b"", key_metadata)

    def is_new(self, key_metadata: bytes | None) -> bool:
        """Whether the key of the new version is another one, by the key metadata of the old one."""
        return self.renewed(key_metadata) in self._new

    def _with_new_key(self, keys: KmsKeys, key_metadata: bytes, num_bytes: int) -> bytes:
        name = key_reference(key_metadata)
        if name is not None and not self._has_new_material:
            return key_metadata
        key = os.urandom(num_bytes)
        material = _wrapped(keys, keys.material(key_metadata), key)
        if material is None:
            return key_metadata
        if name is None:
            key_metadata = material.serialize()
        else:
            self.external_material[name] = material.serialize(external=True).decode()
        self._new[key_metadata] = key
        return key_metadata

    @property
    def aad_prefix(self) -> bytes | None:
        """See :class:`.KeyRetriever`."""
        return None if self._keys is None else self._keys.aad_prefix

    @property
    def has_footer_key(self) -> bool:
        """See :class:`.KeyRetriever`."""
        return self._keys is not None and self._keys.has_footer_key

    def footer_key(self, key_metadata: bytes | None) -> bytes:
        """See :class:`.KeyRetriever`."""
        return self._new.get(key_metadata or b"") or self._old.footer_key(key_metadata)

    def column_key(self, path: str, key_metadata: bytes | None) -> bytes:
        """See :class:`.KeyRetriever`."""
        return self._new.get(key_metadata or b"") or self._old.column_key(path, key_metadata)

    def master_key(self, key_metadata: bytes | None) -> str | None:
        """See :class:`.KeyRetriever`."""
        return self._old.master_key(key_metadata)

    @property
    def _old(self) -> KeyRetriever:
        assert self._keys is not None, "the file is not encrypted"
        return self._keys

    def __repr__(self) -> str:
        return f"<RenewedKeys of {self._keys!r}: {len(self._new)} new>"


def _wrapped(keys: KmsKeys, material: KeyMaterial, key: bytes) -> KeyMaterial | None:
    """Return the material of another data key; None if the KMS may not wrap it."""
    kms, name = keys.kms, material.master_key_id
    if material.kek_id is not None:
        kek = kms.unwrap_key(material.wrapped_by_master_key, name)
        return replace(material, wrapped_dek=wrap_locally(kek, key, material.kek_id))
    if not can_wrap(kms.kms):
        return None
    try:
        wrapped = kms.wrap_key(key, name)
    except (KeyAccessError, UnsupportedError, NotImplementedError):
        return None
    if kms.unwrap_key(wrapped, name) != key:
        raise KeyUnwrapError("the KMS cannot unwrap a key that it has just wrapped with master key "
                             f"{name!r}")
    return replace(material, wrapped_dek=wrapped)

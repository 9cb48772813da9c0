"""The encryption of a file as pyarrow sees it, since pyarrow encrypts the pages.

secure_bloom needs the same keys for filters and footers, and decides how keys are wrapped and where
the key material is stored.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow.parquet.encryption as pe

from secure_bloom.arrow.keys import PlaceholderKeys, crypto_factory
from secure_bloom.crypto.key_retriever import KeyRetriever
from secure_bloom.encryption import Encryption, EncryptionConfiguration, UniformKey
from secure_bloom.keys import external
from secure_bloom.keys.cache import CachedKms, cached
from secure_bloom.keys.environment import KEYRING, KMS, keys_or_kms
from secure_bloom.keys.kek import KeyEncryptionKey
from secure_bloom.keys.material import KeyMaterial, refer_to
from secure_bloom.keys.retrieval import ExplicitKeys
from secure_bloom.keys.wrapping import KeyEncryptionKeys, WritingKms
from secure_bloom.parquet.footer import Footer

KEYS_WITHOUT_USE = ("keys need an EncryptionConfiguration or a policy, but none was given: what is "
                    "written would not be encrypted with these keys; to write plaintext, pass "
                    "plaintext=True")


class FileEncryption:
    """The encryption of one written file. This base class: no encryption, or explicit keys.

    An object must never be used for two files: they would share key and file id, and modules could
    be swapped between them undetected.

    ``properties`` are for pyarrow, which encrypts the pages; ``keys`` are for the footer that it
    writes. ``external_material`` is key material for a file next to this one, by name, complete
    once the key metadata is written; None if all of it is stored in the file.
    """

    def __init__(self, properties: pe.FileEncryptionProperties | None = None,
                 keys: KeyRetriever | None = None):
        self.properties = properties
        self.keys = keys
        self.external_material: dict[str, str] | None = None

    def write_key_metadata(self, footer: Footer) -> None:
        """Write the key metadata to the footer, after everything that needs its keys."""


def file_encryption(encryption: Encryption | None, keys: WritingKms = None,
                    kms: WritingKms = None) -> FileEncryption:
    """Create the encryption for one file.

    Raises TypeError if both ``keys`` and ``kms`` are passed, or they do not match ``encryption``.
    """
    if isinstance(encryption, EncryptionConfiguration):
        return _KmsEncryption(encryption, writing_kms(keys_or_kms(keys, kms), encryption))
    if encryption is not None and not isinstance(encryption, UniformKey):
        raise TypeError("encryption must be an EncryptionConfiguration or a UniformKey, "
                        f"not {type(encryption).__name__}")
    if keys is not None or kms is not None:
        raise TypeError(KEYS_WITHOUT_USE)
    if encryption is None:
        return FileEncryption()
    properties = pe.create_encryption_properties(
        encryption.footer_key, aad_prefix=encryption.aad_prefix,
        store_aad_prefix=encryption.store_aad_prefix,
        encryption_algorithm=encryption.algorithm, plaintext_footer=encryption.plaintext_footer)
    return FileEncryption(properties,
                          ExplicitKeys(encryption.footer_key, aad_prefix=encryption.aad_prefix))


class _KmsEncryption(FileEncryption):
    """Encryption with keys that a KMS wraps.

    pyarrow creates keys and requests that they be wrapped; it gets numbers in return, and
    :meth:`write_key_metadata` replaces them with the real key material. Key-encryption keys may
    therefore come from elsewhere, and names of master keys may have any form. The KMS is called
    when the object is created, before anything is written.
    """

    aad_prefix: bytes | None = None
    has_footer_key = True

    def __init__(self, encryption: EncryptionConfiguration, kms: CachedKms | KeyEncryptionKeys):
        super().__init__(keys=self)
        if not encryption.internal_key_material:
            self.external_material = {}
        self._encryption, self._kms = encryption, kms
        configuration, self._master_keys = _under_aliases(encryption)
        self._placeholder_keys = PlaceholderKeys()
        self._placeholders: dict[bytes, KeyMaterial] = {}  # by the key metadata of pyarrow
        self._wrapped: dict[str, str] = {}  # by number, with single wrapping
        self._keks: dict[str, KeyEncryptionKey] = {}  # by master key, with double wrapping
        self.properties = crypto_factory(self).file_encryption_properties(
            pe.KmsConnectionConfig(), configuration)

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        """Wrap a key; pyarrow calls this for each key that it has created."""
        number = self._placeholder_keys.add(key_bytes)
        name = self._master_keys[master_key_identifier]
        if isinstance(self._kms, CachedKms) and not self._encryption.double_wrapping:
            self._wrapped[number] = self._kms.wrap_key(key_bytes, name)
        elif name not in self._keks:
            self._keks[name] = self._kms.key_encryption_key(
                name, self._encryption.data_key_length_bits // 8, self._lifetime())
        return number

    def footer_key(self, key_metadata: bytes | None) -> bytes:
        """See :class:`KeyRetriever`."""
        return self._placeholder_keys.unwrap_key(self._placeholder(key_metadata).wrapped_dek)

    def column_key(self, path: str, key_metadata: bytes | None) -> bytes:
        """See :class:`KeyRetriever`."""
        return self.footer_key(key_metadata)

    def master_key(self, key_metadata: bytes | None) -> str | None:
        """See :class:`KeyRetriever`."""
        return None if key_metadata is None \
            else self._master_keys[self._placeholder(key_metadata).master_key_id]

    def write_key_metadata(self, footer: Footer) -> None:
        """See :class:`FileEncryption`."""
        final: dict[str, bytes] = {}  # by number; the chunks of a column share theirs

        def finish(key_metadata: bytes | None) -> bytes:
            placeholder = self._placeholder(key_metadata)
            if placeholder.wrapped_dek not in final:
                final[placeholder.wrapped_dek] = self._store(self._material(placeholder))
            return final[placeholder.wrapped_dek]

        footer.set_footer_key_metadata(finish(footer.footer_key_metadata))
        for chunk in footer.column_chunks():
            if chunk.encryption == "column key":
                chunk.set_key_metadata(finish(chunk.key_metadata))

    def _placeholder(self, key_metadata: bytes | None) -> KeyMaterial:
        """Return what pyarrow has written as key material."""
        assert key_metadata is not None
        found = self._placeholders.get(key_metadata)
        if found is None:
            found = self._placeholders[key_metadata] = KeyMaterial.parse(key_metadata)
        return found

    def _material(self, placeholder: KeyMaterial) -> KeyMaterial:
        """Replace pyarrow's placeholder with the real key material."""
        name = self._master_keys[placeholder.master_key_id]
        instance: dict[str, Any] = {}
        if placeholder.is_footer_key:
            instance = {"kms_instance_id": self._kms.kms_instance_id,
                        "kms_instance_url": self._kms.kms_instance_url}
        if not self._encryption.double_wrapping:
            return KeyMaterial(name, self._wrapped[placeholder.wrapped_dek],
                               is_footer_key=placeholder.is_footer_key, **instance)
        kek = self._keks[name]
        data_key = self._placeholder_keys.unwrap_key(placeholder.wrapped_dek)
        return KeyMaterial(name, kek.wrap(data_key), kek.kek_id, kek.wrapped_kek,
                           placeholder.is_footer_key, **instance)

    def _store(self, material: KeyMaterial) -> bytes:
        """Return key metadata that contains the material or a reference to it."""
        if self.external_material is None:
            return material.serialize()
        columns = len(self.external_material) - (external.FOOTER_KEY in self.external_material)
        name = external.FOOTER_KEY if material.is_footer_key else external.column_key_name(columns)
        self.external_material[name] = material.serialize(external=True).decode()
        return refer_to(name)

    def _lifetime(self) -> float:
        lifetime = self._encryption.cache_lifetime
        return lifetime.total_seconds() if isinstance(lifetime, timedelta) else lifetime


def _under_aliases(encryption: EncryptionConfiguration) \
        -> tuple[pe.EncryptionConfiguration, dict[str, str]]:
    """Replace names by aliases, since pyarrow misparses ``:`` and spaces; also map them back."""
    names = {name: str(number) for number, name
             in enumerate([encryption.footer_key, *(encryption.column_keys or {})])}
    columns = {names[name]: list(paths) for name, paths in (encryption.column_keys or {}).items()}
    configuration = pe.EncryptionConfiguration(
        names[encryption.footer_key], column_keys=columns or None,
        uniform_encryption=encryption.uniform_encryption,
        plaintext_footer=encryption.plaintext_footer, double_wrapping=False,
        encryption_algorithm=encryption.encryption_algorithm,
        data_key_length_bits=encryption.data_key_length_bits)
    return configuration, {alias: name for name, alias in names.items()}


def writing_kms(kms: Any, encryption: EncryptionConfiguration) -> CachedKms | KeyEncryptionKeys:
    """Return what wraps data keys: a KMS client with this process's cache, or KEKs.

    ``kms`` is the result of :func:`.keys_or_kms`. Raises TypeError if it cannot wrap these keys.
    """
    if isinstance(kms, KeyEncryptionKeys):
        if not encryption.double_wrapping:
            raise TypeError("double_wrapping=False does not use key-encryption keys: pass the KMS "
                            "client itself")
        return kms
    if not (hasattr(kms, "wrap_key") and hasattr(kms, "unwrap_key")):
        given = "" if kms is None else f", not {type(kms).__name__}"
        raise TypeError("an EncryptionConfiguration names master keys: pass keys=, a KmsClient "
                        f"such as secure_bloom.keys.Keyring{given}, or set {KEYRING} or {KMS}")
    return cached(kms)

"""The encryption of a file as pyarrow sees it, since pyarrow encrypts the pages.

secure_bloom needs the same keys for filters and footers, and decides how keys are wrapped and where
the key material is stored.
"""

from __future__ import annotations

from datetime import timedelta

import pyarrow.parquet.encryption as pe

from secure_bloom.arrow.keys import PlaceholderKeys, crypto_factory
from secure_bloom.crypto.key_retriever import KeyRetriever
from secure_bloom.encryption import Encryption, EncryptionConfiguration, UniformKey
from secure_bloom.keys.cache import CachedKms
from secure_bloom.keys.environment import KEYRING, KMS
from secure_bloom.keys.kms import can_wrap
from secure_bloom.keys.material import KeyMaterial
from secure_bloom.keys.new_keys import DataKeyWrapper
from secure_bloom.keys.retrieval import ExplicitKeys, open_keys
from secure_bloom.keys.wrapping import KeyEncryptionKeys, WritingKeys
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


def file_encryption(encryption: Encryption | None, keys: WritingKeys = None) -> FileEncryption:
    """Create the encryption for one file.

    Raises TypeError if ``keys`` do not match ``encryption``.
    """
    if isinstance(encryption, EncryptionConfiguration):
        return _KmsEncryption(encryption, writing_kms(keys, encryption))
    if encryption is not None and not isinstance(encryption, UniformKey):
        raise TypeError("encryption must be an EncryptionConfiguration or a UniformKey, "
                        f"not {type(encryption).__name__}")
    if keys is not None:
        raise TypeError(KEYS_WITHOUT_USE)
    if encryption is None:
        return FileEncryption()
    properties = pe.create_encryption_properties(
        encryption.footer_key, aad_prefix=encryption.aad_prefix,
        store_aad_prefix=encryption.store_aad_prefix,
        encryption_algorithm=encryption.algorithm, plaintext_footer=encryption.plaintext_footer)
    return FileEncryption(properties,
                          ExplicitKeys(encryption.footer_key, aad_prefix=encryption.aad_prefix))


class _KmsEncryption(FileEncryption, KeyRetriever):
    """Encryption with keys that a KMS wraps.

    pyarrow creates keys and requests that they be wrapped; it gets numbers in return, and
    :meth:`write_key_metadata` replaces them with the real key material. Key-encryption keys may
    therefore come from elsewhere, and names of master keys may have any form. The KMS is called
    when the object is created, before anything is written.
    """

    def __init__(self, encryption: EncryptionConfiguration, kms: CachedKms | KeyEncryptionKeys):
        super().__init__(keys=self)
        self._wrapper = wrapper_for(encryption, kms)
        self.external_material = self._wrapper.external_material
        configuration, self._master_keys = _under_aliases(encryption)
        self._placeholder_keys = PlaceholderKeys()
        self._placeholders: dict[bytes, KeyMaterial] = {}  # by the key metadata of pyarrow
        self.properties = crypto_factory(self).file_encryption_properties(
            pe.KmsConnectionConfig(), configuration)

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        """Wrap a key; pyarrow calls this for each key that it has created."""
        self._wrapper.prepare(key_bytes, self._master_keys[master_key_identifier])
        return self._placeholder_keys.add(key_bytes)

    def footer_key(self, key_metadata: bytes | None) -> bytes:
        """See :class:`KeyRetriever`."""
        return self._placeholder_keys.unwrap_key(self._placeholder(key_metadata).wrapped_dek)

    def master_key(self, key_metadata: bytes | None) -> str | None:
        """See :class:`KeyRetriever`."""
        return None if key_metadata is None \
            else self._master_keys[self._placeholder(key_metadata).master_key_id]

    def write_key_metadata(self, footer: Footer) -> None:
        """See :class:`FileEncryption`."""
        final: dict[str, bytes] = {}  # by number; the chunks of a column share theirs

        def finish(key_metadata: bytes | None) -> bytes:
            placeholder = self._placeholder(key_metadata)
            number = placeholder.wrapped_dek
            if number not in final:
                final[number] = self._wrapper.key_metadata(
                    self._placeholder_keys.unwrap_key(number),
                    self._master_keys[placeholder.master_key_id],
                    is_footer_key=placeholder.is_footer_key)
            return final[number]

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


def wrapper_for(encryption: EncryptionConfiguration,
                kms: CachedKms | KeyEncryptionKeys) -> DataKeyWrapper:
    """Return what wraps the data keys of a new file."""
    lifetime = encryption.cache_lifetime
    return DataKeyWrapper(
        kms, num_bytes=encryption.data_key_length_bits // 8,
        double_wrapping=encryption.double_wrapping, is_internal=encryption.internal_key_material,
        lifetime=lifetime.total_seconds() if isinstance(lifetime, timedelta) else lifetime)


def writing_kms(keys: WritingKeys,
                encryption: EncryptionConfiguration) -> CachedKms | KeyEncryptionKeys:
    """Return what wraps data keys: a KMS client with this process's cache, or KEKs.

    Raises TypeError if it cannot wrap these keys.
    """
    if isinstance(keys, KeyEncryptionKeys):
        if not encryption.double_wrapping:
            raise TypeError("double_wrapping=False does not use key-encryption keys: pass the KMS "
                            "client itself")
        return keys
    kms = open_keys(keys)
    if not (isinstance(kms, CachedKms) and can_wrap(kms.kms)):
        given = "" if keys is None else f", not {type(keys).__name__}"
        raise TypeError("an EncryptionConfiguration names master keys: pass keys=, a KmsClient "
                        f"such as secure_bloom.keys.Keyring{given}, or set {KEYRING} or {KMS}")
    return kms

"""Keys, as users pass them: what they are, and how they provide the data keys of a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias, TypeGuard

from secure_bloom.crypto.aes_gcm import KEY_SIZES
from secure_bloom.crypto.key_retriever import KeyRetriever
from secure_bloom.errors import KeyNotFoundError, KeyRetrievalError, KeyUnwrapError
from secure_bloom.keys.cache import CachedKms, RememberingKms, cached
from secure_bloom.keys.environment import NO_KEYS, NoKeys, cached_client, environment_kms
from secure_bloom.keys.kms import KeyUnwrapper, can_unwrap, can_wrap, check_key, unwrap_locally
from secure_bloom.keys.material import KeyMaterial, find_material
from secure_bloom.keys.uri import absolute_uri, has_scheme, keyring_uri


class KeysByFile(Protocol):
    """Data keys that each file has of its own, such as :class:`~.IcebergKeys`."""

    def of_file(self, path: str | None, /) -> KeyRetriever:
        """Return the keys of the file at a path; None: it was not opened by a path."""


#: keys for opening files: a KMS client or another object with ``unwrap_key``, the path of a
#: keyring, the URI of a KMS, data keys, or none
Keys: TypeAlias = KeyUnwrapper | KeyRetriever | KeysByFile | NoKeys | str | os.PathLike[str] | None
OpenKeys: TypeAlias = CachedKms | KeyRetriever | KeysByFile | NoKeys  #: what they are, opened


def open_keys(keys: Keys, *, remember_denials: bool = False) -> OpenKeys:
    """Resolve an argument ``keys``.

    A KMS client is returned with the cache that all its users share. A path object is the path of a
    keyring. A string that begins with a scheme and a colon is the URI of a KMS, any other string
    the path of a keyring. There is one client for each keyring and URI, which this process reopens
    after ten minutes; a keyring is also read again when its file has changed. None: the KMS of the
    environment, and NO_KEYS if that names none.

    With ``remember_denials``, a KMS is asked once for each key that it does not give; see
    :class:`.RememberingKms`.

    Raises TypeError for anything else; ValueError if a URI is malformed, or a string is empty;
    KeyringError if the keyring cannot be read.
    """
    found = _opened(keys)
    return RememberingKms(found) if remember_denials and isinstance(found, CachedKms) \
        else found


def _opened(keys: Keys) -> OpenKeys:
    if keys is None:
        kms = environment_kms()
        return NO_KEYS if kms is None else cached(kms)
    if isinstance(keys, str | os.PathLike):
        name = os.fspath(keys)
        if not name:
            raise ValueError("keys must be a KmsClient, the path of a keyring, or the URI of a "
                             "KMS, not an empty string")
        return cached_client(absolute_uri(keys) if isinstance(keys, str) and has_scheme(keys)
                             else keyring_uri(os.fsdecode(name)))
    if isinstance(keys, NoKeys) or is_by_file(keys) or is_explicit(keys):
        return keys
    if can_unwrap(keys):
        return cached(keys)
    raise TypeError("keys must be a KmsClient or ExplicitKeys, the path of a keyring, or the URI "
                    f"of a KMS, not {type(keys).__name__}")


def open_client(keys: Keys, *, to_wrap: bool = False) -> CachedKms:
    """Resolve an argument ``keys`` where only a KMS client will do.

    Raises
    ------
    TypeError
        If it is none, or if nothing is given and the environment names none; with ``to_wrap``, also
        if the client can only unwrap keys.
    """
    found = open_keys(keys)
    if isinstance(found, CachedKms) and (can_wrap(found.kms) or not to_wrap):
        return found
    raise TypeError(f"keys must be a KmsClient {'that wraps keys, ' if to_wrap else ''}such as "
                    "secure_bloom.keys.Keyring, the path of a keyring, or the URI of a KMS, not "
                    f"{type(keys).__name__}")


def is_by_file(keys: object) -> TypeGuard[KeysByFile]:
    """Whether each file has data keys of its own; a check of the protocol itself is slow."""
    return hasattr(keys, "of_file")


def is_explicit(keys: object) -> TypeGuard[KeyRetriever]:
    """Whether these are data keys, not a KMS."""
    return hasattr(keys, "footer_key") and hasattr(keys, "column_key")


class ExplicitKeys:
    """Explicit data keys. The pickled form of this object contains the keys.

    Parameters
    ----------
    footer_key : bytes, optional
        Also the key of the columns that are encrypted with the footer key.
    column_keys : mapping of str to bytes, optional
        Keys by dotted column path.
    key_ids : mapping of str to bytes, optional
        Keys by the id in the file's key metadata; used for footers and columns that the first two
        parameters do not cover.
    aad_prefix : bytes, optional
        The AAD prefix, for files that do not store it. If a file stores one, it must be equal.
    plaintext_files_allowed : bool
        Whether files without encryption may be read. By default they are refused, since an
        attacker may have substituted them for encrypted ones.
    """

    def __init__(self, footer_key: bytes | None = None,
                 column_keys: Mapping[str, bytes] | None = None,
                 key_ids: Mapping[str, bytes] | None = None,
                 aad_prefix: bytes | None = None, *, plaintext_files_allowed: bool = False):
        if footer_key is not None:
            check_key(footer_key, "footer_key")
        for name, key in {**(column_keys or {}), **(key_ids or {})}.items():
            check_key(key, name)
        self._footer_key = footer_key
        self._column_keys = dict(column_keys or {})
        self._key_ids = dict(key_ids or {})
        self.aad_prefix = aad_prefix
        self.plaintext_files_allowed = plaintext_files_allowed

    @property
    def has_footer_key(self) -> bool:
        """Whether there may be a footer key; without one, footer signatures are not verified."""
        return self._footer_key is not None or bool(self._key_ids)

    def footer_key(self, key_metadata: bytes | None) -> bytes:
        """See :class:`KeyRetriever`."""
        key = self._footer_key or self._by_id(key_metadata)
        if key is None:
            raise KeyNotFoundError(f"no footer key was given{_hint(key_metadata)}")
        return key

    def column_key(self, path: str, key_metadata: bytes | None) -> bytes:
        """See :class:`KeyRetriever`."""
        key = self._column_keys.get(path) or self._by_id(key_metadata)
        if key is None:
            raise KeyNotFoundError(f"no key was given for this column{_hint(key_metadata)}",
                                   column=path)
        return key

    def master_key(self, key_metadata: bytes | None) -> str | None:
        """Return None: no KMS confirms the name in a file, so it may be forged."""
        return None

    def _by_id(self, key_metadata: bytes | None) -> bytes | None:
        if key_metadata is None:
            return None
        return self._key_ids.get(key_metadata.decode("utf-8", "replace"))

    def __repr__(self) -> str:
        names = sorted(self._column_keys) + sorted(self._key_ids)
        return f"<ExplicitKeys footer_key={self._footer_key is not None}, for {names}>"


def _hint(key_metadata: bytes | None) -> str:
    """Return the key id that the file names, if it is human-readable."""
    if key_metadata is None:
        return " and the file names none"
    text = key_metadata.decode("utf-8", "replace")
    return f" (the file names key id {text!r})" if len(text) <= 64 and text.isprintable() else ""


def _no_path() -> Mapping[str, str]:
    raise KeyNotFoundError("the key material is in a file next to the Parquet file; open the "
                           "Parquet file by its path")


class KmsKeys(KeyRetriever):
    """The data keys of one file, unwrapped through a KMS.

    ``read_external`` returns the external key material by name, for files that use it.
    """

    def __init__(self, kms: KeyUnwrapper,
                 read_external: Callable[[], Mapping[str, str]] = _no_path):
        self.kms = cached(kms)
        self._read_external = read_external
        self._external: Mapping[str, str] | None = None

    def footer_key(self, key_metadata: bytes | None) -> bytes:
        """See :class:`KeyRetriever`."""
        return self._data_key(key_metadata)

    def column_key(self, path: str, key_metadata: bytes | None) -> bytes:
        """See :class:`KeyRetriever`."""
        return self._data_key(key_metadata)

    def master_key(self, key_metadata: bytes | None) -> str | None:
        """See :class:`KeyRetriever`."""
        return None if key_metadata is None else self.material(key_metadata).master_key_id

    def material(self, key_metadata: bytes) -> KeyMaterial:
        """Return the key material that key metadata holds or refers to.

        Raises KeyRetrievalError if there is none.
        """
        return find_material(key_metadata, self.entries)

    def entries(self) -> Mapping[str, str]:
        """Return the external key material by name; read only once."""
        if self._external is None:
            self._external = self._read_external()
        return self._external

    def _data_key(self, key_metadata: bytes | None) -> bytes:
        if key_metadata is None:
            raise KeyRetrievalError("the file has no key metadata, so a KMS cannot provide its "
                                    "keys; it was written with explicit keys: pass ExplicitKeys")
        material = self.material(key_metadata)
        if material.kek_id is None:
            return self.kms.unwrap_key(material.wrapped_dek, material.master_key_id)
        # No variable holds the KEK, because programs that report errors show variables.
        key = unwrap_locally(
            self.kms.unwrap_key(material.wrapped_by_master_key, material.master_key_id),
            material.wrapped_dek, material.kek_id)
        if len(key) not in KEY_SIZES:
            raise KeyUnwrapError(f"the key material contains a key of {len(key)} bytes")
        return key

    def __repr__(self) -> str:
        return f"<KmsKeys through {self.kms!r}>"


def key_retriever(keys: Keys, read_external: Callable[[], Mapping[str, str]] = _no_path,
                  path: str | None = None) -> KeyRetriever | None:
    """Return the key retriever for a reader's ``keys`` argument; None without keys."""
    found = open_keys(keys)
    if isinstance(found, CachedKms):
        return KmsKeys(found, read_external)
    if isinstance(found, NoKeys):
        return None
    if is_by_file(found):
        return found.of_file(path)
    assert is_explicit(found)
    return found

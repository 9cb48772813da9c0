"""From the key metadata of a file to its data keys: with a KMS, or with keys given outright."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Protocol

from secure_bloom.errors import KeyNotFoundError, KeyUnwrapError
from secure_bloom.keys.kms import KEY_SIZES, check_key, unwrap_locally
from secure_bloom.keys.material import KeyMaterial


class KeyRetriever(Protocol):
    """What a footer asks for keys."""

    aad_prefix: bytes | None
    has_footer_key: bool  # False: do not even try to verify the signature of a plaintext footer

    def footer_key(self, key_metadata: bytes | None) -> bytes:
        """The footer key; ``key_metadata`` is what the file says about it."""

    def column_key(self, path: str, key_metadata: bytes | None) -> bytes:
        """The key of the column with this dotted path."""


class ExplicitKeys:
    """Data keys given outright. Whoever pickles this object writes the keys down.

    Parameters
    ----------
    footer_key : bytes, optional
        Also the key of the columns that are encrypted with the footer key.
    column_keys : mapping of str to bytes, optional
        Keys by dotted column path.
    key_ids : mapping of str to bytes, optional
        Keys by the id that the file's key metadata holds; used for footers and columns for which
        the first two say nothing.
    aad_prefix : bytes, optional
        The AAD prefix, for files that do not store it. Where a file stores one, it must be equal.
    """

    def __init__(self, footer_key: bytes | None = None,
                 column_keys: Mapping[str, bytes] | None = None,
                 key_ids: Mapping[str, bytes] | None = None,
                 aad_prefix: bytes | None = None):
        if footer_key is not None:
            check_key(footer_key, "footer_key")
        for name, key in {**(column_keys or {}), **(key_ids or {})}.items():
            check_key(key, name)
        self._footer_key = footer_key
        self._column_keys = dict(column_keys or {})
        self._key_ids = dict(key_ids or {})
        self.aad_prefix = aad_prefix

    @property
    def has_footer_key(self) -> bool:
        """Whether any key given may be a footer key; without, no footer signature is verified."""
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

    def _by_id(self, key_metadata: bytes | None) -> bytes | None:
        if key_metadata is None:
            return None
        return self._key_ids.get(key_metadata.decode("utf-8", "replace"))

    def __repr__(self) -> str:
        names = sorted(self._column_keys) + sorted(self._key_ids)
        return f"<ExplicitKeys footer_key={self._footer_key is not None}, for {names}>"


def _hint(key_metadata: bytes | None) -> str:
    """The id that the file names, where it is one that a person can read."""
    if key_metadata is None:
        return " and the file names none"
    text = key_metadata.decode("utf-8", "replace")
    return f" (the file names key id {text!r})" if len(text) <= 64 and text.isprintable() else ""


class KmsKeys:
    """Data keys unwrapped through a KMS; every distinct key is unwrapped once.

    Also a KMS client itself: ``unwrap_key`` goes through the same cache. Safe under threads.

    Parameters
    ----------
    kms : KmsClient or any object with ``wrap_key`` and ``unwrap_key``
    """

    aad_prefix: bytes | None = None
    has_footer_key = True

    def __init__(self, kms):
        self._kms = kms
        self._unwrapped: dict[tuple[str, str], bytes] = {}
        self._lock = Lock()

    def footer_key(self, key_metadata: bytes | None) -> bytes:
        """See :class:`KeyRetriever`."""
        return self._data_key(key_metadata)

    def column_key(self, path: str, key_metadata: bytes | None) -> bytes:
        """See :class:`KeyRetriever`."""
        return self._data_key(key_metadata)

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        """Wrap through the KMS, and remember the key so that it need not be unwrapped again."""
        wrapped = self._kms.wrap_key(key_bytes, master_key_identifier)
        wrapped = wrapped.decode("ascii") if isinstance(wrapped, bytes) else wrapped
        with self._lock:
            self._unwrapped[wrapped, master_key_identifier] = key_bytes
        return wrapped

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        """Unwrap through the KMS, or from memory."""
        with self._lock:
            known = (wrapped_key, master_key_identifier)
            if known not in self._unwrapped:
                key = bytes(self._kms.unwrap_key(*known))
                if len(key) not in KEY_SIZES:
                    raise KeyUnwrapError(f"the KMS returned a key of {len(key)} bytes for master "
                                         f"key {master_key_identifier!r}; AES has 16, 24 or 32")
                self._unwrapped[known] = key
            return self._unwrapped[known]

    def _data_key(self, key_metadata: bytes | None) -> bytes:
        if key_metadata is None:
            raise KeyNotFoundError("the file holds no key metadata, so a KMS cannot open it; it "
                                   "was written with explicit keys: pass ExplicitKeys")
        material = KeyMaterial.parse(key_metadata)
        if material.kek_id is None:
            return self.unwrap_key(material.wrapped_dek, material.master_key_id)
        kek = self.unwrap_key(material.wrapped_kek, material.master_key_id)
        key = unwrap_locally(kek, material.wrapped_dek, material.kek_id)
        if len(key) not in KEY_SIZES:
            raise KeyUnwrapError(f"the key material holds a key of {len(key)} bytes")
        return key

    def __repr__(self) -> str:
        return f"<KmsKeys through {type(self._kms).__name__}>"


def key_retriever(keys) -> KeyRetriever | None:
    """What the ``keys`` argument of a reader means: a KMS client, explicit keys, or nothing."""
    if keys is None or (hasattr(keys, "footer_key") and hasattr(keys, "column_key")):
        return keys
    if hasattr(keys, "unwrap_key"):
        return KmsKeys(keys)
    raise TypeError("keys must be a KmsClient or ExplicitKeys, "
                    f"not {type(keys).__name__}")

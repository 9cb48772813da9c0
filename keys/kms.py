"""The interface to a key management service (KMS), and an in-memory implementation.

A KMS holds master keys and never reveals them: it wraps (encrypts) and unwraps the keys that
encrypt data. The interface is that of ``pyarrow.parquet.encryption.KmsClient``, so a client
written for pyarrow can be used here unchanged, without inheriting from :class:`KmsClient`.
"""

from __future__ import annotations

import base64
import ipaddress
import os
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from typing import Protocol, TypeGuard
from urllib.parse import urlsplit

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from secure_bloom.crypto.aes_gcm import KEY_SIZES, NONCE_SIZE, TAG_SIZE
from secure_bloom.errors import KeyNotFoundError, KeyUnwrapError


class KeyUnwrapper(Protocol):
    """The part of a KMS client needed to read files; :class:`KmsClient` or another class."""

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str, /) -> bytes:
        """See :meth:`KmsClient.unwrap_key`."""


class KeyWrapper(KeyUnwrapper, Protocol):
    """The part of a KMS client needed to write files; :class:`KmsClient` or another class."""

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str, /) -> str | bytes:
        """See :meth:`KmsClient.wrap_key`."""


def can_unwrap(keys: object) -> TypeGuard[KeyUnwrapper]:
    """Whether an object has the method of a KMS client that reading needs."""
    return hasattr(keys, "unwrap_key")


def can_wrap(keys: object) -> TypeGuard[KeyWrapper]:
    """Whether an object has the methods of a KMS client that writing needs."""
    return hasattr(keys, "wrap_key") and can_unwrap(keys)


class KmsClient(ABC):
    """Wraps and unwraps keys with master keys, which are identified by name.

    Files are read by several threads, which may call a client concurrently. A client of a KMS with
    several instances may have the attributes ``kms_instance_id`` and ``kms_instance_url``, strings
    that are written into the key material of footer keys.
    """

    @abstractmethod
    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str | bytes:
        """Encrypt a key with a master key; return text, or ASCII bytes.

        Raises
        ------
        KeyRetrievalError
            Or a subclass, if the master key is unknown or cannot be used.
        """

    @abstractmethod
    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        """Decrypt a key that :meth:`wrap_key` encrypted.

        Raises
        ------
        KeyRetrievalError
            Or a subclass, if the master key is unknown, cannot be used, or is the wrong key.
        """

    def cache_version(self, *, fresh: bool = False) -> Hashable:
        """Return a value that changes when cached keys of this client are no longer valid.

        Called before each use of a cached key, so it must be cheap. A client need not have it:
        then keys stay valid for their lifetime.

        Parameters
        ----------
        fresh : bool
            Whether the value must be up to date, because a new file is about to be written.
        """
        return None


class InMemoryKms(KmsClient):
    """Master keys held in memory, for tests and for keys that come from elsewhere.

    The pickled form of this object contains the keys.

    Wraps like parquet-java's local wrapping: base64 of nonce (12 bytes), AES-GCM ciphertext and
    tag (16 bytes), with the master key's name in UTF-8 as additional authenticated data.

    Parameters
    ----------
    keys : mapping of str to bytes
        Master keys of 16, 24 or 32 bytes, by name.
    """

    def __init__(self, keys: Mapping[str, bytes]):
        for name, key in keys.items():
            check_key(key, name)
        self._keys = {name: bytes(key) for name, key in keys.items()}

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        """See :meth:`KmsClient.wrap_key`."""
        return wrap_locally(self._key(master_key_identifier), key_bytes,
                            master_key_identifier.encode())

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        """See :meth:`KmsClient.unwrap_key`."""
        try:
            return unwrap_locally(self._key(master_key_identifier), wrapped_key,
                                  master_key_identifier.encode())
        except KeyUnwrapError:
            raise KeyUnwrapError("the wrapped key cannot be unwrapped with master key "
                                 f"{master_key_identifier!r}; is this the keyring or KMS that the "
                                 "file was written with?") from None

    def _master_keys(self) -> Mapping[str, bytes]:
        return self._keys

    def _key(self, name: str) -> bytes:
        # No variable holds the keys, because programs that report errors show variables.
        key = self._master_keys().get(name)
        if key is None:
            raise KeyNotFoundError(f"there is no master key named {name!r}; available: "
                                   f"{', '.join(sorted(self._master_keys())) or 'none'}")
        return key

    def __repr__(self) -> str:
        return f"<{type(self).__name__} with keys {sorted(self._keys)}>"


def check_key(key: bytes, name: str) -> None:
    """Raise ValueError unless ``key`` has the length of an AES key."""
    if not isinstance(key, bytes) or len(key) not in KEY_SIZES:
        raise ValueError(f"key {name!r} must be 16, 24 or 32 bytes long")


def wrap_locally(key: bytes, plaintext: bytes, aad: bytes) -> str:
    """Encrypt; return base64 of a new random nonce (12), AES-GCM ciphertext and tag (16)."""
    nonce = os.urandom(NONCE_SIZE)
    return base64.b64encode(nonce + AESGCM(key).encrypt(nonce, plaintext, aad)).decode("ascii")


def unwrap_locally(key: bytes, wrapped: str | bytes, aad: bytes) -> bytes:
    """Decrypt the result of :func:`wrap_locally`.

    Raises KeyUnwrapError if it does not authenticate with this key and AAD, or is not valid base64.
    """
    try:
        cipher = AESGCM(key)
        del key  # programs that report errors show variables
        raw = base64.b64decode(wrapped, validate=True)
        if len(raw) < NONCE_SIZE + TAG_SIZE:
            raise InvalidTag
        return cipher.decrypt(raw[:NONCE_SIZE], raw[NONCE_SIZE:], aad)
    except (ValueError, InvalidTag):
        raise KeyUnwrapError("a wrapped key cannot be unwrapped with this key") from None


def check_endpoint(url: str) -> None:
    """Raise ValueError unless keys can be sent to a URL: HTTPS, or plain HTTP on this machine."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:  # it would quote the URL, which might contain a password
        host = None
    if not host or parts.query or parts.fragment:
        raise ValueError("the address of a KMS must be a URL such as https://host:8200")
    if "@" in parts.netloc:
        raise ValueError("the address of a KMS must not contain a user name or password")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(host)):
        raise ValueError(f"keys would be sent unencrypted to {host!r}: use https, or http "
                         "to a loopback address")


def is_plain_http(url: str) -> bool:
    """Whether a URL is one of plain HTTP, where a proxy would see the keys."""
    return urlsplit(url).scheme == "http"


def is_loopback(host: str) -> bool:
    """Whether a host, as a URL names it, is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

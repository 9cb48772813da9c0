"""Clients of this process: by URI, and that of the environment.

    SECURE_BLOOM_KEYRING    path of a keyring
    SECURE_BLOOM_KMS        URI of a KMS, see :mod:`secure_bloom.keys.uri`

The KMS is opened when a key is first needed, so operations without keys do not depend on it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable
from enum import Enum
from functools import lru_cache
from typing import Any, Final

from secure_bloom.errors import KeyNotFoundError, KeyringError
from secure_bloom.keys.cache import LIFETIME, CachedKms, cached
from secure_bloom.keys.kms import KmsClient
from secure_bloom.keys.uri import absolute_uri, open_kms

KEYRING = "SECURE_BLOOM_KEYRING"
KMS = "SECURE_BLOOM_KMS"


class NoKeys(Enum):
    """The type of :data:`NO_KEYS`."""

    NO_KEYS = "no keys"

    def __repr__(self) -> str:
        return "NO_KEYS"


NO_KEYS: Final = NoKeys.NO_KEYS  #: use no keys, not even those of the environment


def from_environment() -> KmsClient:
    """Open the KMS client that the environment names.

    Raises
    ------
    KeyNotFoundError
        If neither ``SECURE_BLOOM_KEYRING`` nor ``SECURE_BLOOM_KMS`` is set.
    KeyringError
        If both are set, or the value cannot be used.

    Examples
    --------
    >>> kms = from_environment()  # SECURE_BLOOM_KEYRING or SECURE_BLOOM_KMS  # doctest: +SKIP
    """
    kms = environment_kms()
    if kms is None:
        raise KeyNotFoundError(f"neither {KEYRING} nor {KMS} is set")
    return kms.client


def environment_kms(ask: Callable[[str], str] | None = None) -> EnvironmentKms | None:
    """Return the KMS that the environment currently names; None if it names none.

    ``ask`` takes the path of a keyring and returns its passphrase.
    """
    keyring, uri = (os.environ.get(name) or None for name in (KEYRING, KMS))
    if keyring is None and uri is None:
        return None
    # It may be opened later, with another working directory.
    keyring = None if keyring is None else os.path.abspath(os.path.expanduser(keyring))
    uri = None if uri is None else absolute_uri(uri)
    return EnvironmentKms.of(keyring, uri) if ask is None else EnvironmentKms(keyring, uri, ask)


_clients: dict[str, tuple[float, CachedKms]] = {}  # URI -> (time of opening, client)


def cached_client(uri: str) -> CachedKms:
    """Return the client of this process for a KMS URI, which it reopens after ten minutes."""
    since, client = _clients.get(uri, (0.0, None))
    if client is None or time.monotonic() - since > LIFETIME:
        client = cached(open_kms(uri))
        _clients[uri] = time.monotonic(), client
    return client


class EnvironmentKms(KmsClient):
    """A KMS client that is opened when it is first called. Only the settings are pickled.

    ``keyring`` and ``uri`` are the values of the two variables; for ``ask``, see
    :func:`environment_kms`.
    """

    def __init__(self, keyring: str | None, uri: str | None,
                 ask: Callable[[str], str] | None = None):
        self.keyring, self.uri, self._ask = keyring, uri, ask
        self._client: KmsClient | None = None

    @staticmethod
    @lru_cache(maxsize=16)
    def of(keyring: str | None, uri: str | None) -> EnvironmentKms:
        """Return the client of this process for these settings, so that all users share a cache."""
        return EnvironmentKms(keyring, uri)

    @property
    def client(self) -> KmsClient:
        """The opened client.

        Raises KeyringError if it cannot be opened; the next call tries again.
        """
        client = self._client
        if client is None:  # two threads may both open it, which is harmless
            client = self._client = self._opened()
        return client

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str | bytes:
        """See :meth:`KmsClient.wrap_key`."""
        return self.client.wrap_key(key_bytes, master_key_identifier)

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        """See :meth:`KmsClient.unwrap_key`."""
        return self.client.unwrap_key(wrapped_key, master_key_identifier)

    def cache_version(self, *, fresh: bool = False) -> Hashable:
        """See :meth:`KmsClient.cache_version`."""
        version = getattr(self.client, "cache_version", None)  # a client by entry point may lack it
        return None if version is None else version(fresh=fresh)

    def __getattr__(self, name: str) -> Any:
        if name in ("kms_instance_id", "kms_instance_url"):
            return getattr(self.client, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _opened(self) -> KmsClient:
        from secure_bloom.keys.keyring import Keyring
        if self.keyring is not None and self.uri is not None:
            raise KeyringError(f"{KEYRING} and {KMS} are both set: unset one of them, or pass "
                               "keys explicitly")
        name = KEYRING if self.uri is None else KMS
        try:
            if self.uri is not None:
                return open_kms(self.uri)
            assert self.keyring is not None  # one of the two is set
            return Keyring(self.keyring, ask=self._ask)
        except KeyringError as error:
            raise type(error)(f"{error.message} ({name})", file=error.file) from error
        except ValueError as error:
            raise KeyringError(f"{name}: {error}") from None

    def __reduce__(self) -> tuple[object, ...]:
        return EnvironmentKms.of, (self.keyring, self.uri)

    def __repr__(self) -> str:
        return f"<EnvironmentKms by {KEYRING if self.uri is None else KMS}>"


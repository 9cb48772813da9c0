"""Keys in the form that pyarrow accepts: through a KMS client that it calls."""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Callable
from typing import Any
from weakref import ref

import pyarrow.parquet.encryption as pe


def crypto_factory(kms: Any) -> pe.CryptoFactory:
    """Create pyarrow's key tools over any object with ``wrap_key`` and ``unwrap_key``.

    The object lives as long as the tools, or the decryption properties that were made with them.
    """
    return pe.CryptoFactory(_Clients(kms).client)


class _Clients:
    """The KMS of one pair of key tools, and its client.

    pyarrow's tools own this object, but pyarrow never frees a client: each owns itself. So a client
    must not own the keys. When this object is freed, its client serves the next tools.
    """

    def __init__(self, kms: Any):
        self.kms = kms
        self._client: _PyarrowKms | None = None

    def client(self, _: pe.KmsConnectionConfig) -> _PyarrowKms:
        """Return the client; pyarrow calls this."""
        if self._client is None:
            self._client = _idle_client()
            self._client.serve(self)
            _known.append(self._client)
        return self._client


class _PyarrowKms(pe.KmsClient):  # type: ignore[misc]  # pyarrow has no types
    """Adapts any object with ``wrap_key`` and ``unwrap_key`` to pyarrow's interface."""

    def serve(self, clients: _Clients) -> None:
        self._clients = ref(clients)

    @property
    def is_idle(self) -> bool:
        """Whether the tools that it served were freed."""
        return self._clients() is None

    @property
    def _kms(self) -> Any:
        clients = self._clients()
        assert clients is not None  # pyarrow's tools own it
        return clients.kms

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> Any:
        return self._kms.wrap_key(key_bytes, master_key_identifier)

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> Any:
        return self._kms.unwrap_key(wrapped_key, master_key_identifier)


_known: deque[_PyarrowKms] = deque()  # all clients but those that have nobody to serve yet
_LOOKED_AT = 8  # clients that are asked whether they are idle, so that thousands in use cost little


def _idle_client() -> _PyarrowKms:
    """Return a client whose tools were freed, or a new one.

    Clients are asked. A callback of the reference would fail if the collector frees the tools where
    no further call fits onto the stack.
    """
    for _ in range(_LOOKED_AT):
        try:
            client = _known.popleft()  # so no other thread gets it
        except IndexError:
            break
        if client.is_idle:
            return client
        _known.append(client)
    return _PyarrowKms()


class PlaceholderKeys:
    """The data keys of one file, for pyarrow: each wrapped key is a number as a placeholder."""

    def __init__(self) -> None:
        self._keys: list[bytes | Callable[[], bytes]] = []

    def add(self, key: bytes | Callable[[], bytes]) -> str:
        """Return the number of a key, or of a function that returns the key when it is needed."""
        self._keys.append(key)
        return base64.b64encode(b"%d" % (len(self._keys) - 1)).decode("ascii")

    def unwrap_key(self, wrapped_key: str, _: str = "") -> bytes:
        """Return the key with this number."""
        key = self._keys[int(base64.b64decode(wrapped_key))]
        return key if isinstance(key, bytes) else key()

"""Keys in the form that pyarrow accepts: through a KMS client that it calls."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pyarrow.parquet.encryption as pe


def crypto_factory(kms: Any) -> pe.CryptoFactory:
    """Create pyarrow's key tools over any object with ``wrap_key`` and ``unwrap_key``."""
    return pe.CryptoFactory(lambda _: _PyarrowKms(kms))


class _PyarrowKms(pe.KmsClient):  # type: ignore[misc]  # pyarrow has no types
    """Adapts any object with ``wrap_key`` and ``unwrap_key`` to pyarrow's interface."""

    def __init__(self, kms: Any):
        super().__init__()
        self._kms = kms

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> Any:
        return self._kms.wrap_key(key_bytes, master_key_identifier)

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> Any:
        return self._kms.unwrap_key(wrapped_key, master_key_identifier)


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

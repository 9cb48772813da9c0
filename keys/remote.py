"""What the clients of key management services that are reached over a network have in common."""

from __future__ import annotations

import base64
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from secure_bloom.errors import KeyRetrievalError, KmsUnavailableError, UnsupportedError
from secure_bloom.keys.kms import KmsClient
from secure_bloom.keys.per_process import PerProcess

#: The most bytes that are read of one response. A result has a few hundred; an error may be a page.
LONGEST_RESPONSE = 2**20


class RemoteKms(KmsClient):
    """A client with limits, and a connection in each process. Only the settings are pickled.

    Subclasses wrap and unwrap, with errors that need not say where. They set ``_secret`` to what
    was passed as an object and must not be pickled; ``_no_pickle`` is the error's message.
    """

    _secret: Any = None
    _no_pickle: str

    def __init__(self, timeout: float, attempts: int):
        if not timeout > 0:
            raise ValueError(f"timeout must be a positive number of seconds, not {timeout!r}")
        if attempts < 1:
            raise ValueError(f"attempts must be 1 or more, not {attempts!r}")
        self.timeout, self.attempts = timeout, attempts
        self._connection = PerProcess()

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        """See :meth:`KmsClient.wrap_key`."""
        with self._located(master_key_identifier):
            return self._wrap(bytes(key_bytes), master_key_identifier)

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        """See :meth:`KmsClient.unwrap_key`."""
        if isinstance(wrapped_key, bytes):
            wrapped_key = wrapped_key.decode("ascii", "replace")
        with self._located(master_key_identifier):
            return self._unwrap(wrapped_key, master_key_identifier)

    @contextmanager
    def _located(self, name: str) -> Iterator[None]:
        try:
            yield
        except (KeyRetrievalError, UnsupportedError) as error:
            error.message = f"{self._where(name)}: {error.message}"
            error.args = (error.message,)
            raise

    @abstractmethod
    def _wrap(self, key: bytes, name: str) -> str: ...

    @abstractmethod
    def _unwrap(self, wrapped: str, name: str) -> bytes: ...

    @abstractmethod
    def _where(self, name: str) -> str: ...

    def __getstate__(self) -> dict[str, Any]:
        if self._secret is not None:
            raise TypeError(self._no_pickle)
        return self.__dict__


def decoded(text: str | bytes) -> bytes:
    """Return what text in base64 stands for; nothing if it is malformed."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return b""


def no_response(error: Exception, address: str = "endpoint") -> KmsUnavailableError:
    """Return the error for a call that got no response."""
    return KmsUnavailableError(f"no response ({type(error).__name__}); check the network and the "
                               f"{address}, or try again later")

"""What the clients of key management services that are reached over a network have in common."""

from __future__ import annotations

import base64
import contextvars
import os
import random
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from time import sleep
from typing import Any, TypeVar

from secure_bloom.errors import KeyRetrievalError, KmsUnavailableError, UnsupportedError
from secure_bloom.keys.kms import KmsClient

#: The most bytes that are read of one response. A result has a few hundred; an error may be a page.
LONGEST_RESPONSE = 2**20
_LONGEST_PAUSE = 10  # seconds, between two attempts
_LONGEST_ATTEMPT = 10  # timeouts: each is for a part of a response, and a byte is a part

_Result = TypeVar("_Result")


class PerProcess:
    """Makes a value when a process first needs it, and keeps it. Pickled without the value."""

    def __init__(self) -> None:
        self._made: tuple[int, Any] | None = None

    def get(self, make: Callable[[], Any]) -> Any:
        """Return this process's value.

        Two threads may get here at once; each makes its own value, and one is kept.
        """
        made = self._made
        if made is None or made[0] != os.getpid():
            made = self._made = os.getpid(), make()
        return made[1]

    def __reduce__(self) -> tuple[type[PerProcess], tuple[()]]:
        return PerProcess, ()


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
            return self._in_time(lambda: self._wrap(bytes(key_bytes), master_key_identifier))

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        """See :meth:`KmsClient.unwrap_key`."""
        if isinstance(wrapped_key, bytes):
            wrapped_key = wrapped_key.decode("ascii", "replace")
        with self._located(master_key_identifier):
            return self._in_time(lambda: self._unwrap(wrapped_key, master_key_identifier))

    def _in_time(self, call: Callable[[], _Result]) -> _Result:
        """Return the result of a call; raise KmsUnavailableError if it has none after all attempts.

        A server that sends a byte now and then could make it wait for days.
        """
        longest = self.attempts * (_LONGEST_ATTEMPT * self.timeout + 2 * _LONGEST_PAUSE)
        result, run = Future[_Result](), contextvars.copy_context().run

        def work() -> None:
            try:
                result.set_result(run(call))
            except BaseException as error:
                result.set_exception(error)

        threading.Thread(target=work, daemon=True).start()
        if not wait([result], min(longest, threading.TIMEOUT_MAX)).done:
            raise KmsUnavailableError(f"no whole response within {longest:g} seconds; check the "
                                      "address and the network, or try again later")
        return result.result()

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


def until_available(call: Callable[[], _Result], attempts: int) -> _Result:
    """Call a function until it does not raise KmsUnavailableError, at most ``attempts`` times.

    The pauses in between are at most 1, 2, 4, ... 10 seconds long, and at least half of that.
    """
    for pause in (min(2 ** number, _LONGEST_PAUSE) for number in range(attempts - 1)):
        try:
            return call()
        except KmsUnavailableError:
            sleep(pause * random.uniform(0.5, 1))
    return call()

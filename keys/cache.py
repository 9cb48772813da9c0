"""One cache for each KMS client of a process: few calls, whoever asks and from how many threads."""

from __future__ import annotations

import copy
import math
import os
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from contextlib import suppress
from threading import Lock
from weakref import WeakKeyDictionary

from secure_bloom.errors import KeyRetrievalError, KeyUnwrapError, SecureBloomError
from secure_bloom.keys.kms import KEY_SIZES, KmsClient
from secure_bloom.keys.wrapping import KeyEncryptionKey

LIFETIME = 600.0  #: seconds that a key is kept, as parquet-java and pyarrow do


class CachedKms(KmsClient):
    """A KMS client that asks another one, and remembers its answers for a while.

    What a key once opened it opens until the lifetime ends, even if the KMS would refuse by then.
    Safe under threads: those that want the same key wait for one call. A forked process starts
    with an empty cache.

    Parameters
    ----------
    kms : KmsClient or any object with ``wrap_key`` and ``unwrap_key``
    lifetime : float
        Seconds that a key is kept; 0: not at all.

    Attributes
    ----------
    kms_instance_id, kms_instance_url : str, optional
        Those of the client, if it has any.
    """

    def __init__(self, kms, lifetime: float = LIFETIME):
        self._kms = kms
        self.lifetime = lifetime
        self._unwrapped = _Cache()
        self._keks = _Cache()

    def __getattr__(self, name: str):
        if name in ("kms_instance_id", "kms_instance_url"):
            return getattr(self._kms, name)
        raise AttributeError(name)

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        """Wrap through the KMS, every time."""
        wrapped = self._kms.wrap_key(key_bytes, master_key_identifier)
        return wrapped.decode("ascii") if isinstance(wrapped, bytes) else wrapped

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        """Unwrap through the KMS, or from memory.

        Raises
        ------
        KeyRetrievalError
            Whatever the KMS raises; KeyUnwrapError if its answer is no AES key.
        """
        return self._unwrapped.get((wrapped_key, master_key_identifier), self.lifetime,
                                   lambda: self._unwrap(wrapped_key, master_key_identifier))

    def key_encryption_key(self, master_key_id: str, num_bytes: int,
                           lifetime: float = LIFETIME) -> KeyEncryptionKey:
        """A key-encryption key to write with: a new one, or that of the last minutes.

        Parameters
        ----------
        num_bytes : int
            Its length: 16, 24 or 32.
        lifetime : float
            Seconds for which one key serves.
        """
        return self._keks.get((master_key_id, num_bytes), min(lifetime, self.lifetime),
                              lambda: KeyEncryptionKey.make(self, master_key_id, num_bytes))

    def _unwrap(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        key = bytes(self._kms.unwrap_key(wrapped_key, master_key_identifier))
        if len(key) not in KEY_SIZES:
            raise KeyUnwrapError(f"the KMS returned a key of {len(key)} bytes for master key "
                                 f"{master_key_identifier!r}; AES has 16, 24 or 32")
        return key

    def __reduce__(self):
        return CachedKms, (self._kms, self.lifetime)  # never the keys

    def __repr__(self) -> str:
        return f"<CachedKms of {type(self._kms).__name__}>"


class _Cache:
    """Values by key, each made once and kept for a time."""

    def __init__(self):
        self._reset()

    def _reset(self) -> None:
        self._process = os.getpid()
        self._lock = Lock()
        self._entries: dict[Hashable, _Entry] = {}
        self._next_tidying = 0.0

    def get(self, key: Hashable, lifetime: float, make: Callable[[], object]):
        """The value of a key; made where there is none, or none that is young enough."""
        if self._process != os.getpid():  # forked: another thread may have held the lock for ever
            self._reset()
        with self._lock:
            self._tidy(lifetime)
            entry = self._entries.get(key)
            is_new = entry is None or entry.is_over()
            if is_new:
                entry = self._entries[key] = _Entry()
        return self._make(key, entry, lifetime, make) if is_new else entry.wait()

    def _make(self, key: Hashable, entry: _Entry, lifetime: float, make):
        try:
            value = make()
        except BaseException as error:
            with self._lock:
                self._entries.pop(key, None)  # the next one tries again
            entry.fail(error)
            raise
        entry.succeed(value, lifetime)
        return value

    def _tidy(self, lifetime: float) -> None:
        now = time.monotonic()
        if now >= self._next_tidying:
            self._entries = {key: entry for key, entry in self._entries.items()
                             if not entry.is_over()}
            self._next_tidying = now + lifetime


class _Entry:
    """A value that is being made, or made."""

    def __init__(self):
        self._future: Future = Future()
        self._until = math.inf

    def is_over(self) -> bool:
        return time.monotonic() >= self._until

    def succeed(self, value, lifetime: float) -> None:
        self._until = time.monotonic() + lifetime
        self._future.set_result(value)

    def fail(self, error: BaseException) -> None:
        if not isinstance(error, Exception):  # an interrupt is for its own thread
            error = KeyRetrievalError("the call to the KMS was interrupted")
        self._future.set_exception(error)

    def wait(self):
        try:
            return self._future.result()
        except SecureBloomError as error:  # every thread adds its own place to it
            raise copy.copy(error) from error.__cause__


_shared: WeakKeyDictionary = WeakKeyDictionary()  # caches of the clients that are in use
_shared_lock = Lock()
os.register_at_fork(before=_shared_lock.acquire, after_in_parent=_shared_lock.release,
                    after_in_child=_shared_lock.release)


def cached(kms) -> CachedKms:
    """A KMS client with the cache that everyone in this process shares who uses it."""
    if isinstance(kms, CachedKms):
        return kms
    result = CachedKms(kms)
    with suppress(TypeError), _shared_lock:  # it may be that it cannot be hashed or referred to
        # The caches do not refer to the client, so they go when it goes.
        result._unwrapped, result._keks = _shared.setdefault(
            kms, (result._unwrapped, result._keks))
    return result

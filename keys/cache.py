"""One cache for each KMS client of a process, to keep KMS calls few across callers and threads."""

from __future__ import annotations

import copy
import math
import os
import time
import weakref
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from contextlib import suppress
from threading import Lock, local
from typing import Any

from secure_bloom.crypto.aes_gcm import KEY_SIZES
from secure_bloom.errors import NO_KEY, KeyRetrievalError, KeyUnwrapError, SecureBloomError
from secure_bloom.keys.kek import KeyEncryptionKey
from secure_bloom.keys.kms import KeyUnwrapper, KmsClient
from secure_bloom.keys.material import DEFAULT_INSTANCE

LIFETIME = 600.0  #: seconds that a key is cached, as in parquet-java and pyarrow
_TIDY = 60.0  # seconds between removals of expired keys from memory, done by the next call
_MAX_NESTED = 16  # keys that a client needs one for another
_calls = local()  # ``depth``: how many values this thread is making, in all caches


class CachedKms(KmsClient):
    """A KMS client that calls another one and caches its results for a limited time.

    A key that was unwrapped once stays available until its lifetime ends, even if the KMS has since
    revoked access, or until the client's :meth:`~KmsClient.cache_version` changes. Thread-safe:
    threads that need the same key wait for a single call. A forked process starts with an empty
    cache.

    Parameters
    ----------
    kms : KmsClient or any object with ``wrap_key`` and ``unwrap_key``
        Also an attribute.
    lifetime : float
        Seconds that a key is cached; 0 disables caching.
    """

    def __init__(self, kms: KeyUnwrapper, lifetime: float = LIFETIME):
        self.kms: Any = kms  # for reading, unwrap_key alone is enough
        self.lifetime = lifetime
        self._unwrapped = _Cache()
        self._keks = _Cache()

    @property
    def kms_instance_id(self) -> str:
        """The client's ``kms_instance_id``, if it has one."""
        return self._instance("kms_instance_id")

    @property
    def kms_instance_url(self) -> str:
        """The client's ``kms_instance_url``, if it has one."""
        return self._instance("kms_instance_url")

    def _instance(self, name: str) -> str:
        value = getattr(self.kms, name, DEFAULT_INSTANCE)
        if not isinstance(value, str):
            raise TypeError(f"{name} of the KMS client must be a string, not "
                            f"{type(value).__name__}")
        return value

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        """Wrap through the KMS, without caching.

        Raises
        ------
        KeyRetrievalError
            Any error of the KMS, or if its result is not text.
        """
        wrapped = self.kms.wrap_key(key_bytes, master_key_identifier)
        with suppress(UnicodeDecodeError):
            wrapped = wrapped.decode("ascii") if isinstance(wrapped, bytes) else wrapped
        if not isinstance(wrapped, str) or not wrapped:
            raise KeyRetrievalError("the KMS did not return a wrapped key (a string) for master "
                                    f"key {master_key_identifier!r}")
        return wrapped

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        """Unwrap through the KMS, or return the cached key.

        Raises
        ------
        KeyRetrievalError
            Any error of the KMS; KeyUnwrapError if its result is not a valid AES key.
        """
        return self._unwrapped.get((wrapped_key, master_key_identifier), self.lifetime,
                                   lambda: self._unwrap(wrapped_key, master_key_identifier),
                                   self.cache_version())

    def key_encryption_key(self, master_key_id: str, num_bytes: int,
                           lifetime: float = LIFETIME) -> KeyEncryptionKey:
        """Return a key-encryption key for writing: a new one, or one made in the last minutes.

        Parameters
        ----------
        num_bytes : int
            Length of the key: 16, 24 or 32.
        lifetime : float
            Seconds for which one key is reused.
        """
        return self._keks.get((master_key_id, num_bytes), min(lifetime, self.lifetime),
                              lambda: KeyEncryptionKey.make(self, master_key_id, num_bytes),
                              self.cache_version(fresh=True))

    def cache_version(self, *, fresh: bool = False) -> Hashable:
        """See :meth:`KmsClient.cache_version`."""
        version = getattr(self.kms, "cache_version", None)
        return None if version is None else version(fresh=fresh)

    def _unwrap(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        key = self.kms.unwrap_key(wrapped_key, master_key_identifier)
        if not isinstance(key, bytes | bytearray | memoryview) or len(key) not in KEY_SIZES:
            raise KeyUnwrapError("the KMS did not return a valid AES key for master key "
                                 f"{master_key_identifier!r}")
        return bytes(key)

    def __reduce__(self) -> tuple[object, ...]:
        return CachedKms, (self.kms, self.lifetime)  # never the keys

    def __repr__(self) -> str:
        return f"<CachedKms of {type(self.kms).__name__}>"


class RememberingKms(CachedKms):
    """Keys for reading many files: the KMS is asked once for each key that it lacks or denies.

    The answer is valid as long as this object is used, or until the client's
    :meth:`~.KmsClient.cache_version` changes. Keys stay in the cache that all share.
    """

    def __init__(self, kms: CachedKms):
        super().__init__(kms.kms, kms.lifetime)
        self._unwrapped, self._keks = kms._unwrapped, kms._keks
        self._denied: dict[Hashable, KeyRetrievalError] = {}

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        """Unwrap as :class:`CachedKms` does, or raise the error of the first time again."""
        place = wrapped_key, master_key_identifier, self.cache_version()
        known = self._denied.get(place)
        if known is not None:
            raise copy.copy(known) from known.__cause__
        try:
            return super().unwrap_key(wrapped_key, master_key_identifier)
        except NO_KEY as error:
            self._denied[place] = copy.copy(error)  # each file adds its own name
            raise

    def __reduce__(self) -> tuple[object, ...]:
        return RememberingKms, (CachedKms(self.kms, self.lifetime),)  # another process may get keys


class _Cache:
    """Values by key; each is created once and kept for a limited time."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._process = os.getpid()
        self._lock = Lock()
        self._entries: dict[Hashable, _Entry] = {}
        self._next_tidying = 0.0
        self._version: Hashable = None

    def get(self, key: Hashable, lifetime: float, make: Callable[[], object],
            version: Hashable = None) -> Any:
        """Return the value of a key; create it if it is missing or has expired.

        All values are dropped if the version differs from that of the previous call. A client that
        needs another key to unwrap one is called again, but never waits: for itself, or in a circle
        of threads.
        """
        if self._process != os.getpid():  # forked: another thread may have held the lock forever
            self._reset()
        entry: _Entry | None = None
        try:
            with self._lock:
                if version != self._version:
                    self._entries, self._version = {}, version
                self._tidy()
                known = self._entries.get(key)
                if known is None or known.is_over(lifetime):
                    known = self._entries[key] = entry = _Entry(lifetime)
            if entry is not None:
                entry.succeed(_called(make))
        except BaseException as error:
            if entry is not None:
                with self._lock:
                    if self._entries.get(key) is entry:
                        del self._entries[key]  # the next call tries again
                entry.fail(error)
            raise
        if not known.is_made and getattr(_calls, "depth", 0) > 0:
            return _called(make)
        return known.wait()

    def _tidy(self) -> None:
        now = time.monotonic()
        if now >= self._next_tidying:
            self._entries = {key: entry for key, entry in self._entries.items()
                             if not entry.is_over(math.inf)}
            self._next_tidying = now + _TIDY


def _called(make: Callable[[], object]) -> object:
    depth = getattr(_calls, "depth", 0)
    if depth > _MAX_NESTED:
        raise KeyRetrievalError("to unwrap a key, the KMS client needs that key itself, by way of "
                                "this library: call the KMS in its unwrap_key")
    _calls.depth = depth + 1
    try:
        return make()
    finally:
        _calls.depth = depth


class _Entry:
    """A value that exists or is being created."""

    def __init__(self, lifetime: float):
        self._future: Future[Any] = Future()
        self._lifetime = lifetime
        self._made = math.inf

    @property
    def is_made(self) -> bool:
        """Whether the value exists, or could not be made."""
        return self._future.done()

    def is_over(self, lifetime: float) -> bool:
        """Whether the value is older than its own lifetime or the caller's limit."""
        return time.monotonic() - self._made >= min(lifetime, self._lifetime)

    def succeed(self, value: Any) -> None:
        self._made = time.monotonic()
        self._future.set_result(value)

    def fail(self, error: BaseException) -> None:
        if not isinstance(error, Exception):  # an interrupt concerns only its own thread
            error = KeyRetrievalError("the call to the KMS was interrupted")
        if not self._future.done():
            self._future.set_exception(error)

    def wait(self) -> Any:
        try:
            return self._future.result()
        except SecureBloomError as error:  # every thread adds its own location to it
            raise copy.copy(error) from error.__cause__


_shared: dict[int, tuple[_Cache, _Cache]] = {}  # caches of the clients that are in use, by id
_shared_lock = Lock()
os.register_at_fork(before=_shared_lock.acquire, after_in_parent=_shared_lock.release,
                    after_in_child=_shared_lock.release)


def cached(kms: KeyUnwrapper) -> CachedKms:
    """Return a KMS client with the cache shared by all users of the client in this process."""
    if isinstance(kms, CachedKms):
        return kms
    result = CachedKms(kms)
    with suppress(TypeError), _shared_lock:  # the client may not support weak references
        if id(kms) not in _shared:
            weakref.finalize(kms, _shared.pop, id(kms), None)
            _shared[id(kms)] = result._unwrapped, result._keks
        # By identity: clients that compare equal may have different permissions.
        result._unwrapped, result._keks = _shared[id(kms)]
    return result

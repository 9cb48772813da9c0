"""A cache of limited size and age, for several threads."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Generic, TypeVar

from secure_bloom.storage.forks import renewed_in_children

Value = TypeVar("Value")


class Cache(Generic[Value]):
    """Keeps the values that were used last, and only as long as they are used.

    It is pickled without its values: another process reads them itself, also one that is forked.

    Parameters
    ----------
    limit : int
        Of the sizes of all values together: bytes, or a number of values.
    lifetime : float
        Seconds without use after which a value is dropped.
    """

    def __init__(self, limit: int, lifetime: float = math.inf):
        self._limit, self._lifetime = limit, lifetime
        self.renew()
        renewed_in_children(self)

    def renew(self) -> None:
        """Begin without values, and with another lock."""
        self._lock, self._size = Lock(), 0
        self._values: OrderedDict[Hashable, tuple[Value, int, float]] = OrderedDict()

    def get(self, key: Hashable) -> Value | None:
        """Return a value, which counts as its use; or None."""
        with self._lock:
            self._tidy()
            if key not in self._values:
                return None
            value, size, _ = self._values.pop(key)
            self._values[key] = value, size, time.monotonic()
            return value

    def put(self, key: Hashable, value: Value, size: int = 1) -> None:
        """Keep a value of this size, and drop others if there is too much."""
        with self._lock:
            _, old, _ = self._values.pop(key, (None, 0, 0.0))
            self._values[key] = value, size, time.monotonic()
            self._size += size - old
            self._tidy()

    def clear(self) -> None:
        """Drop all values."""
        with self._lock:
            self._values.clear()
            self._size = 0

    def _tidy(self) -> None:
        """Drop the values that were used least recently."""
        oldest = time.monotonic() - self._lifetime
        while self._values and (self._size > self._limit
                                or next(iter(self._values.values()))[2] < oldest):
            _, (_, size, _) = self._values.popitem(last=False)
            self._size -= size

    def __reduce__(self) -> tuple[type[Cache[Value]], tuple[int, float]]:
        return Cache, (self._limit, self._lifetime)

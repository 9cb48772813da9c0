"""A cache of a limited number of bytes, for several threads."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Generic, TypeVar

Value = TypeVar("Value")


class ByteCache(Generic[Value]):
    """Keeps the values that were used last, as long as their sizes together are within a limit.

    It is pickled without its values: another process reads them itself.
    """

    def __init__(self, limit: int):
        self._limit, self._bytes = limit, 0
        self._values: OrderedDict[Hashable, tuple[Value, int]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable) -> Value | None:
        """Return a value, or None."""
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]

    def put(self, key: Hashable, value: Value, size: int) -> None:
        """Keep a value of this many bytes, and drop others if there are too many."""
        with self._lock:
            _, old = self._values.pop(key, (None, 0))
            self._values[key] = value, size
            self._bytes += size - old
            while self._bytes > self._limit:
                _, (_, dropped) = self._values.popitem(last=False)
                self._bytes -= dropped

    def __reduce__(self) -> tuple[type[ByteCache[Value]], tuple[int]]:
        return ByteCache, (self._limit,)

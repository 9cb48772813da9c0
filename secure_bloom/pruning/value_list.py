"""The values of ``in``: maybe a million, and asked for in thousands of row groups."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import RLock
from typing import Any, TypeVar

_FEW = 8  # values that are looked up faster one by one

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


class ValueList(list[Any]):
    """Values that do not change, with what has been derived from them for a type of column."""

    def __init__(self, values: Any = ()):
        super().__init__(values)
        self._derived: dict[tuple[Any, Any], Any] = {}
        self._lock = RLock()  # one derivation may use another

    def derived(self, derive: Callable[[ValueList, Key], Result], key: Key) -> Result:
        """Return the result of a function for the values and a key; it is called once per key."""
        with self._lock:
            if (derive, key) not in self._derived:
                self._derived[derive, key] = derive(self, key)
            result: Result = self._derived[derive, key]
            return result

    @property
    def is_long(self) -> bool:
        """Whether the values are better looked up together."""
        return len(self) > _FEW

    def __repr__(self) -> str:
        return f"<ValueList of {len(self):,}>"  # never the values

    def __reduce__(self) -> tuple[type[ValueList], tuple[list[Any]]]:
        return ValueList, (list(self),)


def without_nulls(values: ValueList, _key: None) -> ValueList:
    """Return the values that are not None; to be called by :meth:`ValueList.derived`."""
    return ValueList(value for value in values if value is not None) if None in values else values


def as_value_list(values: list[Any]) -> ValueList:
    """Return the values as a ValueList, which keeps nothing if it is created here."""
    return values if isinstance(values, ValueList) else ValueList(values)

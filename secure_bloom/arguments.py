"""Names in arguments: those of arguments that do not exist, and those of columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import wraps
from inspect import CO_VARKEYWORDS
from types import FunctionType
from typing import Any, TypeVar

from secure_bloom.display import choices
from secure_bloom.errors import ArgumentError, RenamedError

_T = TypeVar("_T")

#: old names, as far as a function has the new one
_RENAMED = {"kms": "keys", "keyring": "keys", "index": "index_columns", "where": "path",
            "folder": "path", "path": "source", "dataset": "source"}


def unknown_argument(function: Callable[..., Any], name: str,
                     known: Collection[str]) -> ArgumentError | RenamedError:
    """Return the error for an argument that a function does not have."""
    place, new = function.__qualname__.removesuffix(".__init__"), _RENAMED.get(name)
    if new in known:
        return RenamedError(f"{place}: argument {name} is called {new} now")
    return ArgumentError(f"{place}: there is no argument {name!r}"
                         + choices(name, known, "arguments"))


def checks_arguments(what: _T) -> _T:
    """Return a function that raises our error for the name of an argument that does not exist.

    Of a class, all public methods, and ``__init__``, are made to do so. Functions that take any
    names, and other objects, are returned as they are.
    """
    if isinstance(what, type):
        for name, member in list(vars(what).items()):
            if name == "__init__" or not name.startswith("_"):
                setattr(what, name, checks_arguments(member))
    elif isinstance(what, classmethod | staticmethod):
        return type(what)(checks_arguments(what.__func__))
    elif isinstance(what, FunctionType) and not hasattr(what, "__wrapped__") \
            and not what.__code__.co_flags & CO_VARKEYWORDS:
        return _checking(what)  # type: ignore[return-value]
    return what


def _checking(function: FunctionType) -> Callable[..., Any]:
    code = function.__code__
    names = [name for name in code.co_varnames[:code.co_argcount + code.co_kwonlyargcount]
             if name not in ("self", "cls")]
    known = frozenset(names)

    @wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if not known.issuperset(kwargs):
            unknown = next(name for name in kwargs if name not in known)
            raise unknown_argument(function, unknown, names)
        return function(*args, **kwargs)

    return checked


def names_of_columns(columns: str | Iterable[str]) -> list[str]:
    """Return the names of columns, each once. Raises ValueError if there are none."""
    found = list(dict.fromkeys([columns] if isinstance(columns, str) else columns))
    if not found:
        raise ValueError("columns must name at least one column")
    return found

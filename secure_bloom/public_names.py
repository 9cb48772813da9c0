"""Public names of a package, which are imported when they are first used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Collection, Mapping


def public_names(package: str, home: Mapping[str, str], packages: Collection[str] = ()) \
        -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return the functions ``__getattr__`` and ``__dir__`` of a package.

    ``home`` says in which module each name is. What is called through such a name checks the names
    of its arguments, see :func:`.checks_arguments`.
    """
    made: dict[str, object] = {}  # threads that ask at the same time get the same, as pickle needs

    def get(name: str) -> object:
        if name in packages:
            return importlib.import_module(f"{package}.{name}")
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        from secure_bloom.arguments import checks_arguments
        module = importlib.import_module(home[name])
        value = made.setdefault(name, checks_arguments(getattr(module, name)))
        for place in (module, sys.modules[package]):  # pickle finds it in its module
            setattr(place, name, value)
        return value

    def names() -> list[str]:
        return sorted({*home, *packages, *(name for name in vars(sys.modules[package])
                                           if name.startswith("__"))})

    return get, names

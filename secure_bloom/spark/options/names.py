"""Column names: matched exactly, otherwise ignoring case, as everywhere in ``secure_parquet``."""

from __future__ import annotations

from collections.abc import Iterable

from secure_bloom.errors import ColumnError


def same_names(name: str, names: Iterable[str], *, keeps_case: bool = True) -> list[str]:
    """Return the matching names: the exact match, or else all that differ only in case.

    Option names do not keep their case, so for them (``keeps_case=False``) an exact match would be
    a guess.
    """
    names = list(names)
    if keeps_case and name in names:
        return [name]
    return [other for other in names if other.lower() == name.lower()]


def same_path(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether two paths are equal, ignoring case."""
    return [name.lower() for name in one] == [name.lower() for name in other]


def find_name(name: str, names: Iterable[str]) -> str | None:
    """Return the matching name; None if there is none.

    Raises ColumnError if several names differ from it only in case.
    """
    found = same_names(name, names)
    if len(found) > 1:
        raise ColumnError(f"it may mean {' or '.join(found)}, which differ in case only; name one "
                          "of them in .schema(...)", column=name)
    return found[0] if found else None

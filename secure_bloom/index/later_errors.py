"""An index that cannot be opened does not keep the other indexes of its table from being changed.

Anyone who can write to the table can put one there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from secure_bloom.errors import FileError, UnsupportedError
from secure_bloom.index.folder import IndexFolder

_Done = TypeVar("_Done")


class LaterErrors:
    """Errors of single indexes, of which the first is raised after the others were changed."""

    def __init__(self) -> None:
        self._first: FileError | UnsupportedError | None = None

    @contextmanager
    def later(self) -> Iterator[None]:
        """A block whose error, if an index is damaged or its folder a link, is raised later."""
        try:
            yield
        except (FileError, UnsupportedError) as error:
            self._first = self._first or error

    def raise_now(self) -> None:
        """Raise the first error, if there is one."""
        if self._first is not None:
            raise self._first


def change_each(folders: Iterable[IndexFolder],
                change: Callable[[IndexFolder], _Done]) -> list[_Done]:
    """Return what a change of each index returns; errors of damaged ones are raised last."""
    errors, done = LaterErrors(), []
    for folder in folders:
        with errors.later():
            done.append(change(folder))
    errors.raise_now()
    return done

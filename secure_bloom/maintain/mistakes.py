"""Mistakes in the arguments that affect every file of a folder, to be reported once."""

from __future__ import annotations

from threading import Lock
from typing import Any

from secure_bloom.errors import ColumnError, UnknownColumnError


class Mistakes:
    """Files that lack a requested column, or whose column does not support the operation.

    Attributes
    ----------
    files : set of str
    """

    def __init__(self) -> None:
        self.files: set[str] = set()
        self._first: ColumnError | None = None
        self._is_same = True
        self._lock = Lock()

    def add(self, file: str, error: ColumnError) -> None:
        """Record the mistake that a file revealed."""
        with self._lock:
            self.files.add(file)
            self._first = self._first or error
            self._is_same &= _kind(error) == _kind(self._first)

    def error(self, others: int) -> ColumnError | None:
        """The error to report once; None unless all files have the same mistake.

        Parameters
        ----------
        others : int
            Number of files that could not be read.
        """
        if self._first is None or not self._is_same:
            return None
        number, readable = f"{len(self.files):,}", " readable" if others else ""
        if len(self.files) == 1:
            message = self._first.message
        elif isinstance(self._first, UnknownColumnError):
            similar = self._first.similar
            message = f"none of the {number}{readable} files has such a column" \
                + (f"; did you mean {similar!r}?" if similar is not None else "")
        else:
            message = f"{self._first.message} (in all {number}{readable} files)"
        return type(self._first)(message, column=self._first.column)


def _kind(error: ColumnError) -> tuple[Any, ...]:
    """What makes two mistakes equal: unknown columns are one mistake, whatever else a file has."""
    is_unknown = isinstance(error, UnknownColumnError)
    return type(error), error.column, None if is_unknown else error.message

"""Process many files in threads, with only a few of them in memory, and an outcome for each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import Generic, TypeAlias, TypeVar

from secure_bloom.display import ChangeResult
from secure_bloom.errors import (
    KMS_FAULTS,
    MissingExtraError,
    OperationInterrupted,
    SecureBloomError,
    error_location,
)
from secure_bloom.storage.threads import in_threads

#: errors that say nothing about a file: the next file would fail likewise
NO_FAULT_OF_A_FILE = (*KMS_FAULTS, MissingExtraError)

Outcome = TypeVar("Outcome")
Advance: TypeAlias = Callable[[float], None]


def each_file(work: Callable[[str], Outcome], paths: Sequence[str], files_at_once: int | None,
              advance: Advance | None) -> Iterator[tuple[str, Outcome]]:
    """Yield each path with the result of a function for it, in order of completion.

    ``advance`` is called with the completed fraction. By default, one file per core at once.
    """
    done = in_threads(lambda path: (path, work(path)), paths, files_at_once or os.cpu_count() or 1)
    for number, outcome in enumerate(done, 1):
        yield outcome
        if advance is not None:
            advance(number / len(paths))


class ManyFiles(Generic[Outcome]):
    """An operation on many files, whose outcomes so far remain available if it ends early.

    ``work(path, advance)`` returns what was changed in one file, or None. If it raises
    SecureBloomError or OSError, this file has failed, and the others continue. Every other
    exception ends the operation, and so do KMS faults and missing extras. ``advance`` is called
    with the completed fraction of the operation, in any thread but one at a time.
    """

    def __init__(self, work: Callable[[str, Advance], Outcome | None], paths: Sequence[str],
                 advance: Advance | None = None):
        self._work, self._paths, self._advance = work, paths, advance or (lambda fraction: None)
        self._changed: dict[str, Outcome] = {}
        self._failed: dict[str, str] = {}
        self._num_done, self._told, self._is_stopped = 0, 0.0, False
        self._fractions: dict[str, float] = {}  # of files in progress, by path
        self._lock = Lock()

    def run(self, files_at_once: int) -> None:
        """Process the files. When something ends the operation, only files in progress go on."""
        for _ in in_threads(self._try, self._paths, files_at_once):
            pass

    def outcomes(self) -> tuple[list[Outcome], int, dict[str, str]]:
        """Return, in the order of the paths, changes, number of unchanged files, and failures."""
        return ([self._changed[path] for path in self._paths if path in self._changed],
                self._num_done - len(self._changed) - len(self._failed),
                {path: self._failed[path] for path in self._paths if path in self._failed})

    def _try(self, path: str) -> None:
        if self._is_stopped:
            return
        try:
            with error_location(file=path):
                change = self._work(path, partial(self._tell, path))
            if change is not None:
                self._changed[path] = change
        except BaseException as error:
            if not isinstance(error, SecureBloomError | OSError) \
                    or isinstance(error, NO_FAULT_OF_A_FILE):
                self._is_stopped = True
                raise
            if isinstance(error, SecureBloomError):
                error.file = None  # the message is shown with the file already
            self._failed[path] = str(error)
        self._tell(path)

    def _tell(self, path: str, fraction: float | None = None) -> None:
        """Report the progress of a file; None: it is done."""
        with self._lock:
            if fraction is None:
                self._num_done += 1
                self._fractions.pop(path, None)
            else:
                self._fractions[path] = fraction
            done = (self._num_done + sum(self._fractions.values())) / len(self._paths)
            self._told = max(self._told, done)  # rounding must not move it back
            self._advance(self._told)


@contextmanager
def result_on_error(result: Callable[[], ChangeResult]) -> Iterator[None]:
    """Add the result so far to an error of ours or an interruption that passes through."""
    try:
        yield
    except SecureBloomError as error:
        error.result = result()
        raise
    except KeyboardInterrupt:
        raise OperationInterrupted(result()) from None

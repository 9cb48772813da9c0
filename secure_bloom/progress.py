"""Progress of long operations, on standard error of a terminal or in a notebook."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from secure_bloom.display import is_terminal
from secure_bloom.notebook import shell

Advance: TypeAlias = Callable[[float], None]

_PATIENCE = 2.0  # seconds after which progress is shown
_STEPS = 1000


@contextmanager
def shown_progress(label: str, progress: bool | None, advance: Advance | None = None) \
        -> Iterator[Advance]:
    """Yield a function that takes the completed fraction, and shows it as a bar.

    Parameters
    ----------
    label : str
        What is done.
    progress : bool or None
        None: if it takes more than two seconds, standard error is a terminal or this is a
        notebook, and the caller does not follow the progress. True: always. False: never.
    advance : callable, optional
        Called with the fraction, too.
    """
    if progress is None:
        progress = advance is None and (is_terminal(sys.stderr) or shell() is not None)
        patience = _PATIENCE
    else:
        patience = 0.0
    if not progress:
        yield advance or (lambda fraction: None)
        return
    bar = _Bar(label, patience)

    def both(fraction: float) -> None:
        bar.advance(fraction)
        if advance is not None:
            advance(fraction)

    try:
        yield both
    finally:
        bar.close()


class _Bar:
    """A bar that appears when an operation takes long: of tqdm if there is one, else a percentage.

    It never goes back, although an operation may start again.
    """

    def __init__(self, label: str, patience: float):
        self._label, self._shown_from = label, time.monotonic() + patience
        self._done = 0
        self._bar: Any = None
        self._last = 0.0

    def advance(self, fraction: float) -> None:
        done = max(self._done, min(_STEPS, round(fraction * _STEPS)))
        moved, self._done = done - self._done, done
        now = time.monotonic()
        if now < self._shown_from:
            return
        if self._bar is None:
            self._bar = _tqdm(self._label, done) or self
        elif self._bar is not self:
            self._bar.update(moved)
        if self._bar is self and (now - self._last > 0.1 or done == _STEPS):
            self._last = now
            self._print(f"\r{self._label}: {done * 100 // _STEPS:3} %")

    def close(self) -> None:
        if self._bar is self:
            self._print("\n")
        elif self._bar is not None:
            self._bar.close()

    @staticmethod
    def _print(text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


def _tqdm(label: str, done: int) -> Any:
    try:
        import warnings

        from tqdm.auto import tqdm
        with warnings.catch_warnings():  # that a notebook has no widgets: then it prints text
            warnings.simplefilter("ignore")
            return tqdm(desc=label, total=_STEPS, initial=done, leave=False,
                        bar_format="{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining}")
    except ImportError:
        return None

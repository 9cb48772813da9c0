"""Short tracebacks of this package's errors in IPython, and whether progress can be shown.

The frames inside the package, and the errors that it has caught, say nothing to users. They are
shown if ``SECURE_BLOOM_TRACEBACK`` is ``full``.
"""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import Any

from secure_bloom.errors import SecureBloomError

TRACEBACK = "SECURE_BLOOM_TRACEBACK"


def shell() -> Any:
    """Return the running shell of IPython; None outside of it. Imports nothing."""
    module = sys.modules.get("IPython")
    get = getattr(module, "get_ipython", None)
    return None if get is None else get()


def shorten_tracebacks() -> None:
    """Let IPython show only the frames outside of this package, unless it is to show all.

    A handler that the user has set stays.
    """
    found = shell()
    if found is not None and not getattr(found, "custom_exceptions", ()):
        found.set_custom_exc((SecureBloomError,), _show)


def _show(found: Any, kind: type[BaseException], error: BaseException,
          traceback: TracebackType | None, tb_offset: int | None = None) -> None:
    if os.environ.get(TRACEBACK) == "full":
        found.showtraceback((kind, error, traceback), tb_offset=tb_offset)
        return
    cause, context, suppressed = error.__cause__, error.__context__, error.__suppress_context__
    below = _below(error)
    while below is not None and _is_ours_first(below):
        below = _below(below)
    if below is not _below(error):
        error.__cause__, error.__context__ = None, below
        error.__suppress_context__ = below is None
    try:
        found.showtraceback((kind, error, outside(traceback)), tb_offset=tb_offset)
    finally:
        error.__cause__, error.__context__ = cause, context
        error.__suppress_context__ = suppressed


def _below(error: BaseException) -> BaseException | None:
    """Return the error that Python shows above this one."""
    return error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _is_ours_first(error: BaseException) -> bool:
    """Whether this package has caught an error: then its traceback begins here."""
    begin = error.__traceback__
    return begin is None or _is_ours(begin.tb_frame.f_globals.get("__name__", ""))


def outside(traceback: TracebackType | None) -> TracebackType | None:
    """Return the part of a traceback before the first frame of this package; all if it is empty."""
    frames = []
    for frame in _frames(traceback):
        if _is_ours(frame.tb_frame.f_globals.get("__name__", "")):
            break
        frames.append(frame)
    found = None
    for frame in reversed(frames):
        found = TracebackType(found, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return traceback if found is None else found


def _frames(traceback: TracebackType | None) -> list[TracebackType]:
    found = []
    while traceback is not None:
        found.append(traceback)
        traceback = traceback.tb_next
    return found


def _is_ours(module: str) -> bool:
    return module == "secure_bloom" or module.startswith("secure_bloom.")

"""Names and results as shown to users: short, on one line, and harmless.

Column names come from files, so they may be very long, or contain terminal escapes or HTML.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import fields
from functools import lru_cache
from itertools import islice
from typing import Any, ClassVar

MAX_NAME = 100  #: maximum number of characters of a displayed name
_MAX_PATH = 4096
_MAX_LINE = 116
_MAX_ROWS = 20
_ELLIPSIS = "…"
_COMPARED = 200  # names that are compared with an unknown one
#: in URIs; a secret key may have slashes, which should have been percent-encoded
_CREDENTIALS = re.compile(r"(?<=://)[^/\s:@]*:(?:[^/\s]*@|(?!\d+(?:/|$))\S*@)")


def shown(text: str, limit: int = MAX_NAME) -> str:
    """Return a text without control characters, and with its middle elided if it is too long."""
    if len(text) <= limit and text.isprintable():
        return text
    text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in _shortened(text, limit))
    return _shortened(text, limit)


def shown_path(path: str) -> str:
    """Return the path of a file in one line: its name must not add lines to a result."""
    return shown(path, _MAX_PATH)


def _shortened(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    end = limit // 3
    return text[:limit - end - 1] + _ELLIPSIS + text[len(text) - end:]


def without_credentials(text: str) -> str:
    """Remove user names and passwords from URIs in a text."""
    return _CREDENTIALS.sub("", text)


def is_terminal(stream: Any) -> bool:
    """Whether a standard stream is a terminal. Programs may close, remove or replace it."""
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):  # none, one that can only be written to, a closed one
        return False


def count(number: int, what: str) -> str:
    """Format a number with its noun: ``1 file``, ``1,234 files``."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def names(found: Iterable[str], limit: int = 3) -> str:
    """List the first few names, and the number of remaining ones."""
    found = list(found)
    listed = ", ".join(shown(name) for name in found[:limit])
    return listed + (f" and {len(found) - limit:,} more" if len(found) > limit else "")


def listed(known: Iterable[str]) -> str:
    """List the known names, for a message about an unknown name."""
    return names(known, 20)


def choices(name: str, known: Iterable[str], what: str = "existing columns") -> str:
    """Return the end of a message about an unknown name: what it may mean, and the known names."""
    known = list(known)
    similar = similar_name(name, known)
    advice = f" (did you mean {similar!r}?)" if similar is not None else ""
    return f"{advice}; {what}: {listed(known)}"


def similar_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that may be meant; None if none is similar."""
    if len(name) > MAX_NAME:
        return None
    return _similar(name, tuple(one for one in islice(known, _COMPARED) if len(one) <= MAX_NAME))


@lru_cache(maxsize=16)  # files of one folder have the same columns
def _similar(name: str, known: tuple[str, ...]) -> str | None:
    import difflib
    lower = {one.lower(): one for one in reversed(known)}
    found = difflib.get_close_matches(name.lower(), lower, 1, 0.6)
    return lower[found[0]] if found else None


class Summarized:
    """Base of results that have a short ``repr``, and a small table in notebooks."""

    __slots__ = ()

    def _headline(self) -> str:
        """Return the most important facts in one line."""
        raise NotImplementedError

    def _rows(self) -> tuple[Sequence[str], Iterable[Sequence[object]]]:
        """Return a header, and the rows below it."""
        return (), ()

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"<{name} {shown(self._headline(), _MAX_LINE - len(name))}>"

    def _repr_html_(self) -> str:
        return html(f"{type(self).__name__} {self._headline()}", *self._rows())


class Result(Summarized):
    """Base of what a function returns: a dataclass with a short ``repr``, and a form for JSON."""

    __slots__ = ()
    _derived: ClassVar[Sequence[str]] = ()  # properties that are in the JSON form, too

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a dictionary for JSON."""
        return {name: _plain(getattr(self, name)) for name in (*self._derived, *self._names())}

    def _headline(self) -> str:
        return ", ".join(f"{name} {getattr(self, name)}" for name in self._names())

    def _names(self) -> list[str]:
        this: Any = self
        return [field.name for field in fields(this) if not field.name.startswith("_")]


def _plain(value: Any) -> Any:
    if isinstance(value, Result):
        return value.to_dict()
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return list(map(_plain, value))
    return str(value) if isinstance(value, Exception) else value


class ChangeResult(Result):
    """Base of what an operation did to many files: dataclasses with these attributes.

    Attributes
    ----------
    unchanged : int
        Files that needed no change.
    failed : dict of str to str
        Files that could not be changed, and why. They are unmodified.
    dry_run : bool
        Whether this was a dry run, which changes nothing.
    """

    unchanged: int
    failed: dict[str, str]
    dry_run: bool

    _derived: ClassVar[Sequence[str]] = ("ok",)

    @property
    def ok(self) -> bool:
        """Whether no file failed."""
        return not self.failed

    def _counts(self, changed: int, to_do: str, done: str) -> str:
        return (f"{count(changed, 'file')} {to_do if self.dry_run else done}, "
                f"{self.unchanged:,} unchanged, {len(self.failed):,} failed")


def html(title: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a title, and a table of the first rows, for a notebook."""
    lines: list[str] = []
    more = 0
    for row in rows:
        if len(lines) < _MAX_ROWS:
            lines.append(_line("td", row))
        else:
            more += 1
    table = f"<table><thead>{_line('th', header)}</thead><tbody>{''.join(lines)}</tbody></table>" \
        if lines else ""
    note = f"<p>and {more:,} more</p>" if more else ""
    return f"<div><p>{_cell(title, 2 * MAX_NAME)}</p>{table}{note}</div>"


def _line(tag: str, cells: Sequence[object]) -> str:
    return f"<tr>{''.join(f'<{tag}>{_cell(cell)}</{tag}>' for cell in cells)}</tr>"


def _cell(value: object, limit: int = MAX_NAME) -> str:
    from html import escape  # which a lookup does not need
    return escape(shown("" if value is None else str(value), limit))


def warn(warning: Warning) -> None:
    """Issue a warning, at the line outside of this package from which it was reached."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("secure_bloom."):
        frame, level = frame.f_back, level + 1
    warnings.warn(warning, stacklevel=level)

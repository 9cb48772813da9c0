"""What people see of names and results: short, on one line, and harmless.

Names of columns come from files, so they may be as long as a book, steer a terminal, or hold HTML.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

MAX_NAME = 100  #: characters of a name that are shown
_MAX_LINE = 116
_MAX_ROWS = 20
_ELLIPSIS = "…"


def shown(text: str, limit: int = MAX_NAME) -> str:
    """A text without control characters, and without its middle where it is too long."""
    if len(text) <= limit and text.isprintable():
        return text
    text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in _shortened(text, limit))
    return _shortened(text, limit)


def _shortened(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    end = limit // 3
    return text[:limit - end - 1] + _ELLIPSIS + text[len(text) - end:]


def count(number: int, what: str) -> str:
    """``1 file``, ``1,234 files``."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def names(found: Iterable[str], limit: int = 3) -> str:
    """The first ones of some names, and how many there are besides."""
    found = list(found)
    listed = ", ".join(shown(name) for name in found[:limit])
    return listed + (f" and {len(found) - limit:,} more" if len(found) > limit else "")


def listed(known: Iterable[str]) -> str:
    """The names that there are, for a message about one that is not among them."""
    return names(known, 20)


class Summarized:
    """Base of results that have a short ``repr``, and a small table in notebooks."""

    __slots__ = ()

    def _headline(self) -> str:
        """What matters most, in one line."""
        raise NotImplementedError

    def _rows(self) -> tuple[Sequence[str], Iterable[Sequence[object]]]:
        """A header, and rows below it."""
        return (), ()

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"<{name} {shown(self._headline(), _MAX_LINE - len(name))}>"

    def _repr_html_(self) -> str:
        return _html(f"{type(self).__name__} {self._headline()}", *self._rows())


def _html(title: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
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
    return escape(shown("" if value is None else str(value), limit))

"""Tables and lists as text, with only the first of many lines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import islice

from secure_bloom.display import count, shown, shown_path

SHOWN = 20  #: lines of a table or list
_NAMED = 3  # files listed with the same message
_MAX_CELL = 200  # characters


def render_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Render left-aligned columns under a ruled header."""
    header = [shown(name, _MAX_CELL) for name in header]
    rows = [[shown(str(cell), _MAX_CELL) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
             for row in [header, ["─" * width for width in widths], *rows]]
    return "\n".join(f"  {line.rstrip()}" for line in lines)


def by_message(messages: Iterable[tuple[str, str]]) -> list[str]:
    """Group (file, message) pairs into one line per message, with its first files."""
    files: dict[str, list[str]] = defaultdict(list)
    for file, message in messages:
        files[message].append(file)
    lines = [f"{list_files(with_it)}: {message}"
             for message, with_it in islice(files.items(), SHOWN)]
    return lines + and_more(len(files) - SHOWN, "such messages: see --json")


def list_files(files: list[str]) -> str:
    """Name a file, or the number of files and the first of them."""
    if len(files) == 1:
        return shown_path(files[0])
    more = len(files) - _NAMED
    return f"{count(len(files), 'file')} ({', '.join(map(shown_path, files[:_NAMED]))}" \
        + (f" and {count(more, 'more file')}: see --json)" if more > 0 else ")")


def and_more(number: int, what: str) -> list[str]:
    """Return a line about what is left out, if anything is."""
    return [f"... and {number:,} more{what and ' '}{what}"] if number > 0 else []

"""Values of columns in the texts of logs and metadata: conditions, constraints, properties, tags.

Nothing says which words of a text are values of a column. So a text counts if it has a literal and
the name of the column, or if the name of the column is the key of a value.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator
from typing import Any, NamedTuple

from secure_bloom.storage.small_files import parse_json

_ATTRIBUTE = re.compile(r"(?<![\w.])[\w.]+#\d+L?")  # Spark's name of a column in a condition
_NO_LITERALS = re.compile(r"\b(?:and|or|not|in|is|null|isnull|isnotnull|true|false)\b", re.I)
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_NUMBER = re.compile(r"(?<!\w)\d")
_WORD = re.compile(r"\w")
#: as in CHECK (length(ssn) = 11)
_LENGTH = re.compile(r"\b(?:\w*length|size|cardinality)\s*\([^()]*\)\s*[<>=!]+\s*\d+", re.I)
#: properties whose values are names, such as those of columns and keys
_NAMES = re.compile(r"parquet\.encryption\..*|secure_bloom\..*|delta\.dataSkippingStatsColumns"
                    r"|encryption\..*", re.DOTALL)
_MAPS = frozenset({"tags", "configuration", "options", "userMetadata", "properties", "summary"})
_DEFAULTS = ("CURRENT_DEFAULT", "EXISTS_DEFAULT", "initial-default", "write-default",
             "delta.generationExpression")
_MAX_DEPTH = 8  # of JSON in texts of JSON
_MAX_FIELDS = 100  # around each other
_MAX_VALUES = 200_000, 2_000_000  # lists and objects of a text, and commas


class Text(NamedTuple):
    """A text with a literal.

    Attributes
    ----------
    text : str
    keys : tuple of str
        What it is a value of: names of columns, or other keys.
    is_condition : bool
        Whether it is the condition of a command.
    """

    text: str
    keys: tuple[str, ...]
    is_condition: bool


class Mentions:
    """Finds the names of columns in texts.

    Parameters
    ----------
    columns : iterable of str
        Dotted paths. A text mentions a column with the name before the first dot, because nested
        names are written in several ways.
    """

    def __init__(self, columns: Iterable[str]):
        self._columns: dict[str, list[str]] = {}
        for column in columns:
            self._columns.setdefault(column.split(".")[0].lower(), []).append(column)
        self._patterns = {name: re.compile(rf"(?<!\w){re.escape(name)}(?!\w)", re.I)
                          for name in self._columns}

    def of(self, text: Text) -> Iterator[str]:
        """Yield the columns that a text mentions, or is the value of."""
        lower, keys = text.text.lower(), {key.split(".")[0].lower() for key in text.keys}
        for name, pattern in self._patterns.items():
            if name in keys or (name in lower and pattern.search(text.text)
                               and has_literal(text.text, pattern)):
                yield from self._columns[name]


def texts_with_literals(content: Any, leave_out: Container[str] = ()) -> Iterator[Text]:
    """Yield the texts with a literal anywhere in JSON, also in JSON that is itself a text.

    Parameters
    ----------
    content : object
        Parsed JSON.
    leave_out : container of str
        Keys whose values are not searched.
    """
    # What waits: the content, its keys, whether the keys of its values may be names of columns,
    # whether it is a condition, in how many texts it is, and the names of the fields of a schema
    # around it. A stack: it may be nested deeply.
    waiting: list[tuple[Any, tuple[str, ...], bool, bool, int, tuple[str, ...]]] \
        = [(content, (), False, False, 0, ())]
    while waiting:
        value, keys, is_map, is_condition, depth, fields = waiting.pop()
        if isinstance(value, dict):
            if isinstance(value.get("name"), str) and "type" in value and len(fields) < _MAX_FIELDS:
                fields = (*fields, value["name"])
            yield from _default_values(value, fields)
            for name, below in value.items():
                if name in leave_out or (is_map and _NAMES.fullmatch(str(name))):
                    continue
                waiting.append((below, (*keys, name) if is_map else (), is_map or name in _MAPS,
                                is_condition or "predicate" in str(name).lower(), depth, fields))
        elif isinstance(value, list):
            waiting += [(_as_dict(one), keys, is_map, is_condition, depth, fields)
                        for one in value]
        elif isinstance(value, str):
            parsed = _parsed(value) if depth < _MAX_DEPTH else None
            if parsed is not None:
                waiting.append((parsed, keys, is_map, is_condition, depth + 1, fields))
            elif has_literal(value) or (keys and value):
                yield Text(value, keys, is_condition)
        elif keys and value is not None and not isinstance(value, bool):
            yield Text("", keys, is_condition)


def _as_dict(value: Any) -> Any:
    """Return an entry of a map, which checkpoints return as a pair, as a dictionary."""
    return {value[0]: value[1]} if isinstance(value, tuple) else value


def _default_values(field: dict[str, Any], names: tuple[str, ...]) -> Iterator[Text]:
    """Yield what a field of a schema is filled with.

    ``names`` are that of the field, and of the fields around it.
    """
    metadata = field.get("metadata")
    own = {**(metadata if isinstance(metadata, dict) else {}), **field} if names else {}
    for default in _DEFAULTS:
        value = own.get(default)
        if value is not None and (not isinstance(value, str) or "default" in default
                                  or has_literal(value)):
            yield Text("", names, False)


def parse_text(text: str) -> Any:
    """Parse a text of JSON within a log; see :func:`.parse_json`."""
    return parse_json(text.encode("utf-8", "surrogatepass"), *_MAX_VALUES)


def _parsed(text: str) -> dict[str, Any] | list[Any] | None:
    if text[:1] not in ("{", "["):
        return None
    try:
        found = parse_text(text)
    except ValueError:
        return None
    return found if isinstance(found, dict | list) else None


def has_literal(text: str, column: re.Pattern[str] | None = None) -> bool:
    """Whether a text, such as a condition of Spark or delta-rs, contains anything but columns.

    ``column`` is the pattern of a column whose name is not a literal, even in quotes.
    """
    rest, attributes = _ATTRIBUTE.subn(" ", _LENGTH.sub(" ", text))
    rest = rest if column is None else column.sub(" ", rest)
    if attributes:
        return _WORD.search(_NO_LITERALS.sub(" ", rest)) is not None
    return _NUMBER.search(rest) is not None \
        or any(_WORD.search(quoted[0]) for quoted in _QUOTED.finditer(rest))

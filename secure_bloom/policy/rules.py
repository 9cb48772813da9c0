"""The rules of a policy: what a rule says, and which columns it applies to.

A name is the dotted path of a leaf column, a group or list with all leaves below it, or a pattern
for such names with ``*``, ``?`` and ``[...]``. Names are case-insensitive, as in Spark.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeAlias

from secure_bloom.display import shown
from secure_bloom.errors import PolicyError
from secure_bloom.sbbf.options import BloomFilterOptions, filter_options

DEFAULTS = {"open": "open", "encrypt": "encrypt", "plaintext": "open", "footer key": "encrypt"}
SETTINGS = ("key", "bloom_filter", "plaintext")
Filter: TypeAlias = BloomFilterOptions | Literal[False] | None
_TOO_LARGE = 2**63  # TOML's integers have 64 bits


@dataclass(frozen=True, slots=True)
class ColumnRule:
    """What a policy says about the columns of one name.

    Parameters
    ----------
    key : str, optional
        Name of the master key under which the columns must be encrypted.
    bloom_filter : bool, BloomFilterOptions or mapping, optional
        The columns' Bloom filters, unless the caller names the columns in ``bloom_filters``.
        False: none. Default: the rule says nothing about filters.
    plaintext : bool, optional
        False: the columns must be encrypted, under any master key. True: they may be in plaintext.
        Default: the rule says nothing, or names a key.

    Raises
    ------
    PolicyError
        If the rule says nothing, or contradicts itself.
    """

    key: str | None = None
    bloom_filter: bool | BloomFilterOptions | Mapping[str, float | None] | None = None
    plaintext: bool | None = None

    def __post_init__(self) -> None:
        if self.key is not None:
            check_text(self.key, "the name of a master key")
        if self.plaintext is not None and not isinstance(self.plaintext, bool):
            raise PolicyError("plaintext must be true or false")
        if self.key is not None and self.plaintext:
            raise PolicyError("a rule cannot name a key and allow plaintext")
        object.__setattr__(self, "bloom_filter", _checked_filter(self.bloom_filter))
        if self.key is None and self.bloom_filter is None and self.plaintext is None:
            raise PolicyError("the rule says nothing; it can name a key, a bloom_filter, or "
                              "plaintext")

    @classmethod
    def of(cls, value: Rule) -> ColumnRule:
        """Return the rule that a value in ``columns`` stands for."""
        if isinstance(value, ColumnRule):
            return value
        if isinstance(value, str):
            return cls(value)
        if not isinstance(value, Mapping):
            raise PolicyError("a rule is the name of a master key, or a table of "
                              f"{', '.join(SETTINGS)}")
        check_settings(value, SETTINGS, "a rule")
        return cls(**value)


Rule: TypeAlias = str | ColumnRule | Mapping[str, Any]


@dataclass(frozen=True)
class TableRules:
    """Rules for the files of some folders only. They win over the general rules.

    Parameters
    ----------
    path : str
        Pattern of a file, or of a folder with all files below it: ``*/customers``. A pattern that
        begins neither with ``/`` nor with a scheme may begin at any folder. ``*`` also matches
        ``/``. Case matters.
    sensitive, columns
        As in :class:`Policy`.
    name : str, optional
        What messages call these rules. Default: the path.
    """

    path: str
    sensitive: Iterable[str] = ()
    columns: Mapping[str, Rule] = field(default_factory=dict, hash=False)
    name: str | None = None

    def __post_init__(self) -> None:
        check_text(self.path, "the path of a table")
        if self.name is not None:
            check_text(self.name, "the name of a table")
        object.__setattr__(self, "sensitive", checked_names(self.sensitive))
        object.__setattr__(self, "columns", checked_columns(self.columns))
        if not self.sensitive and not self.columns:
            raise PolicyError(f"the table {shown(self.path)!r} has no rules: it needs sensitive or "
                              "columns")

    @property
    def shown_name(self) -> str:
        """What messages call these rules."""
        return self.path if self.name is None else self.name

    @property
    def is_for_all(self) -> bool:
        """Whether the rules apply to every file, also to one without a path."""
        return self.path == "*"

    def matches(self, path: str) -> bool:
        """Whether the rules apply to the file at this path."""
        pattern = path_pattern(self.path)
        parts = _normalized(path).split("/")
        return self.is_for_all or any(fnmatchcase("/".join(parts[:depth]), pattern)
                                      for depth in range(2, len(parts) + 1))


@dataclass(frozen=True, slots=True)
class ColumnPolicy:
    """What a policy says about one leaf column.

    Attributes
    ----------
    path : str
        Dotted path.
    encrypted : bool
        Whether the column must be encrypted.
    key : str or None
        Name of the master key that is required. None: any key will do.
    bloom_filter : BloomFilterOptions, False or None
        The filter that the column gets by default. False: none. None: the policy does not say.
    rule, filter_rule : str or None
        The rules that decide about encryption and filter, for messages.
    """

    path: str
    encrypted: bool = False
    key: str | None = None
    bloom_filter: Filter = None
    rule: str | None = None
    filter_rule: str | None = None


_SCHEME = re.compile(r"\A\w[\w+.-]*:(?=/)")  # also file:/folder, as Spark shows paths


def path_pattern(path: str) -> str:
    """Return the pattern that a whole path, or one of its folders, must match."""
    pattern = _normalized(path)
    if pattern == "/":  # everything is below it
        return "*"
    if path.startswith("*"):
        return pattern[1:]
    if not path.startswith("/") and _SCHEME.match(path) is None:
        return f"*{pattern}"
    return pattern


def _normalized(path: str) -> str:
    """Return a path without scheme, empty and relative parts; it begins with a slash."""
    parts: list[str] = []
    for part in _SCHEME.sub("", path, count=1).split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)


def folded(name: str) -> str:
    """Return a name in the form in which names that differ only in case are equal.

    A sigma at the end of a word has a lower case of its own. It would depend on what follows the
    name: in ``ΟΔΟΣ.b``, the group would not be ``ΟΔΟΣ``.
    """
    return name.lower().replace("\N{GREEK SMALL LETTER FINAL SIGMA}",
                                "\N{GREEK SMALL LETTER SIGMA}")


# --- checks --------------------------------------------------------------------------------------

def check_text(value: object, what: str) -> str:
    """Return the value if it is text that TOML can hold."""
    if not isinstance(value, str) or not value:
        raise PolicyError(f"{what} must be text that is not empty")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise PolicyError(f"{what} must be valid Unicode") from None
    return value


def check_settings(found: Iterable[object], allowed: Iterable[str], owner: str) -> None:
    """Raise PolicyError for a setting that does not exist: it would not be enforced."""
    allowed = list(allowed)
    for name in found:
        if name not in allowed:
            raise PolicyError(f"{owner} has no setting {shown(str(name))!r}; it has "
                              f"{', '.join(allowed)}")


def checked_names(names: object) -> tuple[str, ...]:
    """Return the value of ``sensitive``."""
    if isinstance(names, str | bytes | Mapping) or not isinstance(names, Iterable):
        raise PolicyError('sensitive must be a list of columns of a policy: ["ssn"]')
    return tuple(check_text(name, "a column that the policy names") for name in names)


def checked_columns(columns: object) -> dict[str, ColumnRule]:
    """Return the value of ``columns``."""
    if not isinstance(columns, Mapping):
        raise PolicyError("columns must be a table of a policy, from names to master keys or rules")
    found = {}
    for name, value in columns.items():
        check_text(name, "a column that the policy names")
        try:
            found[name] = ColumnRule.of(value)
        except PolicyError as error:
            raise PolicyError(f"the policy's rule for {shown(name)!r}: {error.message}") from None
    return found


def _checked_filter(value: object) -> Filter:
    if value is None or value is False:
        return value
    try:
        options = filter_options(value)
        ndv, max_bytes = (None if number is None else operator.index(number)
                          for number in (options.ndv, options.max_bytes))
        if ndv is not None and ndv >= _TOO_LARGE:
            raise ValueError(f"ndv must be less than {_TOO_LARGE:,}")
        return BloomFilterOptions(float(options.fpp), ndv, max_bytes)
    except (TypeError, ValueError, OverflowError) as error:
        raise PolicyError(f"bloom_filter: {error}") from None

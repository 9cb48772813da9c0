"""The text form of a policy: TOML."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any, cast

from secure_bloom.display import shown
from secure_bloom.errors import PolicyError
from secure_bloom.policy.rules import (
    DEFAULTS,
    SETTINGS,
    ColumnRule,
    TableRules,
    check_settings,
    checked_names,
)
from secure_bloom.sbbf.options import BloomFilterOptions

MAX_BYTES = 1024 * 1024
TOO_LARGE = f"a policy has at most {MAX_BYTES:,} bytes"
_MAX_DEPTH = 8
GENERAL = ("footer_key", "encrypted_footer", "default", "accept_plaintext_until", "sensitive",
           "columns", "tables")
_NO_RULES = {"footer_key", "accept_plaintext_until"}
_OF_TABLE = ("path", "name", "sensitive", "columns")
_TEXT_OR_COMMENT = re.compile(r'"(?:[^"\\\n]|\\[^\n])*+"?|\'[^\'\n]*+\'?|#[^\n]*+')
_DEEP_KEY = re.compile(rf'(?<![\w"-])(?:[\w"-]++[ \t]*+\.[ \t]*+){{{_MAX_DEPTH}}}')


def parse(text: str) -> dict[str, Any]:
    """Return the arguments of the Policy that a text describes.

    Raises
    ------
    PolicyError
        If the text is not a valid policy.
    """
    if len(text) > MAX_BYTES:
        raise PolicyError(TOO_LARGE)
    if _DEEP_KEY.search(_TEXT_OR_COMMENT.sub('""', text)):  # tomllib would need very long for it
        raise PolicyError("the keys of this policy are nested too deeply")
    try:
        found = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise PolicyError(f"this policy is not valid TOML: {str(error)[:200]}") from None
    check_settings(found, GENERAL, "a policy")
    _check_columns(found.get("columns"))
    tables = found.pop("tables", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise PolicyError("the tables of a policy are written as [[tables]]")
    _check_sensitive(found)
    if not tables and not found.keys() - _NO_RULES:
        raise PolicyError("the policy has no rules: it must name columns, such as "
                          'sensitive = ["ssn"]')
    return {**found, "tables": tuple(map(_table, tables))}


def _table(found: dict[str, Any]) -> TableRules:
    check_settings(found, _OF_TABLE, "a table of a policy")
    _check_columns(found.get("columns"))
    if "path" not in found:
        raise PolicyError("a table of a policy needs a path")
    _check_sensitive(found)
    return TableRules(**found)


def _check_columns(columns: object) -> None:
    """Check for what TOML reads as a rule for a column, and was meant otherwise."""
    for name, value in columns.items() if isinstance(columns, dict) else ():
        if _may_be_setting(name, value):
            raise PolicyError(f"{name} is below [columns], where it names a column: move it above. "
                              f"For a column, write {name} = {{ key = {_text(value)} }}")
        if isinstance(value, dict) and value.keys() - set(SETTINGS):
            part = next(part for part in value if part not in SETTINGS)
            raise PolicyError(f"the policy's rule for {shown(name)!r}: a rule has no setting "
                              f"{shown(part)!r}. If that is part of the column's name, "
                              'write the whole name in quotes, as in "home.street"')


def _may_be_setting(name: str, value: object) -> bool:
    return (name == "default" and isinstance(value, str) and value in DEFAULTS) \
        or (name == "footer_key" and isinstance(value, str) and value != "")


def _check_sensitive(found: dict[str, Any]) -> None:
    if "sensitive" in found and not checked_names(found["sensitive"]):
        raise PolicyError('sensitive of a policy must list columns: ["ssn"]')


def dump(policy: Mapping[str, Any]) -> str:
    """Return a text that :func:`parse` reads as the same arguments."""
    lines = []
    if policy["footer_key"] is not None:
        lines.append(f"footer_key = {_text(policy['footer_key'])}")
    if policy["accept_plaintext_until"] is not None:
        lines.append(f"accept_plaintext_until = {policy['accept_plaintext_until'].isoformat()}")
    lines += [f"encrypted_footer = {_boolean(policy['encrypted_footer'])}",
              f"default = {_text(policy['default'])}",
              *_names(policy["sensitive"]), *_columns("columns", policy["columns"])]
    for table in policy["tables"]:
        lines += ["", "[[tables]]", f"path = {_text(table.path)}"]
        if table.name is not None:
            lines.append(f"name = {_text(table.name)}")
        lines += [*_names(table.sensitive), *_columns("tables.columns", table.columns)]
    return "\n".join(lines) + "\n"


def _names(names: Iterable[str]) -> list[str]:
    listed = [f"    {_text(name)}," for name in names]
    return ["sensitive = [", *listed, "]"] if listed else []


def _columns(header: str, columns: Mapping[str, Any]) -> list[str]:
    listed = [f"{_text(name)} = {_rule(name, rule)}" for name, rule in columns.items()]
    return ["", f"[{header}]", *listed] if listed else []


def _rule(name: str, rule: ColumnRule) -> str:
    if rule.key is not None and rule.bloom_filter is None and rule.plaintext is None \
            and not _may_be_setting(name, rule.key):
        return _text(rule.key)
    settings = []
    if rule.key is not None:
        settings.append(f"key = {_text(rule.key)}")
    if rule.bloom_filter is not None:
        settings.append(f"bloom_filter = {_filter(rule.bloom_filter)}")
    if rule.plaintext is not None:
        settings.append(f"plaintext = {_boolean(rule.plaintext)}")
    return f"{{ {', '.join(settings)} }}"


def _filter(value: object) -> str:
    if value is False or value == BloomFilterOptions():
        return _boolean(value is not False)
    options = cast(BloomFilterOptions, value)
    settings = {"fpp": options.fpp, "ndv": options.ndv, "max_bytes": options.max_bytes}
    return "{ " + ", ".join(f"{name} = {number!r}" for name, number in settings.items()
                            if number is not None) + " }"


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")

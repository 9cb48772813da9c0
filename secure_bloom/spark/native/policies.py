"""A policy as rules in one order, so that the Java class can apply it to each file's schema.

The first rule that matches a column decides, except that a rule without a key lets later rules name
one. Where the policy would contradict itself, the Java class requires encryption.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from secure_bloom.policy.policy import Policy
from secure_bloom.policy.precedence import NamedRule, named_rules
from secure_bloom.policy.rules import ColumnRule, Rule, TableRules, folded, path_pattern

_WILDCARDS = re.compile(r"[*?\[]")


def policy_content(policy: Policy) -> dict[str, Any]:
    """Return the policy in the form that ``Policies.java`` reads."""
    tables = [rule for table in policy.tables for rule in _table_rules(table)]
    general = _rules(policy.sensitive, policy.columns)
    return {"encrypted_footer": policy.encrypted_footer, "footer_key": policy.footer_key,
            "default": policy.default == "encrypt",
            "rules": [*_ordered(tables), *_ordered(general)]}


def policy_option(policy: Policy) -> str:
    """Return the policy as the value of a setting."""
    return json.dumps(policy_content(policy))


def _table_rules(table: TableRules) -> Iterator[tuple[NamedRule, str | None]]:
    path = None if table.is_for_all else java_pattern(path_pattern(table.path))
    yield from _rules(table.sensitive, table.columns, table, path)


def _rules(sensitive: Iterable[str], columns: Mapping[str, Rule], table: TableRules | None = None,
           path: str | None = None) -> list[tuple[NamedRule, str | None]]:
    checked = {name: ColumnRule.of(rule) for name, rule in columns.items()}
    return [(rule, path) for rule in named_rules(sensitive, checked, table)]


def _ordered(rules: list[tuple[NamedRule, str | None]]) -> list[dict[str, Any]]:
    """Return the rules that say something about encryption, the highest rank first."""
    found = []
    for rule, path in rules:
        if rule.demands or rule.rule.plaintext:
            name = folded(rule.name)
            wild = _WILDCARDS.search(name) is not None
            said = {"exact": None if wild else name, "path": path, "encrypted": rule.demands,
                    "key": rule.rule.key, "rule": str(rule)}
            own = "".join(map(_escaped, name))  # a column may be named a[b]
            found.append(({"name": own, **said}, (0, -name.count("."))))
            if wild:
                found.append(({"name": java_pattern(name), **said}, (2 if name == "*" else 1, 0)))
    # Of rules of equal rank, those that demand most come first.
    found.sort(key=lambda one: (one[1], not one[0]["encrypted"], one[0]["key"] is None))
    return [rule for rule, _ in found]


def java_pattern(name: str) -> str:
    """Return a pattern of :mod:`fnmatch` as a regular expression that Java also understands."""
    found, at = [], 0
    while at < len(name):
        character = name[at]
        at += 1
        end = name.find("]", at + 1 + name[at:].startswith("!")) if character == "[" else -1
        if character == "*":
            found.append(".*")
        elif character == "?":
            found.append(".")
        elif end >= 0:
            found.append(_one_of(name[at:end]))
            at = end + 1
        else:
            found.append(_escaped(character))
    return "".join(found)


def _one_of(text: str) -> str:
    """Return a set of characters, which are listed, or in ranges: ``a-z``, or ``!`` and others."""
    negated = text.startswith("!")
    text, parts = text[negated:], []
    while text:
        if len(text) > 2 and text[1] == "-":
            if text[0] <= text[2]:
                parts.append(f"{_escaped(text[0])}-{_escaped(text[2])}")
            text = text[3:]
        else:
            parts.append(_escaped(text[0]))
            text = text[1:]
    if not parts:
        return "." if negated else "(?!)"
    return f"[{'^' if negated else ''}{''.join(parts)}]"


def _escaped(character: str) -> str:
    return character if character.isalnum() or not character.isascii() else f"\\{character}"

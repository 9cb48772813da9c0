"""Which rule wins for a column.

Rules of ``[[tables]]`` come before general ones. Among these, a rule that names the column itself
comes before one that names a group, a deeper group before the group around it, a group before a
pattern, and every other pattern before ``*``. Key and filter are each decided by the first rule
that says something about them. Rules of equal rank that contradict each other are an error.

``plaintext = false`` does not name a key. So the rules that follow may still name one, until one of
them allows plaintext.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import replace
from fnmatch import translate
from typing import NamedTuple, cast

from secure_bloom.display import shown
from secure_bloom.errors import PolicyError
from secure_bloom.policy.rules import ColumnPolicy, ColumnRule, Filter, TableRules, folded

_DEFAULT = "default = \"encrypt\""
_WILDCARDS = frozenset("*?[")


class NamedRule(NamedTuple):
    """A rule with its name, and where it is in the policy."""

    name: str
    place: str
    rule: ColumnRule
    is_pattern: bool

    def __str__(self) -> str:
        return f"{shown(self.name)!r} in {self.place}"

    @property
    def demands(self) -> bool:
        """Whether columns must be encrypted because of this rule."""
        return self.rule.key is not None or self.rule.plaintext is False


class Rules:
    """Some rules of a policy, all of them general or all of them of tables.

    Parameters
    ----------
    rules : iterable of NamedRule

    Attributes
    ----------
    patterns : list of (re.Pattern, NamedRule)
        The rules that are patterns other than ``*``, each with what a folded path must match.
    """

    def __init__(self, rules: Iterable[NamedRule]):
        self.rules = list(rules)
        self._named: dict[str, list[NamedRule]] = {}
        self.patterns: list[tuple[re.Pattern[str], NamedRule]] = []
        self._all = [rule for rule in self.rules if rule.is_pattern and rule.name == "*"]
        for rule in self.rules:
            name = folded(rule.name)
            self._named.setdefault(name, []).append(rule)
            if rule.is_pattern and name != "*":
                either = f"(?:{translate(name)})|(?:{translate(f'{name}.*')})"
                self.patterns.append((re.compile(either), rule))

    def ranks(self, path: str) -> Iterator[list[NamedRule]]:
        """Yield the rules that apply to a column, in lists of equal rank, the highest first."""
        path = folded(path)
        yield from (self._named.get(group, []) for group in _groups(path))
        yield [rule for pattern, rule in self.patterns if pattern.match(path)]
        yield self._all


def named_rules(sensitive: Iterable[str], columns: Mapping[str, ColumnRule],
                table: TableRules | None = None, *, patterns: bool = True) -> Iterator[NamedRule]:
    """Yield the rules of a table, or the general ones, with their names, which may be patterns."""
    of_table = "" if table is None else f" of table {shown(table.shown_name)!r}"
    rules = [*((name, "sensitive", ColumnRule(plaintext=False)) for name in sensitive),
             *((name, "columns", rule) for name, rule in columns.items())]
    for name, place, rule in rules:
        yield NamedRule(name, f"{place}{of_table}", rule,
                        patterns and not _WILDCARDS.isdisjoint(name))


def column_policy(path: str, scopes: Iterable[Rules], *, encrypt: bool) -> ColumnPolicy:
    """Return what the rules say about the leaf column with this dotted path.

    Parameters
    ----------
    path : str
    scopes : iterable of Rules
        Those of the tables first.
    encrypt : bool
        Whether a column without a rule about encryption must be encrypted.

    Raises
    ------
    PolicyError
        If rules of equal rank contradict each other.
    """
    demand = key = open_rule = filter_rule = None
    for rules in (rules for scope in scopes for rules in scope.ranks(path)):
        filter_rule = filter_rule or _same(
            path, [rule for rule in rules if rule.rule.bloom_filter is not None], "bloom_filter")
        if key is None and open_rule is None:
            opens = [rule for rule in rules if rule.rule.plaintext]
            demands = [rule for rule in rules if rule.demands]
            if opens and demands:
                raise _contradiction(path, opens[0], demands[0])
            key = _same(path, [rule for rule in rules if rule.rule.key is not None], "key")
            demand = demand or key or next(iter(demands), None)
            open_rule = next(iter(opens), None)
    found = ColumnPolicy(path) if filter_rule is None else ColumnPolicy(
        path, bloom_filter=cast(Filter, filter_rule.rule.bloom_filter),
        filter_rule=str(filter_rule))
    if demand is not None:
        both = dict.fromkeys(str(rule) for rule in (demand, key) if rule is not None)
        return replace(found, encrypted=True, key=None if key is None else key.rule.key,
                       rule=" and ".join(both))
    if open_rule is None and encrypt:
        return replace(found, encrypted=True, rule=_DEFAULT)
    return replace(found, rule=None if open_rule is None else str(open_rule))


def in_other_words(found: dict[str, ColumnPolicy], scopes: Iterable[Rules],
                   repeated: Container[str]) -> None:
    """Apply rules for a part of a list or map to the columns that take its place.

    Writers name the groups within lists and maps differently: ``tags.list.element`` is
    ``tags.bag.array_element`` in other files. A rule for the first must not be lost there.

    Parameters
    ----------
    found : dict of str to ColumnPolicy
        By path; changed in place.
    scopes : iterable of Rules
    repeated : container of str
        Which of these paths are within a list or map.
    """
    rules = [rule for scope in scopes for rule in scope.rules]
    for rule, path in _replacements(rules, found, repeated):
        old = found[path]
        if old.key is None and not (old.encrypted and rule.rule.key is None):
            found[path] = replace(old, encrypted=True, key=rule.rule.key, rule=str(rule))


def _replacements(rules: Iterable[NamedRule], paths: Iterable[str],
                  repeated: Container[str]) -> Iterator[tuple[NamedRule, str]]:
    """Yield rules for a part of a list or map, each with a column that takes its place."""
    parts = [(folded(rule.name), rule) for rule in rules
             if rule.demands and "." in rule.name and not rule.is_pattern]
    groups = _columns_below({group for name, _ in parts for group in _groups(name)}, paths)
    for name, rule in parts:
        if name in groups:
            continue
        while "." in name and name not in groups:
            name = name.rpartition(".")[0]
        yield from ((rule, path) for path in groups.get(name, ())
                    if path in repeated or folded(path) == name)


def without_match(scopes: Iterable[Rules], paths: Collection[str],
                  repeated: Container[str]) -> list[NamedRule]:
    """Return the rules that match none of these columns, nor what takes the place of a part."""
    rules = [rule for scope in scopes for rule in scope.rules]
    matched = {str(rule) for rule, _ in _replacements(rules, paths, repeated)}
    named = _columns_below({folded(rule.name) for rule in rules}, paths)
    matched |= {str(rule) for rule in rules if folded(rule.name) in named}
    matched |= {str(rule) for rule in rules
                if rule.is_pattern and rule.name == "*" and paths}
    for scope in scopes:
        for pattern, rule in scope.patterns:
            if str(rule) not in matched and any(pattern.match(folded(path)) for path in paths):
                matched.add(str(rule))
    return [rule for rule in rules if str(rule) not in matched]


def _groups(name: str) -> Iterator[str]:
    """Yield the name, and the groups around it."""
    yield name
    while "." in name:
        name = name.rpartition(".")[0]
        yield name


def _columns_below(names: Container[str], paths: Iterable[str]) -> dict[str, list[str]]:
    """Map those of the names that are columns or groups to the columns at or below them.

    Other groups are left out: a schema may be deep, so that their paths would take much memory.
    """
    found: dict[str, list[str]] = {}
    for path in paths if names else ():
        for group in _groups(folded(path)):
            if group in names:
                found.setdefault(group, []).append(path)
    return found


def _same(path: str, rules: list[NamedRule], setting: str) -> NamedRule | None:
    """Return the first rule; the others must not differ in this setting."""
    for rule in rules[1:]:
        if getattr(rule.rule, setting) != getattr(rules[0].rule, setting):
            raise _contradiction(path, rules[0], rule)
    return rules[0] if rules else None


def _contradiction(path: str, first: NamedRule, second: NamedRule) -> PolicyError:
    return PolicyError("the policy has two rules of equal rank that contradict each other: "
                       f"{first} ({_said(first.rule)}), and {second} ({_said(second.rule)}); "
                       "add a rule that names the column itself", column=path)


def _said(rule: ColumnRule) -> str:
    said = {"key": rule.key, "bloom_filter": rule.bloom_filter, "plaintext": rule.plaintext}
    return ", ".join(f"{name} = {value}" for name, value in said.items() if value is not None)

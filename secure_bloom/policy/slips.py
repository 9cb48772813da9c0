"""Slips in a policy: names that match nothing, and plaintext that nobody asked for.

A policy knows columns by their names. So a misspelt name, or a renamed column, would leave a column
in plaintext. Whatever writes files asks :func:`check_plaintext` before it writes one without
encryption, and calls :func:`warn_of_unused_rules`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from secure_bloom.display import shown, similar_name, warn
from secure_bloom.errors import PolicyError, PolicyWarning
from secure_bloom.parquet.schema import LeafColumn
from secure_bloom.policy.policy import Policy
from secure_bloom.policy.precedence import NamedRule

_MAX_RULES = 10  # in one message
_ASK = ("To write plaintext, ask for it by name: plaintext=True in Python, option plaintext in "
        "Spark, --plaintext on the command line, or rules with plaintext = true for all columns")


def check_plaintext(policy: Policy, leaves: Sequence[LeafColumn]) -> None:
    """Check a file in which the policy requires no encryption, and for which nothing else does.

    Parameters
    ----------
    policy : Policy
        For the path of the file; see :meth:`.Policy.for_path`.
    leaves : sequence of LeafColumn
        Of the file.

    Raises
    ------
    PolicyError
        Unless rules of the policy allow plaintext for every column, by name.
    """
    if all(column.rule is not None for column in policy.of_leaves(leaves)):
        return
    unused = unused_rules(policy, leaves)
    slips = f": no column matches {_listed(unused, leaves)}" if unused else ""
    raise PolicyError("nothing was written, because no column would be encrypted. The policy "
                      f"requires no encryption of these columns{slips}. {_ASK}")


def warn_of_unused_rules(policy: Policy, leaves: Sequence[LeafColumn], where: str,
                         partition_by: Iterable[str] = ()) -> None:
    """Warn of the rules that match no column of a file or folder.

    Parameters
    ----------
    policy, leaves
        As in :func:`check_plaintext`.
    where : str
        Name of the file or folder.
    partition_by : iterable of str
        Columns whose values are part of paths.
    """
    unused = unused_rules(policy, leaves, partition_by)
    warn_of([_listed(unused, leaves)] if unused else [], where)


def warn_of(unused: Sequence[str], where: str) -> None:
    """Warn of rules that match no column, given as they are to be shown."""
    if unused:
        warn(PolicyWarning(f"{where}: no column matches {', '.join(unused)} of the policy; correct "
                           "the policy if a name is misspelt"))


class RuleUsage:
    """Which rules of a policy match a column of any of some files."""

    def __init__(self) -> None:
        self._matched: set[str] = set()
        self._known: dict[str, None] = {}

    def add(self, policy: Policy, leaves: Sequence[LeafColumn],
            partitions: Iterable[str] = ()) -> None:
        """Add a file, with the policy for its path. Several threads may call this."""
        unused = set(map(str, unused_rules(policy, leaves, partitions)))
        self._matched.update({str(rule) for rule in policy.rules} - unused)
        self._known.update(dict.fromkeys(_names(leaves)))

    def unused(self, policy: Policy) -> list[str]:
        """Return the rules that match nothing in any file, with what may be meant."""
        return [described(rule, self._known) for rule in policy.rules
                if str(rule) not in self._matched]


def unused_rules(policy: Policy, leaves: Iterable[LeafColumn],
                 partition_by: Iterable[str] = ()) -> list[NamedRule]:
    """Return the rules of a policy that match no column of a file."""
    leaves = list(leaves)
    return policy.unused_rules([*(leaf.path for leaf in leaves), *partition_by],
                               {leaf.path for leaf in leaves if leaf.is_repeated})


def _listed(rules: Sequence[NamedRule], leaves: Iterable[LeafColumn]) -> str:
    known = _names(leaves)
    listed = [described(rule, known) for rule in rules[:_MAX_RULES]]
    return ", ".join(listed) + (f" and {len(rules) - _MAX_RULES:,} more"
                                if len(rules) > _MAX_RULES else "")


def _names(leaves: Iterable[LeafColumn]) -> list[str]:
    return list(dict.fromkeys(name for leaf in leaves for name in (leaf.path, leaf.parts[0])))


def described(rule: NamedRule, known: Iterable[str]) -> str:
    """Return a rule that matches none of the known columns, with the column that may be meant."""
    similar = similar_name(rule.name, known)
    return f"rule {rule}" + ("" if similar is None else f" (did you mean {shown(similar)!r}?)")

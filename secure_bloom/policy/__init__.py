"""One policy everywhere: what must be encrypted, by name, wherever data is written or read."""

from secure_bloom.policy.policy import Policy
from secure_bloom.policy.rules import ColumnPolicy, ColumnRule, TableRules

__all__ = ["ColumnPolicy", "ColumnRule", "Policy", "TableRules"]

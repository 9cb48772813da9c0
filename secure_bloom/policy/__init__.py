"""One policy everywhere: what must be encrypted, by name, wherever data is written or read."""

from secure_bloom.policy.policy import NO_POLICY, Policy
from secure_bloom.policy.rules import ColumnPolicy, ColumnRule, TableRules

__all__ = ["NO_POLICY", "ColumnPolicy", "ColumnRule", "Policy", "TableRules"]

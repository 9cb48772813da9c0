"""One policy everywhere: what must be encrypted, by name, wherever data is written or read."""

from secure_bloom.policy.policy import Policy as Policy
from secure_bloom.policy.rules import ColumnPolicy as ColumnPolicy
from secure_bloom.policy.rules import ColumnRule as ColumnRule
from secure_bloom.policy.rules import TableRules as TableRules

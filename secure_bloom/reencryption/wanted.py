"""What files are to become: by an encryption, a policy, and requested filters."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from secure_bloom.arrow.encrypted_columns import resolve_columns
from secure_bloom.encryption import EncryptionConfiguration, as_configuration
from secure_bloom.errors import PolicyError
from secure_bloom.keys.cache import CachedKms
from secure_bloom.parquet.schema import filter_columns, filterable_paths
from secure_bloom.policy.policy import Policy
from secure_bloom.policy.violations import violations
from secure_bloom.policy.writing import check_encryption, policy_encryption, with_policy_filters
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.reencryption.one_file import Plan, Planner
from secure_bloom.reencryption.target import (
    check_stays_encrypted,
    configured,
    conforms,
    reveals,
)
from secure_bloom.sbbf.options import BloomFilterOptions, BloomFilters, normalize_options


@dataclass(frozen=True)
class Wanted:
    """What :func:`.encrypt` makes of files. Can be pickled."""

    encryption: EncryptionConfiguration | None
    rules: Policy | None
    bloom_filters: BloomFilters

    @classmethod
    def of(cls, encryption: EncryptionConfiguration | None, rules: Policy | None,
           bloom_filters: BloomFilters) -> Wanted:
        """Check the arguments of :func:`.encrypt`. Raises TypeError if nothing is wanted."""
        if encryption is None and rules is None:
            raise TypeError("encrypt needs encryption= or policy=: it says which columns are "
                            "encrypted with which keys")
        return cls(None if encryption is None else as_configuration(encryption), rules,
                   bloom_filters)

    def planner(self, kms: CachedKms) -> Planner:
        """Return what plans files whose new keys a KMS wraps."""
        def plan(file: OpenFile) -> Plan | None:
            wanted = wanted_encryption(file, self.encryption, self.rules)
            if wanted is None:
                return None
            filters = _missing_filters(file, self.bloom_filters, self.rules)
            if not filters and conforms(wanted, file.footer) \
                    and not _violates(file, self.rules) and not reveals(file):
                return None
            target = configured(wanted, kms, file.footer)
            check_stays_encrypted(target, file.footer)
            return Plan(target, filters)

        return plan


def wanted_encryption(file: OpenFile, encryption: EncryptionConfiguration | None,
                      rules: Policy | None) -> EncryptionConfiguration | None:
    """Return how a file is to be encrypted; None if the policy requires nothing of it."""
    policy = None if rules is None else rules.for_path(file.path)
    if encryption is None:
        assert policy is not None
        return policy_encryption(policy, policy.of_leaves(file.columns))
    if policy is not None:
        check_encryption(policy, resolve_columns(encryption, file.columns), file.columns)
    return encryption


def _violates(file: OpenFile, rules: Policy | None) -> bool:
    return rules is not None and bool(violations(rules.for_path(file.path), file.footer))


def _missing_filters(file: OpenFile, bloom_filters: BloomFilters,
                     rules: Policy | None) -> dict[int, BloomFilterOptions]:
    """Return the columns that are to have a Bloom filter, and lack one in some row group."""
    if rules is not None:
        bloom_filters = with_policy_filters(rules.for_path(file.path), bloom_filters, file.columns)
    asked = normalize_options(bloom_filters, filterable_paths(file.columns))
    columns = filter_columns(file.columns, asked)
    return {column.ordinal: options for column, options in zip(columns, asked.values(), strict=True)
            if any(group[column.ordinal].bloom_filter is None for group in file.footer.row_groups)}


def check_may_open(file: OpenFile, rules: Policy | None, opened: Collection[int]) -> None:
    """Raise PolicyError if a policy requires that one of these columns is encrypted."""
    if rules is None:
        return
    policy = rules.for_path(file.path)
    for leaf, column in zip(file.columns, policy.of_leaves(file.columns), strict=True):
        if column.encrypted and leaf.ordinal in opened:
            raise PolicyError(f"it must be encrypted by the policy's rule {column.rule}",
                              column=leaf.path)

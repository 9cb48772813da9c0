"""``sensitive``: columns that a write encrypts with keys of fixed names, and gives filters.

The short form of an encryption. It can only add to a policy: a column keeps the key, and the
filter, that the policy names for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

from secure_bloom.display import choices
from secure_bloom.encryption import Encryption, EncryptionConfiguration
from secure_bloom.errors import ColumnError
from secure_bloom.parquet.schema import LeafColumn, filterable_paths
from secure_bloom.policy.policy import Policy
from secure_bloom.policy.rules import ColumnPolicy
from secure_bloom.policy.slips import unused_rules
from secure_bloom.policy.writing import (
    configuration_of,
    encryption_or_plaintext,
    with_default_filters,
    with_policy_filters,
)
from secure_bloom.sbbf.options import BloomFilterOptions, BloomFilters

FOOTER_KEY = "footer"  #: name of the master key of footers, if no policy names one
COLUMN_KEY = "pii"  #: name of the master key of sensitive columns, if no policy names one
Sensitive: TypeAlias = str | Iterable[str] | None


def requested(policy: Policy | None, sensitive: Sensitive, bloom_filters: BloomFilters,
              encryption: Encryption | None, leaves: Sequence[LeafColumn], *, plaintext: bool,
              partition_by: Sequence[str] = ()) -> tuple[BloomFilters, Encryption | None]:
    """Return the filters and the encryption of a file, with what ``sensitive`` and a policy add.

    Parameters and errors are those of :func:`with_sensitive`, :func:`.encryption_or_plaintext` and
    :func:`.with_policy_filters`.
    """
    if sensitive is not None:
        bloom_filters, encryption = with_sensitive(sensitive, policy, bloom_filters, leaves,
                                                   partition_by)
    if policy is None:
        return bloom_filters, encryption
    if encryption is None:
        encryption = encryption_or_plaintext(policy, leaves, plaintext=plaintext)
    return with_policy_filters(policy, bloom_filters, leaves), encryption


def check_contradictions(encryption: object, sensitive: Sensitive, *, plaintext: bool) -> None:
    """Raise TypeError if more than one of these arguments is given."""
    if plaintext and encryption is not None:
        raise TypeError("plaintext=True contradicts encryption: remove one of them")
    if plaintext and sensitive is not None:
        raise TypeError("plaintext=True contradicts sensitive: remove one of them")
    if sensitive is not None and encryption is not None:
        raise TypeError("sensitive makes an encryption, and encryption is given, too: remove one "
                        "of them")


def with_sensitive(sensitive: str | Iterable[str], policy: Policy | None,
                   bloom_filters: BloomFilters, leaves: Sequence[LeafColumn],
                   partition_by: Sequence[str] = ()) \
        -> tuple[BloomFilters, EncryptionConfiguration]:
    """Return filters and encryption for a file in which some columns are sensitive.

    Parameters
    ----------
    sensitive : str or iterable of str
        Names as in :attr:`Policy.sensitive`, each of which must match a column.
    policy : Policy or None
        For the path of the file. What it encrypts is encrypted, too.
    bloom_filters : bool, iterable of str, mapping, or None
        The filters that the caller names. False: no filters at all.
    leaves : sequence of LeafColumn
        Of the file.
    partition_by : sequence of str
        Columns whose values are part of the path.

    Raises
    ------
    ColumnError
        If a name matches no column, or values of a partition column would be sensitive.
    TypeError, ValueError
        If ``sensitive`` is not a list of names, or is empty.
    """
    marks = Policy(_checked(sensitive))
    _check_partitions(marks, partition_by)
    _check_names(marks, leaves, partition_by)
    policy = policy or Policy()
    marked = [mark.encrypted for mark in marks.of_leaves(leaves)]
    columns = [_encrypted(column) if is_marked else column
               for column, is_marked in zip(policy.of_leaves(leaves), marked, strict=True)]
    able = set(filterable_paths(leaves))
    filters: dict[str, bool | BloomFilterOptions] = {
        column.path: True if column.bloom_filter is None else column.bloom_filter
        for column, is_marked in zip(columns, marked, strict=True)
        if is_marked and column.path in able}
    if not isinstance(bloom_filters, bool):
        bloom_filters = with_default_filters(filters, bloom_filters)
    return bloom_filters, configuration_of(policy.footer_key or FOOTER_KEY, columns)


def _encrypted(column: ColumnPolicy) -> ColumnPolicy:
    return replace(column, encrypted=True, key=column.key or COLUMN_KEY)


def _checked(sensitive: object) -> list[str]:
    names = [sensitive] if isinstance(sensitive, str) else sensitive
    if isinstance(names, bytes) or not isinstance(names, Iterable):
        raise TypeError('sensitive must be a list of columns: ["ssn"], not '
                        f"{type(sensitive).__name__}")
    names = list(names)
    if not names:
        raise ValueError("sensitive is empty, so nothing would be encrypted: name the columns; to "
                         "write plaintext, pass plaintext=True instead")
    for name in names:
        if not isinstance(name, str) or not name:
            raise TypeError("sensitive must be a list of names of columns")
    return names


def _check_names(marks: Policy, leaves: Sequence[LeafColumn], partition_by: Sequence[str]) -> None:
    for rule in unused_rules(marks, leaves, partition_by):
        raise ColumnError("it is sensitive, but there is no such column"
                          + choices(rule.name, [leaf.path for leaf in leaves]), column=rule.name)


def _check_partitions(marks: Policy, partition_by: Sequence[str]) -> None:
    for name in partition_by:
        if marks.rule_for_partition(name) is not None:
            raise ColumnError("it is sensitive, but its values would be part of folder names: "
                              "partition by another column", column=name)

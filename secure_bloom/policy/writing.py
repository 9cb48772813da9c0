"""What a policy requires of a file that is to be written: its encryption and its filters."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, cast

import pyarrow.fs as pa_fs

from secure_bloom.encryption import (
    Encryption,
    EncryptionConfiguration,
    UniformKey,
    master_keys_by_leaf,
)
from secure_bloom.errors import PolicyError, error_location
from secure_bloom.parquet.schema import LeafColumn, filterable_paths
from secure_bloom.policy.environment import given_or_of_environment
from secure_bloom.policy.footer_checks import is_demanding
from secure_bloom.policy.policy import Policy
from secure_bloom.policy.rules import ColumnPolicy
from secure_bloom.policy.slips import check_plaintext
from secure_bloom.sbbf.options import BloomFilterOptions, BloomFilters, normalize_options
from secure_bloom.storage.files import FilePath, FileTarget, is_path, resolve
from secure_bloom.storage.versions import without_subtree

_ADVICE = "add footer_key = \"...\" to the policy, or pass encryption"


def policy_for(policy: Policy | FilePath | None, where: FileTarget,
               filesystem: pa_fs.FileSystem | None = None) -> Policy | None:
    """Return the policy for a file that is to be written.

    Raises
    ------
    PolicyError
        If the policy is not valid, or needs the path of the file, and ``where`` is a file object.
    OSError
        If the policy is a path that cannot be read.
    """
    found = given_or_of_environment(policy)
    if found is None or not is_path(where):
        return found and found.for_path(None)
    return found.for_path(without_subtree(*resolve(where, filesystem))[1])


def encryption_or_plaintext(policy: Policy, leaves: Sequence[LeafColumn], *,
                            plaintext: bool) -> EncryptionConfiguration | None:
    """Return the encryption that a policy makes for a file; None if it is to be in plaintext.

    Parameters
    ----------
    policy, leaves
        As in :func:`check_encryption`.
    plaintext : bool
        Whether the caller asks for plaintext by name.

    Raises
    ------
    PolicyError
        As :func:`policy_encryption` and :func:`.slips.check_plaintext`.
    """
    if plaintext:
        return None
    encryption = policy_encryption(policy, policy.of_leaves(leaves))
    if encryption is None:
        check_plaintext(policy, leaves)
    return encryption


def policy_encryption(policy: Policy, columns: Collection[ColumnPolicy]) \
        -> EncryptionConfiguration | None:
    """Return the encryption that a policy makes for a file; None if nothing must be encrypted.

    Parameters
    ----------
    policy : Policy
        For the path of the file; see :meth:`Policy.for_path`.
    columns : collection of ColumnPolicy
        What it says about the leaf columns of the file.

    Raises
    ------
    PolicyError
        If something must be encrypted, and the policy does not name a footer key.
    """
    demanded = [column for column in columns if column.encrypted]
    if not is_demanding(policy, columns):
        return None
    if policy.footer_key is None and demanded:
        raise PolicyError(f"it must be encrypted by the policy's rule {demanded[0].rule}, and "
                          f"there is no footer key: {_ADVICE}", column=demanded[0].path)
    if policy.footer_key is None:
        raise PolicyError(f"the policy requires an encrypted footer, and there is no footer key: "
                          f"{_ADVICE}")
    return configuration_of(policy.footer_key, columns)


def configuration_of(footer_key: str,
                     columns: Collection[ColumnPolicy]) -> EncryptionConfiguration:
    """Return the encryption of a file with these columns, some of which must be encrypted."""
    column_keys: dict[str, dict[str, None]] = {}  # by master key: the paths, each once
    for column in columns:
        if column.encrypted:
            column_keys.setdefault(column.key or footer_key, {})[column.path] = None
    if not column_keys or (all(column.encrypted for column in columns)
                           and column_keys.keys() == {footer_key}):
        return EncryptionConfiguration(footer_key, uniform_encryption=True)
    return EncryptionConfiguration(footer_key, {key: list(paths)
                                                for key, paths in column_keys.items()})


def check_encryption(policy: Policy, encryption: Encryption | None,
                     leaves: Sequence[LeafColumn]) -> None:
    """Check the encryption of a file that is to be written.

    Parameters
    ----------
    policy : Policy
        For the path of the file; see :meth:`Policy.for_path`.
    encryption : EncryptionConfiguration or UniformKey or None
        As returned by :func:`.arrow.encrypted_columns.resolve_columns`.
    leaves : sequence of LeafColumn
        Of the file.

    Raises
    ------
    PolicyError
        If a column would be in plaintext that must be encrypted, or under another master key; or
        if the footer would be.
    """
    columns = policy.of_leaves(leaves)
    keys = master_keys_by_leaf(encryption, leaves)
    for leaf, column in zip(leaves, columns, strict=True):
        if not column.encrypted:
            continue
        if leaf.ordinal not in keys:
            raise PolicyError("it would be written in plaintext; it must be encrypted by the "
                              f"policy's rule {column.rule}", column=leaf.path)
        _check_key(keys[leaf.ordinal], column.key, f"the policy's rule {column.rule}", leaf.path)
    if encryption is None:
        if policy.encrypted_footer:
            raise PolicyError("the file would be written in plaintext; the policy requires an "
                              "encrypted footer: encrypted_footer = true")
        return
    _check_footer(policy, encryption, is_demanding(policy, columns))


def check_partition_policy(policy: Policy, names: Iterable[str]) -> None:
    """Raise PolicyError if values that must be encrypted would be part of folder names."""
    for name in names:
        rule = policy.rule_for_partition(name)
        if rule is not None:
            raise PolicyError("its values would be part of folder names; it must be encrypted by "
                              f"the policy's rule {rule}: partition by another column", column=name)


def check_file_of_folder(policy: Policy, folder: str, path: str, partition_by: Iterable[str],
                         encryption: Encryption | None, leaves: Sequence[LeafColumn]) -> None:
    """Check a file of a folder by the rules that are for some files of the folder only.

    Parameters
    ----------
    policy : Policy
        For all paths. For the folder, it has been checked.
    folder, path : str
        Absolute paths, at which readers will find folder and file.
    partition_by : iterable of str
        Columns whose values are part of the path.
    encryption, leaves
        As in :func:`check_encryption`.

    Raises
    ------
    PolicyError
        If the file would not meet them.
    """
    rules = policy.for_path(path)
    if rules is not policy.for_path(folder):
        with error_location(file=path):
            check_partition_policy(rules, partition_by)
            check_encryption(rules, encryption, leaves)


def _check_footer(policy: Policy, encryption: Encryption, demands: bool) -> None:
    if policy.encrypted_footer and encryption.plaintext_footer:
        raise PolicyError("the footer would be written in plaintext; the policy requires an "
                          "encrypted one: encrypted_footer = true")
    key = encryption.footer_key if isinstance(encryption, EncryptionConfiguration) else None
    _check_key(key, policy.footer_key, "footer_key of the policy", None)
    algorithm = encryption.algorithm if isinstance(encryption, UniformKey) \
        else encryption.encryption_algorithm
    if demands and algorithm != "AES_GCM_V1" and not encryption.plaintext_footer:
        raise PolicyError(f"the algorithm would be {algorithm}, which does not authenticate pages; "
                          "under an encrypted footer, readers that enforce the policy refuse it: "
                          "use AES_GCM_V1")


def _check_key(key: str | None, required: str | None, rule: str, column: str | None) -> None:
    if required is None or key == required:
        return
    what = "the footer" if column is None else "it"
    found = "an explicit key" if key is None else f"master key {key!r}"
    raise PolicyError(f"{what} would be encrypted with {found}; master key {required!r} is "
                      f"required by {rule}", column=column)


def with_policy_filters(policy: Policy, bloom_filters: BloomFilters,
                        leaves: Sequence[LeafColumn]) -> BloomFilters:
    """Add the policy's filters for the columns that the caller does not name.

    Parameters
    ----------
    policy : Policy
        For the path of the file; see :meth:`Policy.for_path`.
    bloom_filters : bool, iterable of str, mapping, or None
        False: no filters at all. True: every column that can have one, as the policy says.
    leaves : sequence of LeafColumn
        Of the file. Columns that cannot have a filter get none from the policy.
    """
    if bloom_filters is False:
        return False
    able = set(filterable_paths(leaves))
    own: dict[str, bool | BloomFilterOptions] = {
        column.path: column.bloom_filter for column in policy.of_leaves(leaves)
        if column.bloom_filter is not None and column.path in able}
    if bloom_filters is True:
        return dict.fromkeys(filterable_paths(leaves), True) | own
    return with_default_filters(own, bloom_filters)


def with_default_filters(own: Mapping[str, bool | BloomFilterOptions],
                         bloom_filters: Iterable[str] | Mapping[str, Any] | None) \
        -> dict[str, Any]:
    """Return these filters, and those that the caller names, which win."""
    return {**own, **({} if bloom_filters is None else by_column(bloom_filters))}


def by_column(bloom_filters: Iterable[str] | Mapping[str, Any]) -> dict[str, Any]:
    """Return the requested filters by column, with those that are to be left out.

    Raises
    ------
    TypeError, ValueError
        As :func:`.normalize_options`.
    """
    if not isinstance(bloom_filters, Mapping | str | bytes) and isinstance(bloom_filters, Iterable):
        bloom_filters = dict.fromkeys(bloom_filters, True)
    normalize_options(bloom_filters)
    return dict(cast(Mapping[str, Any], bloom_filters))

"""Checks of a footer that a reader opens: whether it is encrypted as a policy requires."""

from __future__ import annotations

from collections.abc import Iterable

from secure_bloom.errors import AuthenticationError, KeyNotFoundError, error_location
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.footer import Footer
from secure_bloom.policy.policy import Policy
from secure_bloom.policy.rules import ColumnPolicy


def check_policy(policy: Policy, footer: Footer) -> None:
    """Check a file that is opened for reading against the policy for its path.

    A policy that demands nothing of a file accepts it as it is. Raises AuthenticationError,
    KeyNotFoundError or PolicyError; see :meth:`.Requirement.check`.
    """
    columns = policy.of_leaves(footer.columns)
    if not is_demanding(policy, columns):
        return
    check_footer(footer)
    if policy.encrypted_footer and not footer.has_encrypted_footer:
        raise AuthenticationError("the footer is not encrypted, and the policy requires it: "
                                  "encrypted_footer = true")
    if policy.footer_key is not None:
        _check_master_key(footer, footer.footer_key_metadata, policy.footer_key, "the footer")
    demanded = [(leaf.ordinal, column) for leaf, column
                in zip(footer.columns, columns, strict=True) if column.encrypted]
    for chunks in footer.row_groups:
        for ordinal, column in demanded:
            chunk = chunks[ordinal]
            try:
                with error_location(**chunk.place):
                    _check_chunk(footer, chunk, column.key)
            except AuthenticationError as error:
                error.message += because(policy, column.rule)
                raise


def is_demanding(policy: Policy, columns: Iterable[ColumnPolicy]) -> bool:
    """Whether a file with these columns must be encrypted in any way."""
    return policy.encrypted_footer or any(column.encrypted for column in columns)


def check_footer(footer: Footer) -> None:
    """Check that a file is encrypted, and that its footer and pages are authenticated.

    Raises AuthenticationError or KeyNotFoundError; see :meth:`.Requirement.check`.
    """
    algorithm = footer.algorithm
    if algorithm is None:
        raise AuthenticationError("the file is not encrypted, but encryption is required")
    if not footer.has_encrypted_footer and not footer.signature_verified:
        raise KeyNotFoundError("encryption is required, so the signature of the footer must be "
                               "verified; pass the footer key")
    if footer.has_encrypted_footer and not algorithm.authenticates_pages:
        raise AuthenticationError(
            f"its algorithm is {algorithm.name}, which does not authenticate pages, and in a file "
            "with an encrypted footer the algorithm itself is not authenticated; "
            "encryption is required, so write it with AES_GCM_V1, or with a plaintext footer, "
            "which is signed")


def _check_chunk(footer: Footer, chunk: ColumnChunk, master_key: str | None) -> None:
    if chunk.encryption is None:
        raise AuthenticationError("the column is not encrypted, but encryption is required")
    if not chunk.is_metadata_encrypted:
        raise AuthenticationError("the column is encrypted, but its metadata is not encrypted with "
                                  "its key, though encryption is required")
    if master_key is not None:
        _check_master_key(footer, footer.key_metadata_of(chunk), master_key, "the column")


def _check_master_key(footer: Footer, key_metadata: bytes | None, required: str,
                      what: str) -> None:
    found = footer.crypto.master_key(key_metadata)
    if found is None:
        raise AuthenticationError(f"master key {required!r} is required, but only a KMS can tell "
                                  f"which master key {what} is encrypted under; with explicit "
                                  "keys, require the column without a master key")
    if found != required:
        raise AuthenticationError(f"{what} is encrypted under master key {found!r}, but "
                                  f"{required!r} is required")


def because(policy: Policy, rule: str | None) -> str:
    """Return which rule requires encryption, as the end of a message; of columns, they are it."""
    return f" (policy: {rule})" if policy.has_patterns else ""

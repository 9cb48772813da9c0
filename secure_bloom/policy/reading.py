"""What a policy requires of files that exist: for readers, and for reports about files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from secure_bloom.encryption_requirement import check_columns, check_footer, check_master_key
from secure_bloom.errors import (
    KMS_FAULTS,
    AuthenticationError,
    KeyRetrievalError,
    UnsupportedError,
)
from secure_bloom.keys.material import KeyMaterial
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.footer import Footer
from secure_bloom.policy.rules import ColumnPolicy

if TYPE_CHECKING:
    from secure_bloom.policy.policy import Policy

#: kinds of violations
UNENCRYPTED, MASTER_KEY, PLAINTEXT_FOOTER, ALGORITHM, UNKNOWN_KEY = \
    "unencrypted", "master-key", "plaintext-footer", "algorithm", "unknown-key"


@dataclass(frozen=True, slots=True)
class Violation:
    """Something in a file that a policy does not allow.

    Attributes
    ----------
    kind : str
        ``unencrypted``, ``master-key``, ``plaintext-footer``, ``algorithm``, or ``unknown-key`` if
        it cannot be determined under which master key something is encrypted.
    message : str
    column : str or None
        Dotted path.
    row_groups : tuple of int
    """

    kind: str
    message: str
    column: str | None = None
    row_groups: tuple[int, ...] = ()


def is_demanding(policy: Policy, columns: Iterable[ColumnPolicy]) -> bool:
    """Whether a file with these columns must be encrypted in any way."""
    return policy.encrypted_footer or any(column.encrypted for column in columns)


# --- for readers ---------------------------------------------------------------------------------

def check_file(policy: Policy, footer: Footer) -> None:
    """Check a file that is opened for reading, before any result is returned.

    A policy that demands nothing of a file accepts it as it is. Otherwise the file is checked as by
    :meth:`.EncryptionRequirement.check`, and so are its footer, if the policy requires an encrypted
    one, and the master key of the footer, if the policy names it.

    Raises
    ------
    AuthenticationError
        If the file does not meet the policy.
    KeyNotFoundError
        If the signature of a plaintext footer was not verified because its key is missing.
    PolicyError
        If the policy contradicts itself.
    """
    columns = policy.of_leaves(footer.columns)
    demanded = {leaf.ordinal: column for leaf, column in zip(footer.columns, columns, strict=True)
                if column.encrypted}
    if not is_demanding(policy, columns):
        return
    check_footer(footer)
    if policy.encrypted_footer and not footer.has_encrypted_footer:
        raise AuthenticationError("the footer is not encrypted, and the policy requires it: "
                                  "encrypted_footer = true")
    if policy.footer_key is not None:
        check_master_key(footer, footer.footer_key_metadata, policy.footer_key, "the footer")
    try:
        check_columns(footer, {ordinal: column.key for ordinal, column in demanded.items()})
    except AuthenticationError as error:
        rule = next(column.rule for column in columns if column.path == error.column)
        error.message += f" (policy: {rule})"
        raise


# --- for reports ---------------------------------------------------------------------------------

def violations(policy: Policy, footer: Footer) -> list[Violation]:
    """Return what the policy, which must be that for the file's path, does not allow in a file.

    Without keys, the names of master keys are those that the file claims.
    """
    columns = policy.of_leaves(footer.columns)
    found = list(footer_violations(policy, footer, columns))
    for leaf, column in zip(footer.columns, columns, strict=True):
        chunks = [chunks[leaf.ordinal] for chunks in footer.row_groups]
        found += column_violations(footer, chunks, column)
    return found


def footer_violations(policy: Policy, footer: Footer, columns: Collection[ColumnPolicy]) \
        -> Iterator[Violation]:
    """Yield what the policy does not allow in the footer of a file with these columns."""
    if not footer.is_encrypted and not footer.row_groups:  # otherwise reported with its chunks
        for column in columns:
            if column.encrypted:
                yield Violation(UNENCRYPTED, "the column is sensitive and the file, which has no "
                                f"rows, is not encrypted; the policy requires it: {column.rule}",
                                column.path)
    if policy.encrypted_footer and not footer.has_encrypted_footer:
        yield Violation(PLAINTEXT_FOOTER, "the footer is not encrypted: column names, sizes and "
                        "the statistics of plain columns can be read")
    if policy.footer_key is not None and footer.is_encrypted:
        yield from _key_violations(footer, footer.footer_key_metadata, policy.footer_key,
                                   "the footer", "footer_key")
    algorithm = footer.algorithm
    if algorithm is not None and not algorithm.authenticates_pages \
            and footer.has_encrypted_footer and is_demanding(policy, columns):
        yield Violation(ALGORITHM, f"the algorithm is {algorithm.name}, which does not "
                        "authenticate pages; under an encrypted footer, readers that enforce the "
                        "policy refuse the file")


def column_violations(footer: Footer, chunks: Iterable[ColumnChunk], column: ColumnPolicy) \
        -> Iterator[Violation]:
    """Yield what the policy does not allow in the chunks of a column, each kind once."""
    if not column.encrypted:
        return
    found: dict[tuple[str, str], list[int]] = {}
    for chunk in chunks:
        for violation in _chunk_violations(footer, chunk, column):
            found.setdefault((violation.kind, violation.message), []).append(chunk.row_group)
    for (kind, message), row_groups in found.items():
        yield Violation(kind, message, column.path, tuple(row_groups))


def _chunk_violations(footer: Footer, chunk: ColumnChunk, column: ColumnPolicy) \
        -> Iterator[Violation]:
    if chunk.encryption is None:
        yield Violation(UNENCRYPTED, "the column is sensitive and its data is not encrypted; the "
                        f"policy requires it: {column.rule}")
        return
    if not chunk.is_metadata_encrypted:
        yield Violation(UNENCRYPTED, "the column is encrypted, but its metadata is not encrypted "
                        f"with its key; the policy requires it: {column.rule}")
    if column.key is not None:
        key_metadata = chunk.key_metadata if chunk.encryption == "column key" \
            else footer.footer_key_metadata
        yield from _key_violations(footer, key_metadata, column.key, "the column",
                                   column.rule or "")


def _key_violations(footer: Footer, key_metadata: bytes | None, required: str, what: str,
                    rule: str) -> Iterator[Violation]:
    found = _master_key(footer, key_metadata)
    if found is None:
        yield Violation(UNKNOWN_KEY, f"under which master key {what} is cannot be determined; the "
                        f"policy requires {required!r}: {rule}")
    elif found != required:
        yield Violation(MASTER_KEY, f"{what} is encrypted under master key {found!r}; the policy "
                        f"requires {required!r}: {rule}")


def _master_key(footer: Footer, key_metadata: bytes | None) -> str | None:
    try:
        found = footer.crypto.master_key(key_metadata)
        return found if found is not None or key_metadata is None \
            else KeyMaterial.parse(key_metadata).master_key_id
    except KMS_FAULTS:
        raise
    except (KeyRetrievalError, UnsupportedError):
        return None

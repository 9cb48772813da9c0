"""Reports: what a policy does not allow in existing files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from secure_bloom.errors import KMS_FAULTS, KeyRetrievalError, UnsupportedError
from secure_bloom.keys.material import KeyMaterial
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.footer import Footer
from secure_bloom.policy.footer_checks import is_demanding
from secure_bloom.policy.policy import Policy
from secure_bloom.policy.rules import ColumnPolicy

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


def violations(policy: Policy, footer: Footer,
               in_path: Iterable[str] = ()) -> list[Violation]:
    """Return what the policy, which must be that for the file's path, does not allow in a file.

    ``in_path`` are the columns whose values are in the path. Without keys, the names of master keys
    are those that the file claims.
    """
    columns = policy.of_leaves(footer.columns)
    found = list(footer_violations(policy, footer, columns))
    for leaf, column in zip(footer.columns, columns, strict=True):
        chunks = [chunks[leaf.ordinal] for chunks in footer.row_groups]
        found += column_violations(footer, chunks, column)
    for name in in_path:
        if (rule := policy.rule_for_partition(name)) is not None:
            found.append(Violation(UNENCRYPTED, "the values of the column are in the path, which "
                                   f"is not encrypted; the policy requires it: {rule}", name))
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
                        "the statistics of open columns can be read")
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
        yield from _key_violations(footer, footer.key_metadata_of(chunk), column.key, "the column",
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

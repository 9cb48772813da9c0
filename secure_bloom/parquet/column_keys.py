"""Which keys of the columns of a file are available to its reader."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from secure_bloom.errors import NO_KEY, KeyRetrievalError, error_location
from secure_bloom.parquet.footer import Footer
from secure_bloom.parquet.schema import LeafColumn


class ColumnKeys:
    """The keys of the columns of a file. Errors have file, row group and column."""

    def __init__(self, footer: Footer, file: str):
        self._footer, self._file = footer, file

    def check(self, leaves: Iterable[LeafColumn]) -> None:
        """Raise the error of the first unavailable key among some leaf columns."""
        ordinals = [leaf.ordinal for leaf in leaves]
        with error_location(file=self._file):
            for row_group in self._footer.row_groups:
                for ordinal in ordinals:
                    _ = row_group[ordinal].cipher

    def check_names(self, leaves: Iterable[LeafColumn],
                    row_groups: Iterable[int] | None = None) -> None:
        """Check that leaf columns are those that the schema says, in some or all row groups.

        Their own keys authenticate this. Nothing can be read from columns without their key, so
        they are left out. pyarrow does not compare names: who has only the footer key could
        exchange those of two columns.

        Raises AuthenticationError, or KeyRetrievalError if a key is not available for another
        reason than that it is missing or denied.
        """
        ordinals = [leaf.ordinal for leaf in leaves]
        groups = self._footer.row_groups if row_groups is None \
            else map(self._footer.row_groups.__getitem__, row_groups)
        with error_location(file=self._file):
            for chunks in groups:
                for chunk in map(chunks.__getitem__, ordinals):
                    if chunk.encryption == "column key":
                        with suppress(*NO_KEY):
                            chunk.metadata()

    def missing(self, columns: Iterable[str] | None) -> dict[str, KeyRetrievalError]:
        """Return which of some or all (None) top-level columns have a leaf without key, and why.

        Raises KeyRetrievalError if a key is not available for another reason than that it is
        missing or denied.
        """
        found: dict[str, KeyRetrievalError] = {}
        wanted = None if columns is None else set(columns)
        for leaf in self._footer.columns:
            name = leaf.parts[0]
            if name in found or (wanted is not None and name not in wanted):
                continue
            try:
                self.check([leaf])
            except NO_KEY as error:
                found[name] = error
        return found

    def missing_for_metadata(self) -> dict[str, KeyRetrievalError]:
        """Return the leaf columns whose metadata cannot be decrypted, by path, and why."""
        errors: dict[str, KeyRetrievalError] = {}
        for chunk in self._footer.column_chunks():
            try:
                with error_location(file=self._file):
                    _ = chunk.bloom_filter
            except NO_KEY as error:
                errors.setdefault(chunk.column.path, error)
        order = [leaf.path for leaf in self._footer.columns if leaf.path in errors]
        return {path: errors[path] for path in order}

    def that_may_be_missing(self) -> frozenset[str]:
        """Return the top-level columns whose key may be missing. No key is requested."""
        has_footer_key = self._footer.has_encrypted_footer or self._footer.signature_verified
        return frozenset(chunk.column.parts[0] for chunk in self._footer.column_chunks()
                         if chunk.encryption == "column key"
                         or (chunk.encryption is not None and not has_footer_key))

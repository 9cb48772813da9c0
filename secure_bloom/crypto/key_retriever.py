"""The keys that a footer needs, whatever their source."""

from __future__ import annotations

from typing import Protocol


class KeyRetriever(Protocol):
    """The interface through which a footer requests keys.

    Classes that inherit it get what holds for keys of a KMS.
    """

    @property
    def aad_prefix(self) -> bytes | None:
        """The AAD prefix, for files that do not store it."""
        return None

    @property
    def has_footer_key(self) -> bool:
        """False: do not even try to verify the signature of a plaintext footer."""
        return True

    def footer_key(self, key_metadata: bytes | None) -> bytes:
        """Return the footer key; ``key_metadata`` is the file's metadata for it."""

    def column_key(self, path: str, key_metadata: bytes | None) -> bytes:
        """Return the key of the column with this dotted path."""
        return self.footer_key(key_metadata)

    def master_key(self, key_metadata: bytes | None) -> str | None:
        """Return the master key name in the key metadata; None if it contains none.

        A returned name must be verified whenever the key is used.
        """

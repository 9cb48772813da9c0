"""What a footer needs of keys, wherever they come from."""

from __future__ import annotations

from typing import Protocol


class KeyRetriever(Protocol):
    """What a footer asks for keys."""

    @property
    def aad_prefix(self) -> bytes | None:
        """The AAD prefix, for files that do not store it."""

    @property
    def has_footer_key(self) -> bool:
        """False: do not even try to verify the signature of a plaintext footer."""

    def footer_key(self, key_metadata: bytes | None) -> bytes:
        """The footer key; ``key_metadata`` is what the file says about it."""

    def column_key(self, path: str, key_metadata: bytes | None) -> bytes:
        """The key of the column with this dotted path."""

    def master_key(self, key_metadata: bytes | None) -> str | None:
        """The name of the master key that the key metadata names; None where it names none.

        A name that is returned must be confirmed whenever the key is used.
        """

"""The keys a peer gets with a request."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Keys:
    """Explicit keys of one file; a column key of None means the footer key.

    Writing without column keys encrypts every column with the footer key.
    """

    footer_key: bytes | None = None
    column_keys: Mapping[str, bytes | None] = field(default_factory=dict)
    aad_prefix: bytes | None = None
    # reading only
    by_metadata: Mapping[bytes, bytes] = field(default_factory=dict)  # key metadata -> key
    verify_footer: bool = True
    allow_plaintext: bool = False
    # writing only
    footer_key_metadata: bytes | None = None
    column_key_metadata: Mapping[str, bytes] = field(default_factory=dict)
    store_aad_prefix: bool = True
    plaintext_footer: bool = False
    complete_columns: bool = False  # columns without a key of their own get the footer key
    algorithm: str = "AES_GCM_V1"  # or AES_GCM_CTR_V1


@dataclass(frozen=True)
class KeyTools:
    """Master keys by id, and the `parquet.encryption.*` properties, without that prefix."""

    master_keys: Mapping[str, bytes]
    properties: Mapping[str, str] = field(default_factory=dict)

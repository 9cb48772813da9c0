"""Encryption configuration: which keys, for which columns, with which algorithm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from typing import Literal, TypeAlias

import pyarrow.parquet.encryption as pe

from secure_bloom.errors import UnsupportedError
from secure_bloom.keys.cache import LIFETIME
from secure_bloom.keys.kms import check_key
from secure_bloom.parquet.schema import LeafColumn, columns_by_prefix, named_columns

ALGORITHMS = ("AES_GCM_V1", "AES_GCM_CTR_V1")
OTHER_COLUMNS = ("plaintext", "footer key")
_NO_PLAINTEXT_FOOTER = ("pyarrow cannot write a plaintext footer with uniform_encryption; use "
                        "column_keys, or UniformKey(plaintext_footer=True)")


@dataclass(frozen=True)
class UniformKey:
    """A single explicit key for the footer and every column of a file.

    The key encrypts the file directly, without a KMS, and the file stores no information about it:
    read the file with ``ExplicitKeys(footer_key=...)``. Use a new key for every file.

    Parameters
    ----------
    footer_key : bytes
        16, 24 or 32 bytes.
    aad_prefix : bytes, optional
        Binds the file to its identity, such as its table and name, to detect swapped files.
    store_aad_prefix : bool
        Whether the file stores the prefix; if not, the reader must know it.
    plaintext_footer : bool
        Leave the footer readable, signed with the key.
    algorithm : str
        ``AES_GCM_V1``, or ``AES_GCM_CTR_V1`` (pages without authentication; filters have it).
    """

    footer_key: bytes = field(repr=False)
    aad_prefix: bytes | None = None
    store_aad_prefix: bool = True
    plaintext_footer: bool = False
    algorithm: str = "AES_GCM_V1"

    def __post_init__(self) -> None:
        check_key(self.footer_key, "footer_key")
        if self.aad_prefix is not None and not isinstance(self.aad_prefix, bytes):
            raise TypeError(f"aad_prefix must be bytes, not {type(self.aad_prefix).__name__}")
        _check_algorithm(self.algorithm)


@dataclass(frozen=True)
class EncryptionConfiguration:
    """Which master keys encrypt what. Like pyarrow's class of this name, but names may be any text.

    Columns without a key stay open: with ``EncryptionConfiguration("footer", {"pii": ["ssn"]})``,
    everyone who has the file can read its other columns, though not their names::

        ssn: pages, filters      encrypted with a key under "pii"
        city: pages, filters     open to everyone
        footer: names, places,   encrypted with a key under "footer"
        statistics of city

    Parameters
    ----------
    footer_key : str
        Name of the master key for the footer.
    column_keys : mapping of str to sequence of str, optional
        Maps the name of a master key to the dotted paths of its leaf columns, or of groups, which
        stand for all columns in them. A column's path takes precedence over its group's.
    uniform_encryption : bool
        Encrypt every column with the footer key.
    other_columns : {"plaintext", "footer key"}
        What happens to columns that are not in ``column_keys``. "footer key": each is encrypted
        with a key of its own under the master key of the footer, so that whoever may use that
        master key can read them, and nobody else.
    plaintext_footer : bool
        Leave the footer readable, signed with the footer key.
    encryption_algorithm : str
        ``AES_GCM_V1``, or ``AES_GCM_CTR_V1`` (pages without authentication; filters have it).
    double_wrapping : bool
        Use key-encryption keys between data keys and master keys, which saves calls to the KMS.
    data_key_length_bits : int
        128, 192 or 256.
    internal_key_material : bool
        If False, the key material is stored in a file next to the Parquet file.
    cache_lifetime : float or timedelta
        Seconds for which a key-encryption key is used for new files.
    """

    footer_key: str
    column_keys: Mapping[str, Sequence[str]] | None = None
    _: KW_ONLY
    uniform_encryption: bool = False
    other_columns: Literal["plaintext", "footer key"] = "plaintext"
    plaintext_footer: bool = False
    encryption_algorithm: str = "AES_GCM_V1"
    double_wrapping: bool = True
    data_key_length_bits: int = 128
    internal_key_material: bool = True
    cache_lifetime: float | timedelta = LIFETIME

    def __post_init__(self) -> None:
        _check_name(self.footer_key)
        _check_algorithm(self.encryption_algorithm)
        if self.data_key_length_bits not in (128, 192, 256):
            raise ValueError("data_key_length_bits must be 128, 192 or 256, "
                             f"not {self.data_key_length_bits!r}")
        if bool(self.column_keys) == self.uniform_encryption:
            raise ValueError("specify either column_keys or uniform_encryption=True")
        if self.other_columns not in OTHER_COLUMNS:
            raise ValueError(f"other_columns must be one of {', '.join(OTHER_COLUMNS)}, not "
                             f"{self.other_columns!r}")
        if self.uniform_encryption and self.other_columns != "plaintext":
            raise ValueError("uniform_encryption encrypts every column: leave out other_columns")
        if self.uniform_encryption and self.plaintext_footer:
            raise UnsupportedError(_NO_PLAINTEXT_FOOTER)
        _check_columns(self.column_keys or {})


Encryption: TypeAlias = EncryptionConfiguration | UniformKey


def confuses_pyarrow(path: str) -> bool:
    """Whether pyarrow would split or strip the path, which it passes on in one text with others."""
    return any(character in path for character in ":;,") or path != path.strip()


def from_pyarrow(encryption: pe.EncryptionConfiguration) -> EncryptionConfiguration:
    """Convert pyarrow's configuration to that of secure_bloom."""
    try:
        column_keys = encryption.column_keys
    except ValueError:  # pyarrow's way to say that there are none
        column_keys = None
    names = ("footer_key", "uniform_encryption", "plaintext_footer", "encryption_algorithm",
             "double_wrapping", "data_key_length_bits", "internal_key_material", "cache_lifetime")
    return EncryptionConfiguration(column_keys=column_keys, **{
        name: getattr(encryption, name) for name in names})


def master_keys_by_leaf(encryption: Encryption | None, leaves: Sequence[LeafColumn]) \
        -> dict[int, str | None]:
    """Map the ordinals of the encrypted columns to their master keys; None for explicit keys."""
    if encryption is None:
        return {}
    if isinstance(encryption, UniformKey):
        return dict.fromkeys((leaf.ordinal for leaf in leaves), None)
    if encryption.uniform_encryption:
        return dict.fromkeys((leaf.ordinal for leaf in leaves), encryption.footer_key)
    keys_by_path = {path: key for key, paths in (encryption.column_keys or {}).items()
                    for path in paths}
    by_prefix = columns_by_prefix(leaves)
    return {leaf.ordinal: keys_by_path[path] for path in sorted(keys_by_path, key=len)
            for leaf in named_columns(by_prefix.get(path, ()), path)}


def as_configuration(encryption: object) -> EncryptionConfiguration:
    """Return a configuration of secure_bloom or of pyarrow as ours; raise TypeError otherwise."""
    if isinstance(encryption, pe.EncryptionConfiguration):
        return from_pyarrow(encryption)
    if not isinstance(encryption, EncryptionConfiguration):
        raise TypeError("encryption must be an EncryptionConfiguration, not "
                        f"{type(encryption).__name__}")
    return encryption


def _check_name(master_key: str) -> None:
    if not isinstance(master_key, str) or not master_key:
        raise ValueError("the name of a master key must be a non-empty string")


def _check_algorithm(algorithm: str) -> None:
    if algorithm not in ALGORITHMS:
        raise ValueError(f"algorithm must be one of {', '.join(ALGORITHMS)}, not {algorithm!r}")


def _check_columns(column_keys: Mapping[str, Sequence[str]]) -> None:
    seen: set[str] = set()
    for name, columns in column_keys.items():
        _check_name(name)
        if isinstance(columns, str) or not columns:
            raise ValueError(f"column_keys[{name!r}] must be a list of column paths")
        for column in columns:
            if column in seen:
                raise ValueError(f"column {column!r} has two keys")
            if confuses_pyarrow(column):
                raise UnsupportedError("pyarrow cannot encrypt this column with its own key, "
                                       "because of punctuation or spaces in its name; rename it, "
                                       "or use uniform_encryption", column=column)
            seen.add(column)

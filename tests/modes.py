"""The ways in which secure_bloom writes a file, with the keys for its own reader and the peers.

Keys and their names are those of the parquet-testing files. Not all combinations of options are
covered, but all pairs of values of any two options.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyarrow.parquet.encryption import EncryptionConfiguration

import secure_bloom
from secure_bloom import ExplicitKeys, ParquetFile, UniformKey
from secure_bloom.keys import InMemoryKms
from secure_bloom.keys.retrieval import KmsKeys
from tests.peers.keys import Keys, KeyTools

MASTER_KEYS = {"kf": b"0123456789012345", "kc1": b"1234567890123450", "kc2": b"1234567890123451"}
DATA_KEYS = {bits: (MASTER_KEYS["kf"] * 2)[:bits // 8] for bits in (128, 192, 256)}
AAD_PREFIX = b"tester"


@dataclass(frozen=True)
class Mode:
    """One way to write a file.

    Attributes
    ----------
    options : dict or None
        None: no encryption. With ``footer_key``, the arguments of :class:`UniformKey`; otherwise
        those of an EncryptionConfiguration, to which column keys are added.
    """

    name: str
    options: dict | None = None

    @property
    def is_encrypted(self) -> bool:
        return self.options is not None

    @property
    def uses_kms(self) -> bool:
        return self.is_encrypted and "footer_key" not in self.options

    @property
    def is_uniform(self) -> bool:
        """Whether every column is encrypted, with the footer key."""
        return self.is_encrypted and (not self.uses_kms
                                      or self.options.get("uniform_encryption", False))

    @property
    def plaintext_footer(self) -> bool:
        return self.is_encrypted and self.options.get("plaintext_footer", False)

    def write(self, table, where, column_keys, **options) -> None:
        """Write a table; ``column_keys`` maps master keys to columns, if the mode has any."""
        encryption = None
        if self.uses_kms:
            columns = {} if self.is_uniform else {"column_keys": column_keys}
            encryption = EncryptionConfiguration("kf", **columns, **self.options)
        elif self.is_encrypted:
            encryption = UniformKey(**self.options)
        secure_bloom.write_table(table, where, encryption=encryption,
                                 keys=InMemoryKms(MASTER_KEYS) if self.uses_kms else None,
                                 **options)

    @property
    def keys(self) -> InMemoryKms | ExplicitKeys | None:
        """The keys for our reader."""
        if self.uses_kms:
            return InMemoryKms(MASTER_KEYS)
        if self.is_encrypted:
            return ExplicitKeys(self.options["footer_key"],
                                aad_prefix=self.options.get("aad_prefix"))
        return None

    @property
    def java_keys(self) -> Keys | KeyTools | None:
        """The keys for parquet-java."""
        if self.uses_kms:
            return KeyTools(MASTER_KEYS)
        if self.is_encrypted:
            return Keys(self.options["footer_key"], aad_prefix=self.options.get("aad_prefix"))
        return None

    def explicit_keys(self, path) -> Keys | None:
        """Return the data keys, for a reader without a KMS, such as Arrow C++ as a peer."""
        if not self.uses_kms:
            return self.java_keys
        footer = ParquetFile(path, self.keys).footer
        keys = KmsKeys(self.keys)
        return Keys(keys.footer_key(footer.footer_key_metadata),
                    {chunk.column.path: keys.column_key(chunk.column.path, chunk.key_metadata)
                     for chunk in footer.row_groups[0] if chunk.encryption == "column key"})

    def __str__(self) -> str:
        return self.name


CTR = {"encryption_algorithm": "AES_GCM_CTR_V1"}
SINGLE = {"double_wrapping": False}
SIGNED = {"plaintext_footer": True}
UNIFORM = {"uniform_encryption": True}


def _bits(bits: int) -> dict:
    return {"data_key_length_bits": bits}


def _key(bits: int, prefix=None, **options) -> dict:
    """Return arguments of UniformKey; the AAD prefix is absent (None), stored or supplied."""
    if prefix:
        options |= {"aad_prefix": AAD_PREFIX, "store_aad_prefix": prefix == "stored"}
    return {"footer_key": DATA_KEYS[bits], **options}


_KEY_CTR = {"algorithm": "AES_GCM_CTR_V1"}

PLAINTEXT = Mode("plaintext")
ENCRYPTED = [Mode(name, options) for name, options in {
    "columns double gcm 128": _bits(128),
    "columns single gcm 256": SINGLE | _bits(256),
    "columns double ctr 128": CTR | _bits(128),
    "columns single ctr 192": SINGLE | CTR | _bits(192),
    "signed columns single gcm 128": SIGNED | SINGLE | _bits(128),
    "signed columns double gcm 192": SIGNED | _bits(192),
    "signed columns double ctr 256": SIGNED | CTR | _bits(256),
    "uniform double gcm 128": UNIFORM | _bits(128),
    "uniform single ctr 256": UNIFORM | SINGLE | CTR | _bits(256),
    "key gcm 128": _key(128),
    "key ctr 256": _key(256, **_KEY_CTR),
    "key stored prefix gcm 192": _key(192, "stored"),
    "key stored prefix ctr 128": _key(128, "stored", **_KEY_CTR),
    "key supplied prefix gcm 192": _key(192, "supplied"),
    "signed key ctr 192": _key(192, **SIGNED, **_KEY_CTR),
    "signed key stored prefix gcm 256": _key(256, "stored", **SIGNED),
    "signed key supplied prefix gcm 128": _key(128, "supplied", **SIGNED),
    "signed key supplied prefix ctr 256": _key(256, "supplied", **SIGNED, **_KEY_CTR),
}.items()]
MODES = [PLAINTEXT, *ENCRYPTED]


def mode(name: str) -> Mode:
    """Return the mode with this name."""
    return next(mode for mode in MODES if mode.name == name)

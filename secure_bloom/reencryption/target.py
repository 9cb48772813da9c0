"""How the new version of a file is encrypted: its algorithm, its keys, and which columns."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from secure_bloom.arrow.encrypted_columns import resolve_columns
from secure_bloom.arrow.encryption import wrapper_for
from secure_bloom.display import names
from secure_bloom.encryption import EncryptionConfiguration, master_keys_by_leaf
from secure_bloom.errors import ColumnError, KeyRetrievalError, UnsupportedError
from secure_bloom.keys.cache import LIFETIME, CachedKms
from secure_bloom.keys.material import KeyMaterial, key_references
from secure_bloom.keys.new_keys import DataKeyWrapper, NewKeys
from secure_bloom.keys.retrieval import KmsKeys
from secure_bloom.maintain.change import leaks
from secure_bloom.parquet.file_crypto import EncryptionAlgorithm, FileCrypto
from secure_bloom.parquet.footer import Footer
from secure_bloom.parquet.redaction import revealed_fields
from secure_bloom.parquet.schema import LeafColumn, columns_by_prefix, named_columns
from secure_bloom.reading.open_file import OpenFile

#: to which master key another one changes, by name
NewMasterKeys = Mapping[str, str]


class OfColumn(NamedTuple):
    """How a column is encrypted: with the footer key, or with its own under a master key."""

    by: Literal["footer key", "column key"]
    key_metadata: bytes | None = None
    master_key: str | None = None


@dataclass(frozen=True)
class Target:
    """How the new version of a file is encrypted.

    Attributes
    ----------
    crypto : FileCrypto
    columns : mapping of int to OfColumn
        By ordinal. The others are in plaintext.
    footer_key : str or None
        The master key; None in a plaintext file.
    external_material : dict or None
        Key material for a file next to this one, by name.
    """

    crypto: FileCrypto
    columns: Mapping[int, OfColumn] = field(default_factory=dict)
    footer_key: str | None = None
    external_material: Mapping[str, str] | None = None

    def master_keys(self) -> set[str]:
        """Return the names of all master keys."""
        found = {self.footer_key, *(one.master_key for one in self.columns.values())}
        return {name for name in found if name is not None}


PLAINTEXT = Target(FileCrypto(None, None, None, has_encrypted_footer=False))


def configured(encryption: EncryptionConfiguration, kms: CachedKms, footer: Footer) -> Target:
    """Return the target that a configuration describes.

    An AAD prefix that the file stores stays.

    Raises
    ------
    ColumnError
        If the configuration names a column that the file does not have.
    KeyRetrievalError
        If a master key cannot be used.
    """
    wrapper = wrapper_for(encryption, kms)
    keys, num_bytes = NewKeys(wrapper), encryption.data_key_length_bits // 8
    footer_key = keys.make(encryption.footer_key, num_bytes, is_footer_key=True)
    columns = {
        ordinal: OfColumn("footer key") if encryption.uniform_encryption
        else OfColumn("column key", keys.make(name, num_bytes), name)
        for ordinal, name in wanted_keys(encryption, footer.columns).items()}
    old = footer.algorithm
    algorithm = EncryptionAlgorithm.new(encryption.encryption_algorithm,
                                        None if old is None else old.aad_prefix)
    crypto = FileCrypto(keys, algorithm, footer_key,
                        has_encrypted_footer=not encryption.plaintext_footer)
    return Target(crypto, columns, encryption.footer_key, wrapper.external_material)


def wanted_keys(encryption: EncryptionConfiguration, columns: list[LeafColumn]) -> dict[int, str]:
    """Return the master keys of the columns that a configuration encrypts, by ordinal."""
    found = master_keys_by_leaf(resolve_columns(encryption, columns), columns)
    return {ordinal: name for ordinal, name in found.items() if name is not None}


def conforms(encryption: EncryptionConfiguration, footer: Footer) -> bool:
    """Whether a file is encrypted in this way already. More of its columns may be encrypted."""
    algorithm, crypto = footer.algorithm, footer.crypto
    if algorithm is None or algorithm.name != encryption.encryption_algorithm \
            or footer.has_encrypted_footer == encryption.plaintext_footer \
            or crypto.footer_cipher.key_bits != encryption.data_key_length_bits \
            or crypto.master_key(footer.footer_key_metadata) != encryption.footer_key:
        return False
    wanted = wanted_keys(encryption, footer.columns)
    kind = "footer key" if encryption.uniform_encryption else "column key"
    return all(chunk.encryption == kind and (kind == "footer key" or crypto.master_key(
        chunk.key_metadata) == wanted[chunk.column.ordinal])
        for chunk in footer.column_chunks() if chunk.column.ordinal in wanted)


def reveals(file: OpenFile) -> bool:
    """Whether a filter or the footer shows something of the values of an encrypted column."""
    return any(revealed_fields(chunk) or leaks(file, chunk)
               for chunk in file.footer.column_chunks())


def same(footer: Footer, keys: object, kms: CachedKms, *, to: NewMasterKeys,
         opened: Collection[int] = (), is_internal: bool) -> Target:
    """Return the target with the same structure as a file has, and new data keys.

    Parameters
    ----------
    footer : Footer
        Of the file, which is encrypted.
    keys : KeyRetriever
        Those of the file.
    kms : CachedKms
        Wraps the new keys.
    to : mapping of str to str
        The new master key of each that changes.
    opened : collection of int
        Columns that will be in plaintext, by ordinal.
    is_internal : bool
        Whether the key material will be in the file, wherever it is now.

    Raises
    ------
    UnsupportedError
        If the file has explicit keys, so that no KMS can wrap others in the same way.
    KeyRetrievalError
        If a master key cannot be used.
    """
    material = _material(keys, footer.footer_key_metadata)
    algorithm, num_bytes = footer.algorithm, footer.crypto.footer_cipher.key_bits // 8
    assert algorithm is not None and isinstance(keys, KmsKeys)
    wrapper = DataKeyWrapper(kms, num_bytes=num_bytes, lifetime=LIFETIME, is_internal=is_internal,
                             double_wrapping=material.kek_id is not None)
    new, name = NewKeys(wrapper), to.get(material.master_key_id, material.master_key_id)
    footer_key = new.make(name, num_bytes, is_footer_key=True)
    columns = {ordinal: one if one.master_key is None else one._replace(
                   key_metadata=new.make(to.get(one.master_key, one.master_key), num_bytes),
                   master_key=to.get(one.master_key, one.master_key))
               for ordinal, one in encrypted_columns(footer).items() if ordinal not in opened}
    crypto = FileCrypto(new, EncryptionAlgorithm.new(algorithm.name, algorithm.aad_prefix),
                        footer_key, has_encrypted_footer=footer.has_encrypted_footer)
    return Target(crypto, columns, name, wrapper.external_material)


def _material(keys: object, key_metadata: bytes | None) -> KeyMaterial:
    if not isinstance(keys, KmsKeys) or key_metadata is None:
        raise UnsupportedError("the file was written with explicit keys, which nothing in it "
                               "names: pass encryption, which names master keys")
    return keys.material(key_metadata)


def names_material(footer: Footer) -> bool | None:
    """Whether some key of a file is in key material next to it; None if its keys do not say so."""
    try:
        return not key_references(footer.all_key_metadata()) <= {None}
    except KeyRetrievalError:
        return None


def encrypted_columns(footer: Footer) -> dict[int, OfColumn]:
    """Return how the columns of a file are encrypted, by ordinal; those in plaintext are left out.

    Raises UnsupportedError if a column is encrypted in several ways.
    """
    found: dict[int, OfColumn | None] = {}
    for chunk in footer.column_chunks() if footer.is_encrypted else ():  # decodes all of them
        one = None if chunk.encryption is None else OfColumn("footer key")
        if chunk.encryption == "column key":
            name = footer.crypto.master_key(chunk.key_metadata)
            one = OfColumn("column key", None, name)
        if found.setdefault(chunk.column.ordinal, one) != one:
            raise UnsupportedError("its row groups are encrypted in several ways; write the file "
                                   "again", **chunk.place)
    return {ordinal: one for ordinal, one in found.items() if one is not None}


def named_ordinals(columns: Collection[str], leaves: list[LeafColumn]) -> set[int]:
    """Return the ordinals of the leaf columns that these paths, or groups, name.

    Raises ColumnError if one does not exist.
    """
    by_prefix, found = columns_by_prefix(leaves), set()
    for path in columns:
        named = named_columns(by_prefix.get(path, ()), path)
        if not named:
            raise ColumnError("it does not exist", column=path)
        found |= {leaf.ordinal for leaf in named}
    return found


def check_stays_encrypted(target: Target, footer: Footer) -> None:
    """Refuse a target that would open a column which is encrypted.

    Raises UnsupportedError; only :func:`secure_bloom.decrypt` opens columns.
    """
    opened = [footer.columns[ordinal].path for ordinal in encrypted_columns(footer)
              if ordinal not in target.columns]
    if opened:
        raise UnsupportedError(f"these columns are encrypted, and would be in plaintext: "
                               f"{names(opened)}; name them in the encryption, or in the policy")

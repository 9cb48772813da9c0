"""How encryption is asked for, and the bridge to pyarrow's encryption properties.

pyarrow encrypts and decrypts pages; secure_bloom needs the same keys for filters and footers. So
pyarrow gets a KMS client that remembers what passes through it, and no key is fetched twice.
"""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet.encryption as pe

from secure_bloom.errors import KeyRetrievalError, UnsupportedError
from secure_bloom.files import Source
from secure_bloom.keys.kms import check_key
from secure_bloom.keys.material import KeyMaterial
from secure_bloom.keys.retrieval import ExplicitKeys, KeyRetriever, KmsKeys
from secure_bloom.parquet.footer import TAIL_SIZE, Footer
from secure_bloom.parquet.modules import ModuleCipher

ALGORITHMS = ("AES_GCM_V1", "AES_GCM_CTR_V1")


@dataclass(frozen=True)
class UniformKey:
    """One key, given outright, for the footer and every column of a file.

    The key itself encrypts the file, no KMS is involved, and the file says nothing about it: it
    is read back with ``ExplicitKeys(footer_key=...)``. Use a new key for every file.

    Parameters
    ----------
    footer_key : bytes
        16, 24 or 32 bytes.
    aad_prefix : bytes, optional
        Ties the file to its identity, such as its table and name, against swapped files.
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

    def __post_init__(self):
        check_key(self.footer_key, "footer_key")
        if self.aad_prefix is not None and not isinstance(self.aad_prefix, bytes):
            raise TypeError(f"aad_prefix must be bytes, not {type(self.aad_prefix).__name__}")
        if self.algorithm not in ALGORITHMS:
            raise ValueError(f"algorithm must be one of {', '.join(ALGORITHMS)}, "
                             f"not {self.algorithm!r}")


def encryption_properties(encryption, kms) -> tuple[pe.FileEncryptionProperties | None,
                                                    KeyRetriever | None]:
    """New encryption properties for one file, and the keys that they will use.

    Properties must never serve two files: the files would share key and file id, and modules
    could be swapped between them unseen.
    """
    if encryption is None or isinstance(encryption, UniformKey):
        if kms is not None:
            raise TypeError("kms is for an EncryptionConfiguration, which was not given; the file "
                            "would not be encrypted with its keys")
        if encryption is None:
            return None, None
        properties = pe.create_encryption_properties(
            encryption.footer_key, aad_prefix=encryption.aad_prefix,
            store_aad_prefix=encryption.store_aad_prefix,
            encryption_algorithm=encryption.algorithm,
            plaintext_footer=encryption.plaintext_footer)
        return properties, ExplicitKeys(encryption.footer_key, aad_prefix=encryption.aad_prefix)
    if not isinstance(encryption, pe.EncryptionConfiguration):
        raise TypeError("encryption must be a pyarrow EncryptionConfiguration or a UniformKey, "
                        f"not {type(encryption).__name__}")
    _check_configuration(encryption, kms)
    keys = KmsKeys(kms)
    properties = _factory(keys).file_encryption_properties(pe.KmsConnectionConfig(), encryption)
    return properties, keys


def _check_configuration(encryption: pe.EncryptionConfiguration, kms) -> None:
    if not (hasattr(kms, "wrap_key") and hasattr(kms, "unwrap_key")):
        raise TypeError("an EncryptionConfiguration names master keys: pass kms=, a KmsClient "
                        "such as secure_bloom.keys.Keyring")
    if not encryption.internal_key_material:
        raise UnsupportedError("internal_key_material=False (key material in a file of its own) "
                               "is not supported")
    if encryption.uniform_encryption and encryption.plaintext_footer:
        raise UnsupportedError("pyarrow writes no plaintext footer with uniform_encryption; "
                               "use column_keys, or UniformKey(plaintext_footer=True)")


def decryption_properties(kms) -> pe.FileDecryptionProperties:
    """What pyarrow needs to read the pages of a file whose keys come from a KMS."""
    return _factory(kms).file_decryption_properties(
        pe.KmsConnectionConfig(), pe.DecryptionConfiguration())


def _factory(keys) -> pe.CryptoFactory:
    return pe.CryptoFactory(lambda _: _PyarrowKms(keys))


class _PyarrowKms(pe.KmsClient):
    """Any object with ``wrap_key`` and ``unwrap_key`` as pyarrow wants it."""

    def __init__(self, kms):
        super().__init__()
        self._kms = kms

    def wrap_key(self, key_bytes, master_key_identifier):
        return self._kms.wrap_key(key_bytes, master_key_identifier)

    def unwrap_key(self, wrapped_key, master_key_identifier):
        return self._kms.unwrap_key(wrapped_key, master_key_identifier)


# --- explicit keys for pyarrow -------------------------------------------------------------------

class _KeysByNumber:
    """A KMS for one file as :func:`with_key_material` presents it: a wrapped key is a number."""

    def __init__(self):
        self._keys: list[bytes | KeyRetrievalError] = []

    def add(self, key: bytes | KeyRetrievalError) -> str:
        self._keys.append(key)
        return base64.b64encode(b"%d" % (len(self._keys) - 1)).decode("ascii")

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        key = self._keys[int(base64.b64decode(wrapped_key))]
        if isinstance(key, KeyRetrievalError):
            raise key
        return key


def with_key_material(source: Source, content: bytes, magic: bytes, keys: KeyRetriever) \
        -> tuple[pa.NativeFile, pe.FileDecryptionProperties]:
    """The file as pyarrow can read it with explicit column keys, for which it has no interface.

    pyarrow accepts column keys only by way of key material in the file. So it is shown the same
    bytes with another footer, made in memory: key material in which a key is a number, and the
    AAD prefix stored. The KMS client that comes with it turns the numbers back into the keys.
    """
    footer = Footer(content, magic, keys)
    by_number = _KeysByNumber()

    def material(key, is_footer_key=False) -> bytes:
        return KeyMaterial("explicit", by_number.add(key), is_footer_key=is_footer_key).serialize()

    if keys.has_footer_key:
        footer_key = keys.footer_key(footer.footer_key_metadata)
    else:  # a plaintext footer, whose signature nobody can verify; pyarrow wants one all the same
        footer_key = os.urandom(16)
        footer.footer_cipher = ModuleCipher(footer_key)
    footer.set_footer_key_metadata(material(footer_key, True))
    for chunks in footer.row_groups:
        for chunk in chunks:
            if chunk.encryption == "column key":
                try:
                    key = keys.column_key(chunk.column.path, chunk.key_metadata)
                except KeyRetrievalError as error:
                    key = error
                chunk.set_key_metadata(material(key))
    footer.store_aad_prefix()
    start = source.size - len(content) - TAIL_SIZE
    file = pa.PythonFile(_Spliced(source, start, footer.to_bytes()), mode="r")
    return file, decryption_properties(by_number)


class _Spliced:
    """A file with another end: bytes of ``source`` up to ``start``, then ``tail``."""

    closed = False

    def __init__(self, source: Source, start: int, tail: bytes):
        self._source, self._start, self._tail = source, start, tail
        self._position = 0

    def read(self, size: int = -1) -> bytes:
        end = self._start + len(self._tail)
        size = end - self._position if size < 0 else min(size, end - self._position)
        begin, stop = self._position, self._position + size
        self._position = stop
        data = b""
        if begin < self._start:
            data = self._source.read_at(min(stop, self._start) - begin, begin)
        if stop > self._start:
            data += self._tail[max(begin - self._start, 0):stop - self._start]
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        base = (0, self._position, self._start + len(self._tail))[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True

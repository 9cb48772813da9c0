"""AES-GCM modules of Parquet Modular Encryption.

An encrypted module on disk (Encryption.md, section 5.1 and 5.2):

    length      4 bytes, little-endian: nonce + ciphertext + tag
    nonce      12 bytes, random
    ciphertext  as long as the plaintext
    tag        16 bytes

Its additional authenticated data (section 4.4), which ties it to its place:

    file AAD            AAD prefix (any length, may be empty) + aad_file_unique
    module type         1 byte
    row group ordinal   2 bytes, little-endian; all modules but the footer
    column ordinal      2 bytes, little-endian; likewise; counts leaf columns
    page ordinal        2 bytes, little-endian; data pages and their headers only

Bloom filters use AES-GCM in both algorithms, AES_GCM_V1 and AES_GCM_CTR_V1.
"""

from __future__ import annotations

import hmac
import os
import struct
from enum import IntEnum

import pyarrow as pa
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from secure_bloom.errors import AuthenticationError, KeyExhaustedError
from secure_bloom.keys.kms import KEY_SIZES, MAX_INVOCATIONS

LENGTH_SIZE = 4
NONCE_SIZE = 12
TAG_SIZE = 16
OVERHEAD = LENGTH_SIZE + NONCE_SIZE + TAG_SIZE  #: bytes that a module adds to its plaintext

_MAX_ORDINAL = 2**15 - 1


class ModuleType(IntEnum):
    """Module types of Encryption.md, section 4.4.2."""

    FOOTER = 0
    COLUMN_META_DATA = 1
    DATA_PAGE = 2
    DICTIONARY_PAGE = 3
    DATA_PAGE_HEADER = 4
    DICTIONARY_PAGE_HEADER = 5
    COLUMN_INDEX = 6
    OFFSET_INDEX = 7
    BLOOM_FILTER_HEADER = 8
    BLOOM_FILTER_BITSET = 9


_WITH_PAGE = (ModuleType.DATA_PAGE, ModuleType.DATA_PAGE_HEADER)


def module_aad(file_aad: bytes, module_type: ModuleType, row_group: int | None = None,
               column: int | None = None, page: int | None = None) -> bytes:
    """The additional authenticated data of a module.

    Parameters
    ----------
    file_aad : bytes
        AAD prefix followed by aad_file_unique.
    module_type : ModuleType
    row_group, column : int
        Ordinals, 0 to 32767; for every module but the footer.
    page : int
        Page ordinal; for data pages and data page headers only.

    Raises
    ------
    ValueError
        If an ordinal is missing, superfluous, or does not fit 15 bits.
    """
    ordinals = {"row group": row_group, "column": column, "page": page}
    wanted = set()
    if module_type != ModuleType.FOOTER:
        wanted = {"row group", "column"} | ({"page"} if module_type in _WITH_PAGE else set())
    suffix = bytes([module_type])
    for name, ordinal in ordinals.items():
        if (ordinal is not None) != (name in wanted):
            raise ValueError(f"a {module_type.name} module takes "
                             f"{'a' if name in wanted else 'no'} {name} ordinal")
        if ordinal is None:
            continue
        if not 0 <= ordinal <= _MAX_ORDINAL:
            raise ValueError(f"{name} ordinal {ordinal} does not fit: "
                             f"encrypted files allow 0 to {_MAX_ORDINAL}")
        suffix += struct.pack("<h", ordinal)
    return file_aad + suffix


class ModuleCipher:
    """Encrypts and decrypts the modules of one key.

    Parameters
    ----------
    key : bytes
        AES key of 16, 24 or 32 bytes.

    Attributes
    ----------
    key_bits : int
    """

    def __init__(self, key: bytes):
        if len(key) not in KEY_SIZES:
            raise ValueError(f"an AES key has 16, 24 or 32 bytes, got {len(key)}")
        self.key_bits = len(key) * 8
        self._aes = AESGCM(key)
        self._invocations = 0

    def encrypt(self, plaintext, aad: bytes) -> bytes:
        """A whole module, length first, under a new random nonce."""
        return self._seal(plaintext, aad, os.urandom(NONCE_SIZE))

    def count(self, modules: int) -> None:
        """Take account of modules that this key has to encrypt, or that others encrypt with it.

        Raises
        ------
        KeyExhaustedError
            If they would be more than 2**32, after which a nonce may come twice.
        """
        if self._invocations + modules > MAX_INVOCATIONS:
            raise KeyExhaustedError(f"a key would encrypt more than {MAX_INVOCATIONS} modules; use "
                                    "more keys, or smaller files")
        self._invocations += modules

    def _seal(self, plaintext, aad: bytes, nonce: bytes) -> bytes:
        # Apart from encrypt() so that test vectors can fix the nonce; nothing public can.
        self.count(1)
        sealed = self._aes.encrypt(nonce, plaintext, aad)
        return struct.pack("<I", NONCE_SIZE + len(sealed)) + nonce + sealed

    def decrypt(self, module, aad: bytes) -> bytes:
        """The plaintext of a whole module, length first.

        Raises
        ------
        AuthenticationError
            If the length is not that of the bytes given, or the tag does not match.
        """
        return self.decrypt_buffer(module, aad).to_pybytes()

    def decrypt_buffer(self, module, aad: bytes) -> pa.Buffer:
        """The same in memory of Arrow that nobody else has.

        Arrow uses its memory again: for a filter of a megabyte, fresh pages from the operating
        system would take more time than decryption.
        """
        module = memoryview(module)
        length = module_length(module)
        if length is None or length != len(module):
            raise AuthenticationError("an encrypted module has a wrong length")
        nonce = bytes(module[LENGTH_SIZE:LENGTH_SIZE + NONCE_SIZE])
        plaintext = pa.allocate_buffer(length - OVERHEAD)
        try:
            self._aes.decrypt_into(nonce, module[LENGTH_SIZE + NONCE_SIZE:], aad,
                                   memoryview(plaintext).cast("B"))
        except InvalidTag:
            raise AuthenticationError(
                "an encrypted module does not authenticate; the key and the AAD prefix must be "
                "those it was written with, and the file must be unchanged") from None
        return plaintext

    def sign(self, footer: bytes, aad: bytes) -> bytes:
        """Nonce and tag (28 bytes) that sign a plaintext footer (Encryption.md, section 5.5)."""
        return self._sign(footer, aad, os.urandom(NONCE_SIZE))

    def _sign(self, footer: bytes, aad: bytes, nonce: bytes) -> bytes:
        module = self._seal(footer, aad, nonce)
        return module[LENGTH_SIZE:LENGTH_SIZE + NONCE_SIZE] + module[-TAG_SIZE:]

    def verify(self, footer: bytes, signature: bytes, aad: bytes) -> None:
        """Check the signature of a plaintext footer.

        Raises
        ------
        AuthenticationError
            If the signature is not that of these bytes under this key.
        """
        nonce, tag = signature[:NONCE_SIZE], signature[NONCE_SIZE:]
        # GCM decryption needs the ciphertext, which is not stored: encrypt again, compare the tag.
        if len(tag) != TAG_SIZE or not hmac.compare_digest(
                tag, self._aes.encrypt(nonce, footer, aad)[-TAG_SIZE:]):
            raise AuthenticationError("the footer signature does not match")


def module_length(module) -> int | None:
    """The length in bytes of the module that starts here, or None where it cannot be one."""
    if len(module) < LENGTH_SIZE:
        return None
    length = LENGTH_SIZE + int.from_bytes(module[:LENGTH_SIZE], "little")
    return length if length >= OVERHEAD else None

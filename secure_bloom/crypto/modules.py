"""AES-GCM modules of Parquet Modular Encryption.

An encrypted module on disk (Encryption.md, sections 5.1 and 5.2):

    length      4 bytes, little-endian: nonce + ciphertext + tag
    nonce      12 bytes, random
    ciphertext  the same length as the plaintext
    tag        16 bytes

Bloom filters use AES-GCM in both algorithms, AES_GCM_V1 and AES_GCM_CTR_V1.
"""

from __future__ import annotations

import hmac
import os
import struct
from typing import TypeAlias

import pyarrow as pa
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from secure_bloom.crypto.aes_gcm import KEY_SIZES, NONCE_SIZE, TAG_SIZE
from secure_bloom.crypto.aes_gcm import MAX_INVOCATIONS as MAX_INVOCATIONS
from secure_bloom.errors import AuthenticationError, KeyExhaustedError

LENGTH_SIZE = 4
_FIRST_COUNTER = b"\0\0\0\x01"  # of AES-CTR, after the nonce
OVERHEAD = LENGTH_SIZE + NONCE_SIZE + TAG_SIZE  #: bytes that a module adds to its plaintext

_NOT_AUTHENTIC = ("an encrypted module does not authenticate: the key or the AAD prefix is wrong, "
                  "or the file was changed")

Bytes: TypeAlias = bytes | bytearray | memoryview


class ModuleCipher:
    """Encrypts and decrypts the modules of one AES key, of 16, 24 or 32 bytes."""

    def __init__(self, key: bytes):
        if len(key) not in KEY_SIZES:
            raise ValueError(f"an AES key must have 16, 24 or 32 bytes, got {len(key)}")
        self.key_bits = len(key) * 8
        self._aes, self._key = AESGCM(key), key
        self._invocations = 0

    def encrypt(self, plaintext: Bytes, aad: bytes) -> bytes:
        """Return a whole module, starting with its length, under a new random nonce."""
        return self._seal(plaintext, aad, os.urandom(NONCE_SIZE))

    def encrypt_page(self, page: Bytes) -> bytes:
        """Return the module of a page in AES_GCM_CTR_V1: encrypted, but not authenticated.

        Encryption.md, section 5.1.2: length (4 bytes), nonce (12 bytes), ciphertext.
        """
        self.count(1)
        nonce = os.urandom(NONCE_SIZE)
        ctr = Cipher(algorithms.AES(self._key), modes.CTR(nonce + _FIRST_COUNTER)).encryptor()
        return struct.pack("<I", NONCE_SIZE + len(page)) + nonce + ctr.update(page)

    def decrypt_page(self, module: Bytes) -> bytes:
        """Decrypt the module of a page that :meth:`encrypt_page` has encrypted.

        Raises AuthenticationError if its length does not match; no other change is detected.
        """
        data = memoryview(module)
        if len(data) < LENGTH_SIZE + NONCE_SIZE \
                or int.from_bytes(data[:LENGTH_SIZE], "little") != len(data) - LENGTH_SIZE:
            raise AuthenticationError("an encrypted module has an invalid length")
        nonce = bytes(data[LENGTH_SIZE:LENGTH_SIZE + NONCE_SIZE])
        ctr = Cipher(algorithms.AES(self._key), modes.CTR(nonce + _FIRST_COUNTER)).decryptor()
        return ctr.update(data[LENGTH_SIZE + NONCE_SIZE:])

    def count(self, modules: int) -> None:
        """Count modules that this key has to encrypt, or that another writer encrypts with it.

        Raises KeyExhaustedError if the total would exceed 2**32, after which a nonce may repeat.
        """
        if self._invocations + modules > MAX_INVOCATIONS:
            raise KeyExhaustedError(f"a key would encrypt more than {MAX_INVOCATIONS} modules; use "
                                    "more keys, or smaller files")
        self._invocations += modules

    def _seal(self, plaintext: Bytes, aad: bytes, nonce: bytes) -> bytes:
        # Separate from encrypt() so that test vectors can fix the nonce; no public call can.
        self.count(1)
        sealed = self._aes.encrypt(nonce, plaintext, aad)
        return struct.pack("<I", NONCE_SIZE + len(sealed)) + nonce + sealed

    def decrypt(self, module: Bytes, aad: bytes) -> bytes:
        """Decrypt a whole module, starting with its length, and return the plaintext.

        Raises AuthenticationError if the length does not match the bytes passed, or the tag does
        not match.
        """
        sealed = _sealed(module)
        try:
            return self._aes.decrypt(sealed[:NONCE_SIZE], sealed[NONCE_SIZE:], aad)
        except InvalidTag:
            raise AuthenticationError(_NOT_AUTHENTIC) from None

    def decrypt_buffer(self, module: Bytes, aad: bytes) -> pa.Buffer:
        """Decrypt as :meth:`decrypt`, into Arrow memory that nothing else uses.

        Arrow reuses its memory: for a filter of a megabyte, fresh pages from the operating system
        would take more time than decryption.
        """
        sealed = _sealed(module)
        plaintext = pa.allocate_buffer(len(module) - OVERHEAD)
        self._decrypt_into(sealed, aad, memoryview(plaintext).cast("B"))
        return plaintext

    def decrypt_into(self, module: Bytes, aad: bytes, target: memoryview) -> None:
        """Decrypt as :meth:`decrypt`, into memory of the caller: OVERHEAD bytes fewer."""
        self._decrypt_into(_sealed(module), aad, target)

    def _decrypt_into(self, sealed: memoryview, aad: bytes, target: memoryview) -> None:
        try:
            self._aes.decrypt_into(sealed[:NONCE_SIZE], sealed[NONCE_SIZE:], aad, target)
        except InvalidTag:
            raise AuthenticationError(_NOT_AUTHENTIC) from None

    def sign(self, footer: bytes, aad: bytes) -> bytes:
        """Return the nonce and tag (28 bytes) that sign a plaintext footer.

        See Encryption.md, section 5.5.
        """
        return self._sign(footer, aad, os.urandom(NONCE_SIZE))

    def _sign(self, footer: bytes, aad: bytes, nonce: bytes) -> bytes:
        module = self._seal(footer, aad, nonce)
        return module[LENGTH_SIZE:LENGTH_SIZE + NONCE_SIZE] + module[-TAG_SIZE:]

    def verify(self, footer: Bytes, signature: bytes, aad: bytes) -> None:
        """Check the signature of a plaintext footer.

        Raises
        ------
        AuthenticationError
            If the signature does not match these bytes and this key.
        """
        nonce, tag = signature[:NONCE_SIZE], signature[NONCE_SIZE:]
        # GCM decryption needs the ciphertext, which is not stored: encrypt again, compare the tag.
        if len(tag) != TAG_SIZE or not hmac.compare_digest(
                tag, self._aes.encrypt(nonce, footer, aad)[-TAG_SIZE:]):
            raise AuthenticationError("the footer signature does not match")


def _sealed(module: Bytes) -> memoryview:
    """Return nonce, ciphertext and tag of a whole module."""
    if module_length(module) != len(module):
        raise AuthenticationError("an encrypted module has an invalid length")
    return memoryview(module)[LENGTH_SIZE:]


def module_length(module: Bytes) -> int | None:
    """Return the length in bytes of the module that starts here; None if it is invalid."""
    if len(module) < LENGTH_SIZE:
        return None
    length = LENGTH_SIZE + int.from_bytes(module[:LENGTH_SIZE], "little")
    return length if length >= OVERHEAD else None
